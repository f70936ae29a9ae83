"""Settings of glibc's allocator and of Python's garbage collector."""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
KEPT_BYTES = 4 << 20  # per arena: the size of a round's buffers


def keep_freed_memory() -> None:
    """Let glibc keep freed buffers for the next push. By default they return to the system, which
    then clears new pages: a quarter of the cost of shipping. Other allocators stay unchanged."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)


def collect_seldom() -> None:
    """Let Python search for cycles of garbage after 20,000 new objects instead of 700. The agent
    makes hardly any, and the search is a tenth of its CPU time."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
