"""Durations and sizes as Loki and Prometheus write them in their configurations. Pure."""

import re

_SECS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}
_SECS["y"] = 365 * _SECS["d"]
_DURATION_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ns|us|µs|ms|[smhdwy])", re.ASCII)
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKMGTP]?)i?[bB]?", re.ASCII)
_POWERS = ["", "K", "M", "G", "T", "P"]


def duration_secs(setting: object) -> float | None:
    """Parse `1w`, `30d1h`, `168h0m0s`, `0s` or `0` as seconds; None for anything else."""
    if setting in (0, "0"):
        return 0.0
    if not isinstance(setting, str) or not _DURATION.fullmatch(setting):
        return None
    return float(sum(float(count) * _SECS[unit] for count, unit in _DURATION_PART.findall(setting)))


def size_bytes(setting: object) -> int | None:
    """Parse `256KB` (Loki's K is 1024), `3MB`, or a number of bytes; None for anything else."""
    if isinstance(setting, int) and not isinstance(setting, bool):
        return setting
    parts = _SIZE.fullmatch(setting) if isinstance(setting, str) else None
    return int(float(parts[1]) * 1024 ** _POWERS.index(parts[2].upper())) if parts else None


def words_of_secs(secs: float) -> str:
    """`3 h`, `7 days`, `90 s`: the largest unit that gives a whole number."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if secs >= size and secs % size == 0:
            return f"{secs / size:.0f} {unit if secs != 86_400 else 'day'}"
    return f"{secs:g} s"


def words_of_bytes(size: float) -> str:
    """`256 KiB`, `1.5 MiB`."""
    unit = 0
    while size >= 1024 and unit < 3:
        size /= 1024
        unit += 1
    return f"{size:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[unit]}"
