"""Keys as people name them on the command line: exact, or with a suggestion. Pure."""

import difflib
from collections.abc import Container, Iterable, Sequence

from logshipper.errors import LogshipperError
from logshipper_ingest.model.metadata_keys import full_name, names_of
from logshipper_observe.base.words import listed


class UnknownKey(LogshipperError):
    """A job has no such key. key: as given; suggestions: similar keys."""

    def __init__(self, key: str, suggestions: Sequence[str], keys: Sequence[str]) -> None:
        self.key = key
        self.suggestions = tuple(suggestions)
        if suggestions:
            hint = f"did you mean {' or '.join(suggestions)}?"
        elif keys:
            hint = f"it has {listed(keys, 12)}"
        else:
            hint = "it has printed no metadata"
        super().__init__(f"this job has no key {key!r}; {hint}")


def unknown_key(key: str, keys: Iterable[str]) -> UnknownKey:
    """Return the error for an unknown key, with similar ones of `keys`."""
    names = sorted(set(keys))
    lower = {name.lower(): name for name in names}
    similar = difflib.get_close_matches(key.lower(), lower)
    return UnknownKey(key, [lower[name] for name in similar], names)


def pick_keys(names: Sequence[str], key_paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the paths of names (`a` or `a.b`), in the given order, each once. Raises UnknownKey."""
    by_name = {name: path for path, name in names_of(key_paths).items()}
    paths: dict[tuple[str, ...], None] = {}
    for name in split_names(names, by_name):
        if name not in by_name:
            raise unknown_key(name, by_name)
        paths[by_name[name]] = None
    return list(paths)


def split_names(texts: Iterable[str], keys: Container[str]) -> list[str]:
    """Keys that are joined by commas, unless a key has that very name."""
    names: list[str] = []
    for text in texts:
        if full_name(text, keys) in keys:
            names.append(full_name(text, keys))
        else:
            parts = filter(None, map(str.strip, text.split(",")))
            names += (full_name(part, keys) for part in parts)
    return names
