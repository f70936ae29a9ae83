"""Detects processes killed for want of memory by the kernel's counters, which everybody may read,
unlike root's log."""

from logshipper.late_pattern import late_pattern
from logshipper.sidecar.small_files import begin_of

CGROUPS = "/sys/fs/cgroup"
_MAX_BYTES = 64 << 10
_GROUP = "in the job's control group"
_COUNT = late_pattern(r"(?m)^oom_kill ([0-9]{1,18})$")


class MemoryKills:
    """The counters as they were when the job began. proc, cgroups: where the kernel's files are."""

    def __init__(self, proc: str = "/proc", cgroups: str = CGROUPS) -> None:
        self._files = {_GROUP: _group_file(proc, cgroups), "on this host": f"{proc}/vmstat"}
        self._kills = {place: _kills(file) for place, file in self._files.items()}

    def in_group(self) -> bool:
        """Return whether the kernel has killed a process of the job's control group since the
        start."""
        return self._number(_GROUP) > 0

    def _number(self, place: str) -> int:
        before, after = self._kills[place], _kills(self._files[place])
        return after - before if before is not None and after is not None else 0

    def words(self) -> str:
        """Describe the kills since the start; "" without any, or without data."""
        for place in self._files:
            number = self._number(place)
            if number > 0:
                processes = "a process" if number == 1 else f"{number} processes"
                return f"the kernel killed {processes} {place} for want of memory meanwhile"
        return ""


def _group_file(proc: str, cgroups: str) -> str:
    """Return the counters' file of the control group of this process, and so of the job."""
    for line in begin_of(f"{proc}/self/cgroup", _MAX_BYTES).splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if not controllers:  # version 2
            return f"{cgroups}{group.rstrip('/')}/memory.events"
        if "memory" in controllers.split(","):
            return f"{cgroups}/memory{group.rstrip('/')}/memory.oom_control"
    return ""


def _kills(file: str) -> int | None:
    match = _COUNT.search(begin_of(file, _MAX_BYTES))
    return int(match[1]) if match else None
