"""Lines of a service's log.

If systemd's journal reads stderr ($JOURNAL_STREAM, systemd.exec(5)), lines go to the journal with
fields, or to stderr with their priority (sd-daemon(3)) if the journal refuses them. Elsewhere they
go to stderr with the time.
"""

import os
import sys
import time
from collections.abc import Mapping
from enum import Enum
from typing import Self

from logshipper.safe_text import safe, safe_lines
from logshipper_ingest.console.journal import Journal

ERROR, WARNING, INFO = 3, 4, 6  # as in syslog(3)
IDENTIFIER = "logshipper-agent"

_JOURNAL = Journal()


class Kind(Enum):
    """The journal's names (MESSAGE_ID) for messages that programs wait for."""

    READY = "58584bf98e054c7cb9db7a5023e811bc"
    SINK_AWAY = "4630a497c5ba496197494d517feeb051"
    SINK_BACK = "443093a70155446fa4a22780f94d7fc3"
    REFUSED = "f10be8de5ebe42fa81dea487f0a3f145"
    DAMAGED = "d0c57f93420f4a2bb3f032aba7e5593e"
    TAKEN = "bdc84fc9ac924623bfb05e1080d1ae4f"


class LogLine(str):
    """A line about trouble. kind, about: in the journal MESSAGE_ID and LOGSHIPPER_..., of `sink`,
    `job`, `user` and `capture`."""

    __slots__ = ("about", "kind")
    priority = WARNING
    kind: Kind | None
    about: Mapping[str, str]

    def __new__(cls, words: str, kind: Kind | None = None, /, **about: str) -> Self:
        line = super().__new__(cls, words)
        line.kind = kind
        line.about = about
        return line


class Notice(LogLine):
    """A line about the usual course; all others are about trouble."""

    __slots__ = ()
    priority = INFO


class LastNotice(Notice):
    """The last notice before the end."""

    __slots__ = ()


def other_words(line: str, words: str, **about: str) -> LogLine:
    """Return the line with other words and more fields."""
    if not isinstance(line, LogLine):
        return LogLine(words, **about)
    return type(line)(words, line.kind, **{**line.about, **about})


def is_journal(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Return whether the journal reads a file descriptor.

    The variable alone does not prove it: children inherit it and may write elsewhere.
    """
    try:
        place = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{place.st_dev}:{place.st_ino}"


def write_line(words: str) -> None:
    """Write one line of the agent; a line that is no LogLine has the priority WARNING."""
    line = words if isinstance(words, LogLine) else LogLine(words)
    if not _stderr_is_journal():
        sys.stderr.write(safe_lines(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n"))
        sys.stderr.flush()
    elif isinstance(line, LastNotice) or not _JOURNAL.send(_fields(line)):
        _write(line.priority, line)


def dropped_count() -> int:
    """Lines that the journal had no room for."""
    return _JOURNAL.dropped_count


def write_error(words: str) -> None:
    """Write the error that ends a program."""
    if _stderr_is_journal():
        _write(ERROR, words)
    else:
        sys.stderr.write(safe_lines(f"{words}\n"))


def _stderr_is_journal() -> bool:
    try:
        return is_journal(sys.stderr.fileno(), os.environ)
    except (OSError, ValueError, AttributeError):  # closed, or none
        return False


def _fields(line: LogLine) -> dict[str, str]:
    fields = {
        "MESSAGE": safe_lines(line),
        "PRIORITY": str(line.priority),
        "SYSLOG_IDENTIFIER": IDENTIFIER,
    }
    if line.kind is not None:
        fields["MESSAGE_ID"] = line.kind.value
    return fields | {f"LOGSHIPPER_{name.upper()}": safe(text) for name, text in line.about.items()}


def _write(priority: int, words: str) -> None:
    """Write an entry to stderr, whose unit the journal always knows.

    A datagram has no unit if its sender has ended before the journal looks.
    """
    lines = "".join(f"<{priority}>{line}\n" for line in words.splitlines())
    sys.stderr.write(safe_lines(lines))
    sys.stderr.flush()
