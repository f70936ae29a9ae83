"""The points of one series, thinned evenly while they arrive: of each group of neighbours the
lowest and the highest stay.

So no spike is lost, and the begin is as fine as the end. A series has gaps where a value is NaN or
infinite, and begins another curve where its X falls back (`begins_again`): the pen lifts there.
Pure; memory is bounded.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

MAX_POINTS = 1 << 16  # kept by a series
MAX_GAPS = 64  # runs of gaps that a series knows of
GAP_MARKS = 16  # of a run
MAX_CURVES = 16  # of a series; further ones only lift the pen

Floats: TypeAlias = "array[float]"


class MovingMean:
    """Exponentially weighted mean over the number of values, regardless of X.

    Seeded: s = weight * previous + (1 - weight) * value, beginning with the first value. Debiased:
    the sum of weight^k * value over that of weight^k, k values ago, so the first value counts no
    more than others. weight: of earlier values, 0 to below 1.
    """

    def __init__(self, weight: float, *, debias: bool = False) -> None:
        self._weight = weight
        self._debias = debias
        self.restart()

    def restart(self) -> None:
        """Another series begins."""
        self._last: float | None = None
        self._sum = 0.0  # of the weights so far

    def add(self, value: float) -> float:
        """The mean with a further value."""
        last, weight = self._last, self._weight
        if last is None:
            mean = value
        elif self._debias:
            mean = last + (value - last) / (weight * self._sum + 1)
        else:
            mean = weight * last + (1 - weight) * value
        self._sum = weight * self._sum + 1
        self._last = mean
        return mean


@dataclass(slots=True)
class Gap:
    """Neighbouring records without a finite value."""

    value: float  # nan, inf or -inf
    first_x: float
    last_x: float
    count: int = 1  # records
    is_last: bool = True  # no number came after it


class Points:
    """One series.

    total: number of added points; xs, ys: the kept ones, in the order of printing; breaks: places
    in xs before which the pen lifts. limit: number of kept points (16 or more) besides the two
    ends; inside: the lowest and highest X that count; mean: replaces values by their moving mean,
    which begins again with each curve.
    """

    def __init__(
        self,
        label: str = "",
        limit: int = MAX_POINTS,
        inside: tuple[float, float] = (-math.inf, math.inf),
        mean: MovingMean | None = None,
    ) -> None:
        self.label = label
        self.origin = label  # its label without its tags and the number of its curve
        self.tags: Mapping[str, str] = {}  # of its measurements
        # index among its series' curves, from 0; None for a whole series
        self.curve_number: int | None = None
        self.begins_again = False  # whether another curve begins where X falls
        self.gaps: list[tuple[int, Gap]] = []  # each with the number of its curve, from 0
        self.more_gaps = 0  # records past MAX_GAPS runs
        self._inside = inside
        self._mean = mean
        self.total = 0
        self._totals = [0]  # of each curve; those past MAX_CURVES count in the last one
        self._limit = limit
        self._every = 1  # points of which two are kept
        self._first = (0.0, 0.0)
        self._last_x = -math.inf
        self._rises = self._falls = self._curve = 0
        # rows: points; a gap with NaN for its Y; the end of a curve with NaN for both
        self._is_broken = False  # whether there are rows that are no points
        self._thin_xs, self._thin_ys = array("d"), array("d")
        self._xs, self._ys = array("d"), array("d")  # the newest, not yet thinned

    @property
    def xs(self) -> Floats:
        return _without_breaks(*self.rows())[0]

    @property
    def ys(self) -> Floats:
        return _without_breaks(*self.rows())[1]

    @property
    def breaks(self) -> list[int]:
        return _without_breaks(*self.rows())[2]

    @property
    def last(self) -> float:
        """The last value: NaN or infinite in a gap. Needs a point."""
        gap = self.gaps[-1][1] if self.gaps else None
        return gap.value if gap and gap.is_last else self.ys[-1]

    def pieces(self) -> Iterator[tuple[Floats, Floats]]:
        """The points that are joined by a line with each other, piece by piece."""
        xs, ys, breaks = _without_breaks(*self.rows())
        for begin, end in pairwise((0, *breaks, len(xs))):
            yield xs[begin:end], ys[begin:end]

    def add(self, x: float, y: float) -> None:
        if self.begins_again:
            self._move(x)
        self._take(x, y if self._mean is None else self._mean.add(y))

    def _take(self, x: float, y: float) -> None:
        if self.gaps:
            self.gaps[-1][1].is_last = False
        if not self._inside[0] <= x <= self._inside[1]:
            return
        if not self.total:
            self._first = (x, y)
        self.total += 1
        self._totals[-1] += 1
        self._append(x, y)

    def add_gap(self, x: float, value: float) -> None:
        """Add a record whose value is NaN or infinite."""
        if self.begins_again:
            self._move(x)
        if not self._inside[0] <= x <= self._inside[1]:
            return
        curve, gap = self.gaps[-1] if self.gaps else (0, None)
        if gap and gap.is_last and curve == self._curve and repr(gap.value) == repr(value):
            gap.last_x = x
            gap.count += 1
            return
        if len(self.gaps) < MAX_GAPS:
            if gap:
                gap.is_last = False
            self.gaps.append((self._curve, Gap(value, x, x)))
        else:
            self.more_gaps += 1
        self._lift(x)

    def _move(self, x: float) -> None:
        """Begin another curve where X falls, unless it counts down: falls more than it rises."""
        last, self._last_x = self._last_x, x
        if x == last:
            return
        if x > last:
            self._rises += last > -math.inf
            return
        self._falls += 1
        if self._falls <= self._rises:
            self._curve += 1
            if self._curve < MAX_CURVES:
                self._totals.append(0)
            if self._mean is not None:
                self._mean.restart()
            self._lift(math.nan)

    def _lift(self, x: float) -> None:
        self._is_broken = True
        self._append(x, math.nan)

    def _append(self, x: float, y: float) -> None:
        self._xs.append(x)
        self._ys.append(y)
        if len(self._xs) >= max(self._limit // 4, self._every):
            self._settle()

    def hold(
        self, xs: Floats, ys: Floats, total: int, gaps: Sequence[tuple[int, Gap]] = ()
    ) -> None:
        """Replace rows and gaps. total: number of points that the rows stand for."""
        self.total = total
        self.gaps = list(gaps)
        self._every = 1
        self._thin_xs, self._thin_ys = array("d"), array("d")
        self._xs, self._ys = xs, ys
        self._is_broken = math.isnan(sum(ys))

    def _settle(self) -> None:
        """Thin the newest points like the others, and all of them further if they are too many."""
        xs, ys = lowest_and_highest(self._xs, self._ys, self._every)
        self._thin_xs += xs
        self._thin_ys += ys
        del self._xs[:], self._ys[:]
        while len(self._thin_xs) > self._limit * 3 // 4 - 2:
            self._thin_xs, self._thin_ys = lowest_and_highest(self._thin_xs, self._thin_ys, 4)
            self._every = max(4, 2 * self._every)

    def rows(self) -> tuple[Floats, Floats]:
        """Return all kept points, with the first and the last; Y is NaN where the pen lifts, and X,
        too, where a curve ends."""
        if self._every == 1:
            return self._thin_xs + self._xs, self._thin_ys + self._ys
        newest_xs, newest_ys = lowest_and_highest(self._xs, self._ys, self._every)
        xs, ys = self._thin_xs + newest_xs, self._thin_ys + newest_ys
        begin = next((at for at, y in enumerate(ys) if not math.isnan(y)), len(ys))
        if self.total and (begin == len(ys) or (xs[begin], ys[begin]) != self._first):
            xs.insert(begin, self._first[0])
            ys.insert(begin, self._first[1])
        last = (self._xs[-1], self._ys[-1]) if self._xs else (math.nan, math.nan)
        if not math.isnan(last[1]) and (xs[-1], ys[-1]) != last:
            xs.append(last[0])
            ys.append(last[1])
        return xs, ys

    def thinned(self, points: int) -> "Points":
        """Return at most so many points (4 or more), with lowest, highest, first and last."""
        thin = Points(self.label)
        thin.origin = self.origin
        xs, ys = self.rows()
        limit = max(points, 4)
        if len(xs) > limit:
            kept = 3 if self._is_broken else 2  # of each group
            groups = max((limit - 2) // kept, 1)
            inner_xs, inner_ys = lowest_and_highest(xs[1:-1], ys[1:-1], -(-(len(xs) - 2) // groups))
            xs = xs[:1] + inner_xs + xs[-1:]
            ys = ys[:1] + inner_ys + ys[-1:]
        thin.hold(xs, ys, self.total, self.gaps)
        thin.more_gaps = self.more_gaps
        return thin

    def curves(self, most: int) -> "list[Points]":
        """Return one series per curve, called `curve 1` and so on; itself for one or too many."""
        count = self._curve + 1
        if not 1 < count <= min(most, MAX_CURVES):
            return [self]
        xs, ys = self.rows()
        ends = [at for at, x in enumerate(xs) if math.isnan(x)]
        curves = []
        for number, (before, end) in enumerate(pairwise((-1, *ends, len(xs)))):
            name = f"curve {number + 1}"
            curve = Points(f"{self.label}, {name}" if self.label else name)
            curve.origin, curve.tags, curve.curve_number = self.origin, self.tags, number
            gaps = [(0, gap) for of, gap in self.gaps if of == number]
            curve.hold(xs[before + 1 : end], ys[before + 1 : end], self._totals[number], gaps)
            curves.append(curve)
        curves[-1].more_gaps = self.more_gaps
        return [curve for curve in curves if curve.total or curve.gaps]


def gap_places(points: Points) -> Iterator[float]:
    """Yield X for marks of a series' gaps: both ends of each run, and some between."""
    for _, gap in points.gaps:
        steps = min(gap.count, GAP_MARKS) - 1
        for at in range(steps + 1):
            yield gap.first_x + (gap.last_x - gap.first_x) * at / max(steps, 1)


def lowest_and_highest(xs: Floats, ys: Floats, every: int) -> tuple[Floats, Floats]:
    """Return two points of each `every` neighbours: the lowest and the highest, or the outer ones
    if all are equal; and one row without a point, if any.

    Ends of curves all stay, unless they are many.
    """
    if every <= 2:
        return xs[:], ys[:]
    is_broken = math.isnan(sum(ys))
    keeps_ends = is_broken and sum(map(math.isnan, xs)) <= 2 * MAX_CURVES
    places: list[int] = []
    for begin in range(0, len(ys), every):
        group = ys[begin : begin + every]
        if is_broken and math.isnan(sum(group)):
            places += _places_of_broken(xs, ys, range(begin, begin + len(group)), keeps_ends)
        else:
            places += _extreme_pair(group, begin)
    return array("d", map(xs.__getitem__, places)), array("d", map(ys.__getitem__, places))


def extreme_places(ys: Floats, points: int) -> Sequence[int]:
    """Return places of at most so many values (but at least 4), of numbers only: the first, the
    last, and the extremes of equal groups between."""
    limit = max(points, 4)
    if len(ys) <= limit:
        return range(len(ys))
    every = -(-(len(ys) - 2) // ((limit - 2) // 2))
    inner = [
        at
        for begin in range(1, len(ys) - 1, every)
        for at in _extreme_pair(ys[begin : min(begin + every, len(ys) - 1)], begin)
    ]
    return [0, *inner, len(ys) - 1]


def _extreme_pair(group: Floats, begin: int) -> list[int]:
    """Places of the lowest and the highest, or of the outer ones if all are equal."""
    low, high = group.index(min(group)), group.index(max(group))
    if low == high:
        low, high = 0, len(group) - 1
    return sorted({begin + low, begin + high})


def _places_of_broken(xs: Floats, ys: Floats, group: range, keeps_ends: bool) -> list[int]:
    points = [at for at in group if not math.isnan(ys[at])]
    ends = [at for at in group if math.isnan(xs[at])]
    gaps = [at for at in group if math.isnan(ys[at]) and not math.isnan(xs[at])]
    kept = {*(ends if keeps_ends else ends[:1])} or {gaps[len(gaps) // 2]}
    if points:
        kept |= {min(points, key=ys.__getitem__), max(points, key=ys.__getitem__)}
    return sorted(kept)


def _without_breaks(xs: Floats, ys: Floats) -> tuple[Floats, Floats, list[int]]:
    """The points of rows, and the places before which the pen is lifted."""
    if not math.isnan(sum(ys)):
        return xs, ys, []
    points = [at for at, y in enumerate(ys) if not math.isnan(y)]
    breaks = [number for number in range(1, len(points)) if points[number] > points[number - 1] + 1]
    kept_xs, kept_ys = (array("d", map(values.__getitem__, points)) for values in (xs, ys))
    return kept_xs, kept_ys, breaks
