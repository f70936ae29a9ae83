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
    """Let signals set events, and restore their former actions at the end. Main thread only."""

    def on_signal(signo: int, frame: FrameType | None) -> None:
        for event in events:
            # in another thread: the interrupted code may hold the event's lock
            _thread.start_new_thread(event.set, ())

    before = {signo: signal.signal(signo, on_signal) for signo in signals}
    try:
        yield
    finally:
        for signo, handler in before.items():
            signal.signal(signo, handler)
