"""Cost of tasks, and use of nodes and cores: launch overheads, run times, gantt, gaps, busy shares,
efficiency.

Pure; times are seconds since 1970, or since any common origin. The terms are QCG-PilotJob's, whose
reports have all of these values. A task without a value (cancelled before it ran, or omitted) is
missing only from results that need it.
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

Core: TypeAlias = tuple[str, str]  # node and core; core "" if only nodes are known


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a task; None for unknown values."""

    name: str
    start: float | None = None  # of its program
    end: float | None = None  # of its program
    # by node; empty for a node with unknown cores
    cores: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scheduled: float | None = None  # the time when it got its cores
    launched: float | None = None  # when its launcher took it for running
    finished: float | None = None  # when its launcher took it for over
    run_secs: float | None = None  # of its program, if its launcher reports it
    queued: float | None = None  # when it began to wait

    @property
    def run_time(self) -> float | None:
        """None for a running task, or if its clock went back."""
        if self.run_secs is not None:
            return _duration(0, self.run_secs)
        return _duration(self.start, self.end)

    @property
    def wait(self) -> float | None:
        """Time until the task got its cores, or was reported as running."""
        until = self.launched if self.scheduled is None else self.scheduled
        return _duration(self.queued, until)

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
    """Statistics of some numbers."""

    number: int
    min: float
    max: float
    mean: float
    median: float
    stdev: float | None  # of a sample; None for a single number
    pstdev: float  # of a population


class Overheads(NamedTuple):
    """Costs of launching, in seconds; None if no task has them."""

    tasks: int  # those with known start and finish
    launch: Statistics | None  # from the allocation of cores to the report as running
    start: Statistics | None  # from the report as running to the program's start
    finish: Statistics | None  # from the program's end to the report of the end
    share: float | None  # start and finish of a task in relation to its run time


class Span(NamedTuple):
    """The time in which a core had a task, or none."""

    place: Core
    start: float
    end: float
    task: str = ""  # "" for idle times


def statistics_of(numbers: Iterable[float]) -> Statistics | None:
    """Return the statistics of the finite numbers; None without any."""
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
    return _by_name((task.name, task.run_time) for task in tasks)


def queue_waits(tasks: Iterable[Task]) -> Report[str, float]:
    """Return the wait of each task in its scheduler's queue: X the names, Y the known seconds."""
    return _by_name((task.name, task.wait) for task in tasks)


def _by_name(values: Iterable[tuple[str, float | None]]) -> Report[str, float]:
    known = [(name, secs) for name, secs in values if secs is not None]
    return Report([name for name, _ in known], [secs for _, secs in known])


def launch_overheads(tasks: Iterable[Task]) -> Overheads:
    launches, starts, finishes, shares = [], [], [], []
    for task in tasks:
        if task.scheduled is not None and task.launched is not None:
            launches.append(task.launched - task.scheduled)
        times = _launch_times(task)
        if times is None:
            continue
        start, end, launched, finished = times
        starts.append(start - launched)
        finishes.append(finished - end)
        if end > start:
            shares.append((starts[-1] + finishes[-1]) / (end - start))
    return Overheads(
        tasks=len(starts),
        launch=statistics_of(launches),
        start=statistics_of(starts),
        finish=statistics_of(finishes),
        share=mean.mean if (mean := statistics_of(shares)) else None,
    )


def overhead_report(tasks: Iterable[Task]) -> Report[str, float]:
    """X the tasks' names, Y the seconds that launching and ending each cost."""
    names, overheads = [], []
    for task in tasks:
        if times := _launch_times(task):
            start, end, launched, finished = times
            names.append(task.name)
            overheads.append(start - launched + finished - end)
    return Report(names, overheads)


def _launch_times(task: Task) -> tuple[float, float, float, float] | None:
    """Start, end, launch and the report of the end; None if one of them is missing."""
    start, end, launched, finished = task.start, task.end, task.launched, task.finished
    if start is None or end is None or launched is None or finished is None or not _ran(task):
        return None
    return start, end, launched, finished


# ---- over time, by node and core


def gantt(tasks: Iterable[Task]) -> list[Span]:
    """Return the task of each core, in order of nodes, cores and time."""
    return [
        Span(place, start, end, name)
        for place, spans in _by_core(tasks).items()
        for start, end, name in spans
    ]


def gaps(tasks: Iterable[Task]) -> list[Span]:
    """Return the idle times of used cores, between the first start and the last end of all."""
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
    """Convert `gantt` or `gaps`: X start and end, Y the core: `for x, y in zip(*report):
    plt.plot(x, (y, y))`."""
    bars = list(spans)
    times = [(span.start, span.end) for span in bars]
    return Report(times, [core_name(span.place) for span in bars])


def busy_share(
    tasks: Iterable[Task], begin: float | None = None, end: float | None = None
) -> Report[str, float]:
    """Return the part of the time in which each core had a task: X the cores, Y the part.

    The time lasts from the first start, or begin, to the last end, or end; without any time the
    share is 0.
    """
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
    """Return `busy_share` without waits that the schedule caused.

    A core that waits for the other cores of its next task is idle only after the last of these is
    free. A core is not idle after its last task.
    """
    ran = [task for task in tasks if _is_whole(task)]
    cores = _by_core(ran)
    begin, end = _bounds(cores)
    starts = {place: [start for start, _, _ in spans] for place, spans in cores.items()}

    idle: dict[Core, float] = defaultdict(float)
    for task in ran:
        assert task.start is not None  # noqa: S101  of whole tasks only
        before = {place: bisect_left(starts[place], task.start) for place in task.places}
        # the time when the last of its cores became free
        free_at = max(
            (cores[place][at - 1][1] for place, at in before.items() if at), default=begin
        )
        for place in before:
            idle[place] += max(task.start - free_at, 0.0)
    whole = end - begin
    shares = [1 - idle[place] / whole if whole > 0 else 0.0 for place in cores]
    return Report([core_name(place) for place in cores], shares)


def by_node(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks with their nodes only, for all functions by node."""
    return [replace(task, cores=dict.fromkeys(task.cores, ())) for task in tasks]


def clipped(tasks: Iterable[Task], after: float | None, before: float | None) -> Iterator[Task]:
    """Yield tasks between two times, cut to these; tasks without times stay."""
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
    """Report the number of tasks without nodes or times, in a sentence."""
    number = sum(not _is_whole(task) for task in tasks)
    return [f"{plural(number, 'run')} left out: it isn't known where or when"] if number else []


def _duration(start: float | None, end: float | None) -> float | None:
    """None if a time is unknown, or the clock went back."""
    secs = math.inf if start is None or end is None else end - start
    return secs if 0 <= secs < math.inf else None


def _ran(task: Task) -> bool:
    """Return whether start and end are known numbers in order: a clock may have gone back."""
    return _duration(task.start, task.end) is not None


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
    """Sort cores such as `7` and `7&8` (hardware threads) by the first number."""
    number = place[1].partition("&")[0]
    return place[0], int(number) if number.isdecimal() else -1, place[1]


def _bounds(cores: Mapping[Core, Sequence[tuple[float, float, str]]]) -> tuple[float, float]:
    spans = [span for spans in cores.values() for span in spans]
    begin = min((start for start, _, _ in spans), default=0.0)
    return begin, max((end for _, end, _ in spans), default=0.0)


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order of their starts, with those that overlap or touch as one."""
    union: list[tuple[float, float]] = []
    for start, end in spans:
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((start, end))
    return union
