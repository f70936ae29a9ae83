"""Times, sizes and states in words, and text made safe for a terminal. Pure: the present is handed
in."""

import json
import math
import re
import signal as signals
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from logshipper.render.colours import SEQUENCES
from logshipper.safe_text import safe

FOUND = "Found in the output"  # heading of series
NS = 1_000_000_000
DIGITS = 6  # of a number in a table
NOT_IN_LOKI = (
    "only jobs of the local store are removed; what is in Loki goes when its retention ends, or by `logshipper-agent "
    "purge`, which its admins can call"
)
RUNNING_STATES = ("RUNNING", "UNRESPONSIVE")
STATES = (
    "QUEUED", *RUNNING_STATES, "COMPLETED", "FAILED", "CANCELLED", "KILLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL",
    "PREEMPTED", "REQUEUED", "BOOT_FAIL", "DEADLINE", "UNKNOWN",
)  # fmt: skip
STATE_ALIASES = {  # of Balsam, QCG-PilotJob and XT
    "CREATED": "QUEUED", "AWAITING_PARENTS": "QUEUED", "READY": "QUEUED", "STAGED_IN": "QUEUED",
    "PREPROCESSED": "QUEUED", "SCHEDULED": "QUEUED", "ALLOCATING": "QUEUED", "SPAWNING": "QUEUED",
    "SUBMITTED": "QUEUED", "EXECUTING": "RUNNING", "STARTED": "RUNNING", "RESTARTED": "RUNNING",
    "RUN_DONE": "COMPLETED", "POSTPROCESSED": "COMPLETED", "STAGED_OUT": "COMPLETED", "JOB_FINISHED": "COMPLETED",
    "SUCCEED": "COMPLETED", "SUCCESS": "COMPLETED", "RUN_ERROR": "FAILED", "ERROR": "FAILED", "ABORTED": "FAILED",
    "RUN_TIMEOUT": "TIMEOUT", "RESTART_READY": "REQUEUED", "CANCELED": "CANCELLED",
    "TERMINATED": "CANCELLED", "OMITTED": "CANCELLED",
}  # fmt: skip
STATE_STYLES = {
    "RUNNING": "cyan",
    "UNRESPONSIVE": "magenta",
    "COMPLETED": "green",
    **dict.fromkeys(("QUEUED", "UNKNOWN"), "dim"),
    **dict.fromkeys(("CANCELLED", "PREEMPTED", "REQUEUED"), "yellow"),
    **dict.fromkeys(
        ("FAILED", "KILLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"),
        "red",
    ),
}

FAILED_STATES = tuple(state for state, style in STATE_STYLES.items() if style == "red")

_RESETS = re.compile("\x1b\\[0?(?=[;m])")  # a sequence that begins with switching everything off


def uncoloured(text: str) -> str:
    """Return a log line's text without its kept colours."""
    return SEQUENCES.sub("", text) if "\x1b" in text else text


def safe_coloured(text: str, style: str = "") -> str:
    """Return a text like `safe`, but keep its colours, which end with it. style: SGR parameters for
    the rest."""
    pieces = SEQUENCES.split(text) if "\x1b" in text else [text]
    pieces[::2] = map(safe, pieces[::2])
    if style:
        pieces[1::2] = [_RESETS.sub(rf"\g<0>;{style}", piece) for piece in pieces[1::2]]
        return f"\x1b[{style}m{''.join(pieces)}\x1b[0m"
    if len(pieces) > 1 and pieces[-2] != "\x1b[0m":
        pieces.append("\x1b[0m")
    return "".join(pieces)


def is_further_part(part: str) -> bool:
    """Return whether a line's attribute `part` (`2`, `3/3`, in Loki also `1.2/17`) marks a
    continuation of the last line."""
    return bool(part) and part != "1" and not part.startswith(("1/", "1.1/"))


def count(number: int) -> str:
    return f"{number:,}"


def listed(names: Sequence[object], limit: int = 8) -> str:
    """Return the first names, joined by commas, and `...` for further ones."""
    return ", ".join([*map(str, names[:limit]), *(["..."] if len(names) > limit else [])])


def size(octets: int) -> str:
    """Bytes in decimal units, three digits at least: `812 B`, `45.2 kB`, `1.23 GB`."""
    value = float(octets)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    if unit == "B":
        return f"{octets} B"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def duration(secs: float) -> str:
    """Without blanks: `0.35s`, `12.3s`, `4m05s`, `2h03m`, `3d04h`."""
    secs = max(secs, 0.0)
    if secs < 59.95:
        return f"{secs:.2f}s" if secs < 9.995 else f"{secs:.1f}s"
    whole = round(secs)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def local(time_ns: int, *, millis: bool = False) -> str:
    """Local time, sortable: `2026-05-01 09:30:00`, or with `.123` behind it."""
    text = _local_second(time_ns // NS)
    return f"{text}.{time_ns % NS // 1_000_000:03d}" if millis else text


@lru_cache(maxsize=256)
def _local_second(secs: int) -> str:
    return datetime.fromtimestamp(secs).strftime("%Y-%m-%d %H:%M:%S")


def local_with_zone(time_ns: int) -> str:
    """Local time in ISO 8601 with its offset and no blank: `2026-05-01T09:30:00+02:00`."""
    return datetime.fromtimestamp(time_ns // NS).astimezone().isoformat()


def utc(time_ns: int) -> str:
    """ISO 8601 in UTC, to the nanosecond: `2026-05-01T07:30:00.123456789Z`."""
    return f"{_utc_second(time_ns // NS)}.{time_ns % NS:09d}Z"


@lru_cache(maxsize=256)  # a log's lines share their seconds
def _utc_second(secs: int) -> str:
    return datetime.fromtimestamp(secs, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def when(time_ns: int, now_ns: int) -> str:
    """Return the age within a day, else the local day and minute, or the date of older times."""
    secs = (now_ns - time_ns) / NS
    if -1 <= secs < 5:
        return "just now"
    if 5 <= secs < 60:
        return f"{secs:.0f} s ago"
    if 60 <= secs < 3600:
        return f"{secs // 60:.0f} min ago"
    if 3600 <= secs < 86400:
        return f"{secs // 3600:.0f} h ago"
    return local(time_ns)[5:16] if 0 < secs < 300 * 86400 else local(time_ns)[:10]


def signal_name(number: int) -> str:
    """`SIGTERM`; `signal 77` for one that has no name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def state_of(name: str) -> str:
    """Return the state with this name, in any case, also by other systems' names."""
    upper = name.strip().upper()
    return STATE_ALIASES.get(upper, upper)


def exit_words(exit_code: int | None, signal: int) -> str:
    """Return a job's result: `exit code 3`, `died of SIGKILL`, or nothing."""
    if signal:
        return f"died of {signal_name(signal)}"
    return "" if exit_code is None else f"exit code {exit_code}"


def exit_short(exit_code: int | None, signal: int) -> str:
    """Return `exit_words` for a column: `3`, `SIGKILL`, `-`."""
    if signal:
        return signal_name(signal).replace(" ", "-")
    return "-" if exit_code is None else str(exit_code)


def times_smaller(printed: int, logged: int) -> str:
    """Return the ratio of printed to logged bytes; empty below 1."""
    if not logged or printed <= logged:
        return ""
    times = printed / logged
    return f"{times:.1f} times smaller" if times < 9.95 else f"{times:,.0f} times smaller"


def number(value: float | int | None, *, integer: bool = False) -> str:
    """A number for a table: integers whole, others to DIGITS significant digits; NaN, Infinity."""
    if value is None:
        return "-"
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if integer and abs(value) < 10**15:
        return str(int(value))
    try:
        return f"{value:.{DIGITS}g}"
    except OverflowError:  # an integer that no float holds
        digits = str(value)
        return f"{digits[: 1 if digits[0] != '-' else 2]}e+{len(digits.lstrip('-')) - 1}"
