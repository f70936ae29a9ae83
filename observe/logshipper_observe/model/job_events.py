"""One job's events: changes of its state, and others. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from logshipper.classify.commands import USER_EVENT
from logshipper.errors import StoreError, UnknownJob
from logshipper_ingest.model.job import (
    HEARTBEAT_FOUND,
    HEARTBEAT_LOST,
    HISTORY,
    QUEUED,
    RUNNING,
    STATE_CHANGED,
    UNRESPONSIVE,
    Capture,
    JobEvent,
    JobSummary,
    Json,
    worst_state,
)
from logshipper_ingest.model.summary import nodes_of
from logshipper_observe.base.words import NS, RUNNING_STATES, exit_words, state_of
from logshipper_observe.model.job_states import Silence, is_stale, silences, system_changes

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import History

_NEVER_NS = 1 << 62
# after its last sign of life: its scheduler's report of its end may wait for two minutes
_LATE_NS = 300 * NS
REQUEUED = "REQUEUED"


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
        return moment_of(self.time_ns)


def moment_of(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // NS, UTC).replace(microsecond=time_ns % NS // 1000)


def bounds(job: JobSummary, *, other_events: bool) -> tuple[int, int]:
    """No event of the job is before the first time, or after the second, unless its clock went
    back."""
    if not is_read(job, other_events=other_events):
        return job.started_ns, max(job.ended_ns or 0, job.started_ns)
    first_ns = min(job.first_change_ns or job.started_ns, job.started_ns)
    earliest_ns = first_ns if job.attempts == 1 else 0
    if job.state in RUNNING_STATES:
        return earliest_ns, _NEVER_NS
    latest_ns = max(job.ended_ns or 0, job.started_ns, job.heartbeat_ns, job.last_change_ns)
    return earliest_ns, latest_ns + (_LATE_NS if other_events else 0)


def is_read(job: JobSummary, *, other_events: bool) -> bool:
    """Return whether the events need the job's own data, because its summary lacks some."""
    has_further_changes = job.attempts != 1 or job.last_change_ns or job.state == UNRESPONSIVE
    return other_events or bool(has_further_changes)


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
    changes = list(_changes(job, [_newest_run(job)]))
    yield from reversed(changes) if selection.newest_first else changes


def events_of(
    job: JobSummary, reader: "History", selection: EventSelection
) -> Iterator[StateEvent]:
    """Yield a job's events, and read its own lazily."""
    captures = list(reader.captures)
    history = list(reader.events(names=HISTORY))
    changes = list(_imported_changes(job, history))
    heartbeats: Counter[_Heartbeat] = Counter()
    if not changes:
        runs = list(_runs(job, captures, history))
        changes = list(_changes(job, runs))
        causes = (silence.event for run in runs for silence in run.silences)
        heartbeats.update(_heartbeat(event) for event in causes if event is not None)
    key, newest_first = attrgetter("time_ns"), selection.newest_first
    changes.sort(key=key)
    if newest_first:
        changes.reverse()
    if not selection.other_events:
        return iter(changes)
    all_events = reader.events(
        names=selection.kinds,
        newest_first=newest_first,
        begin_ns=selection.begin_ns,
        end_ns=selection.end_ns,
    )
    rest = (
        event
        for event in all_events
        if not _is_change(event, heartbeats) and not is_stale(event, captures)
    )
    other_events = _other_events(job, rest, newest_first=newest_first)
    # at equal times an end comes after the events before it
    if newest_first:
        return merge(changes, other_events, key=key, reverse=True)
    return merge(other_events, changes, key=key)


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


class _Run(NamedTuple):
    """An attempt."""

    number: int
    nodes: int
    begin_ns: int
    end_ns: int | None
    state: str
    outcome: Json
    silences: Sequence[Silence] = ()


def _newest_run(job: JobSummary) -> _Run:
    return _Run(job.attempts, job.nodes, job.started_ns, job.ended_ns, job.state, _end_data(job))


def _runs(
    job: JobSummary, captures: Sequence[Capture], history: Sequence[JobEvent]
) -> Iterator[_Run]:
    """Yield the attempts in order; the summary has the newest."""
    numbers = sorted({capture.attempt for capture in captures})
    for number in numbers:
        peers = [capture for capture in captures if capture.attempt == number]
        events = [event for event in history if event.attempt == number]
        if number == numbers[-1]:
            run = _newest_run(job)._replace(number=number)
        else:
            state = worst_state([capture.state for capture in peers])
            worst = next(capture for capture in peers if capture.state == state)
            run = _Run(
                number,
                nodes_of((peer.nodes for peer in peers), (peer.host for peer in peers)),
                min(peer.started_ns for peer in peers),
                max((peer.ended_ns for peer in peers if peer.ended_ns is not None), default=None),
                state,
                _end_data(worst),
            )
        yield run._replace(silences=list(silences(peers, events)))


def _end_data(outcome: JobSummary | Capture) -> Json:
    return {"exit_code": outcome.exit_code, "signal": outcome.signal, "reason": outcome.reason}


def _changes(job: JobSummary, runs: Iterable[_Run]) -> Iterator[StateEvent]:
    """Yield changes of state.

    A restart gives two: back into the queue, and running again. An attempt with an unseen end has
    none. No change precedes its predecessor, even if clocks jump.
    """
    last_ns = 0

    def event(time_ns: int, before: str, after: str, data: Json, suffix: str = "") -> StateEvent:
        nonlocal last_ns
        last_ns = max(last_ns, time_ns)
        event_id = f"{job.cluster}/{job.job_id}/{data['attempt']}/{after}{suffix}".lstrip("/")
        return StateEvent(event_id, job.job_id, last_ns, before, after, data, job.name, job.cluster)

    before = QUEUED
    for run in runs:
        attempt = {"attempt": run.number}
        if before not in (QUEUED, REQUEUED):
            yield event(run.begin_ns, before, REQUEUED, attempt)
            before = REQUEUED
        nodes = {"num_nodes": run.nodes} if run.nodes else {}
        yield event(run.begin_ns, before, RUNNING, attempt | nodes)
        before = RUNNING
        is_over = run.end_ns is not None and run.state not in RUNNING_STATES
        for silence in run.silences:
            after = UNRESPONSIVE if silence.is_lost else RUNNING
            if after != before and not (is_over and silence.time_ns > (run.end_ns or 0)):
                facts = {**attempt, **(silence.event.event if silence.event else {})}
                change = event(silence.time_ns, before, after, facts, f"/{silence.time_ns}")
                kind = HEARTBEAT_LOST if silence.is_lost else HEARTBEAT_FOUND
                yield replace(change, kind=kind, message=str(facts.get("message", "")))
                before = after
        if is_over:
            end_ns = max(run.end_ns or 0, run.begin_ns)
            yield event(end_ns, before, run.state, attempt | run.outcome)
            before = run.state


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
            data["num_nodes"] = job.nodes
            if job.packing > 1:
                data["node_packing_count"] = job.packing
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


def event_words(event: Mapping[str, Any]) -> str:  # Any: JSON
    """An event as a sentence."""
    kind, message = event.get("event"), event.get("message")
    if kind == STATE_CHANGED:
        before, after = (event.get(f"source_{end}") or event.get(end) for end in ("from", "to"))
        return f"from {before} to {after}" if before else f"{after}"
    has_message = isinstance(message, str) and message
    if kind == "mode_changed":
        words = f"mode changed from {event.get('from', '?')} to {event.get('to', '?')}"
        return str(message) if has_message and str(message).startswith(words) else words
    if has_message:
        return str(message)
    return str(kind or "").replace("_", " ") or "an event without a name"


def words_of_event(event: StateEvent) -> str:
    """An event in words, besides its states; "" where these say all."""
    if not event.to_state:
        return event.message or event_words({**event.data, "event": event.kind})
    code, signal = event.data.get("exit_code"), event.data.get("signal")
    outcome = exit_words(
        code if isinstance(code, int) else None, signal if isinstance(signal, int) else 0
    )
    return event.message or (outcome if code or signal else "")
