"""Differences between runs in words: recorded starts of listed runs, labels of compared ones. Pure."""

from collections.abc import Mapping, Sequence

from logshipper_observe.base.words import number
from logshipper_observe.model.command_arguments import (
    FLAG_VALUE,
    Arguments,
    split_arguments,
    words_of,
)
from logshipper_observe.model.properties import number_of
from logshipper_observe.model.records import text_of

OPTIONS = (
    "command", "cwd", "git.commit", "git.branch", "git.dirty", "python.version", "python.prefix",
)  # fmt: skip
MAX_PARTS = 4  # of a label
VALUE_CHARS = 24
_COMMIT_CHARS = 7
_VALUE_CHARS = 20
Options = Mapping[str, str]  # JSON texts


def run_differences(names: Sequence[str], options: Sequence[Options]) -> list[dict[str, str]]:
    """Return, for each job, those of OPTIONS, as JSON texts, that differ among jobs of its name
    with a known start."""
    differences = []
    for name, own in zip(names, options, strict=True):
        peers = [peer for peer_name, peer in zip(names, options, strict=True) if peer_name == name]
        differences.append(
            {
                option: own[option]
                for option in OPTIONS
                if option in own and any(peer and peer.get(option) != own[option] for peer in peers)
            }
        )
    return differences


def difference_words(differences: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Each job's differences in a few words: first the options of its command line, then other
    words of it, folder, git and Python."""
    commands = [_command(own) for own in differences]
    words = []
    for name, own, command in zip(names, differences, commands, strict=True):
        jobs = zip(names, commands, strict=True)
        peers = [peer for peer_name, peer in jobs if peer_name == name and any(peer)]
        parts = _own_options(command, peers) + _own_words(command, peers)
        if "cwd" in own:
            parts.append(f"in {text_of(own['cwd'])}")
        if "git.commit" in own:
            parts.append(f"git {text_of(own['git.commit'])[:_COMMIT_CHARS]}")
        elif "git.branch" in own:
            parts.append(f"git {text_of(own['git.branch'])}")
        if own.get("git.dirty") == "true":
            parts.append("with changes")
        if "python.version" in own:
            parts.append(f"Python {text_of(own['python.version'])}")
        elif "python.prefix" in own:
            parts.append(text_of(own["python.prefix"]))
        words.append(" ".join(parts))
    return words


def _command(options: Options) -> Arguments:
    return split_arguments(words_of(text_of(options.get("command", '""'))))


def _own_options(command: Arguments, peers: Sequence[Arguments]) -> list[str]:
    """Return options with different values, those with the most values first; of options that some
    jobs lack, the rare ones."""
    value_counts = {}
    for name, value in command.values.items():
        texts = [peer.values[name] for peer in peers if name in peer.values]
        if len(set(texts)) > 1 or 2 * texts.count(value) <= len(peers):
            value_counts[name] = len(set(texts))
    names = sorted(value_counts, key=value_counts.__getitem__, reverse=True)
    return [_option(name, command.values[name]) for name in names]


def _option(name: str, value: str) -> str:
    if len(value) > _VALUE_CHARS:
        value = f"…{value[1 - _VALUE_CHARS :]}"  # paths differ at their ends
    if not name.startswith("-"):
        return f"{name}={value}"
    return name if value == FLAG_VALUE else f"{name} {value}"


def _own_words(command: Arguments, peers: Sequence[Arguments]) -> list[str]:
    """Return words that most of the jobs lack."""
    counts = {word: sum(word in peer.words for peer in peers) for word in command.words}
    return [word for word in command.words if 2 * counts[word] <= len(peers)]


def run_labels(
    names: Sequence[str], ids: Sequence[str], options: Sequence[Mapping[str, str]]
) -> list[str]:
    """Return the jobs' names if they differ; else the fewest options that tell the jobs apart,
    those with few values first, or ids.

    options: of each job, texts by name, those that are named first come first.
    """
    if len(set(names)) == len(names):
        return list(names)
    parts = [[name] if len(set(names)) > 1 else [] for name in names]
    for option in _dividing(names, options):
        for part, values in zip(parts, options, strict=True):
            if option in values:
                part.append(f"{option}={_short(values[option])}")
    labels = [", ".join(part) or name for part, name in zip(parts, names, strict=True)]
    return [
        f"{label} {job_id}" if labels.count(label) > 1 else label
        for label, job_id in zip(labels, ids, strict=True)
    ]


def _dividing(names: Sequence[str], options: Sequence[Mapping[str, str]]) -> list[str]:
    """Return options of which each tells jobs apart that the earlier ones do not."""
    columns = {
        option: [values.get(option) for values in options]
        for option in dict.fromkeys(option for values in options for option in values)
    }
    groups: list[tuple[str | None, ...]] = [(name,) for name in names]
    chosen: list[str] = []
    for option in sorted(columns, key=lambda option: len(set(columns[option]))):
        finer = [(*group, value) for group, value in zip(groups, columns[option], strict=True)]
        if len(set(finer)) > len(set(groups)) and len(chosen) < MAX_PARTS:
            chosen.append(option)
            groups = finer
    return [option for option in columns if option in chosen]


def _short(text: str) -> str:
    value = number_of(text)
    if isinstance(value, float) and len(text) > 8:
        return number(value)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
