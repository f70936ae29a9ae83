"""The `logshipper` command. `run --if-opted-in` precedes every job, so it comes before other
imports."""

import gc
import os
import sys

from logshipper import coerced_locale
from logshipper.search_path import put_installed_first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


_UNCOLLECTED = 50_000  # objects: more than a start makes, and no cycle among them


def main() -> int:
    """Runs the command line; returns the exit code."""
    put_installed_first()
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        gc.set_threshold(_UNCOLLECTED)
        _leave(_run(words[1:]))
    from logshipper.start.cli import main as cli_main

    return cli_main()


def _run(words: list[str]) -> int:
    coerced_locale.undo()
    logoptin = None
    if "--" in words:
        options = words[: words.index("--")]
        if "--if-opted-in" in options and "-h" not in options and "--help" not in options:
            from logshipper import optin

            logoptin = optin.look(optin.path())
            if logoptin[0] in (optin.ABSENT, optin.UNKNOWN):
                return optin.run_untouched(words[words.index("--") + 1 :])
    from logshipper.start import run_command

    return run_command.main(words, logoptin)


def _leave(code: int) -> "NoReturn":
    """Leave without deleting the interpreter's objects: somebody waits for CMD's end."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                pass  # the reader has gone
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
