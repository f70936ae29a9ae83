"""`logshipper wait JOB...`: until all, or any, of these jobs have ended; prints how they came out."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from logshipper.errors import QueryError, UnknownJob
from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_observe.documents import job_document
from logshipper_observe.opening import no_jobs_yet, opened, overlay_of, resolve_several, store_place, take_in
from logshipper_observe.output import print_json
from logshipper_observe.overlay import Place
from logshipper_observe.running import say
from logshipper_observe.words import exit_short

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import Store

SCHEMA = "logshipper.wait/1"
EXIT_UNKNOWN, EXIT_TIMED_OUT, EXIT_NOT_COMPLETED = 1, 3, 4
PATIENCE_SECS = 600.0  # for a server that doesn't answer
_RETRY_SECS = 5.0
_GOES_ON = "REQUEUED"  # this run is over, another one follows


def call(args: argparse.Namespace) -> int:
    with opened(args) as store:
        if store is None:
            raise no_jobs_yet(args, args.jobs[0])
        for problem in take_in(store):
            say(problem)
        ids, unknown = resolve_several(store, args.jobs, args)
        for error in unknown:
            say(str(error))
        wanted = 1 if args.any else len(ids)
        waiting = Waiting(store, ids, timeout_secs=args.timeout)
        if ids and sys.stderr.isatty():
            say(f"waiting for {'any of ' if args.any else ''}{plural(len(ids), 'job')}")
        ended = []
        if ids:
            for job in waiting.ended():
                ended.append(job)
                if not args.json:
                    _print_line(job)
                if len(ended) >= wanted:
                    break
        timed_out = len(ended) < min(wanted, len(ids))
        if args.json:
            _print_document(args, store, ended, [job_id for job_id in waiting.left if timed_out], unknown)
    if unknown:
        return EXIT_UNKNOWN
    if timed_out:
        return EXIT_TIMED_OUT
    return EXIT_NOT_COMPLETED if args.check and any(job.state != "COMPLETED" for job in ended) else 0


class Waiting:
    """Jobs of a store that are waited for. left: those that haven't ended; timeout_secs: None for ever.

    A job counts as ended when it says so twice: a state that has just been told may still be fixed.
    """

    def __init__(self, store: "Store", ids: Sequence[str], *, timeout_secs: float | None = None) -> None:
        self.left = list(ids)
        self._store = store
        self._deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
        self._silent_since: float | None = None

    def ended(self) -> "Iterator[JobSummary]":
        """Each job when it has ended, in the order in which that is seen, until the time is up."""
        while self.left:
            began = time.monotonic()
            for job_id in list(self.left):
                job = self._look(job_id)
                if job is not None:
                    self.left.remove(job_id)
                    yield job
            # whoever waits for many takes no more than half a core for it
            if not self.left or not self._pause(max(self._store.poll_secs, time.monotonic() - began)):
                return

    def _look(self, job_id: str) -> "JobSummary | None":
        """How a job has ended; None where it runs, or nobody answers."""
        try:
            job = self._terminal(job_id)
            if job is not None:
                job = self._terminal(job_id)
        except UnknownJob:
            raise UnknownJob(job_id, f"job {safe(job_id)} was removed while it was waited for") from None
        except QueryError as error:
            self._bear(error)
            return None
        self._silent_since = None
        return job

    def _terminal(self, job_id: str) -> "JobSummary | None":
        self._store.take_in(job_id=job_id)
        with self._store.open(job_id) as reader:
            return reader.summary if reader.is_over and reader.summary.state != _GOES_ON else None

    def _bear(self, error: QueryError) -> None:
        """Raises the error where waiting is of no use, or has been so for long."""
        if error.status not in (0, 429) and error.status < 500:
            raise error
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
            say(f"{error}; trying again for {PATIENCE_SECS / 60:.0f} minutes")
        elif now - self._silent_since > PATIENCE_SECS:
            raise error

    def _pause(self, secs: float) -> bool:
        """False where the time is up; the jobs are looked at once more at its very end."""
        if self._silent_since is not None:
            secs = max(secs, _RETRY_SECS)
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                return False
            secs = min(secs, left)
        time.sleep(secs)
        return True


def _print_line(job: "JobSummary") -> None:
    sys.stdout.write(f"{job.job_id}  {job.state}  {exit_short(job.exit_code, job.signal)}  {safe(job.name)}\n")
    sys.stdout.flush()


def _print_document(
    args: argparse.Namespace,
    store: "Store",
    ended: "Sequence[JobSummary]",
    waiting: Sequence[str],
    unknown: Sequence[UnknownJob],
) -> None:
    overlay, now_ns = overlay_of(store), time.time_ns()
    document = {
        "schema": SCHEMA,
        "store": store_place(args),
        "timed_out": bool(waiting),
        "ended": [job_document(job, now_ns, overlay.of(Place(job.job_id, job.cluster))) for job in ended],
        "waiting": list(waiting),
        "unknown": [{"name": error.name, "reason": str(error)} for error in unknown],
    }
    print_json(document)
