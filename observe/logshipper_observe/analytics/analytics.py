"""Throughput, utilization and nodes over time, from jobs' events and allocations: `(X, Y)` for a
step plot. Pure.

Events are `logshipper.StateEvent`s, or objects with job_id, timestamp, from_state, to_state and
data, as Balsam's. States may have all names that filters accept. Silent jobs count as running.
Times without a zone are UTC.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.words import RUNNING_STATES, STATE_ALIASES, STATES, state_of

X = TypeVar("X")
Y = TypeVar("Y")
_SAME_STATES = (  # Balsam's successive states: each line is one state here
    frozenset(("RUN_DONE", "POSTPROCESSED", "STAGED_OUT", "JOB_FINISHED")),
    frozenset(("RUN_ERROR", "FAILED")),
)
_MOST_NODES = 10**9  # a number of nodes


class AnyEvent(Protocol):
    """A job's change of state."""

    @property
    def job_id(self) -> Any: ...  # Any: Balsam's are numbers
    @property
    def timestamp(self) -> datetime: ...
    @property
    def from_state(self) -> Any: ...  # Any: texts, or enumerations of them
    @property
    def to_state(self) -> Any: ...
    @property
    def data(self) -> Mapping[str, Any]:
        """`num_nodes` at the begin of running, and `node_packing_count`, the jobs per node, 1 if
        absent."""
        ...


class AnyAllocation(Protocol):
    """Nodes allocated from a time on, until another one or still."""

    @property
    def num_nodes(self) -> Any: ...  # Any: None if unknown
    @property
    def start_time(self) -> datetime | None: ...
    @property
    def end_time(self) -> datetime | None: ...


class Report(tuple[list[X], list[Y]]):
    """`(X, Y)`, two lists of one length: `plt.step(*report, where="post")`.

    notes: omissions and assumptions, a sentence each; the logger `logshipper.analytics` logs them
    as well.
    """

    notes: list[str]

    def __new__(cls, xs: list[X], ys: list[Y], notes: Iterable[str] = ()) -> "Report[X, Y]":
        report = super().__new__(cls, (xs, ys))
        report.notes = list(notes)
        for note in report.notes:
            logging.getLogger("logshipper.analytics").warning("%s", note)
        return report


def throughput_report(
    events: Iterable[AnyEvent], to_state: str = "JOB_FINISHED"
) -> Report[datetime, int]:
    """Count changes to a state over time: X their times, sorted, Y 1, 2, 3 and so on."""
    times = sorted(in_utc(event.timestamp) for event in events if enters(event, to_state))
    return Report(times, list(range(1, len(times) + 1)))


def utilization_report(
    events: Iterable[AnyEvent], node_weighting: bool = True
) -> Report[datetime, float]:
    """Count nodes with running jobs, or without node_weighting the running jobs: X the times of
    starts and ends, Y the sum from then on.

    Ends precede starts at equal times. A job counts as its nodes, divided by the jobs per node; as
    1 if unknown. An end without a start is omitted.
    """
    starts: dict[object, list[tuple[datetime, Mapping[str, Any]]]] = defaultdict(list)
    ends: dict[object, list[datetime]] = defaultdict(list)
    for event in events:
        job = (getattr(event, "cluster", ""), event.job_id)
        ran, runs = is_running(event.from_state), is_running(event.to_state)
        if runs and not ran:
            starts[job].append((in_utc(event.timestamp), event.data or {}))
        elif ran and not runs:
            ends[job].append(in_utc(event.timestamp))
    changes: list[tuple[datetime, Fraction]] = []
    orphan_count = unknown_count = 0
    for key in starts.keys() | ends.keys():
        weights = []
        for time, data in sorted(starts[key], key=lambda start: start[0]):
            nodes = nodes_of(data) if node_weighting else Fraction(1)
            unknown_count += nodes is None
            weights.append((time, Fraction(1) if nodes is None else nodes))
        releases, left_over = _pair_ends(weights, sorted(ends[key]))
        changes += [*weights, *((time, -nodes) for time, nodes in releases)]
        orphan_count += left_over
    return _sum_changes(changes, _notes(orphan_count, unknown_count, "job"), float)


def available_nodes(allocations: Iterable[AnyAllocation]) -> Report[datetime, int]:
    """Count the nodes of allocations: X the times of their begins and ends, Y the sum from then on.

    Ends precede starts at equal times. An allocation without an end runs; one without a start is
    omitted.
    """
    changes: list[tuple[datetime, Fraction]] = []
    orphan_count = unknown_count = 0
    for allocation in allocations:
        if allocation.start_time is None:
            orphan_count += allocation.end_time is not None
            continue
        nodes = positive(allocation.num_nodes)
        unknown_count += nodes is None
        nodes = Fraction(1) if nodes is None else nodes
        begin = in_utc(allocation.start_time)
        changes.append((begin, nodes))
        if allocation.end_time is not None:
            changes.append((max(in_utc(allocation.end_time), begin), -nodes))
    return _sum_changes(changes, _notes(orphan_count, unknown_count, "allocation"), int)


# ---- states, times and nodes


def enters(event: AnyEvent, state: str) -> bool:
    """Return whether a job changed to the state.

    Other systems distinguish states that are one here. Such a name matches only events with this
    name: as their state, or, for imported jobs, as `source_from` and `source_to` in their data.
    """
    target = state.strip().upper()
    before, after = _name(event.from_state), _name(event.to_state)
    source_before, source_after = (
        _name((event.data or {}).get(name)) for name in ("source_from", "source_to")
    )
    name_after = source_after or after
    if name_after == target and (
        target in STATE_ALIASES or any(target in names for names in _SAME_STATES)
    ):
        return (source_before or before) != target
    is_ours = not source_after and name_after in STATES
    if not is_ours and any(target in names and name_after in names for names in _SAME_STATES):
        return False
    return state_of(after) == state_of(target) != state_of(before)


def is_running(state: object) -> bool:
    return _runs(state if isinstance(state, str) else _name(state))


@lru_cache(maxsize=1024)
def _runs(state: str) -> bool:
    return state_of(_name(state)) in RUNNING_STATES


def _name(state: object) -> str:
    """Also of an enumeration's member."""
    return str(getattr(state, "value", state) or "").strip().upper()


def in_utc(time: datetime) -> datetime:
    if time.tzinfo is UTC:
        return time
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def nodes_of(data: Mapping[str, Any]) -> Fraction | None:  # Any: JSON
    """Return a job's weight; None if its nodes are unknown. Balsam's own number, a float, is
    already divided."""
    nodes, packing = positive(data.get("num_nodes")), positive(data.get("node_packing_count"))
    is_share = "source_to" in data and isinstance(data.get("num_nodes"), float)
    return nodes if nodes is None or packing is None or is_share else nodes / packing


def positive(value: object) -> Fraction | None:
    """Return an exact number above 0, so that sums of parts of nodes are exact; None for other
    values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _exact(value) if 0 < value <= _MOST_NODES else None


@lru_cache(maxsize=1024)
def _exact(value: float) -> Fraction:
    exact = Fraction(value)
    return exact.limit_denominator(10**6) or exact


# ---- sums


def _pair_ends(
    starts: list[tuple[datetime, Fraction]], ends: list[datetime]
) -> tuple[list[tuple[datetime, Fraction]], int]:
    """A job's ends with the nodes that each gives back, and how many ends have no start. Both are
    in order of time; an end belongs to the newest start before it that has none yet, or to one at
    its very time."""
    releases: list[tuple[datetime, Fraction]] = []
    running: list[Fraction] = []
    orphan_count = place = 0
    for end in ends:
        while place < len(starts) and (
            starts[place][0] < end or (starts[place][0] == end and not running)
        ):
            running.append(starts[place][1])
            place += 1
        if running:
            releases.append((end, running.pop()))
        else:
            orphan_count += 1
    return releases, orphan_count


def _sum_changes(
    changes: list[tuple[datetime, Fraction]], notes: list[str], number: Callable[[float], Y]
) -> Report[datetime, Y]:
    # integers are exact and fast
    whole = math.lcm(*{nodes.denominator for _, nodes in changes})
    ordered = [(time, nodes.numerator * (whole // nodes.denominator)) for time, nodes in changes]
    ordered.sort()  # returned nodes are negative, and so precede taken ones
    sums = accumulate(nodes for _, nodes in ordered)
    return Report([time for time, _ in ordered], [number(total / whole) for total in sums], notes)


def _notes(orphan_count: int, unknown_count: int, noun: str) -> list[str]:
    """Report ends without a start, and nouns with an unknown number of nodes."""
    notes = [f"{plural(orphan_count, 'end')} without a start left out"] if orphan_count else []
    if unknown_count:
        nouns = plural(unknown_count, noun)
        notes.append(f"of {nouns} the number of nodes isn't known: each counts as 1")
    return notes
