"""Keeper and relay (in C) die at each of their fault points, and each test proves that it hit its
point.

The job's own output has every byte once. If capture had begun, so has the log. Half-finished captures
disappear.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from logshipper.spool.segment import Stream
from tests.slurm.tools.plugin import SOURCE
from tests.spank.test_slurm_relay_deaths import FLOOD, FLOOD_BYTES, FLOOD_LINES, own_output, relayed
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.slurm_player import KEEPER, RELAY, SIDECAR, Node, node

__all__ = ["node"]  # a fixture

# Before the task's capture begins. The task continues as without capture.
BEFORE = ("keeper_decided", "capture_made", "capture_named", "relay_made", "sidecar_started")
BEGIN = ("relay_begun",)
TO_FILES = (
    "bytes_read",
    "bytes_taken",
    "bytes_counted",
    "bytes_intended",
    "bytes_written",
    "bytes_delivered",
)
TO_PIPES = ("bytes_read", "bytes_staged", "bytes_moved", "bytes_delivered")
AT_END = ("cmd_ended", "end_noted", "streams_drained", "end_told")


def points_of(path: Path, pattern: str) -> list[str]:
    return re.findall(pattern, path.read_text())


def test_every_fault_point_is_in_the_code_once_and_tried() -> None:
    names = points_of(SOURCE / "fault_points.h", r'\bX\((\w+), "')
    uses = Counter(
        name
        for path in sorted(SOURCE.glob("*.c"))
        for name in points_of(path, r"\bFAULT_POINT\((\w+)\)")
    )
    assert uses == Counter(names)
    assert set(names) == {*BEFORE, *BEGIN, *TO_FILES, *TO_PIPES, *AT_END}


class Faults:
    """Trigger files that the test build of the keeper looks for."""

    def __init__(self, binaries: Path) -> None:
        self._folder = binaries / "test" / "faults"

    def arm(self, name: str) -> None:
        (self._folder / name).touch()

    def is_armed(self, name: str) -> bool:
        return (self._folder / name).exists()


@pytest.fixture
def faults(binaries: Path) -> Faults:
    return Faults(binaries)


@pytest.mark.parametrize("point", BEFORE)
def test_the_task_runs_on_where_capture_was_about_to_begin(
    node: Node, faults: Faults, point: str
) -> None:
    faults.arm(point)
    played = node.run("sh", "-c", f"seq {FLOOD}; echo err >&2; exit 7")
    assert not faults.is_armed(point)
    assert (played.code, played.out, played.err) == (7, FLOOD_BYTES, b"err\n")
    wait_until(
        lambda: not any(map(node.processes, (KEEPER, RELAY, SIDECAR))),
        "nothing of it is left running",
    )
    for capture in node.readable():
        assert capture.lines() == []
    played = node.run("sh", "-c", "echo next", words=("job=2",))
    assert played.out == b"next\n"
    wait_until(
        lambda: any(capture.lines() == [b"next"] for capture in node.readable()),
        "the next job is captured",
    )
    assert not [path for path in node.spool.iterdir() if path.name.startswith(".new-")]


@pytest.mark.parametrize("content", [b"", b"tty: false\n"])
@pytest.mark.parametrize(
    ("kind", "point"),
    [("file", name) for name in (*BEGIN, *TO_FILES, *AT_END)]
    + [("pipe", name) for name in (*TO_PIPES, *AT_END)],
)
def test_nothing_is_lost_or_twice(
    node: Node, faults: Faults, kind: str, point: str, content: bytes
) -> None:
    node.opt_in(content)
    path, go = node.folder / "own", node.folder / "go"
    in_flood = point in {*TO_FILES, *TO_PIPES}
    if not in_flood:
        faults.arm(point)
    wait = f"while [ ! -e {go} ]; do sleep 0.01; done"
    code = f"seq {FLOOD // 2}; echo err >&2; {wait}; seq {FLOOD // 2 + 1} {FLOOD}; exit 7"
    with own_output(kind, path) as out:
        played = node.start("sh", "-c", code, stdout=out, stderr=subprocess.PIPE)
        if in_flood:
            wait_until(lambda: relayed(node) > 0, "the relay has begun to read")
            faults.arm(point)
        go.touch()
        assert played.finish().code == 7
        wait_until(lambda: not faults.is_armed(point), f"the relay is killed at {point}")
    [logged] = node.logged()
    assert path.read_bytes() == FLOOD_BYTES
    assert played.err == b"err\n"
    assert logged.lines() == FLOOD_LINES
    assert logged.lines(Stream.STDERR) == [b"err"]
    assert logged.ledger()["stdout"]["lost"] == 0
    if point == "end_told":  # a relay that dies earlier leaves the exit code to Slurm's own records
        assert logged.records("end")[-1]["exit_code"] == 7
