"""The shipper's thread: rounds, and the pauses between them."""

import threading
import time
from collections.abc import Callable, Sequence

from logshipper.errors import StoreError
from logshipper_ingest.console.throttled_log import ThrottledLog
from logshipper_ingest.shipping.delivery import Stopped
from logshipper_ingest.shipping.followed_capture import ShippedCapture
from logshipper_ingest.shipping.shipper import Shipper

# Larger rounds needn't wait: their pushes cost Loki no more than larger ones.
FULL_ROUND_BYTES = 256 << 10
MANY_PUSHES = 10  # of a round: then entries wait longer, or most pushes would be small
FEW_PUSHES = 3
LEAST_WAIT = 0.25  # of batch_wait_secs
LEAST_PAUSE_SECS = 0.05  # between two rounds


def wait_share(round_bytes: int, round_streams: int) -> float:
    """Return the part of batch_wait_secs for which entries wait after such a round. The wait is
    short after a large round or one with few pushes. So one job's lines arrive soon, and a node's
    many streams cause no flood of small pushes."""
    pushes = max(round_streams, FEW_PUSHES)
    return max(min(1 - round_bytes / FULL_ROUND_BYTES, pushes / MANY_PUSHES), LEAST_WAIT)


def ship_until(
    shipper: Shipper,
    captures: Callable[[], Sequence[ShippedCapture]],
    stop: threading.Event,
    wait_secs: float,
    log: Callable[[str], None],
    wake: threading.Event,
) -> None:
    """Ship round after round until stop is set. After a round that leaves nothing to send, pause at
    most wait_secs (see `wait_share`). A pause after a rest is shorter: a capture's first lines
    follow right after its start.

    wake: set when something new is there, and with stop. A round is due every wait_secs anyway.
    """
    trouble = ThrottledLog(log)
    rest_secs = wait_secs  # by which the next pause may be shorter
    due = time.monotonic()
    while not stop.is_set():
        wake.clear()
        begin = time.monotonic()
        rest_secs = min(rest_secs + begin - due, wait_secs)
        try:
            more = shipper.round(captures())
        except Stopped:
            return
        except Exception as error:  # one capture or a full disk must not stop all others for good
            words = str(error) if isinstance(error, StoreError) else repr(error)
            trouble.log(f"shipping failed; the agent tries again from the last checkpoint: {words}")
            stop.wait(max(wait_secs, 1.0))
            continue
        trouble.reset()
        if more:
            continue
        if shipper.round_bytes:
            wait = wait_secs * wait_share(shipper.round_bytes, shipper.round_streams)
            pause = max(LEAST_PAUSE_SECS, wait - (time.monotonic() - begin))
            shorter = min(rest_secs, pause - LEAST_PAUSE_SECS)
            rest_secs -= shorter
            stop.wait(pause - shorter)
        due = time.monotonic()
        wake.wait(wait_secs)
