"""Treats runs' curves before drawing: smooths them, and combines several. Pure.

Deviations are those of a sample (divided by n - 1), as in pandas and XT; a single value has none.
"""

import math
import statistics
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from logshipper_observe.graphs.points import MovingMean, Points

Values: TypeAlias = "array[float]"

NONE, RAW, MIN_MAX = "none", "raw", "min-max"
SPREADS = ("std", "var", "sem")


class Trace(Points):
    """A curve as it is drawn."""

    def __init__(
        self, label: str, key: str, group: str, runs: int = 1, behind: Sequence[Points] = ()
    ) -> None:
        # results for the same points stay with them
        super().__init__(label, limit=sys.maxsize)
        self.key = key  # its Y
        self.group = group  # meaning of its colour
        self.runs = runs  # how many it was made of
        self.errors: Values | None = None  # half the height of its error bars; NaN: no bar
        self.counts: list[int] = []  # runs at each point, of an aggregate
        self.low: Values | None = None  # of its band
        self.high: Values | None = None  # of its band
        self.behind = behind  # curves that it was made of, drawn faintly behind it


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
    """Return the std, var or sem (standard error of the mean) of a sample; NaN for one value."""
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


def treated(
    runs: Sequence[Points], label: str, key: str, group: str, treatment: Treatment
) -> list[Trace]:
    """The traces of the runs of a group: one for each, or with an aggregate one for all."""
    smooth_runs = [_smooth(run, treatment) for run in runs]
    behind = runs if treatment.shade == RAW else ()
    if treatment.aggregate == NONE:
        traces = []
        for at, smooth in enumerate(smooth_runs):
            trace = Trace(smooth.label, key, group, behind=behind[at : at + 1])
            trace.hold(*smooth.rows(), smooth.total, smooth.gaps)
            traces.append(trace)
        return traces
    values_by_x: defaultdict[float, list[float]] = defaultdict(list)
    for run in smooth_runs:
        for x, y in zip(run.xs, run.ys, strict=True):
            values_by_x[x].append(y)
    trace = Trace(label, key, group, len(runs), behind)
    aggregate = _AGGREGATES[treatment.aggregate]
    points = [(x, aggregate(values), values) for x, values in sorted(values_by_x.items())]
    points = [point for point in points if math.isfinite(point[1])]
    for x, middle, values in points:
        trace.add(x, middle)
        trace.counts.append(len(values))
    trace.total = sum(run.total for run in runs)
    if treatment.error_bars != NONE:
        trace.errors = array("d", (spread(values, treatment.error_bars) for _, _, values in points))
    if treatment.shade not in (NONE, RAW):
        bands = [_band(values, middle, treatment.shade) for _, middle, values in points]
        trace.low = array("d", (low for low, _ in bands))
        trace.high = array("d", (high for _, high in bands))
    return [trace]


def _smooth(run: Points, treatment: Treatment) -> Points:
    if not treatment.smooth:
        return run
    mean = MovingMean(treatment.smooth, debias=treatment.debias)
    smooth = Points(run.label)
    xs, ys = run.rows()
    smooth.hold(xs, smoothed(ys, mean), run.total, run.gaps)
    return smooth


def _band(values: Sequence[float], middle: float, shade: str) -> tuple[float, float]:
    if shade == MIN_MAX:
        return min(values), max(values)
    width = spread(values, shade)
    width = 0.0 if math.isnan(width) else width  # a band has no gaps
    return middle - width, middle + width
