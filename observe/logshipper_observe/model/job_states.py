"""States in a job's own events: late heartbeats, and the states of other systems. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logshipper_ingest.model.job import (
    HEARTBEAT_FOUND,
    HEARTBEAT_LOST,
    STATE_CHANGED,
    Capture,
    JobEvent,
)
from logshipper_observe.base.words import STATES, state_of


class Silence(NamedTuple):
    """A change of a running attempt: from time_ns on all of its captures are silent, or no longer.

    event: its cause, None if another capture began.
    """

    time_ns: int
    is_lost: bool
    event: JobEvent | None


def fits(condition: str | None, state: str, other_state: str) -> bool:
    """Return whether a change's state meets a condition (None: any), by its own name or its name
    here.

    other_state: the change's other state. If several states of another system have one name here
    (RUN_DONE, POSTPROCESSED), only changes from or to another name match it.
    """
    if condition is None:
        return True
    name = condition.strip().upper()
    if state.upper() == name or not state:
        return bool(state)
    if state in STATES:  # among another system's states it is that system's, and keeps its name
        return state_of(name) == state and (not other_state or other_state in STATES)
    return name in STATES and state_of(state) == name != state_of(other_state)


def silences(captures: Iterable[Capture], events: Iterable[JobEvent]) -> Iterator[Silence]:
    """Yield the times when all running captures of an attempt fall silent, or no longer are.

    Reports about a capture after its end do not count.
    """
    moments: list[tuple[int, int, int, JobEvent | None]] = []
    for capture in captures:
        moments.append((capture.started_ns, _STARTS, capture.capture, None))
        if capture.ended_ns is not None:
            moments.append((capture.ended_ns, _ENDS, capture.capture, None))
    heartbeats = (
        event for event in events if event.event.get("event") in (HEARTBEAT_LOST, HEARTBEAT_FOUND)
    )
    moments += [(event.time_ns, _TELLS, event.capture, event) for event in heartbeats]
    moments.sort(key=lambda moment: moment[:3])
    running: set[int] = set()
    silent: set[int] = set()
    lost = False
    for time_ns, kind, number, event in moments:
        if kind == _STARTS:
            running.add(number)
        elif kind == _ENDS:
            running.discard(number)
        elif event is not None:
            (silent.add if event.event.get("event") == HEARTBEAT_LOST else silent.discard)(number)
        now = bool(running) and running <= silent
        if now != lost and running:
            yield Silence(time_ns, now, event)
            lost = now


def is_stale(event: JobEvent, captures: Sequence[Capture]) -> bool:
    """Return whether an event reports a heartbeat after the capture's end.

    The node's agent may do so for a dead capture, and a stopped one writes its end when it
    continues.
    """
    ends = (capture.ended_ns for capture in captures if capture.capture == event.capture)
    return event.event.get("event") in (HEARTBEAT_LOST, HEARTBEAT_FOUND) and any(
        end is not None and event.time_ns > end for end in ends
    )


class SystemState(NamedTuple):
    """A change of state as another system called it."""

    time_ns: int
    before: str
    after: str
    event: JobEvent


def system_changes(events: Iterable[JobEvent]) -> Iterator[SystemState]:
    """Yield changes in the order of events, without those to the same state.

    source_from, source_to: the system's names; from, to: their names here.
    """
    for event in events:
        if event.event.get("event") == STATE_CHANGED:
            before, after = (
                str(event.event.get(f"source_{end}", event.event.get(end, "")))
                for end in ("from", "to")
            )
            if after and before != after:
                yield SystemState(event.time_ns, before, after, event)


_ENDS, _STARTS, _TELLS = range(3)  # the order at equal times
