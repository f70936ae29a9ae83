"""Lines of a service's log, on stderr: with the time, or where systemd's journal reads stderr
($JOURNAL_STREAM, systemd.exec(5)), which has the time, with their priority (sd-daemon(3))."""

import os
import sys
import time
from collections.abc import Mapping

from logshipper.safe_text import safe_lines

ERROR, WARNING, INFO = 3, 4, 6  # as in syslog(3)


class Notice(str):
    """A line about the usual course; all others are about trouble."""

    __slots__ = ()


def is_journal(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Whether what is written to a file descriptor goes to the journal. The variable alone doesn't
    say so: children have it, too, whose output goes elsewhere."""
    try:
        place = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{place.st_dev}:{place.st_ino}"


def write_line(words: str) -> None:
    """One of the agent's lines; of INFO where it is a Notice."""
    if _stderr_is_journal():
        _write(INFO if isinstance(words, Notice) else WARNING, words)
    else:
        sys.stderr.write(safe_lines(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}\n"))
        sys.stderr.flush()


def write_error(words: str) -> None:
    """What ended a program."""
    if _stderr_is_journal():
        _write(ERROR, words)
    else:
        sys.stderr.write(safe_lines(f"{words}\n"))


def _stderr_is_journal() -> bool:
    try:
        return is_journal(sys.stderr.fileno(), os.environ)
    except (OSError, ValueError, AttributeError):  # closed, or none
        return False


def _write(priority: int, words: str) -> None:
    # each line is an entry of its own there
    lines = "".join(f"<{priority}>{line}\n" for line in words.splitlines())
    sys.stderr.write(safe_lines(lines))
    sys.stderr.flush()
