"""The points of one series, thinned evenly while they come: of each so many neighbours the lowest
and the highest stay, so that no spike is lost and the beginning is shown as finely as the end.
Pure; memory is bounded."""

import math
from array import array
from typing import TypeAlias

MAX_POINTS = 1 << 16  # that a series keeps

Floats: TypeAlias = "array[float]"


class Points:
    """One series. total: how many points were added; xs, ys: those that are kept, in the order in
    which they were printed.

    limit: how many are kept (16 or more), the two ends aside; inside: the lowest and highest X that
    count.
    """

    __slots__ = (
        "_every",
        "_first",
        "_inside",
        "_limit",
        "_thin_xs",
        "_thin_ys",
        "_xs",
        "_ys",
        "label",
        "total",
    )

    def __init__(
        self,
        label: str = "",
        limit: int = MAX_POINTS,
        inside: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        self.label = label
        self._inside = inside
        self.total = 0
        self._limit = limit
        self._every = 1  # points of which two are kept
        self._first = (0.0, 0.0)
        self._thin_xs, self._thin_ys = array("d"), array("d")
        self._xs, self._ys = array("d"), array("d")  # the newest, not yet thinned

    @property
    def xs(self) -> Floats:
        return self._coordinates()[0]

    @property
    def ys(self) -> Floats:
        return self._coordinates()[1]

    def add(self, x: float, y: float) -> None:
        if not self._inside[0] <= x <= self._inside[1]:
            return
        if not self.total:
            self._first = (x, y)
        self.total += 1
        self._xs.append(x)
        self._ys.append(y)
        if len(self._xs) >= max(self._limit // 4, self._every):
            self._settle()

    def hold(self, xs: Floats, ys: Floats, total: int) -> None:
        """These points, all of them, in the place of its own. total: how many they stand for."""
        self.total = total
        self._every = 1
        self._thin_xs, self._thin_ys = array("d"), array("d")
        self._xs, self._ys = xs, ys

    def _settle(self) -> None:
        """Thins the newest points as the others are; all of them further where they are too
        many."""
        xs, ys = lowest_and_highest(self._xs, self._ys, self._every)
        self._thin_xs += xs
        self._thin_ys += ys
        del self._xs[:], self._ys[:]
        while len(self._thin_xs) > self._limit * 3 // 4 - 2:
            self._thin_xs, self._thin_ys = lowest_and_highest(self._thin_xs, self._thin_ys, 4)
            self._every = max(4, 2 * self._every)

    def _coordinates(self) -> tuple[Floats, Floats]:
        """All that are kept, the first and the last point among them."""
        if self._every == 1:
            return self._thin_xs + self._xs, self._thin_ys + self._ys
        newest_xs, newest_ys = lowest_and_highest(self._xs, self._ys, self._every)
        xs, ys = self._thin_xs + newest_xs, self._thin_ys + newest_ys
        if (xs[0], ys[0]) != self._first:
            xs.insert(0, self._first[0])
            ys.insert(0, self._first[1])
        if self._xs and (xs[-1], ys[-1]) != (self._xs[-1], self._ys[-1]):
            xs.append(self._xs[-1])
            ys.append(self._ys[-1])
        return xs, ys

    def thinned(self, points: int) -> "Points":
        """At most so many points (but at least 4), lowest and highest, first and last among
        them."""
        thin = Points(self.label)
        xs, ys = self._coordinates()
        limit = max(points, 4)
        if len(xs) > limit:
            pairs = (limit - 2) // 2
            inner_xs, inner_ys = lowest_and_highest(xs[1:-1], ys[1:-1], -(-(len(xs) - 2) // pairs))
            xs = xs[:1] + inner_xs + xs[-1:]
            ys = ys[:1] + inner_ys + ys[-1:]
        thin.hold(xs, ys, self.total)
        return thin


class SmoothedPoints(Points):
    """A series' moving mean, of every point: s = weight * prev + (1 - weight) * y, seeded with the
    first."""

    __slots__ = ("_last", "_weight")

    def __init__(
        self,
        weight: float,
        limit: int = MAX_POINTS,
        inside: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        super().__init__(limit=limit, inside=inside)
        self._weight = weight
        self._last: float | None = None

    def add(self, x: float, y: float) -> None:
        last = y if self._last is None else self._weight * self._last + (1 - self._weight) * y
        self._last = last
        super().add(x, last)


def lowest_and_highest(xs: Floats, ys: Floats, every: int) -> tuple[Floats, Floats]:
    """Of each `every` neighbours two points: the lowest and the highest, or where all are alike the
    outer ones."""
    if every <= 2:
        return xs[:], ys[:]
    places: list[int] = []
    for begin in range(0, len(ys), every):
        group = ys[begin : begin + every]
        low, high = group.index(min(group)), group.index(max(group))
        if low == high:
            low, high = 0, len(group) - 1
        places += sorted({begin + low, begin + high})
    return array("d", map(xs.__getitem__, places)), array("d", map(ys.__getitem__, places))
