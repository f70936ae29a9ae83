"""What tells listed runs of one name apart, as far as it was recorded how they were started. Pure."""

import shlex
from collections.abc import Mapping, Sequence

from logshipper_observe.model.records import text_of

OPTIONS = (
    "command", "cwd", "git.commit", "git.branch", "git.dirty", "python.version", "python.prefix",
)  # fmt: skip
_COMMIT_CHARS = 7
Options = Mapping[str, str]  # JSON texts


def run_differences(names: Sequence[str], options: Sequence[Options]) -> list[dict[str, str]]:
    """Of each job those of OPTIONS, as JSON texts, that aren't the same in all jobs of its name
    whose start is known."""
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
    """Each job's differences in a few words: of its command line what isn't in all of that name."""
    commands = [_command(own) for own in differences]
    words = []
    for name, own, command in zip(names, differences, commands, strict=True):
        peers = [set(peer) for peer_name, peer in zip(names, commands, strict=True)
                 if peer_name == name and peer]  # fmt: skip
        parts = _own_words(command, set.intersection(*peers) if peers else set())
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


def _command(options: Options) -> list[str]:
    text = text_of(options["command"]) if "command" in options else ""
    try:
        return shlex.split(text)
    except ValueError:  # anybody's words
        return text.split()


def _own_words(command: Sequence[str], shared: set[str]) -> list[str]:
    """The words that aren't shared, each behind the option whose value it is."""
    words: list[str] = []
    for before, word in zip(["", *command], command, strict=False):
        if word not in shared:
            is_value = before in shared and before.startswith("-") and not word.startswith("-")
            words += [before, word] if is_value else [word]
    return words
