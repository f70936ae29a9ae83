"""Moving means of a series, for `plot --smooth` and the page's graphs. Pure."""


class MovingMean:
    """Exponentially weighted mean over the number of values, regardless of X.

    Seeded: s = weight * previous + (1 - weight) * value, beginning with the first value. Debiased:
    the sum of weight^k * value over that of weight^k, k values ago, so the first value counts no
    more than others. weight: of earlier values, 0 to below 1.
    """

    __slots__ = ("_debias", "_last", "_sum", "_weight")

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
