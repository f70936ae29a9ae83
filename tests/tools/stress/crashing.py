"""`python -m tests.tools.stress.crashing POINT TIMES FLAG PROGRAM WORD...`: run a program of ours,
and kill it (SIGKILL) when it reaches a fault point for the n-th time.

FLAG: a file that the process creates just before its death. If the file exists, the process lives,
so only one of several processes dies. PROGRAM: logshipper, logshipper-agent, ingest (of the store
WORD) or remove (of the store's job WORD).
"""

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from logshipper import fault_points

SEGMENT_BYTES = 6000  # so that a short job has several segments
BATCH_BYTES = 3000  # and the store ingests them by several transactions
FULL_AFTER = 3  # frames; then the disk refuses lines


class Killer:
    """Replacement for fault_points.on_reached."""

    def __init__(self, point: str, times: int, flag: str) -> None:
        self._point = point
        self._passes_left = times
        self._frames = FULL_AFTER
        self._flag = flag
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            if name == self._point:
                self._passes_left -= 1
                if self._passes_left == 0:
                    self._die()
            elif name == "frames_written" and self._point == "lines_refused":
                self._frames -= 1
                if self._frames == 0:
                    _let_no_file_grow()

    def _die(self) -> None:
        try:
            os.close(os.open(self._flag, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _let_no_file_grow() -> None:
    """Make this process see a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


def command(point: str, times: int, flag: Path, program: str, *words: str) -> list[str]:
    """Return the command line of this module."""
    return [
        sys.executable,
        "-m",
        "tests.tools.stress.crashing",
        point,
        str(times),
        str(flag),
        program,
        *words,
    ]


def _logshipper(words: list[str]) -> int:
    from logshipper.__main__ import main
    from logshipper.spool import segment_writer

    segment_writer.MAX_SEGMENT_BYTES = SEGMENT_BYTES
    sys.argv = ["logshipper", *words]
    return main()


def _agent(words: list[str]) -> int:
    from logshipper_ingest.cli import main

    return main(words)


def _ingest(words: list[str]) -> int:
    from logshipper_ingest.store import intake
    from logshipper_ingest.store.local_store import LocalStore

    intake.BATCH_BYTES = BATCH_BYTES
    with LocalStore(words[0], create=True) as store:
        store.ingest()
    return 0


def _remove(words: list[str]) -> int:
    from logshipper_ingest.store.local_store import LocalStore

    with LocalStore(words[0]) as store:
        store.remove(words[1])
    return 0


def _rm(words: list[str]) -> int:
    from logshipper.start.cli import main

    return main(["rm", *words])


PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "logshipper": _logshipper,
    "logshipper-agent": _agent,
    "ingest": _ingest,
    "remove": _remove,
    "rm": _rm,
}


def main(point: str, times: str, flag: str, program: str, *words: str) -> int:
    assert point in fault_points.NAMES, point
    fault_points.on_reached = Killer(point, int(times), flag)
    return PROGRAMS[program](list(words))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
