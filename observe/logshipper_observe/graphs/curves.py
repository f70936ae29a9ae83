"""What becomes of runs' curves before they are drawn: smoothed, and several put together. Pure.

Deviations are those of a sample (divided by n - 1), as pandas and XT have them; of a single value
there is none.
"""

import math
import statistics
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from logshipper_observe.graphs.points import Points

Values: TypeAlias = "array[float]"

NONE, RAW, MIN_MAX = "none", "raw", "min-max"
SPREADS = ("std", "var", "sem")


class Trace(Points):
    """A curve as it is drawn. key: its Y; group: what its colour stands for; runs: how many it was
    made of; errors: half the height of its error bars (NaN: no bar); low, high: of its band;
    behind: the curves that it was made of, drawn faintly behind it."""

    __slots__ = ("behind", "errors", "group", "high", "key", "low", "runs")

    def __init__(self, label: str, key: str, group: str, runs: int = 1) -> None:
        super().__init__(label, most=sys.maxsize)  # what was made of the same points goes with them
        self.key = key
        self.group = group
        self.runs = runs
        self.errors: Values | None = None
        self.low: Values | None = None
        self.high: Values | None = None
        self.behind: list[Points] = []


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is done to curves. smooth: the weight of what was before, 0 to 1; the others as the
    options are called."""

    smooth: float = 0.0
    aggregate: str = NONE
    error_bars: str = NONE
    shade: str = NONE


UNTREATED = Treatment()


def smoothed(values: Sequence[float], weight: float) -> Values:
    """s = weight * previous s + (1 - weight) * v, beginning with the first value."""
    found = array("d")
    for value in values:
        found.append(weight * found[-1] + (1 - weight) * value if found else value)
    return found


def spread(values: Sequence[float], measure: str) -> float:
    """The standard deviation (std), variance (var) or standard error of the mean (sem) of a sample.
    NaN of one."""
    if len(values) < 2:
        return math.nan
    # its square is a float
    variance = statistics.variance(values) if max(map(abs, values)) < 1e150 else math.nan
    if measure == "var":
        return variance
    return math.sqrt(variance / len(values)) if measure == "sem" else math.sqrt(variance)


_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: math.fsum(value / len(values) for value in values),
    "min": min,
    "max": max,
    **{measure: lambda values, measure=measure: spread(values, measure) for measure in SPREADS},  # type: ignore[misc]  # a lambda's default
}
AGGREGATES = (NONE, *_AGGREGATES)


def treated(
    runs: Sequence[Points], label: str, key: str, group: str, how: Treatment
) -> list[Trace]:
    """The traces of the runs of a group: one for each, or with an aggregate one for all."""
    kept = [_smooth(run, how.smooth) for run in runs]
    if how.aggregate == NONE:
        return [
            _as_trace(smooth, run, key, group, how) for smooth, run in zip(kept, runs, strict=True)
        ]
    trace = Trace(label, key, group, len(runs))
    trace.errors, trace.low, trace.high = (array("d") for _ in range(3))
    combine = _AGGREGATES[how.aggregate]
    for x, values in sorted(_by_x(kept).items()):
        middle = combine(values)
        if not math.isfinite(middle):
            continue
        trace.add(x, middle)
        trace.errors.append(spread(values, how.error_bars) if how.error_bars != NONE else math.nan)
        low, high = _band(values, middle, how.shade)
        trace.low.append(low)
        trace.high.append(high)
    trace.seen = sum(run.seen for run in runs)
    if how.error_bars == NONE:
        trace.errors = None
    if how.shade in (NONE, RAW):
        trace.low = trace.high = None
    if how.shade == RAW:
        trace.behind = list(runs)
    return [trace]


def _smooth(run: Points, weight: float) -> Points:
    if not weight:
        return run
    smooth = Points(run.label)
    smooth.hold(run.xs, smoothed(run.ys, weight), run.seen)
    return smooth


def _as_trace(points: Points, raw: Points, key: str, group: str, how: Treatment) -> Trace:
    trace = Trace(points.label, key, group)
    trace.hold(points.xs, points.ys, points.seen)
    if how.shade == RAW:
        trace.behind = [raw]
    return trace


def _by_x(runs: Iterable[Points]) -> dict[float, list[float]]:
    found: dict[float, list[float]] = {}
    for run in runs:
        for x, y in zip(run.xs, run.ys, strict=True):
            found.setdefault(x, []).append(y)
    return found


def _band(values: Sequence[float], middle: float, shade: str) -> tuple[float, float]:
    if shade == MIN_MAX:
        return min(values), max(values)
    if shade in SPREADS:
        width = spread(values, shade)
        width = 0.0 if math.isnan(width) else width  # a band has no gaps
        return middle - width, middle + width
    return middle, middle
