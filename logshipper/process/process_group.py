"""The kernel's data about the processes of a group (proc_pid_stat(5))."""

import os

from logshipper.spool.captures import stat_fields


def waits_in_vain(group: int) -> bool:
    """Return whether a stopped process of the group has a sleeping parent in the same group.

    Such a parent is no shell with job control, so nobody will continue the process. (A parent that
    is about to stop runs until then.)
    """
    members: dict[int, tuple[bytes, int]] = {}  # state and parent, by process
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                state, parent, its_group = stat_fields(int(name))[:3]
            except (OSError, ValueError):
                continue  # it has ended meanwhile
            if int(its_group) == group:
                members[int(name)] = state, int(parent)
    return any(
        state == b"T" and parent in members and members[parent][0] == b"S"
        for state, parent in members.values()
    )
