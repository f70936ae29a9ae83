"""Limit of followed captures by file descriptors. An agent without a free descriptor could neither
read nor send, so it would never release any."""

import resource

KEPT_FREE = 512  # for connections, databases and directory listings
OF_CAPTURE = 3  # its two folders and the learner's segment


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except OSError:
        pass  # the unit's SystemCallFilter forbids it; its LimitNOFILE does the same


def most_captures(sinks: int) -> int:
    """Return the number of captures that fit into the limit, at least 1. Each sink opens its own
    segment of a capture."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 30
    return max((limit - min(KEPT_FREE, limit // 2)) // (OF_CAPTURE + sinks), 1)
