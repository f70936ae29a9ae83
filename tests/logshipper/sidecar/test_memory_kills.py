"""The kernel's counters of processes killed for lack of memory."""

from pathlib import Path

import pytest

from logshipper.sidecar.memory_kills import MemoryKills


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/user.slice/a", "user.slice/a/memory.events"),
        ("3:cpu:/\n4:memory:/slurm/b", "memory/slurm/b/memory.oom_control"),
        ("0::/", "memory.events"),
    ],
)
def test_the_control_groups_word_goes_first(tmp_path: Path, line: str, file: str) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"{line}\n")
    counter = cgroups / file
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text("oom 3\noom_kill 1\n")
    (proc / "vmstat").write_text("nr_free_pages 9\noom_kill 7\n")
    kills = MemoryKills(str(proc), str(cgroups))
    assert kills.words() == ""
    (proc / "vmstat").write_text("nr_free_pages 9\noom_kill 9\n")
    assert (
        kills.words() == "the kernel killed 2 processes on this host for want of memory meanwhile"
    )
    counter.write_text("oom 4\noom_kill 2\n")
    assert kills.words() == (
        "the kernel killed a process in the job's control group for want of memory meanwhile"
    )


def test_where_the_kernel_says_nothing(tmp_path: Path) -> None:
    assert MemoryKills(str(tmp_path), str(tmp_path)).words() == ""
