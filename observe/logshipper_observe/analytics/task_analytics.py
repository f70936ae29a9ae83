"""What tasks cost and how well they filled nodes and cores: launch overheads, run times, gantt,
gaps, busy shares, efficiency. Pure; times are seconds since 1970, or from wherever all of them
count.

The terms are QCG-PilotJob's, whose reports have all of this of a task. What a task lacks (it was
cancelled before it ran, or left out) leaves it out of what needs that, and nothing else.
"""

import math
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from logshipper_ingest.console.text_table import plural
from logshipper_observe.analytics.analytics import Report

Core: TypeAlias = tuple[str, str]  # node and core; core "" where only nodes are known


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a task; None for what isn't known."""

    name: str
    start: float | None = None  # of its program
    end: float | None = None  # of its program
    # by node; empty for a node whose cores aren't known
    cores: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scheduled: float | None = None  # when it was given its cores
    launched: float | None = None  # when its launcher took it for running
    finished: float | None = None  # when its launcher took it for over
    run_secs: float | None = None  # of its program, where its launcher reports that by itself
    queued: float | None = None  # when it began to wait

    @property
    def run_time(self) -> float | None:
        """None where it isn't over, or by its clock ended before it began."""
        secs = self.run_secs
        if secs is None and self.start is not None and self.end is not None:
            secs = self.end - self.start
        return secs if secs is not None and 0 <= secs < math.inf else None

    @property
    def wait(self) -> float | None:
        """Until it was given its cores, or was taken for running."""
        until = self.launched if self.scheduled is None else self.scheduled
        secs = None if until is None or self.queued is None else until - self.queued
        return secs if secs is not None and 0 <= secs < math.inf else None

    @property
    def has_cores(self) -> bool:
        return any(self.cores.values())

    @property
    def places(self) -> list[Core]:
        """Each once."""
        return [
            (node, core)
            for node, cores in self.cores.items()
            for core in dict.fromkeys(cores) or ("",)
        ]


class Statistics(NamedTuple):
    """Of some numbers."""

    number: int
    min: float
    max: float
    mean: float
    median: float
    stdev: float | None  # of a sample; None of a single number
    pstdev: float  # of a population


class Overheads(NamedTuple):
    """What launching cost, in seconds, each None where it is known of no task."""

    tasks: int  # those whose start and finish are known
    launch: Statistics | None  # from being given cores to being taken for running
    start: Statistics | None  # from being taken for running to the program's start
    finish: Statistics | None  # from the program's end to being taken for over
    share: float | None  # start and finish of a task in relation to its run time


class Span(NamedTuple):
    """From when until when a core had a task, or none."""

    place: Core
    start: float
    end: float
    task: str = ""  # "" where it had none


def statistics_of(numbers: Iterable[float]) -> Statistics | None:
    """Of those that are finite; None where there are none."""
    finite = list(filter(math.isfinite, numbers))
    if not finite:
        return None
    return Statistics(
        number=len(finite),
        min=min(finite),
        max=max(finite),
        mean=statistics.fmean(finite),
        median=statistics.median(finite),
        stdev=statistics.stdev(finite) if len(finite) > 1 else None,
        pstdev=statistics.pstdev(finite),
    )


def run_times(tasks: Iterable[Task]) -> Report[str, float]:
    """X the tasks' names, Y the seconds that each ran; only of tasks that are over."""
    times = [(task.name, secs) for task in tasks if (secs := task.run_time) is not None]
    return Report([name for name, _ in times], [secs for _, secs in times])


def queue_waits(tasks: Iterable[Task]) -> Report[str, float]:
    """X the tasks' names, Y the seconds that each waited in its scheduler's queue, where that is
    known."""
    waits = [(task.name, secs) for task in tasks if (secs := task.wait) is not None]
    return Report([name for name, _ in waits], [secs for _, secs in waits])


def launch_overheads(tasks: Iterable[Task]) -> Overheads:
    launches, starts, finishes, shares = [], [], [], []
    for task in tasks:
        if task.scheduled is not None and task.launched is not None:
            launches.append(task.launched - task.scheduled)
        if task.launched is None or task.finished is None or not _ran(task):
            continue
        assert task.start is not None  # noqa: S101  it ran
        assert task.end is not None  # noqa: S101
        starts.append(task.start - task.launched)
        finishes.append(task.finished - task.end)
        if task.end > task.start:
            shares.append((starts[-1] + finishes[-1]) / (task.end - task.start))
    return Overheads(
        tasks=len(starts),
        launch=statistics_of(launches),
        start=statistics_of(starts),
        finish=statistics_of(finishes),
        share=mean.mean if (mean := statistics_of(shares)) else None,
    )


def overhead_report(tasks: Iterable[Task]) -> Report[str, float]:
    """X the tasks' names, Y the seconds that launching and ending each cost."""
    overheads = [
        (task.name, task.start - task.launched + task.finished - task.end)
        for task in tasks
        if task.start is not None
        and task.end is not None
        and task.launched is not None
        and task.finished is not None
        if _ran(task)
    ]
    return Report([name for name, _ in overheads], [secs for _, secs in overheads])


# ---- over time, by node and core


def gantt(tasks: Iterable[Task]) -> list[Span]:
    """Which task each core had: in order of nodes, cores and time."""
    return [
        Span(place, start, end, name)
        for place, spans in _by_core(tasks).items()
        for start, end, name in spans
    ]


def gaps(tasks: Iterable[Task]) -> list[Span]:
    """When cores that had a task had none: between the first start and the last end of all."""
    cores = _by_core(tasks)
    begin, end = _bounds(cores)
    idle_spans = []
    for place, spans in cores.items():
        edges = [(begin, begin), *_union((start, stop) for start, stop, _ in spans), (end, end)]
        idle_spans += [
            Span(place, before, after)
            for (_, before), (after, _) in pairwise(edges)
            if after > before
        ]
    return idle_spans


def gantt_report(spans: Iterable[Span]) -> Report[tuple[float, float], str]:
    """Of `gantt` or `gaps`: X start and end, Y the core: `for x, y in zip(*report): plt.plot(x, (y,
    y))`."""
    bars = list(spans)
    return Report(
        [(span.start, span.end) for span in bars], [core_name(span.place) for span in bars]
    )


def busy_share(
    tasks: Iterable[Task], begin: float | None = None, end: float | None = None
) -> Report[str, float]:
    """X the cores, Y the part of the time in which each had a task: from the first start, or begin,
    to the last end, or end. Of nothing at all the share is 0."""
    cores = _by_core(tasks)
    first, last = _bounds(cores)
    first, last = first if begin is None else begin, last if end is None else end
    shares = []
    for spans in cores.values():
        busy = sum(
            max(min(stop, last) - max(start, first), 0.0)
            for start, stop in _union((start, stop) for start, stop, _ in spans)
        )
        shares.append(busy / (last - first) if last > first else 0.0)
    return Report([core_name(place) for place in cores], shares)


def efficiency(tasks: Iterable[Task]) -> Report[str, float]:
    """As `busy_share`, without waits that the schedule caused: a core that waits for others which
    the next task needs, too, isn't idle before the last of these is free; nor is it after its last
    task."""
    ran = [task for task in tasks if _is_whole(task)]
    cores = _by_core(ran)
    begin, end = _bounds(cores)
    starts = {place: [start for start, _, _ in spans] for place, spans in cores.items()}

    def free_at(task: Task) -> float:
        """When the last of its cores became free."""
        assert task.start is not None  # noqa: S101  of whole tasks only
        ends = []
        for place in task.places:
            at = bisect_left(starts[place], task.start)
            if at:
                ends.append(cores[place][at - 1][1])
        return max(ends, default=begin)

    idle: dict[Core, float] = defaultdict(float)
    for task in ran:
        assert task.start is not None  # noqa: S101
        wait = max(task.start - free_at(task), 0.0)
        for place in task.places:
            idle[place] += wait
    whole = end - begin
    shares = [1 - idle[place] / whole if whole > 0 else 0.0 for place in cores]
    return Report([core_name(place) for place in cores], shares)


def by_node(tasks: Iterable[Task]) -> list[Task]:
    """The tasks as if only their nodes were known: for any of the above by node."""
    return [replace(task, cores=dict.fromkeys(task.cores, ())) for task in tasks]


def clipped(tasks: Iterable[Task], after: float | None, before: float | None) -> Iterator[Task]:
    """Tasks that ran between two times, and of each what is between them; those of which no time is
    known stay."""
    for task in tasks:
        if not _ran(task) or task.start is None or task.end is None:
            yield task
            continue
        start = task.start if after is None else max(task.start, after)
        end = task.end if before is None else min(task.end, before)
        if start <= end:
            yield replace(task, start=start, end=end, run_secs=None)


def core_name(place: Core) -> str:
    return ":".join(filter(None, place))


def left_out_note(tasks: Sequence[Task]) -> list[str]:
    """How many of the tasks no node or time is known of, a sentence."""
    number = sum(not _is_whole(task) for task in tasks)
    return [f"{plural(number, 'run')} left out: it isn't known where or when"] if number else []


def _ran(task: Task) -> bool:
    """Whether it is known from when until when: a clock may have gone back, a number be none."""
    return task.start is not None and task.end is not None and 0 <= task.end - task.start < math.inf


def _is_whole(task: Task) -> bool:
    return _ran(task) and bool(task.cores)


def _by_core(tasks: Iterable[Task]) -> dict[Core, list[tuple[float, float, str]]]:
    """Start, end and name of each core's tasks in order; cores with the numbers in their names in
    order."""
    spans_by_core: dict[Core, list[tuple[float, float, str]]] = defaultdict(list)
    for task in tasks:
        if _is_whole(task):
            for place in task.places:
                spans_by_core[place].append((task.start or 0.0, task.end or 0.0, task.name))
    return {place: sorted(spans_by_core[place]) for place in sorted(spans_by_core, key=_order)}


def _order(place: Core) -> tuple[str, int, str]:
    """Of cores such as `7` and `7&8` (hardware threads) by the first number."""
    number = place[1].partition("&")[0]
    return place[0], int(number) if number.isdecimal() else -1, place[1]


def _bounds(cores: Mapping[Core, Sequence[tuple[float, float, str]]]) -> tuple[float, float]:
    spans = [span for spans in cores.values() for span in spans]
    return min((start for start, _, _ in spans), default=0.0), max(
        (end for _, end, _ in spans), default=0.0
    )


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order of their starts, with those that overlap or touch as one."""
    union: list[tuple[float, float]] = []
    for start, end in spans:
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((start, end))
    return union
