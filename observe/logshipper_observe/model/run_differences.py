"""Differences between listed runs of one name, from their recorded starts. Pure."""

from collections.abc import Mapping, Sequence

from logshipper_observe.model.command_arguments import (
    FLAG_VALUE,
    Arguments,
    split_arguments,
    words_of,
)
from logshipper_observe.model.records import text_of

OPTIONS = (
    "command", "cwd", "git.commit", "git.branch", "git.dirty", "python.version", "python.prefix",
)  # fmt: skip
_COMMIT_CHARS = 7
_VALUE_CHARS = 20
_NO_COMMAND = Arguments({}, [])
Options = Mapping[str, str]  # JSON texts


def run_differences(names: Sequence[str], options: Sequence[Options]) -> list[dict[str, str]]:
    """Return, for each job, those of OPTIONS, as JSON texts, that differ among jobs of its name
    with a known start."""
    differences = []
    for name, own in zip(names, options, strict=True):
        others = [peer for peer_name, peer in zip(names, options, strict=True) if peer_name == name]
        others = [peer for peer in others if peer]
        differences.append(
            {
                option: own[option]
                for option in OPTIONS
                if option in own and any(peer.get(option) != own[option] for peer in others)
            }
        )
    return differences


def difference_words(differences: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Each job's differences in a few words: first the options of its command line, then other
    words of it, folder, git and Python."""
    commands = [_command(own) for own in differences]
    words = []
    for name, own, command in zip(names, differences, commands, strict=True):
        peers = [peer for peer_name, peer in zip(names, commands, strict=True)
                 if peer_name == name and peer != _NO_COMMAND]  # fmt: skip
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
    return (
        split_arguments(words_of(text_of(options["command"])))
        if "command" in options
        else _NO_COMMAND
    )


def _own_options(command: Arguments, peers: Sequence[Arguments]) -> list[str]:
    """Return options with different values, those with the most values first; of options that some
    jobs lack, the rare ones."""
    value_counts = {}
    for name, value in command.values.items():
        texts = [peer.values[name] for peer in peers if name in peer.values]
        if len(set(texts)) > 1 or 2 * texts.count(value) <= len(peers):
            value_counts[name] = len(set(texts))
    return [
        _option(name, command.values[name])
        for name in sorted(value_counts, key=lambda name: -value_counts[name])
    ]


def _option(name: str, value: str) -> str:
    if len(value) > _VALUE_CHARS:
        value = f"…{value[1 - _VALUE_CHARS :]}"  # paths differ at their ends
    if not name.startswith("-"):
        return f"{name}={value}"
    return name if value == FLAG_VALUE else f"{name} {value}"


def _own_words(command: Arguments, peers: Sequence[Arguments]) -> list[str]:
    """Return words that most of the jobs lack."""
    return [
        word
        for word in command.words
        if 2 * sum(word in peer.words for peer in peers) <= len(peers)
    ]
