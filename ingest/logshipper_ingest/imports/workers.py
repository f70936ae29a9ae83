"""Processes that render and write imported jobs."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

from logshipper.errors import LogshipperError

_ADVANCE_SECS = 0.2
Result = TypeVar("Result")


class Workers:
    """at_once: jobs that wait or run at a time; advanced: called during waits for results."""

    def __init__(self, pool: Executor, at_once: int) -> None:
        self._pool = pool
        self.at_once = at_once
        self.advanced: Callable[[], object] = list

    def submit(self, work: Callable[..., Result], *values: object) -> Callable[[], Result]:
        """Begin work; return a function that waits for its result."""
        return partial(self._result, self._pool.submit(work, *values))

    def _result(self, future: "Future[Result]") -> Result:
        while not wait([future], timeout=_ADVANCE_SECS).done:
            self.advanced()
        self.advanced()
        try:
            return future.result()
        except BrokenProcessPool:
            words = "a process of the import was killed, perhaps out of memory; import again"
            raise LogshipperError(words) from None


@contextmanager
def working() -> Iterator[Workers]:
    """Start a process per CPU, before the caller locks a store: they inherit its descriptors."""
    count = len(os.sched_getaffinity(0))
    pool = ProcessPoolExecutor(count, get_context("fork"), _begin)
    try:
        pool.submit(os.getpid).result()  # starts all of them
        yield Workers(pool, 2 * count)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends them with their parent
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
