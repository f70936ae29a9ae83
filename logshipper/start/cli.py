"""The command line of `logshipper`. It imports only the named command's module, with options and
call; `run` comes here only with options (logshipper/start/run_command.py)."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NoReturn

from logshipper import __version__, optin
from logshipper.errors import LogshipperError, UsageError
from logshipper.safe_text import safe_lines
from logshipper.start import run_command

_CALLED_ELSEWHERE = {
    "follow": "monitor", "tail": "logs", "cat": "logs", "console": "logs", "view": "show", "list": "ls",
    "delete": "rm", "remove": "rm", "compare": "diff", "queue": "allocations",
}  # fmt: skip

_EPILOG = """examples:
  logshipper run -- python train.py      capture a run; the output stays what it is
  logshipper show last                   how it went, what was logged, which X axis
  logshipper logs last --follow          the log, live
  logshipper plot last                   graphs of the numbers that it printed as JSON lines
  touch ~/.logoptin; logshipper check    opt in on a cluster, and see what that means
"""

_RUN_USAGE = "logshipper run [OPTION...] -- CMD ARG..."
_RUN_EPILOG = """CMD runs as it would without logshipper: same output, exit code and signals. Lines of JSON that it
prints become metadata (tables, graphs), all else becomes the log, as a terminal would show it.

exit codes: CMD's own; 125 logshipper itself failed, 126 CMD can't be run, 127 there is no CMD.

examples:
  logshipper run -- python train.py --lr 0.1
  logshipper run --name baseline -- ./job.sh > out.txt
  logshipper run --mode metadata -- python train.py    log JSON lines only
  logshipper run --no-context -- ./job.sh --pin 1234   the command line isn't recorded
  logshipper run --telegraf-port 8092 -- python train.py   take what it sends to Telegraf, too
  logshipper run --if-opted-in -- CMD                  in a wrapper: only where ~/.logoptin is
"""


class _Parser(argparse.ArgumentParser):
    """argparse with another code for wrong usage. usage_code: set before parsing."""

    usage_code = 2

    def error(self, message: str) -> NoReturn:
        if self.usage_code == run_command.USAGE_CODE:
            optin.say(f"{self.prog}: {message}\ntry `{self.prog} --help`")
            sys.exit(self.usage_code)
        self.exit(self.usage_code, f"{self.prog}: {message}\ntry `{self.prog} --help`\n")


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
        return _end_silently()


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
    parser = _Parser(
        prog="logshipper",
        description="See what your job prints: live, rendered, searchable and plotted, without touching its code.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"logshipper {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
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
        "run": ("run a command and capture what it prints", _add_run),
        "check": ("what your ~/.logoptin means, or what is wrong with it", _add_check),
        **{name: (command.summary, command.add_options) for name, command in COMMANDS.items()},
    }


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = _RUN_USAGE
    parser.description = "Runs CMD and captures what it prints."
    parser.epilog = _RUN_EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_run_options(parser)


def _add_check(parser: argparse.ArgumentParser) -> None:
    from logshipper.start import check

    check.add_options(parser)
    parser.set_defaults(call=check.call)


def parse_run(options: list[str], arguments: run_command.Arguments) -> None:
    """Fill arguments by options of `logshipper run`. Raises SystemExit: 125 for wrong ones, 0 after
    --help."""
    parser = _Parser(
        prog="logshipper run",
        usage=_RUN_USAGE,
        epilog=_RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_code = run_command.USAGE_CODE
    add_run_options(parser)
    try:
        try:
            parser.parse_args(options, arguments)
        except SystemExit:
            if sys.stdout is not None:
                sys.stdout.flush()  # the reader of the help may have gone
            raise
    except BrokenPipeError:
        sys.exit(_end_silently())


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", help="the job's name (default: CMD's or its script's file name)")
    parser.add_argument(
        "--job-id",
        metavar="ID",
        help="the job's id (default: a new short one); again: its next attempt. A node's agent makes it ID.uUID",
    )
    parser.add_argument(
        "--if-opted-in",
        action="store_true",
        help="for hooks and wrappers: run CMD untouched where ~/.logoptin isn't",
    )
    parser.add_argument(
        "--mode",
        choices=("enabled", "metadata", "disabled"),
        help="log all, only metadata, or nothing until told (default: what ~/.logoptin says, else enabled)",
    )
    parser.add_argument("--no-tty", action="store_true", help="give CMD pipes, not terminals")
    parser.add_argument(
        "--no-context",
        action="store_true",
        help="don't record how CMD was started: its command line, folder, git commit and Python",
    )
    parser.add_argument(
        "--no-mask",
        action="store_true",
        help="keep tokens, keys and other secrets that CMD prints readable in the log",
    )
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="keep the job there (default: $LOGSHIPPER_STORE, else a node's agent, else your data folder)",
    )
    parser.add_argument(
        "--telegraf",
        action="store_true",
        help="take measurements that CMD sends as to Telegraf; LOGSHIPPER_TELEGRAF tells it the address (a free port)",
    )
    parser.add_argument(
        "--telegraf-port",
        metavar="PORT",
        type=_port,
        help="the same at 127.0.0.1:PORT, such as 8092, for code that has Telegraf's port written into it",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="don't name the run on the terminal when it is over",
    )
    parser.add_argument("command", metavar="CMD", nargs="*", help=argparse.SUPPRESS)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return int(text)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (choices,) = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(choices)


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
    if (
        not open_ended
        or open_ended[-1].type is not None
        or any(word.startswith("-") for word in unknown)
    ):
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


def _end_silently() -> int:
    """End after the loss of standard output's reader, as with `| head`, without a flush."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    return 141  # a shell's code for SIGPIPE
