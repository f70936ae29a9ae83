"""How many captures an agent follows at a time: each takes descriptors for as long as it is there.
Were all taken, then nothing could be looked at or sent any more, and so none would be given
back."""

import resource

KEPT_FREE = 512  # for connections, databases, folders that are listed
OF_CAPTURE = 3  # its two folders, and where the learner reads


def raise_file_limit() -> None:
    """To what this process may have."""
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except OSError:
        pass  # the unit's SystemCallFilter is in the way, and its LimitNOFILE does the same


def most_captures(sinks: int) -> int:
    """How many there are descriptors for now; each sink reads on its own. At least one."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 30
    return max((limit - min(KEPT_FREE, limit // 2)) // (OF_CAPTURE + sinks), 1)
