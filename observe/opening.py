"""Opening the store for a reading command: what is spooled is taken in first, so that reading is complete."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from logshipper.errors import StoreError, UnknownJob
from observe.running import say
from observe.words import size

if TYPE_CHECKING:
    from ingest.local_store import LocalStore

LIST_SECS = 10.0  # how long taking in may hold up a list, and one job's reading
JOB_SECS = 60.0
_PATIENCE_SECS = 0.5  # a progress bar only where it takes longer
_REDRAW_SECS = 0.1


class Bar:
    """A progress bar on stderr; nothing where that is no terminal, or where it is over soon."""

    def __init__(self) -> None:
        self._show = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._fancy = (sys.stderr.encoding or "").lower().startswith("utf")
        self._due = time.monotonic() + _PATIENCE_SECS
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        """done, total: bytes of the spool."""
        now = time.monotonic()
        if not self._show or now < self._due or not total:
            return
        self._due = now + _REDRAW_SECS
        self._drawn = True
        filled = min(24 * done // total, 24)
        bar = ("━" * filled + "┄" * (24 - filled)) if self._fancy else ("#" * filled + "." * (24 - filled))
        percent = min(100 * done // total, 100)
        sys.stderr.write(f"\r\x1b[KReading the spool {bar} {percent:3d}%  {size(done)} of {size(total)}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False


@contextmanager
def opened(args: argparse.Namespace) -> Iterator["LocalStore | None"]:
    """The store that --store, or else the environment, names; None where there is none yet."""
    store = _open(store_folder(args))
    if store is None:
        yield None
        return
    with closing(store):
        yield store


def store_folder(args: argparse.Namespace) -> str:
    from logshipper.spool import store_root

    return store_root(args.store)


def _open(root: str) -> "LocalStore | None":
    from ingest.local_store import LocalStore
    from logshipper.spool import spool_root

    if os.path.isdir(spool_root(root)):
        return LocalStore(root, create=True)
    if not os.path.lexists(root) or (os.path.isdir(root) and not os.listdir(root)):
        return None
    return LocalStore(root)


def take_in(store: "LocalStore", *, job_id: str | None = None, secs: float = LIST_SECS) -> list[str]:
    """Has the store take in what is spooled, of one job or of all; returns what went wrong, a sentence each."""
    bar = Bar()
    try:
        taken = store.take_in(deadline_secs=secs, job_id=job_id, progress=bar)
    finally:
        bar.clear()
    problems = list(taken.problems)
    if not taken.complete and not problems:
        problems.append("not everything that is spooled could be read in the time there was: ask again for more")
    return problems


def begin_with(args: argparse.Namespace) -> str:
    """The command that makes a first job in the store that was asked."""
    option = f"--store {args.store} " if args.store else ""
    return f"logshipper run {option}-- COMMAND"


@contextmanager
def opened_job(args: argparse.Namespace) -> Iterator[tuple["LocalStore", str]]:
    """The store and the id of the job that `args.job` names, with what is spooled of it taken in.

    Says on stderr what couldn't be taken in. Raises UnknownJob.
    """
    with opened(args) as store:
        if store is None:
            raise UnknownJob(
                args.job, f"no job {args.job!r}: {store_folder(args)} has no jobs yet; begin with `{begin_with(args)}`"
            )
        for problem in take_in_for(store, [args.job]):
            say(problem)
        yield store, resolve(store, args.job)


def take_in_for(store: "LocalStore", names: list[str]) -> list[str]:
    """Takes in what these names may stand for: a known id's own spool; all of it for any other name."""
    known = {job.job_id for job in store.jobs()}
    if all(name in known for name in names):
        return [problem for name in dict.fromkeys(names) for problem in take_in(store, job_id=name, secs=JOB_SECS)]
    return take_in(store, secs=JOB_SECS)


def resolve(store: "LocalStore", name: str) -> str:
    """The id of the job that a name stands for. Raises UnknownJob, its words with what was perhaps meant."""
    try:
        return store.resolve(name)
    except UnknownJob as error:
        words = str(error)
        if error.suggestions and "did you mean" not in words.lower():
            words += f"; did you mean {' or '.join(error.suggestions[:3])}?"
        raise UnknownJob(name, words, error.suggestions) from None


def check_attempt(attempts: set[int], asked: int | None) -> None:
    """Raises StoreError for an attempt that a job doesn't have."""
    if asked is not None and asked not in attempts:
        has = ", ".join(str(attempt) for attempt in sorted(attempts))
        raise StoreError("--attempt", f"the job has no attempt {asked}; it has {has or 'none'}")
