"""Treats runs' curves before drawing: smooths them, and combines several. Pure.

Deviations are those of a sample (divided by n - 1), as in pandas and XT; a single value has none.
"""

import math
import statistics
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from logshipper_observe.graphs.points import Points
from logshipper_observe.graphs.smoothing import MovingMean

Values: TypeAlias = "array[float]"

NONE, RAW, MIN_MAX = "none", "raw", "min-max"
SPREADS = ("std", "var", "sem")


class Trace(Points):
    """A curve as it is drawn."""

    __slots__ = ("behind", "counts", "errors", "group", "high", "key", "low", "runs")

    def __init__(self, label: str, key: str, group: str, runs: int = 1) -> None:
        # results for the same points stay with them
        super().__init__(label, limit=sys.maxsize)
        self.key = key  # its Y
        self.group = group  # meaning of its colour
        self.runs = runs  # how many it was made of
        self.errors: Values | None = None  # half the height of its error bars; NaN: no bar
        self.counts: list[int] = []  # runs at each point, of an aggregate
        self.low: Values | None = None  # of its band
        self.high: Values | None = None  # of its band
        self.behind: list[Points] = []  # curves that it was made of, drawn faintly behind it


@dataclass(frozen=True, slots=True)
class Treatment:
    """Treatment of curves, named as the options."""

    smooth: float = 0.0  # weight of earlier values, 0 to 1
    aggregate: str = NONE
    error_bars: str = NONE
    shade: str = NONE
    debias: bool = False  # see MovingMean


UNTREATED = Treatment()


def smoothed(values: Sequence[float], mean: MovingMean) -> Values:
    """Return the moving means; NaN stays, and later values continue from those before it."""
    return array("d", (value if math.isnan(value) else mean.add(value) for value in values))


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
    runs: Sequence[Points], label: str, key: str, group: str, treatment: Treatment
) -> list[Trace]:
    """The traces of the runs of a group: one for each, or with an aggregate one for all."""
    smooth_runs = [_smooth(run, treatment) for run in runs]
    if treatment.aggregate == NONE:
        return [
            _as_trace(smooth, run, key, group, treatment)
            for smooth, run in zip(smooth_runs, runs, strict=True)
        ]
    trace = Trace(label, key, group, len(runs))
    trace.errors, trace.low, trace.high = (array("d") for _ in range(3))
    combine = _AGGREGATES[treatment.aggregate]
    for x, values in sorted(_by_x(smooth_runs).items()):
        middle = combine(values)
        if not math.isfinite(middle):
            continue
        trace.add(x, middle)
        trace.counts.append(len(values))
        trace.errors.append(
            spread(values, treatment.error_bars) if treatment.error_bars != NONE else math.nan
        )
        low, high = _band(values, middle, treatment.shade)
        trace.low.append(low)
        trace.high.append(high)
    trace.total = sum(run.total for run in runs)
    if treatment.error_bars == NONE:
        trace.errors = None
    if treatment.shade in (NONE, RAW):
        trace.low = trace.high = None
    if treatment.shade == RAW:
        trace.behind = list(runs)
    return [trace]


def _smooth(run: Points, treatment: Treatment) -> Points:
    if not treatment.smooth:
        return run
    mean = MovingMean(treatment.smooth, debias=treatment.debias)
    smooth = Points(run.label)
    xs, ys = run.rows()
    smooth.hold(xs, smoothed(ys, mean), run.total)
    smooth.gaps = run.gaps
    return smooth


def _as_trace(points: Points, raw: Points, key: str, group: str, treatment: Treatment) -> Trace:
    trace = Trace(points.label, key, group)
    trace.hold(*points.rows(), points.total)
    trace.gaps = points.gaps
    if treatment.shade == RAW:
        trace.behind = [raw]
    return trace


def _by_x(runs: Iterable[Points]) -> dict[float, list[float]]:
    values_by_x: dict[float, list[float]] = {}
    for run in runs:
        for x, y in zip(run.xs, run.ys, strict=True):
            values_by_x.setdefault(x, []).append(y)
    return values_by_x


def _band(values: Sequence[float], middle: float, shade: str) -> tuple[float, float]:
    if shade == MIN_MAX:
        return min(values), max(values)
    if shade in SPREADS:
        width = spread(values, shade)
        width = 0.0 if math.isnan(width) else width  # a band has no gaps
        return middle - width, middle + width
    return middle, middle
