"""Life of a relay, even in a container, where it has another process id than here."""

import mmap
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.spool.captures import note_end, started_of
from logshipper_ingest.spool import relay_process
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.relay_process import relay_runs
from tests.tools.captures.other_users import needs_root
from tests.tools.stores.shipping_node import ShippingNode, soon_ns
from tests.tools.waiting import wait_until


@pytest.fixture
def contained() -> Iterator[int]:
    """Yield the first process of a pid namespace, by its id here."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "sleep", "600"]
    with subprocess.Popen(command) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: children.read_text().split(), "the namespace's first process")
        (pid,) = map(int, children.read_text().split())
        yield pid
        process.kill()


def test_processes_here() -> None:
    started = started_of(os.getpid())
    assert relay_runs(os.getpid(), started, os.getuid())
    assert relay_runs(os.getpid(), 0, os.getuid()), "of an earlier release: not known when"
    assert not relay_runs(os.getpid(), started + 1, os.getuid())
    assert not relay_runs(os.getpid(), started, os.getuid() + 1)


def test_a_start_that_is_yet_to_come_has_nobody_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job can write this value. Otherwise each look at its capture would go over all
    processes."""
    monkeypatch.setattr(relay_process, "_look", lambda: pytest.fail("looked for"))
    assert not relay_runs(os.getpid(), 1 << 63, os.getuid())


def test_ever_newer_starts_cause_one_search_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[float] = []
    now = 1000.0

    def look() -> dict[tuple[int, int], int]:
        searches.append(now)
        return {}

    monkeypatch.setattr(relay_process, "_inner", relay_process._Inner())
    monkeypatch.setattr(relay_process, "_look", look)
    monkeypatch.setattr(time, "clock_gettime", lambda _: now)
    for _ in range(100):
        now += 0.05
        relay_runs(1 << 30, int(now * os.sysconf("SC_CLK_TCK")), os.getuid())
    assert len(searches) == 5
    assert relay_runs(1 << 30, int(now * os.sysconf("SC_CLK_TCK")), os.getuid()), "not yet known"


@needs_root
def test_a_process_in_a_container(contained: int) -> None:
    started = started_of(contained)
    assert relay_runs(1, started, 0)
    wait_until(lambda: not relay_runs(1, started, 54321), "it belongs to another user")
    assert not relay_runs(2, started, 0)
    os.kill(contained, signal.SIGKILL)
    wait_until(lambda: not relay_runs(1, started, 0), "it is gone")


@needs_root
def test_a_capture_in_a_container_whose_job_ended_before_its_sidecar_began(
    contained: int, tmp_path: Path
) -> None:
    """Its relay still waits for the sidecar, so nothing is lost yet."""
    node = ShippingNode(tmp_path)
    capture = node.capture("job1", soon_ns())
    for path in capture.segments.iterdir():
        path.unlink()  # the sidecar makes the first segment
    capture.counters((17, 2), pid=1, started=started_of(contained))
    with (capture.segments / "counters").open("r+b") as file:
        note_end(mmap.mmap(file.fileno(), 0), 0, time.time_ns())
    folder = node.only_capture().folder
    assert folder.life() is Life.STARTING
    os.kill(contained, signal.SIGKILL)
    wait_until(lambda: folder.life() is Life.DEAD, "both are gone")
    node.close()
