"""A progress line with task and duration, like that of requirements/step.sh.

A long step also shows its progress: on a terminal redrawn each second, otherwise as a line each 30
seconds.
"""

import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

TICK_SECS = 30.0
REDRAW_SECS = 1.0


class Progress:
    """`with Progress("Building it") as progress:` prints `Building it ... 12 s`; doing: detail
    shown next to it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.doing = ""
        self._begin = time.monotonic()
        self._over = threading.Event()
        self._broken = False  # whether lines followed `task ... `
        self._terminal = sys.stdout.isatty()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        print(f"{self.task} ... ", end="", flush=True)
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._ticker.join()
        outcome = f"{self._seconds()} s" if kind is None else "failed"
        if self._terminal:
            print(f"\r\x1b[K{self.task} ... {outcome}", flush=True)
        else:
            print(f"{self.task} ... {outcome}" if self._broken else outcome, flush=True)

    def _seconds(self) -> int:
        return int(time.monotonic() - self._begin)

    def _tick(self) -> None:
        show: Callable[[], None] = self._redraw if self._terminal else self._add_line
        while not self._over.wait(REDRAW_SECS if self._terminal else TICK_SECS):
            show()

    def _redraw(self) -> None:
        text = f"{self.task} ... {self._seconds()} s{', ' if self.doing else ''}{self.doing}"
        print(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", flush=True)

    def _add_line(self) -> None:
        if not self._broken:
            print()
        self._broken = True
        print(f"  {self._seconds()} s{', ' if self.doing else ''}{self.doing}", flush=True)
