"""Options of `logshipper run`, and the parser of all commands."""

import argparse
import os
import sys
from typing import NoReturn

from logshipper import optin
from logshipper.start.run_arguments import USAGE_CODE, RunArguments

_USAGE = "logshipper run [OPTION...] -- CMD ARG..."
_EPILOG = """CMD runs as it would without logshipper: same output, exit code and signals. Lines of JSON that it
prints become metadata (tables, graphs), all else becomes the log, as a terminal would show it.

exit codes: CMD's own; 125 logshipper itself failed, 126 CMD can't be run, 127 there is no CMD.

examples:
  logshipper run -- python train.py --lr 0.1
  logshipper run --name baseline -- ./job.sh > out.txt
  logshipper run --mode metadata -- python train.py    log JSON lines only
  logshipper run --no-context -- ./job.sh --pin 1234   the command line isn't recorded
  logshipper run --telegraf-port 8092 -- python train.py   take what it sends to Telegraf, too
  logshipper run --notify file:~/.notify -- ./job.sh   a message to the addresses in this file
  logshipper run --if-opted-in -- CMD                  in a wrapper: only where ~/.logoptin is
"""


class OptionParser(argparse.ArgumentParser):
    """argparse with another code for wrong usage. usage_code: set before parsing."""

    usage_code = 2

    def error(self, message: str) -> NoReturn:
        if self.usage_code == USAGE_CODE:
            optin.say(f"{self.prog}: {message}\ntry `{self.prog} --help`")
            sys.exit(self.usage_code)
        self.exit(self.usage_code, f"{self.prog}: {message}\ntry `{self.prog} --help`\n")


def parse_run(options: list[str], arguments: RunArguments) -> None:
    """Fill arguments by options of `logshipper run`. Raises SystemExit: 125 for wrong ones, 0 after
    --help."""
    parser = OptionParser(prog="logshipper run")
    parser.usage_code = USAGE_CODE
    add_run_options(parser)
    try:
        try:
            parser.parse_args(options, arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # the reader of the help may have gone
    except BrokenPipeError:
        sys.exit(end_silently())


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = _USAGE
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
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
        "--notify",
        metavar="TARGET",
        action="append",
        help="send a message when CMD ends or fails, nears its time limit, prints NaN or falls silent: desktop, "
        "cmd:COMMAND, file:PATH, env:NAME or an address of Apprise; may be repeated",
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


def end_silently() -> int:
    """End after the loss of standard output's reader, as with `| head`, without a flush."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    return 141  # a shell's code for SIGPIPE
