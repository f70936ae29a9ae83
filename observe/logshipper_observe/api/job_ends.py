"""Waiting until jobs have ended."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from logshipper.errors import QueryError, UnknownJob
from logshipper.safe_text import safe
from logshipper_observe.base.running import say

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore

PATIENCE_SECS = 600.0  # for a server that does not answer
RETRY_SECS = 5.0
_GOES_ON = "REQUEUED"  # this run is over, another one follows


class Silence:
    """A server that does not answer. tell: gets the sentence that reports it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._began: float | None = None

    @property
    def is_now(self) -> bool:
        return self._began is not None

    def bear(self, error: QueryError) -> None:
        """Raise the error where waiting is of no use, or has been so for long."""
        if error.status not in (0, 429) and error.status < 500:
            raise error
        if self._began is None:
            self._began = time.monotonic()
            self._tell(f"{error}; trying again for {PATIENCE_SECS / 60:.0f} minutes")
        elif time.monotonic() - self._began > PATIENCE_SECS:
            raise error

    def end(self) -> bool:
        """End it; return whether there was one."""
        was_silent, self._began = self.is_now, None
        return was_silent


class Waiting:
    """Waits for jobs of a store.

    pending: ids of those that have not ended; timeout_secs: None for no limit. A job has ended if
    two looks agree, because a new state may still be corrected.
    """

    def __init__(
        self, store: "JobStore", ids: Sequence[str], *, timeout_secs: float | None = None
    ) -> None:
        self.pending = list(ids)
        self._store = store
        self._deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
        self._silence = Silence(say)

    def ended(self) -> "Iterator[JobSummary]":
        """Yield each job at its end, in the order of observation, until the time is up."""
        while self.pending:
            began = time.monotonic()
            for job_id in list(self.pending):
                job = self._look(job_id)
                if job is not None:
                    self.pending.remove(job_id)
                    yield job
            # a wait for many jobs takes at most half a core
            if not self.pending or not self._pause(
                max(self._store.poll_secs, time.monotonic() - began)
            ):
                return

    def _look(self, job_id: str) -> "JobSummary | None":
        """Return the ended job; None while it runs, or without an answer."""
        try:
            job = self._terminal(job_id) and self._terminal(job_id)
        except UnknownJob:
            words = f"job {safe(job_id)} was removed while it was waited for"
            raise UnknownJob(job_id, words) from None
        except QueryError as error:
            self._silence.bear(error)
            return None
        self._silence.end()
        return job

    def _terminal(self, job_id: str) -> "JobSummary | None":
        self._store.ingest(job_id=job_id)
        with self._store.open(job_id) as reader:
            return reader.summary if reader.is_over and reader.summary.state != _GOES_ON else None

    def _pause(self, secs: float) -> bool:
        """Wait; return False when the time is up, after a final look at its very end."""
        if self._silence.is_now:
            secs = max(secs, RETRY_SECS)
        if self._deadline is not None:
            rest_secs = self._deadline - time.monotonic()
            if rest_secs <= 0:
                return False
            secs = min(secs, rest_secs)
        time.sleep(secs)
        return True
