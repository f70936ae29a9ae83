"""History of an ended job: its captures and changes of state, in the catalogue for reports on many
jobs.

It is a copy from the job's database. Running jobs, jobs with children and jobs with long histories
have none: reports open their databases.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence

from logshipper_ingest.model.job import (
    HISTORY,
    JOB_ENDED,
    OPEN_STATES,
    Capture,
    Child,
    ChildChange,
    JobEvent,
    JobEventFilter,
    JobSummary,
    Json,
)

EVENTS = (*HISTORY, JOB_ENDED)  # the events that are kept
DETAILS = ("allocation", "run_secs")  # details of an imported job's own system
MAX_BYTES = 16_384
_COLUMNS = (
    "capture", "attempt", "step", "task", "host", "state", "exit_code", "signal", "started_ns", "ended_ns", "reason",
    "nodes",
)  # fmt: skip


def packed_history(
    summary: JobSummary,
    captures: Sequence[Capture],
    events: Iterable[JobEvent],
    details: Json,
) -> str | None:
    """Encode a history for the catalogue; None for jobs without one. events: those of EVENTS, in
    order."""
    if summary.children or any(capture.state in OPEN_STATES for capture in captures):
        return None
    kept_details = {name: details[name] for name in DETAILS if name in details}
    rows = [[getattr(capture, name) for name in _COLUMNS] for capture in captures]
    text = json.dumps([rows, list(events), kept_details], separators=(",", ":"))
    return text if len(text) <= MAX_BYTES else None


class JobHistory:
    """A job for reports on runs, with a part of `Reader`. Raises ValueError for texts that
    packed_history did not make."""

    def __init__(self, summary: JobSummary, text: str) -> None:
        self.summary = summary
        try:
            rows, events, details = json.loads(text)
            self.captures = [_capture(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
            self._events = [JobEvent(*event) for event in events]
            self._details: Json = dict(details)
        except TypeError as error:
            raise ValueError(f"not the history of a job: {error}") from None

    def events(
        self,
        *,
        attempt: int | None = None,
        names: Collection[str] = (),
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[JobEvent]:
        """Yield events of EVENTS."""
        event_filter = JobEventFilter(attempt, names, newest_first, begin_ns, end_ns)
        return event_filter.merge((), self._events)

    def details(self) -> Json:
        """Return details of DETAILS."""
        return self._details

    def children(self) -> Iterator[Child]:
        """Return nothing: jobs with children have no history."""
        return iter(())

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[ChildChange]:
        """Return nothing, as `children`."""
        return iter(())

    def texts(self) -> Iterator[str]:
        """All that the job itself, or whoever ran it, has put there."""
        for capture in self.captures:
            yield from (capture.reason, capture.step)
        yield from _texts([event.event for event in self._events])
        yield from _texts(self._details)

    def __enter__(self) -> "JobHistory":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _capture(values: Json) -> Capture:
    return Capture(mode="", ledger={}, columns=0, rows=0, tty=True, **values)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
