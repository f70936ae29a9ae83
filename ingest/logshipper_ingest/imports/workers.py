"""Processes that render and write imported jobs."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import NamedTuple


class Workers(NamedTuple):
    """at_once: jobs that wait or run at a time."""

    pool: Executor
    at_once: int


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
