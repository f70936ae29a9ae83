"""Chooses the X of a job's graphs (R24-R26), record by record. Pure.

Strategy: the axis follows the course of each key's numbers within one attempt and task (rising,
falling, integer). `merge` closes the courses of both sides and keeps the worst; later records begin
a new course. For `x_for` it follows courses within groups of keys that share records
(key_groups.py).

Keys of series (docs/series.md) share no records with other keys. They become the job's X only if no
other key has numbers, and their graphs have an X of their own.

Cost per record: its keys times the groups among them (usually one, at most MAX_GROUPS). Limits:
MAX_KEYS keys with numbers and as many others of each origin (`progress` and `epoch` always have room). The axis
counts omissions, and `notes` reports them.

An axis with places also keeps the records of a key's last, least and largest number, with the
numbers there of all keys that may still become X (`key_reports`). The choice of these keys depends
on the records alone, not on saving. A capture with more than MAX_WHOLE keys keeps the most
promising ones; the axis chooses them with each new key and at records 2, 4, 8 and so on.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any, TypeAlias

from logshipper.config import AUTO
from logshipper_ingest.model.courses import Course, PathTally, Trend, absorb_tallies
from logshipper_ingest.model.key_groups import KeyGroup, KeyGroups
from logshipper_ingest.model.key_reports import KeyReport
from logshipper_ingest.model.metadata_keys import (
    AUTO_ROOT,
    MAX_DEPTH,
    MAX_KEY_BYTES,
    Leaves,
    Number,
    Path,
    Record,
    by_origin,
    is_auto,
    leaves_of,
    names_of,
    number_columns,
    order,
    past_limit,
)
from logshipper_ingest.model.places import pack_places, unpack_places, without_others, x_at

MAX_KEYS = 256
MAX_WHOLE = 16  # keys with numbers that all count in places
_NEVER = 1 << 63

PROGRESS: Path = ("progress",)
EPOCH: Path = ("epoch",)
NAMED_RULES = {PROGRESS: 1, EPOCH: 2, (AUTO_ROOT, *PROGRESS): 1, (AUTO_ROOT, *EPOCH): 2}
CLOCK: Path = ("time",)  # if it holds nanoseconds since 1970, as a measurement's own time
LEAST_CLOCK_NS = 10**17  # in 1973
CLOCK_WORDS = "time: when each record was measured"

_WORDS = {
    3: "integers that never fall",
    4: "numbers that never fall",
    5: "integers that only rise or only fall",
    6: "numbers that only rise or only fall",
    7: "the first key with numbers",
}


@dataclass(frozen=True, slots=True)
class XChoice:
    """The X of a graph."""

    key: str | None  # its name, None for time
    rule: int  # R25's, 1 to 7, 0 for time
    words: str  # the rule in words
    path: Path = ()  # CLOCK, with key None, for the time in the record
    by_number: bool = False  # the record's number, from 1, in the place of a key


@dataclass(frozen=True, slots=True)
class KeyStats:
    """One key of a job's metadata."""

    key: str
    path: Path
    count: int  # records that have it
    numbers: int  # those with a number
    last: str  # its last value as JSON text
    min: Number | None  # of its numbers, exact
    max: Number | None  # likewise
    integer: bool  # no number was written with a fraction or an exponent
    # of a series: the other key that has its numbers, too
    repeats: str = ""

    @property
    def is_auto(self) -> bool:
        """Whether it is the key of a series."""
        return is_auto(self.path)


Entry: TypeAlias = tuple[Record, int, int, str]  # the values of `XAxis.add`


class XAxis:
    """The state of one capture, or, once merged, of a job. See the module's docstring. keeps_places:
    for `key_reports`; a merged one keeps none."""

    def __init__(self, *, keeps_places: bool = False) -> None:
        self.records = 0
        self._keeps_places = keeps_places
        self._place_keys: frozenset[Path] | None = None  # keys that count in places, None: all
        self._place_keys_due = _NEVER  # at which record they are chosen again
        self._numbers: dict[Path, PathTally] = {}
        self._non_numbers: dict[Path, PathTally] = {}
        # NaN and infinities that keys with numbers have now, in the place of their last number
        self._gaps: dict[Path, float] = {}
        self._groups = KeyGroups()
        self._named_keys = (0, 0)
        self._known_names: dict[Path, str] = {}
        self._left_out = 0  # values of keys past MAX_KEYS
        self._deeper = 0
        self._oversized = 0
        self._long_keys = 0

    # ---- learning

    def add(self, record: Record, time_ns: int = 0, n: int = 0, origin: str = "") -> None:
        """Add the next record of this attempt and task.

        record: parsed, integers as int; time_ns: its own; n: its number among records with the same
        keys, 0 if unknown; origin: as in MetadataRecord.
        """
        leaves = leaves_of(by_origin(record, origin))
        self.records += 1
        self._deeper += leaves.deeper
        self._oversized += leaves.oversized
        self._long_keys += leaves.long_keys
        if leaves.non_numbers:
            self._count_non_numbers(leaves, time_ns)
        numbers = leaves.numbers
        keys = tuple(numbers)
        plan = self._groups.plans.get(keys)
        if plan is None:
            known_keys = len(self._numbers)
            paths = [path for path in keys if self._has_room(path)]
            if len(paths) < len(keys):
                self._left_out += len(keys) - len(paths)
                numbers = {path: numbers[path] for path in paths}
            plan = self._groups.plan(tuple(paths), self._numbers)
            if self._keeps_places and len(self._numbers) > max(known_keys, MAX_WHOLE):
                self._place_keys_due = self.records
        place = (n, numbers, self._place_keys) if self._keeps_places else None
        for path, value in numbers.items():
            self._numbers[path].add_number(value, time_ns, place)
        if self._gaps or leaves.gaps:
            self._take_gaps(leaves)
        for group in plan:
            courses = group.courses
            for path, value in numbers.items():
                course = courses.get(path)
                if course is None:
                    course = courses[path] = Course(path)
                course.add(value)
        if self.records >= self._place_keys_due:
            self._place_keys = frozenset(sorted(self._possible_x(), key=self._claim)[:MAX_WHOLE])
            self._place_keys_due = 1 << self.records.bit_length()  # the next power of two

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Add records in order. Records of the same keys in succession cost little each."""
        for (keys, origin), group in groupby(entries, lambda entry: (tuple(entry[0]), entry[3])):
            first, *others = group
            self.add(*first)
            paths = tuple((AUTO_ROOT, key) if origin == AUTO else (key,) for key in keys)
            if not self._add_numbers(paths, others):
                for entry in others:
                    self.add(*entry)

    def _add_numbers(self, paths: tuple[Path, ...], entries: Sequence[Entry]) -> bool:
        """Add records if they have the keys of the last one, and nothing but finite numbers."""
        plan = self._groups.plans.get(paths)
        columns = number_columns([entry[0] for entry in entries])
        if plan is None or not columns or self._keeps_places or self._gaps:
            return False
        self.records += len(entries)
        newest_ns = max(time_ns for _, time_ns, *_ in entries)
        for path, numbers in zip(paths, columns, strict=True):
            self._numbers[path].add_numbers(numbers, newest_ns)
            for group in plan:
                group.courses[path].add_all(numbers)
        return True

    def _claim(self, path: Path) -> tuple[bool, int, tuple[bool, str, Path]]:
        """Sort key: the best candidate for X first."""
        rule = 0 if path in NAMED_RULES else self._groups.course_of(path).best_rule()
        return is_auto(path), rule, order(path)

    def _possible_x(self) -> set[Path]:
        """Return the keys that may be the X of an earlier record; no other key can become it."""
        possible: set[Path] = set()
        for courses in (group.courses for group in self._groups):
            named = courses.keys() & NAMED_RULES
            possible.update(named)
            possible.update(courses.keys() & {CLOCK})
            if not named:
                possible.add(min(courses, key=order))
                possible.update(path for path in courses if courses[path].best_rule() < 7)
        return possible

    def _take_gaps(self, leaves: Leaves) -> None:
        for path in leaves.numbers:
            self._gaps.pop(path, None)
        for path, value in leaves.gaps.items():
            if path in self._numbers:
                self._gaps[path] = value

    def _has_room(self, path: Path) -> bool:
        """Return whether the axis follows a key with a number; makes room for a new one if
        possible."""
        if path in self._numbers:
            return True
        of_origin = [peer for peer in self._numbers if is_auto(peer) == is_auto(path)]
        if len(of_origin) >= MAX_KEYS and path not in NAMED_RULES:
            return False
        self._numbers[path] = PathTally()
        return True

    def _count_non_numbers(self, leaves: Leaves, time_ns: int) -> None:
        for path in leaves.non_numbers:
            if path not in self._non_numbers and len(self._non_numbers) >= MAX_KEYS:
                self._left_out += 1
            else:
                self._non_numbers.setdefault(path, PathTally()).add(time_ns)

    # ---- merging

    def merge(self, other_axis: "XAxis") -> "XAxis":
        """Return the worst of both, as of different attempts or tasks. Associative, commutative."""
        union = XAxis()
        for side in (self, other_axis):
            union.records += side.records
            union._deeper += side._deeper
            union._oversized += side._oversized
            union._long_keys += side._long_keys
            union._left_out += side._left_out
            absorb_tallies(union._numbers, side._numbers)
            absorb_tallies(union._non_numbers, side._non_numbers)
        excess = union._keep_to_limit()
        union._groups.merge(self._groups, other_axis._groups, union._numbers, excess)
        return union

    def _keep_to_limit(self) -> set[Path]:
        """Drop the last keys in alphabetical order, the same ones for any order of merges."""
        excess = set(past_limit(self._numbers, MAX_KEYS, NAMED_RULES))
        for path in excess:
            self._left_out += self._numbers.pop(path).record_count
        for path in past_limit(self._non_numbers, MAX_KEYS, NAMED_RULES):
            self._left_out += self._non_numbers.pop(path).record_count
        return excess

    # ---- choosing

    def choose(self) -> XChoice:
        """R25's choice over all records so far."""
        best = self._best({path: self._groups.course_of(path) for path in self._numbers})
        if best is None:
            return XChoice(None, 0, "time: no key with numbers")
        return self._choice(*best)

    def x_for(self, key: str) -> XChoice:
        """Return the X of a key's own graph.

        It is the job's X, or, if the two never share a record, one by the same rule over the key's
        own records; time, if that is the key itself. key: a name; one without numbers gets the
        job's X.
        """
        job_choice = self.choose()
        path = self.path_of(key)
        group = None if path is None else self._groups.of(path)
        if path is None or group is None or job_choice.path in group.courses:
            return job_choice
        best = self._best(group.courses)
        if len(group.courses) < 2 or best is None:
            return XChoice(None, 0, f"time: no other key with numbers in the records of {key}")
        if best[1] == path:
            return XChoice(None, 0, f"time: {key} itself is the X of its records")
        own_choice = self._choice(*best)
        return replace(own_choice, words=f"{own_choice.words}, in the records of {key}")

    def _best(self, courses: dict[Path, Course]) -> tuple[int, Path] | None:
        """Rule and key; rule 0 for CLOCK: it comes before rule 4, and before an only other key."""
        courses = {path: courses[path] for path in courses if not is_auto(path)} or courses
        if named := courses.keys() & NAMED_RULES:
            return min((NAMED_RULES[path], path) for path in named)
        has_clock = CLOCK in courses and self._has_clock()
        others = [path for path in courses if not (has_clock and path == CLOCK)]
        if not others:
            return (0, CLOCK) if has_clock else None
        path = min(others, key=lambda path: (courses[path].rule(), order(path)))
        rule = courses[path].rule()
        return (0, CLOCK) if has_clock and (rule > 3 or len(others) == 1) else (rule, path)

    def _has_clock(self) -> bool:
        """Return whether all numbers of `time` are nanoseconds since 1970."""
        tally = self._numbers.get(CLOCK)
        least = None if tally is None else tally.min
        return (
            least is not None and least >= LEAST_CLOCK_NS and self._groups.course_of(CLOCK).integer
        )

    def _choice(self, rule: int, path: Path) -> XChoice:
        if not rule:
            return XChoice(None, 0, CLOCK_WORDS, CLOCK)
        name = self._names()[path]
        return XChoice(name, rule, f"{name}: {_WORDS.get(rule, f'the key {name}')}", path)

    def trends(self, *, over: bool) -> dict[Path, Trend]:
        """Return the course of each key's numbers, which never improves with more records.

        A key that has not moved has shape 0 until its capture is over.
        """
        own_x = self._own_x()
        trends = {
            path: self._groups.course_of(path).trend(over, tally.record_count, own_x.get(path, ()))
            for path, tally in self._numbers.items()
        }
        if len(trends) == 2 and self._has_clock():  # no rule puts the other key before it
            trends = {path: trend.ranked(first=path == CLOCK) for path, trend in trends.items()}
        return trends

    def _own_x(self) -> dict[Path, Path]:
        """Return the keys whose X is another key of their records, as in `x_for`, with that key."""
        x_by_path: dict[Path, Path] = {}
        for group in self._groups:
            best = self._best(group.courses)
            if best is not None:
                x_by_path.update(dict.fromkeys(group.members - {best[1]}, best[1]))
        return x_by_path

    # ---- looking at keys

    def key_reports(self) -> list[KeyReport]:
        """Return the keys with numbers, the best candidates for X first, with the X of `x_for`.

        X itself has its records' numbers as X. Empty without places.
        """
        if not self._keeps_places:
            return []
        names, job_x = self._names(), self.choose().path
        x_of: dict[Path, Path] = {}
        for group in self._groups:
            x_of |= dict.fromkeys(group.members, self._x_of(group, job_x))
        reports = []
        for path in sorted(self._numbers, key=self._claim):
            tally, x = self._numbers[path], x_of[path]
            has_x, x_values = x_at(tally.places, () if x == path else x)
            values = (self._groups.course_of(path).last, tally.min, tally.max)
            reports.append(
                KeyReport(
                    names[path], tally.record_count, names[x] if has_x else None, *values, *x_values
                )
            )
        return reports

    def _x_of(self, group: KeyGroup, job_x: Path) -> Path:
        """The X of a group's keys; () for none."""
        best = self._best(group.courses)
        return job_x if job_x in group.courses else best[1] if best else ()

    def path_of(self, key: str) -> Path | None:
        """Return the path of the key with this name, or None."""
        return next((path for path, name in self._names().items() if name == key), None)

    def _names(self) -> dict[Path, str]:
        """Names of all keys; made again only when there is another key: keys are never taken
        away."""
        keys = (len(self._numbers), len(self._non_numbers))
        if keys != self._named_keys:
            self._known_names = names_of(self._numbers.keys() | self._non_numbers.keys())
            self._named_keys = keys
        return self._known_names

    def key_stats(self) -> list[tuple[KeyStats, int]]:
        """Return all keys in alphabetical order, with the time (ns) of each one's last record;
        `last` is empty."""
        names = self._names()
        entries = []
        for path in sorted(names, key=order):
            number = self._numbers.get(path, _NO_TALLY)
            non_number = self._non_numbers.get(path, _NO_TALLY)
            integer = path in self._numbers and self._groups.course_of(path).integer
            count = number.record_count + non_number.record_count
            stats = KeyStats(
                names[path], path, count, number.record_count, "", number.min, number.max, integer
            )
            entries.append((stats, max(number.last_ns, non_number.last_ns)))
        return entries

    def latest(self) -> dict[Path, Number]:
        """Return the last number of each key, NaN and infinities included.

        For single captures only: merging closes open courses, with their last numbers.
        """
        courses = ((path, self._groups.course_of(path)) for path in self._numbers)
        last = {path: course.last for path, course in courses if course.last is not None}
        return last | self._gaps

    def notes(self) -> list[str]:
        """Describe the omissions of the limits, a sentence each; empty if all is exact."""
        omissions = {
            f"values are left out: of a job, {MAX_KEYS} keys with numbers are graphed": self._left_out,
            f"objects are left out: more than {MAX_DEPTH} keys deep": self._deeper,
            "numbers are left out: too long or too large to work with": self._oversized,
            f"values are left out: of keys that are longer than {MAX_KEY_BYTES} bytes": self._long_keys,
        }
        notes = [f"{count} {words}" for words, count in omissions.items() if count]
        if any(group.is_rough for group in self._groups):
            notes.append(
                "which keys share records is only roughly known: there are too many different sets of keys"
            )
        return notes

    # ---- as JSON

    def to_json(self) -> str:
        """Return the state as text; `from_json` continues as if it had never been saved.

        Drops numbers that cannot become X any more.
        """
        paths = sorted(self._numbers)
        number_of = {path: number for number, path in enumerate(paths)}
        state = {
            "version": 1,
            "records": self.records,
            "limits": [self._left_out, self._deeper, self._oversized, self._long_keys],
            "numbers": [[path, self._numbers[path].pack()] for path in paths],
            "others": [
                [path, self._non_numbers[path].pack()] for path in sorted(self._non_numbers)
            ],
            "groups": self._groups.pack(number_of),
        }
        if self._gaps:
            state["gaps"] = [[path, repr(self._gaps[path])] for path in sorted(self._gaps)]
        if self._keeps_places:
            tallies = [self._numbers[path] for path in paths]
            all_places = without_others((tally.places for tally in tallies), self._possible_x())
            for tally, places in zip(tallies, all_places, strict=True):
                tally.places = places
            keys = self._place_keys
            state["places"] = {
                "keys": None if keys is None else sorted(number_of[path] for path in keys),
                **pack_places(all_places, number_of),
            }
        return json.dumps(state, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "XAxis":
        """Restore a state. Raises ValueError for texts that to_json did not make."""
        try:
            return cls._unpack(json.loads(text))
        except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not the state of an X axis: {error!r}") from None

    @classmethod
    def _unpack(cls, state: dict[str, Any]) -> "XAxis":  # Any: our own JSON; see from_json
        axis = cls()
        if state["version"] != 1:
            raise ValueError(f"version {state['version']} of an X axis' state")
        axis.records = state["records"]
        axis._left_out, axis._deeper, axis._oversized, *long_keys = state["limits"]
        axis._long_keys = long_keys[0] if long_keys else 0  # unknown to the first version
        paths: list[Path] = []
        for packed_path, tally in state["numbers"]:
            path = tuple(packed_path)
            paths.append(path)
            axis._numbers[path] = PathTally.unpack(tally)
        for packed_path, tally in state["others"]:
            axis._non_numbers[tuple(packed_path)] = PathTally.unpack(tally)
        axis._groups.unpack(state["groups"], paths)
        # unknown to earlier versions
        axis._gaps = {tuple(path): float(text) for path, text in state.get("gaps", ())}
        if "places" in state:
            axis._unpack_places(state["places"], paths)
        return axis

    def _unpack_places(self, packed: dict[str, Any], paths: list[Path]) -> None:  # Any: likewise
        self._keeps_places = True
        if packed["keys"] is not None:
            self._place_keys_due = 1 << self.records.bit_length()  # the next power of two
            self._place_keys = frozenset(paths[number] for number in packed["keys"])
        for path, places in zip(paths, unpack_places(packed, paths), strict=True):
            self._numbers[path].places = places


_NO_TALLY = PathTally()


def merge_all(axes: Iterable[XAxis]) -> XAxis:
    """Merge all axes; empty without any."""
    return reduce(XAxis.merge, axes, XAxis())
