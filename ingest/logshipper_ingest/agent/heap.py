"""What glibc's allocator does with memory that the agent has freed."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
KEPT_BYTES = 4 << 20  # of each of its arenas: a round's buffers, which are of that size


def keep_freed_memory() -> None:
    """Keeps as much for what comes next. By default each push's buffers go back to the system, and
    the next one's are new pages, which the system has to find and clear: a quarter of what shipping
    costs. Does nothing where the allocator is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
