"""Round numbers for an axis, and elapsed time in fit units. Pure."""

import math
from itertools import pairwise

_MAX_DIGITS = 17  # as many tell any two floats apart


def axis_range(low: float, high: float) -> tuple[float, float]:
    """The range that an axis shows: a single value gets room on both sides."""
    if high - low > max(1e-12 * max(abs(low), abs(high)), 1e-300):
        return low, high
    room = abs(low) * 0.1 or 1.0
    return low - room, high + room


def ticks(low: float, high: float, limit: int, *, integer: bool = False) -> list[float]:
    """Return multiples of 1, 2, 2.5 or 5 times a power of ten from low to high: as many as the
    limit allows (2 or more), or both ends if fewer than two lie between."""
    power = 10.0 ** math.floor(math.log10((high - low) / max(limit, 2)))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50):
        step = factor * power
        if integer and step % 1:
            continue
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if 2 <= last - first + 1 <= limit:
            return [number * step for number in range(first, last + 1)]
    return [low, high]


def labels(values: list[float]) -> list[str]:
    """Numbers of one axis, all with as many decimals as their distance asks for: different ones
    look different."""
    distance = min((b - a for a, b in pairwise(values)), default=0.0)
    largest = max(map(abs, values), default=0.0)
    if distance <= 0 or largest >= 1e6 or distance < 1e-4:
        texts = [f"{value:.4g}" if value else "0" for value in values]
        digits = 5
        while len(set(texts)) < len(set(values)) and digits <= _MAX_DIGITS:
            texts = [f"{value:.{digits}g}" if value else "0" for value in values]
            digits += 1
        return texts
    decimals = max(0, -math.floor(math.log10(distance) + 1e-9))
    if any(abs(round(value, decimals) - value) > distance / 100 for value in values):
        decimals += 1
    return [f"{value:.{decimals}f}" for value in values]


def time_unit(span_secs: float) -> tuple[float, str]:
    """Seconds in the unit that fits a span of time, and the unit's name."""
    for secs, name in ((1.0, "s"), (60.0, "min"), (3600.0, "h")):
        if span_secs < 120 * secs:
            return secs, name
    return 86400.0, "days"
