"""One key of metadata: how its numbers run (Course), and its counts (PathTally). Pure."""

from collections.abc import Sequence
from operator import gt, lt
from typing import Any, NamedTuple

from logshipper.classify.series.names import is_counter
from logshipper_ingest.model.metadata_keys import Number, Path, is_auto, pack_number, unpack_number
from logshipper_ingest.model.places import Place, Places

# how a key's numbers run; the larger is the worse
_UNKNOWN, _RISING, _ONE_WAY, _ANY = range(4)
_RULES = {(_RISING, True): 3, (_RISING, False): 4, (_ONE_WAY, True): 5, (_ONE_WAY, False): 6}


class Trend(NamedTuple):
    """The course of a key's numbers so far, in one capture or several."""

    shape: int  # the larger the worse, 0 while nothing has moved
    integer: bool  # no number was written with a fraction or an exponent
    records: int  # those with a number for the key
    # the other key that is the X of its own records, and their number in the capture with the most
    own_x: tuple[int, Path] = (0, ())
    constant: bool = False  # all numbers of each capture are the same

    def rule(self) -> int:
        """R25's, 3 to 7; 0 while nothing has moved."""
        return 0 if self.shape == _UNKNOWN else _RULES.get((self.shape, self.integer), 7)

    def ranked(self, *, first: bool) -> "Trend":
        """Return the trend with the shape of the best X, or of the worst."""
        return self._replace(shape=_RISING if first else _ANY)

    def merge(self, trend: "Trend") -> "Trend":
        """Combine two trends, as `Course.absorb`: neither rule is worse than the result's.

        The key's own X comes from the capture with the most records.
        """
        integer, own_x = self.integer and trend.integer, max(self.own_x, trend.own_x)
        shape, records = max(self.shape, trend.shape), self.records + trend.records
        return Trend(shape, integer, records, own_x, self.constant and trend.constant)


class Course:
    """The course of one key's numbers: the worst of the closed courses, and the open one."""

    __slots__ = ("fell", "integer", "is_counter", "last", "rose", "worst")

    def __init__(self, path: Path = ()) -> None:
        # of a series, only a counter is X by rules 3 to 6: residuals and clocks may rise, too. One
        # that begins again is still better than any other key
        self.is_counter = is_auto(path) and is_counter(path[-1])
        self.worst = _ANY if is_auto(path) and not self.is_counter else _UNKNOWN
        self.integer = True
        self.last: Number | None = None  # None: no course is open
        self.rose = self.fell = False

    def add(self, value: Number) -> None:
        last = self.last
        if last is not None:
            if value > last:
                self.rose = True
            elif value < last:
                self._fall()
        self.last = value
        if type(value) is float:
            self.integer = False

    def add_all(self, values: Sequence[Number]) -> None:
        before = values if self.last is None else (self.last, *values)
        self.rose = self.rose or any(map(lt, before, before[1:]))
        if any(map(gt, before, before[1:])):
            self._fall()
        self.last = values[-1]
        self.integer = self.integer and float not in map(type, values)

    def _fall(self) -> None:
        if self.is_counter:
            self.worst, self.rose = max(self.worst, _ONE_WAY), True
        else:
            self.fell = True

    def shape(self) -> int:
        """Within each attempt and task, merged by the worst: a constant or a single value is as bad
        as any."""
        if self.last is None:
            return self.worst
        open_shape = _ANY if self.rose == self.fell else _RISING if self.rose else _ONE_WAY
        return max(self.worst, open_shape)

    def trend(self, over: bool, records: int, own_x: Path = ()) -> Trend:
        """Return the trend. A constant open course counts once it is closed, so trends never
        improve."""
        moved = self.rose or self.fell
        return Trend(
            self.shape() if over or moved else self.worst,
            self.integer,
            records,
            (records, own_x) if own_x else (0, ()),
            not moved,
        )

    def rule(self) -> int:
        return _RULES.get((self.shape(), self.integer), 7)

    def best_rule(self) -> int:
        """The best that its rule may still be."""
        return self.rule() if self.rose or self.fell else _RULES[_RISING, self.integer]

    def absorb(self, course: "Course") -> None:
        """Closes both courses and keeps the worst."""
        self.worst = max(self.shape(), course.shape())
        self.integer = self.integer and course.integer
        self.last = None
        self.rose = self.fell = False

    def pack(self) -> list[object]:
        last = None if self.last is None else pack_number(self.last)
        return [self.worst, self.integer, last, self.rose, self.fell]

    @classmethod
    def unpack(cls, path: Path, packed: list[Any]) -> "Course":
        # Any: our own JSON; faults in it raise below
        course = cls(path)
        course.worst, course.integer, last, course.rose, course.fell = packed
        course.last = None if last is None else unpack_number(last)
        return course


class PathTally:
    """Counts of one path.

    record_count: records with a value of this sort; last_ns: time of the newest one; `_place`s:
    places of the numbers, None if not kept.
    """

    __slots__ = ("last_ns", "last_place", "max", "max_place", "min", "min_place", "record_count")

    def __init__(self) -> None:
        self.record_count = 0
        self.last_ns = 0
        self.min: Number | None = None
        self.max: Number | None = None
        self.last_place: Place | None = None
        self.min_place: Place | None = None
        self.max_place: Place | None = None

    def add(self, time_ns: int) -> None:
        self.record_count += 1
        self.last_ns = max(self.last_ns, time_ns)

    def add_number(self, value: Number, time_ns: int, place: Place | None = None) -> None:
        self.record_count += 1
        if time_ns > self.last_ns:  # noqa: PLR1730  twice as fast as max(), for each number of each record
            self.last_ns = time_ns
        self.last_place = place
        least, largest = self.min, self.max
        if least is None or largest is None:
            self.min = self.max = value
            self.min_place = self.max_place = place
        elif value < least:
            self.min = value
            self.min_place = place
        elif value > largest:
            self.max = value
            self.max_place = place

    def add_numbers(self, values: Sequence[Number], newest_ns: int) -> None:
        """Add numbers without places. newest_ns: time of the newest one."""
        self.record_count += len(values)
        self.last_ns = max(self.last_ns, newest_ns)
        self.min = min(values if self.min is None else (self.min, *values))
        self.max = max(values if self.max is None else (self.max, *values))

    @property
    def places(self) -> Places:
        return Places(self.last_place, self.min_place, self.max_place)

    @places.setter
    def places(self, places: Places) -> None:
        self.last_place, self.min_place, self.max_place = places

    def absorb(self, tally: "PathTally") -> None:
        """Adds counts, without places, which are of one capture."""
        self.record_count += tally.record_count
        self.last_ns = max(self.last_ns, tally.last_ns)
        self.min = _extreme(self.min, tally.min, larger=False)
        self.max = _extreme(self.max, tally.max, larger=True)

    def pack(self) -> list[object]:
        if self.min is None or self.max is None:
            return [self.record_count, self.last_ns, None]
        return [self.record_count, self.last_ns, [pack_number(self.min), pack_number(self.max)]]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "PathTally":  # Any: JSON of our own
        tally = cls()
        tally.record_count, tally.last_ns, numbers = packed
        if numbers is not None:
            tally.min, tally.max = unpack_number(numbers[0]), unpack_number(numbers[1])
        return tally


def absorb_tallies(into: dict[Path, PathTally], tallies: dict[Path, PathTally]) -> None:
    for path, tally in tallies.items():
        into.setdefault(path, PathTally()).absorb(tally)


def absorb_courses(into: dict[Path, Course], courses: dict[Path, Course]) -> None:
    for path, course in courses.items():
        into.setdefault(path, Course()).absorb(course)


def _extreme(first: Number | None, second: Number | None, *, larger: bool) -> Number | None:
    """Return an extreme regardless of the order: of equal numbers (1 and 1.0, 0.0 and -0.0) always
    the same."""
    if first is None or second is None:
        return second if first is None else first
    if first == second:
        return min(
            first, second, key=lambda number: (type(number) is float, number == 0 and str(number))
        )
    return first if (first > second) is larger else second
