"""Groups of keys that share records, and the course of each key in each group. Pure.

Keys that have shared all records so far form a group, and a group follows all keys of those
records. A record with only a part of a group splits it, so groups are exact. Beyond MAX_GROUPS,
groups no longer split and are rough.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from copy import copy
from typing import Any

from logshipper_ingest.model.courses import Course, absorb_courses
from logshipper_ingest.model.metadata_keys import Path

MAX_GROUPS = 32
MAX_PLANNED_KEYS = 16_384  # in all remembered sets of keys; the cache empties at once


class KeyGroup:
    """Keys that have stood in the very same records (members), and the courses of all keys of those
    records. is_rough: some records have only a part of the members."""

    __slots__ = ("courses", "is_rough", "members")

    def __init__(
        self, members: set[Path], courses: dict[Path, Course], is_rough: bool = False
    ) -> None:
        self.members = members
        self.courses = courses
        self.is_rough = is_rough


class KeyGroups:
    """The groups of all keys. plans: the groups of the records with a set of keys, none split any
    more."""

    def __init__(self) -> None:
        self.plans: dict[tuple[Path, ...], list[KeyGroup]] = {}
        self._planned_keys = 0
        self._groups: list[KeyGroup] = []
        self._group_of: dict[Path, KeyGroup] = {}

    def __iter__(self) -> Iterator[KeyGroup]:
        return iter(self._groups)

    def of(self, path: Path) -> KeyGroup | None:
        return self._group_of.get(path)

    def course_of(self, path: Path) -> Course:
        """Over all records that have the key: its own group sees every one of them."""
        return self._group_of[path].courses[path]

    def plan(self, keys: tuple[Path, ...], known: Iterable[Path]) -> list[KeyGroup]:
        """Return the groups of a record with these keys; splits and adds groups.

        known: all keys, these included.
        """
        plan = self.plans.get(keys)
        if plan is not None:
            return plan
        plan = []
        new = set()
        members_by_group: dict[int, tuple[KeyGroup, set[Path]]] = {}
        for path in keys:
            group = self._group_of.get(path)
            if group is None:
                new.add(path)
            else:
                members_by_group.setdefault(id(group), (group, set()))[1].add(path)
        for group, inside in members_by_group.values():
            plan.append(self._split(group, inside))
        if new:
            newest = self._add_new(new)
            if newest not in plan:
                plan.append(newest)
        if self._planned_keys + len(keys) > MAX_PLANNED_KEYS:
            self._forget_plans()
        paths = {path: path for path in known}  # not the record's: each brings its own long names
        self.plans[tuple(paths[path] for path in keys)] = plan
        self._planned_keys += len(keys)
        return plan

    def _forget_plans(self) -> None:
        self.plans.clear()
        self._planned_keys = 0

    def _split(self, group: KeyGroup, inside: set[Path]) -> KeyGroup:
        if group.is_rough or len(inside) == len(group.members):
            return group
        if len(self._groups) >= MAX_GROUPS:
            group.is_rough = True
            return group
        group.members -= inside
        self._forget_plans()
        courses = {path: copy(course) for path, course in group.courses.items()}
        return self._enter(KeyGroup(inside, courses))

    def _add_new(self, members: set[Path]) -> KeyGroup:
        if len(self._groups) < MAX_GROUPS:
            return self._enter(KeyGroup(members, {}))
        last = self._groups[-1]
        last.is_rough = True
        last.members |= members
        self._group_of.update(dict.fromkeys(members, last))
        return last

    def _enter(self, group: KeyGroup) -> KeyGroup:
        self._groups.append(group)
        self._group_of.update(dict.fromkeys(group.members, group))
        return group

    def merge(
        self, first: "KeyGroups", second: "KeyGroups", keys: Iterable[Path], excess: Container[Path]
    ) -> None:
        """Enter the groups of both for these keys. excess: keys that no group follows."""
        sharing: dict[tuple[int, int], tuple[set[Path], list[KeyGroup]]] = {}
        for path in sorted(keys):
            groups = [side._group_of[path] for side in (first, second) if path in side._group_of]
            token = (id(first._group_of.get(path)), id(second._group_of.get(path)))
            sharing.setdefault(token, (set(), groups))[0].add(path)
        for members, groups in sharing.values():
            courses: dict[Path, Course] = {}
            for group in groups:
                absorb_courses(courses, group.courses)
            kept = {path: course for path, course in courses.items() if path not in excess}
            self._enter(KeyGroup(members, kept, any(group.is_rough for group in groups)))

    def pack(self, number_of: Mapping[Path, int]) -> list[list[Any]]:  # Any: JSON
        """Return the groups as JSON. number_of: of each key."""
        groups = [
            [
                sorted(number_of[path] for path in group.members),
                [[number_of[path], group.courses[path].pack()] for path in sorted(group.courses)],
                group.is_rough,
            ]
            for group in self._groups
        ]
        return sorted(groups, key=lambda group: group[0])

    def unpack(self, packed: list[Any], paths: list[Path]) -> None:  # Any: our own JSON
        """Enter packed groups. paths: by number. Raises KeyError for a key without a course."""
        for members, courses, is_rough in packed:
            unpacked = {
                paths[number]: Course.unpack(paths[number], course) for number, course in courses
            }
            self._enter(KeyGroup({paths[number] for number in members}, unpacked, is_rough))
        for path in paths:
            self.course_of(path)
