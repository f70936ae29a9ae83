"""Checks values of other systems' entries, which are untrusted. Pure."""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, tzinfo

from logshipper.safe_text import without_controls
from logshipper_ingest.model.job import Json

MAX_NAME_CHARS = 255
MAX_TEXT_CHARS = 4096
MAX_TIME_NS = 1 << 62
MAX_WHOLE = 1 << 40
NS = 1_000_000_000
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")


class BadValue(ValueError):
    """An entry is invalid; the message names the fault."""


def text_of(value: object, description: str = "", max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a string for a database and a line; "" for null.

    description: the field's name, if the field is required.
    """
    if value is None and not description:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or (description and not value):
        raise BadValue(f"{description or 'a value'} is missing, or no text")
    return without_controls(value[:max_chars])


def object_of(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def whole_of(value: object) -> int | None:
    """A whole number from 0 to MAX_WHOLE, also as text; None for all else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_WHOLE else None


def time_of(value: object, description: str, zone: tzinfo | None) -> int:
    """Nanoseconds since 1970 of a time in ISO 8601, or of seconds since then. zone: of one that
    says none; None for this machine's."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value < MAX_TIME_NS // NS
    ):
        return int(value * 1_000_000) * 1000  # seconds, to the microsecond
    try:
        at = datetime.fromisoformat(value if isinstance(value, str) else "")
        if at.tzinfo is None:
            at = at.replace(tzinfo=zone) if zone is not None else at.astimezone()
        whole = int(at.replace(microsecond=0).timestamp()) * NS + at.microsecond * 1000
    except (ValueError, OverflowError, OSError):
        raise BadValue(f"{description} is {str(value)[:40]!r}, which is no time") from None
    if not 0 <= whole < MAX_TIME_NS:
        raise BadValue(f"{description} is {str(value)[:40]!r}: too long ago, or too far ahead")
    return whole


def secs_of(value: object) -> float | None:
    """Seconds of `0:00:01.5` or `1 day, 0:00:01`, as Python prints them; None for all else."""
    match = re.fullmatch(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d):(\d\d(?:\.\d{1,9})?)", str(value))
    if match is None:
        return None
    days, hours, minutes, secs = match.groups()
    return int(days or 0) * 86_400 + int(hours) * 3600 + int(minutes) * 60 + float(secs)


def exit_of(value: object) -> tuple[int | None, int]:
    """Exit code and signal of Python's return code, which is negative for a signal; (None, 0) for
    all else."""
    match = re.fullmatch(r"-?[0-9]{1,9}", str(value))
    if match is None:
        return None, 0
    code = int(match[0])
    if code < 0:
        return None, min(-code, 127)
    return min(code, 255), 0


def slug_of(text: str) -> str:
    """Return a text with `-` for characters that no id has."""
    return _NOT_IN_IDS.sub("-", text).strip("-._")


def job_id_of(origin: str, names: Sequence[str], key: str = "") -> str:
    """Return an id that can be a file's name. key: tells it from other jobs with these names."""
    slug = slug_of("-".join(name for name in names if name))
    lossy = slug != "-".join(names) or len(slug) > 40
    mark = hashlib.sha256((key or "\0".join(names)).encode("utf-8", "replace")).hexdigest()[:8]
    return "-".join([origin, slug[:40].rstrip("-._"), *([mark] if key or lossy else [])]).replace(
        "--", "-"
    )
