"""History of an ended job: its captures and changes of state, in the catalogue for reports on many
jobs.

It is a copy from the job's database. Running jobs, jobs with children and jobs with long histories
have none: reports open their databases.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from logshipper_ingest.model.job import (
    HISTORY,
    JOB_ENDED,
    OPEN_STATES,
    Capture,
    JobEvent,
    JobEventFilter,
    JobSummary,
    Json,
)
from logshipper_ingest.model.stores import History

EVENTS = (*HISTORY, JOB_ENDED)  # the events that are kept
DETAILS = ("allocation", "run_secs")  # details of an imported job's own system
MAX_BYTES = 16_384
_LOOKED_UP = 500  # histories at once
_COLUMNS = (
    "capture", "attempt", "step", "task", "host", "state", "exit_code", "signal", "started_ns", "ended_ns", "reason",
    "nodes",
)  # fmt: skip


def packed_history(
    summary: JobSummary, captures: Sequence[Capture], events: Iterable[JobEvent], details: Json
) -> str | None:
    """Encode a history for the catalogue; None for jobs without one. events: those of EVENTS, in
    order."""
    if summary.children or any(capture.state in OPEN_STATES for capture in captures):
        return None
    kept_details = {name: details[name] for name in DETAILS if name in details}
    rows = [[getattr(capture, name) for name in _COLUMNS] for capture in captures]
    text = json.dumps([rows, list(events), kept_details], separators=(",", ":"))
    return text if len(text) <= MAX_BYTES else None


class JobHistory(History):
    """A job for reports on runs, with the events of EVENTS and the details of DETAILS. Raises
    ValueError for texts that packed_history did not make."""

    def __init__(self, summary: JobSummary, text: str) -> None:
        self.summary = summary
        try:
            rows, events, details = json.loads(text)
            self.captures = [
                Capture(
                    mode="",
                    ledger={},
                    columns=0,
                    rows=0,
                    tty=True,
                    **dict(zip(_COLUMNS, row, strict=True)),
                )
                for row in rows
            ]
            self._stored_events = [JobEvent(*event) for event in events]
            self._details: Json = dict(details)
        except TypeError as error:
            raise ValueError(f"not the history of a job: {error}") from None

    def _select_events(self, event_filter: JobEventFilter) -> Iterator[JobEvent]:
        return event_filter.merge((), self._stored_events)

    def details(self) -> Json:
        return self._details

    def texts(self) -> Iterator[str]:
        """All that the job itself, or whoever ran it, has put there."""
        for capture in self.captures:
            yield from (capture.reason, capture.step)
        yield from _texts([event.event for event in self._stored_events])
        yield from _texts(self._details)


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


class HistoryLookup:
    """Looks up jobs' histories, many at a time.

    jobs: in the order of use; fetch: the histories in the catalogue, by job id; open_reader: opens
    a job without one.
    """

    def __init__(
        self,
        jobs: Sequence[JobSummary],
        fetch: Callable[[Sequence[str]], dict[str, str]],
        open_reader: Callable[[JobSummary], History],
    ) -> None:
        self._remaining = iter(jobs)
        self._fetch = fetch
        self._open_reader = open_reader
        self._page: set[str] = set()
        self._texts: dict[str, str] = {}

    def of(self, job: JobSummary) -> History:
        while job.job_id not in self._page:
            ids = [following.job_id for following in islice(self._remaining, _LOOKED_UP)]
            if not ids:
                break
            self._page, self._texts = set(ids), self._fetch(ids)
        text = self._texts.get(job.job_id)
        if text is not None:
            try:
                return JobHistory(job, text)
            except ValueError:
                pass  # the job's database has it all
        return self._open_reader(job)
