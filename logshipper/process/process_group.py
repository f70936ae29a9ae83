"""What the kernel tells of the processes of a group (proc_pid_stat(5))."""

import os


def waits_in_vain(group: int) -> bool:
    """Whether one of its processes is stopped whose parent, of the same group, sleeps: that isn't a
    shell with job control, so nobody will ever continue it. (A parent that is to stop as well runs
    until it has.)"""
    members: dict[int, tuple[bytes, int]] = {}  # state and parent, by process
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent, its_group = file.read().rpartition(b")")[2].split()[:3]
            except (OSError, ValueError):
                continue  # it has ended meanwhile
            if int(its_group) == group:
                members[int(name)] = state, int(parent)
    return any(
        state == b"T" and parent in members and members[parent][0] == b"S"
        for state, parent in members.values()
    )
