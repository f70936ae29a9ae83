"""Exit codes of the admins' console scripts, and errors as lines with a remedy."""

import argparse
import os
import sys
from collections.abc import Sequence

from logshipper.errors import ConfigError, LogshipperError
from logshipper.safe_text import safe_lines
from logshipper_ingest.console.service_log import write_error


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, or complete it for a shell, and run the command's `call`.

    Returns its exit code; 1 for an error, 2 for wrong usage (argparse), 130 for Ctrl-C, 141 if the
    reader of the output has gone.
    """
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    try:
        options = _parse(parser, arguments)
        return int(options.call(options))
    except ConfigError as error:
        for problem in error.problems:
            write_error(f"{parser.prog}: {error.source}: {problem}")
        return error.exit_code
    except LogshipperError as error:
        write_error(f"{parser.prog}: {error}")
        return 1
    except BrokenPipeError:
        # or Python would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell reports SIGPIPE
    except KeyboardInterrupt:
        return 130


def warn(words: str) -> None:
    """Write a line about the command's work to stderr."""
    sys.stderr.write(safe_lines(f"logshipper-agent: {words}\n"))


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    try:
        return parser.parse_args(arguments)
    except SystemExit:
        if sys.stdout is not None:
            sys.stdout.flush()  # the reader of the help may have gone
        raise
