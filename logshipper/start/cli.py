"""The command line of `logshipper`. It imports only the named command's module, with options and
call; `run` comes here only with options (logshipper/start/run_command.py)."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NoReturn

from logshipper import __version__
from logshipper.errors import LogshipperError, UsageError
from logshipper.safe_text import safe_lines
from logshipper.start import run_command
from logshipper.start.run_options import OptionParser, add_run_options, end_silently

_CALLED_ELSEWHERE = {
    "follow": "monitor", "tail": "logs", "cat": "logs", "console": "logs", "view": "show", "list": "ls",
    "delete": "rm", "remove": "rm", "compare": "diff", "queue": "allocations",
    "search": "grep", "rg": "grep",
}  # fmt: skip

_GROUPS = {  # of `--help`
    "most used": "run ls show logs plot open monitor import",
    "capture": "check",
    "read": "info status metadata events render",
    "find": "grep",
    "compare and plot": "diff analyze allocations",
    "move": "export",
    "manage": "tag annotate rm wait serve url completion",
}
_EPILOG = """examples:
  logshipper run -- python train.py      capture a run; the output stays what it is
  logshipper show last                   how it went, what was logged, which X axis
  logshipper logs last --follow          the log, live
  logshipper plot last                   graphs of the numbers that it printed as JSON lines
  touch ~/.logoptin; logshipper check    opt in on a cluster, and see what that means
"""


class _GroupedHelp(argparse.RawDescriptionHelpFormatter):
    """Shows commands by group."""

    def _format_action(self, action: argparse.Action) -> str:
        format_row = super()._format_action
        if not isinstance(action, argparse._SubParsersAction):
            return format_row(action)
        rows = {row.dest: format_row(row) for row in action._get_subactions()}
        return "\n".join(
            f"{group}:\n" + "".join(rows.pop(name) for name in names.split())
            for group, names in _GROUPS.items()
        )


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line (sys.argv's by default); returns the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    if words[:1] == ["run"]:
        return run_command.main(words[1:])
    try:
        return _main(words)
    except LogshipperError as error:
        print(safe_lines(f"logshipper: {error}"), file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return end_silently()


def _main(words: list[str]) -> int:
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        words_of_line = re.findall(r"\w+", os.environ.get("COMP_LINE", ""))
        argcomplete.autocomplete(build_parser(words_of_line))
    table = _table()
    parser = build_parser([word for word in words if word in table][:1])
    commands = _commands(parser)
    try:
        _check_command(parser, words, commands)
        arguments, unknown = parser.parse_known_args(words)
    except SystemExit:
        if sys.stdout is not None:
            sys.stdout.flush()  # the reader of the help may have gone
        raise
    if unknown:
        command = next((commands[word] for word in words if word in commands), parser)
        if not _take_words(command, arguments, unknown):
            _refuse_words(command, unknown)
    return int(arguments.call(arguments))


def build_parser(names: Container[str] | None = None) -> argparse.ArgumentParser:
    """Build the command line. names: commands with their options; the others have name and summary
    only; None: all commands."""
    parser = OptionParser(
        prog="logshipper",
        description="See what your job prints: live, rendered, searchable and plotted, without touching its code.",
        epilog=_EPILOG,
        formatter_class=_GroupedHelp,
    )
    parser.add_argument("--version", action="version", version=f"logshipper {__version__}")
    commands = parser.add_subparsers(
        title=argparse.SUPPRESS, metavar="COMMAND", required=True, parser_class=OptionParser
    )
    for name, (summary, add_options) in _table().items():
        is_named = names is None or name in names
        command = commands.add_parser(name, help=summary, add_help=is_named)
        if is_named:
            add_options(command)
    return parser


def _table() -> dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]:
    """Return each command's summary, and the function that adds its options."""
    from logshipper_observe.commands.cli import COMMANDS

    return {
        "run": ("run a command and capture what it prints", add_run_options),
        "check": ("what your ~/.logoptin means, or what is wrong with it", _add_check),
        **{name: (command.summary, command.add_options) for name, command in COMMANDS.items()},
    }


def _add_check(parser: argparse.ArgumentParser) -> None:
    from logshipper.start import check

    check.add_options(parser)
    parser.set_defaults(call=check.call)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(commands.choices)


def _take_words(
    command: argparse.ArgumentParser, arguments: argparse.Namespace, unknown: list[str]
) -> bool:
    """Gives a command that takes any number of names also those behind its options: argparse takes
    the words up to the first option for all of them."""
    open_ended = [
        action
        for action in command._actions
        if not action.option_strings and action.nargs in ("*", "+")
    ]
    has_options = any(word.startswith("-") for word in unknown)
    if not open_ended or open_ended[-1].type is not None or has_options:
        return False
    dest = open_ended[-1].dest
    setattr(arguments, dest, [*(getattr(arguments, dest) or ()), *unknown])
    return True


def _refuse_words(parser: argparse.ArgumentParser, unknown: list[str]) -> NoReturn:
    """Refuse unknown options under the command's own name, with a suggestion for mistyped ones."""
    from difflib import get_close_matches

    options = [option for action in parser._actions for option in action.option_strings]
    near = [
        match
        for word in unknown
        for match in get_close_matches(word.partition("=")[0], options, 1, 0.75)
    ]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _check_command(
    parser: argparse.ArgumentParser,
    words: list[str],
    commands: Mapping[str, argparse.ArgumentParser],
) -> None:
    """A wrong command's name gets a suggestion, and so does a command's option before it."""
    from difflib import get_close_matches

    names = list(commands)
    if words and not words[0].startswith("-") and words[0] not in names:
        equivalent = _CALLED_ELSEWHERE.get(words[0])
        near = [equivalent] if equivalent else get_close_matches(words[0], names, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"commands are {', '.join(names)}"
        parser.error(f"there is no command `{words[0]}`; {hint}")
    option = words[0].partition("=")[0] if words and words[0].startswith("-") else ""
    if option and not _has(parser, option):
        name = next((word for word in words[1:] if word in names), "")
        candidates = {name: commands[name]} if name else _commands(build_parser())
        for owner, command in candidates.items():
            if _has(command, option):
                parser.error(
                    f"{option} stands behind a command, as in `{parser.prog} {owner} {option} ...`"
                )
    if not words:
        parser.print_help()
        parser.exit(2)


def _has(parser: argparse.ArgumentParser, option: str) -> bool:
    return any(option in action.option_strings for action in parser._actions)
