"""One job's events: changes of its state, and others. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from logshipper.classify.commands import USER_EVENT
from logshipper.errors import StoreError, UnknownJob
from logshipper_ingest.model.job import (
    HEARTBEAT_FOUND,
    HEARTBEAT_LOST,
    HISTORY,
    STATE_CHANGED,
    UNRESPONSIVE,
    Capture,
    JobEvent,
    JobSummary,
    worst_state,
)
from logshipper_ingest.model.summary import nodes_of
from logshipper_observe.base.words import NS, RUNNING_STATES, state_of
from logshipper_observe.model.job_states import QUEUED, Silence, is_stale, silences, system_changes

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import History

_NEVER_NS = 1 << 62
# after its last sign of life: its scheduler's report of its end may wait for two minutes
_LATE_NS = 300 * NS
RUNNING, REQUEUED = "RUNNING", "REQUEUED"


@dataclass(frozen=True, slots=True)
class StateEvent:
    """A job's change from one state to another; both are "" for its other events."""

    id: str  # the same in each reading
    job_id: str
    time_ns: int  # nanoseconds since 1970
    from_state: str
    to_state: str
    # attempt; num_nodes at the begin, exit_code, signal, reason at an end; a user's event has the
    # user's fields only, others have all
    data: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    name: str = ""
    cluster: str = ""
    # `state`, else the event's name: `heartbeat_lost`, `mode_changed`, `lines_lost`, `user_event`
    kind: str = STATE_CHANGED
    message: str = ""  # a sentence; of changes "" but for a late heartbeat
    source_id: str = ""  # an imported job's number in its own system
    # an imported job's original data. Any: JSON
    source_data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timestamp(self) -> datetime:
        """In UTC, to the microsecond."""
        return datetime.fromtimestamp(self.time_ns // NS, UTC).replace(
            microsecond=self.time_ns % NS // 1000
        )


def bounds(job: JobSummary, *, other_events: bool) -> tuple[int, int]:
    """No event of the job is before the first time, or after the second, unless its clock went
    back."""
    if not is_read(job, other_events=other_events):
        return job.started_ns, max(job.ended_ns or 0, job.started_ns)
    earliest_ns = (
        min(job.first_change_ns or job.started_ns, job.started_ns) if job.attempts == 1 else 0
    )
    if job.state in RUNNING_STATES:
        return earliest_ns, _NEVER_NS
    latest_ns = max(job.ended_ns or 0, job.started_ns, job.heartbeat_ns, job.last_change_ns)
    return earliest_ns, latest_ns + (_LATE_NS if other_events else 0)


def _is_plain(job: JobSummary) -> bool:
    """Return whether the summary has all changes of the job's state."""
    return job.attempts == 1 and not job.last_change_ns and job.state != UNRESPONSIVE


def is_read(job: JobSummary, *, other_events: bool) -> bool:
    """Return whether the events need the job's own data, because its summary lacks some."""
    return other_events or not _is_plain(job)


@dataclass(frozen=True, slots=True)
class EventSelection:
    """A selection of a job's events, and their order."""

    other_events: bool = True  # not only changes of its state
    newest_first: bool = False
    kinds: Collection[str] = ()  # selects other events; empty for all
    begin_ns: int = 0  # first time of other events; 0 for no limit
    end_ns: int = 0  # end of other events; 0 for no limit


def read_events(
    job: JobSummary,
    open_reader: "Callable[[], AbstractContextManager[History]]",
    problems: list[str],
    selection: EventSelection,
) -> Iterator[StateEvent]:
    """Yield events in order; of a damaged or removed job, those of its summary."""
    if is_read(job, other_events=selection.other_events):
        has_yielded = False
        try:
            with open_reader() as reader:
                for event in events_of(job, reader, selection):
                    has_yielded = True
                    yield event
                return
        except UnknownJob:
            pass
        except StoreError as error:
            problems.append(str(error))
        if has_yielded:  # the changes would come twice
            return
    run = (job.attempts, job.nodes, job.started_ns, job.ended_ns, job.state, _end_data(job))
    changes = list(_changes(job, [run], {}))
    yield from reversed(changes) if selection.newest_first else changes


def events_of(
    job: JobSummary, reader: "History", selection: EventSelection
) -> Iterator[StateEvent]:
    """Yield a job's events, and read its own lazily."""
    captures: list[Capture] = list(reader.captures)
    history = list(reader.events(names=HISTORY))
    attempts: dict[int, list[Capture]] = {}
    for capture in captures:
        attempts.setdefault(capture.attempt, []).append(capture)
    changes = list(_imported_changes(job, history))
    heartbeats: Counter[_Heartbeat] = Counter()
    if not changes:
        runs = [_run(job, number, attempts[number], max(attempts)) for number in sorted(attempts)]
        silent = {
            number: list(silences(attempt_captures, _of_attempt(history, number)))
            for number, attempt_captures in attempts.items()
        }
        changes = list(_changes(job, runs, silent))
        heartbeats.update(
            _heartbeat(silence.event)
            for attempt_silences in silent.values()
            for silence in attempt_silences
            if silence.event is not None
        )
    key = attrgetter("time_ns")
    changes.sort(key=key)
    if selection.newest_first:
        changes.reverse()
    if not selection.other_events:
        return iter(changes)
    names, newest_first = selection.kinds, selection.newest_first
    all_events = reader.events(
        names=names, newest_first=newest_first, begin_ns=selection.begin_ns, end_ns=selection.end_ns
    )
    rest = (
        event
        for event in all_events
        if not _is_change(event, heartbeats) and not is_stale(event, captures)
    )
    other_events = _other_events(job, rest, newest_first=newest_first)
    # at equal times an end comes after the events before it
    return (
        merge(changes, other_events, key=key, reverse=True)
        if newest_first
        else merge(other_events, changes, key=key)
    )


_Heartbeat: TypeAlias = tuple[int, int, object]  # time, capture and event's name


def _heartbeat(event: JobEvent) -> _Heartbeat:
    return event.time_ns, event.capture, event.event.get("event")


def _is_change(event: JobEvent, heartbeats: "Counter[_Heartbeat]") -> bool:
    """Return whether an event became a change.

    heartbeats: those of changes still to come, each counted per change.
    """
    if event.event.get("event") not in HISTORY:
        return False
    heartbeat = _heartbeat(event)
    if not heartbeats[heartbeat]:
        return event.event.get("event") == STATE_CHANGED
    heartbeats[heartbeat] -= 1
    return True


def changes_of(reader: "History") -> list[StateEvent]:
    """All changes of one job's state, in order of time."""
    return list(events_of(reader.summary, reader, EventSelection(other_events=False)))


def _of_attempt(events: Iterable[JobEvent], attempt: int) -> Iterator[JobEvent]:
    return (event for event in events if event.attempt == attempt)


_Run: TypeAlias = tuple[int, int, int, int | None, str, dict[str, Any]]  # Any: JSON


def _run(job: JobSummary, number: int, captures: Sequence[Capture], newest: int) -> _Run:
    """An attempt: its number, nodes, begin, end, state and how it came out."""
    if number == newest:
        return number, job.nodes, job.started_ns, job.ended_ns, job.state, _end_data(job)
    state = worst_state([capture.state for capture in captures])
    worst = next(capture for capture in captures if capture.state == state)
    ends = [capture.ended_ns for capture in captures if capture.ended_ns is not None]
    begin_ns = min(capture.started_ns for capture in captures)
    nodes = nodes_of(
        (capture.nodes for capture in captures), (capture.host for capture in captures)
    )
    return number, nodes, begin_ns, max(ends) if ends else None, state, _end_data(worst)


def _end_data(outcome: JobSummary | Capture) -> dict[str, Any]:  # Any: JSON
    return {"exit_code": outcome.exit_code, "signal": outcome.signal, "reason": outcome.reason}


def _changes(
    job: JobSummary, runs: Iterable[_Run], silent: Mapping[int, Sequence[Silence]]
) -> Iterator[StateEvent]:
    """Yield changes of state.

    A restart gives two: back into the queue, and running again. An attempt with an unseen end has
    none. silent: by attempt. No change precedes its predecessor, even if clocks jump.
    """
    last_ns = 0

    def event(
        time_ns: int, before: str, after: str, data: dict[str, Any], suffix: str = ""
    ) -> StateEvent:  # Any: JSON
        nonlocal last_ns
        last_ns = max(last_ns, time_ns)
        event_id = f"{job.cluster}/{job.job_id}/{data['attempt']}/{after}{suffix}".lstrip("/")
        return StateEvent(event_id, job.job_id, last_ns, before, after, data, job.name, job.cluster)

    before = QUEUED
    for number, nodes, begin_ns, end_ns, state, outcome in runs:
        if before not in (QUEUED, REQUEUED):
            yield event(begin_ns, before, REQUEUED, {"attempt": number})
            before = REQUEUED
        yield event(
            begin_ns,
            before,
            RUNNING,
            {"attempt": number, **({"num_nodes": nodes} if nodes else {})},
        )
        before = RUNNING
        is_over = end_ns is not None and state not in RUNNING_STATES
        for silence in silent.get(number, ()):
            after = UNRESPONSIVE if silence.is_lost else RUNNING
            if after != before and not (is_over and silence.time_ns > (end_ns or 0)):
                facts = {"attempt": number, **(silence.event.event if silence.event else {})}
                change = event(silence.time_ns, before, after, facts, f"/{silence.time_ns}")
                kind = HEARTBEAT_LOST if silence.is_lost else HEARTBEAT_FOUND
                yield replace(change, kind=kind, message=str(facts.get("message", "")))
                before = after
        if is_over:
            yield event(max(end_ns or 0, begin_ns), before, state, {"attempt": number, **outcome})
            before = state


def _imported_changes(job: JobSummary, events: Iterable[JobEvent]) -> Iterator[StateEvent]:
    """Yield changes of an imported job, in its system's words."""
    for place, change in enumerate(system_changes(events), start=1):
        event_id = f"{job.cluster}/{job.job_id}/state/{place}".lstrip("/")
        event = change.event.event
        own_data = event.get("data")
        data = {
            name: value
            for name, value in event.items()
            if name not in ("event", "from", "to", "data", "source_id")
        }
        if state_of(change.after) == RUNNING and job.nodes:
            data |= {
                "num_nodes": job.nodes,
                **({"node_packing_count": job.packing} if job.packing > 1 else {}),
            }
        source_data = own_data if isinstance(own_data, dict) else {}
        data |= source_data
        yield StateEvent(
            event_id,
            job.job_id,
            change.time_ns,
            change.before,
            change.after,
            data,
            job.name,
            job.cluster,
            source_id=str(event.get("source_id", "")),
            source_data=source_data,
        )


def _other_events(
    job: JobSummary, events: Iterable[JobEvent], *, newest_first: bool
) -> Iterator[StateEvent]:
    for _, group in groupby(events, key=attrgetter("time_ns")):
        if newest_first:  # those of one time are numbered as in the other order
            yield from reversed(list(_of_one_time(job, reversed(list(group)))))
        else:
            yield from _of_one_time(job, group)


def _of_one_time(job: JobSummary, events: Iterable[JobEvent]) -> Iterator[StateEvent]:
    id_counts: Counter[str] = Counter()
    for event in events:
        kind, message = str(event.event.get("event", "")), str(event.event.get("message", ""))
        event_id = f"{job.cluster}/{job.job_id}/{kind}/{event.time_ns}".lstrip("/")
        id_counts[event_id] += 1
        event_id += f"/{id_counts[event_id]}" if id_counts[event_id] > 1 else ""
        data = {**event.event, "attempt": event.attempt, "capture": event.capture}
        user_data = event.event.get("data")
        if kind == USER_EVENT and isinstance(user_data, dict):
            data = user_data
        yield StateEvent(
            event_id, job.job_id, event.time_ns, "", "", data, job.name, job.cluster, kind, message
        )
