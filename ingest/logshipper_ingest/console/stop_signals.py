"""Signals that set events, for as long as a command waits for them."""

import _thread
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def set_by_signals(
    events: Collection[threading.Event], signals: Collection[signal.Signals]
) -> Iterator[None]:
    """What these signals did before, they do again when it is left. Main thread only."""

    def on_signal(signo: int, frame: FrameType | None) -> None:
        for event in events:
            # another thread: what was interrupted here may hold its lock
            _thread.start_new_thread(event.set, ())

    before = {signo: signal.signal(signo, on_signal) for signo in signals}
    try:
        yield
    finally:
        for signo, handler in before.items():
            signal.signal(signo, handler)
