"""Lines of a service's log. Where systemd's journal reads stderr ($JOURNAL_STREAM, systemd.exec(5))
they go to the journal itself, with fields; what it doesn't take that way, to stderr with the
priority (sd-daemon(3)). Elsewhere to stderr with the time."""

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
    """What the journal calls messages that programs wait for (MESSAGE_ID)."""

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
    """What is logged right before the end."""

    __slots__ = ()


def other_words(line: str, words: str, **about: str) -> LogLine:
    """The same line in other words, with more that it is about."""
    if not isinstance(line, LogLine):
        return LogLine(words, **about)
    return type(line)(words, line.kind, **{**line.about, **about})


def is_journal(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Whether what is written to a file descriptor goes to the journal. The variable alone doesn't
    say so: children have it, too, whose output goes elsewhere."""
    try:
        place = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{place.st_dev}:{place.st_ino}"


def write_line(words: str) -> None:
    """One of the agent's lines; of WARNING where it is no LogLine."""
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
    """By stderr, of which the journal always knows whose it is: where a datagram's sender is gone
    when it is looked at, it is of no unit. Each line is an entry of its own."""
    lines = "".join(f"<{priority}>{line}\n" for line in words.splitlines())
    sys.stderr.write(safe_lines(lines))
    sys.stderr.flush()
