"""`logshipper-agent fsck`: it reports each damage on a node's disk, its place, the lost lines and
the repair. Intact data stays readable after every repair."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.tools.fakes.modelled_loki
from logshipper_ingest.admin.fsck import Fsck
from logshipper_ingest.admin.fsck_findings import Examination, Fault
from logshipper_ingest.agent.user_agent import take_lock
from logshipper_ingest.cli import main
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_ingest.store.marks_file import FILE
from logshipper_observe.model.overlay import MarkChange, Overlay
from tests.tools.captures.other_users import needs_root
from tests.tools.captures.segment_factory import CaptureWriter
from tests.tools.stores.node_agents import NodeAgent
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    node = ShippingNode(tmp_path)
    yield node
    node.close()


def fsck(node: ShippingNode, *, repair: bool = False) -> Examination:
    return Fsck(repair=repair).node(node.config)


def faults(node: ShippingNode, *, repair: bool = False) -> list[Fault]:
    return fsck(node, repair=repair).faults


def print_lines(node: ShippingNode, job_id: str = "job1", *, close: bool = True) -> NodeCapture:
    capture = node.capture(job_id, soon_ns())
    capture.start()
    for begin in range(0, 100, 10):
        capture.lines([f"{job_id} {n}" for n in range(begin, begin + 10)])
    if close:
        capture.end()
        capture.close()
    return capture


def test_all_is_well(node: ShippingNode) -> None:
    print_lines(node)
    with print_lines(node, "job2", close=False):
        report = fsck(node)
    assert (report.captures, report.lines, report.entries, report.faults) == (2, 200, 0, [])
    assert report.segment_bytes > 2000
    node.round()
    assert [fault.what for fault in faults(node)] == [
        "the capture died here: no frame says that it is over"
    ]


def test_a_flipped_bit_is_found_where_it_is(node: ShippingNode) -> None:
    capture = print_lines(node)
    content = bytearray(capture.segment.read_bytes())
    at = content.index(b"job1 37")
    content[at] ^= 1
    capture.segment.write_bytes(bytes(content))
    begin = content.rindex(b"\xf1LSF", 0, at)
    end = content.index(b"\xf1LSF", at)
    (fault,) = faults(node)
    assert fault == Fault(
        "wrong", str(capture.segment), begin, "checksum doesn't match",
        f"up to {end - begin} bytes of lines are lost, and counted", "the agent skips them",
    )  # fmt: skip
    assert faults(node, repair=True) == [fault], "segments are left as they are"
    assert capture.segment.read_bytes() == bytes(content)
    node.ship()
    assert len(node.loki.lines('kind="log"')) == 90


def test_wherever_lines_are_lost_it_is_told(node: ShippingNode) -> None:
    """Change each byte of a segment in turn."""
    capture = node.capture("job1", soon_ns())
    capture.lines(["one", "two"])
    capture.lines(["three"])
    capture.close()
    whole = capture.segment.read_bytes()
    assert (fsck(node).lines, faults(node)) == (3, [])
    for at in range(len(whole)):
        capture.segment.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        report = fsck(node)
        wrong = [fault for fault in report.faults if fault.level == "wrong"]
        assert report.lines == 3 or wrong, f"byte {at}"
        assert all(0 <= fault.offset <= len(whole) for fault in wrong)


def test_a_torn_tail(node: ShippingNode) -> None:
    capture = print_lines(node, close=False)
    size = capture.segment.stat().st_size
    os.truncate(capture.segment, size - 5)
    torn, died = faults(node)
    assert (torn.what, torn.level, torn.offset > size - 200) == (
        "the last frame is cut short",
        "wrong",
        True,
    )
    assert (died.what[:21], died.level, died.offset) == ("the capture died here", "note", size - 5)


def test_what_was_shipped_is_no_loss(node: ShippingNode) -> None:
    capture = print_lines(node, close=False)
    with capture:
        node.ship()
        content = bytearray(capture.segment.read_bytes())
        content[content.index(b"job1 37")] ^= 1
        capture.segment.write_bytes(bytes(content))
        (fault,) = faults(node)
        assert fault.means == "the agent has passed it: it is counted"
        os.truncate(capture.segment, 500)
        truncations = [fault for fault in faults(node) if "was shipped up to byte" in fault.what]
        assert [fault.offset for fault in truncations] == [500]


def test_segments_that_are_gone(node: ShippingNode) -> None:
    capture = print_lines(node, close=False)
    with capture:
        node.ship()
        capture.rotate()
        capture.lines(["later"])
        capture.rotate()
        capture.lines(["much later"])
        (capture.segments / "0000000001.seg").unlink()
        (capture.segments / "0000000002.seg").unlink()
        (fault,) = faults(node)
    assert (fault.level, fault.path) == ("wrong", str(capture.segments / "0000000001.seg"))
    assert fault.what == "is missing: 0000000003.seg is the first that is there"


def test_what_isnt_what_it_should_be(node: ShippingNode, tmp_path: Path) -> None:
    capture = print_lines(node)
    (capture.segments / "0000000000.seg").write_text("")
    (capture.segments / "notes.txt").write_text("")
    os.mkfifo(capture.segments / "0000000002.seg")
    (capture.segments / "0000000003.seg").symlink_to("/etc/passwd")
    spool = node.folder / "spool"
    (spool / "file").write_text("")
    (spool / ".new-job9@1.aaaa").mkdir()
    (spool / "job7@1.aaaa").mkdir()
    nobodys = spool / "job8@1.aaaa"
    nobodys.mkdir()
    (nobodys / "identity.json").write_text("[]")
    fault_of = {os.path.basename(fault.path): fault for fault in faults(node)}
    assert {name: fault.level for name, fault in fault_of.items()} == {
        "0000000000.seg": "note", "notes.txt": "note", "file": "note", ".new-job9@1.aaaa": "note",
        "job7@1.aaaa": "note", "job8@1.aaaa": "wrong"}  # fmt: skip
    assert fault_of["job8@1.aaaa"].what == "its identity.json isn't a JSON object"
    assert fault_of["job7@1.aaaa"].what.startswith("is empty")
    faults(node, repair=True)
    assert not (spool / "job7@1.aaaa").exists()
    assert nobodys.exists()


@needs_root
def test_another_users_file(node: ShippingNode) -> None:
    capture = print_lines(node)
    os.chown(capture.segment, 4242, 4242)
    (fault, *_) = faults(node)
    assert fault.what == "this isn't a regular file of the capture's owner"


def test_a_spool_that_anybody_may_list(node: ShippingNode) -> None:
    spool = node.folder / "spool"
    spool.chmod(0o755)
    (fault,) = faults(node)
    assert (fault.what, fault.fixed) == ("has mode 0755, and must have 0711", False)
    assert [fault.fixed for fault in faults(node, repair=True)] == [True]
    assert faults(node) == []


def test_a_damaged_database_is_moved_aside_and_nothing_comes_twice(node: ShippingNode) -> None:
    print_lines(node)
    with print_lines(node, "job2", close=False) as capture:
        node.ship()
        capture.lines(["later"])
        capture.close()
        node.end()
        state = node.folder / "state"
        for file in state.glob("state.db-*"):
            file.unlink()
        content = (state / "state.db").read_bytes()
        (state / "state.db").write_bytes(b"x" * 4096 + content[4096:])
        lock = take_lock(str(state))
        assert lock is not None
        (running,) = faults(node, repair=True)
        assert (running.fixed, "not while the agent runs" in running.does) == (False, True)
        os.close(lock)
        (fault,) = faults(node, repair=True)
        assert fault.fixed
        assert [path.read_bytes()[:4] for path in state.glob("state.db.damaged-*")] == [b"xxxx"], (
            "it is kept"
        )
        node.begin()
        assert faults(node) == []
    node.ship()
    assert node.loki.doubles() == []
    assert len(node.loki.lines('kind="log"')) == 201


def test_another_database_is_moved_aside(node: ShippingNode) -> None:
    (node.folder / "state" / "slurm.db").write_text("no database, for certain" * 100)
    (fault,) = faults(node, repair=True)
    assert (os.path.basename(fault.path), fault.level, fault.fixed) == ("slurm.db", "wrong", True)
    assert len(list((node.folder / "state").glob("slurm.db.damaged-*"))) == 1
    assert faults(node) == []


def test_unreadable_lines_of_the_quarantine(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", 900)
    capture = node.capture("job1", soon_ns())
    capture.lines(["x" * 1000, "short"])
    capture.close()
    node.ship()
    folder = node.folder / "state" / "quarantine"
    (file,) = folder.iterdir()
    good = file.read_bytes()
    file.write_bytes(b"garbage\n" + good + b'{"torn')
    (folder / ".rewritten-2026-01-01.u0.jsonl").write_text("half")
    report = fsck(node)
    assert report.entries == 1
    assert [(fault.level, fault.offset, fault.what) for fault in report.faults] == [
        ("note", -1, "was half written by a `replay` or `purge` that was killed"),
        ("wrong", 0, "8 bytes are no entry"),
        ("wrong", 8 + len(good), "the last line, of 6 bytes, is torn"),
    ]
    assert all(fault.fixed for fault in faults(node, repair=True))
    assert [path.read_bytes() for path in folder.iterdir()] == [good]
    assert (node.folder / "state" / "quarantine.unreadable").read_bytes() == b'garbage\n{"torn\n'
    assert faults(node) == []


def test_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        for job_id in ("job1", "job2"):
            capture = CaptureWriter(root / "spool", job_id)
            capture.lines(["one", "two"])
            capture.close()
        store.ingest()
    CaptureWriter(root / "spool", "job3").lines(["three"])
    assert report_of(capsys, 0, "--store", str(root))["lines"] == 1
    overlay = Overlay(str(root / FILE))
    overlay.tag(JobKey("k3f9x2"), [MarkChange("baseline", "")])
    assert report_of(capsys, 0, "--store", str(root))["lines"] == 1
    (root / FILE).write_bytes(b"spoilt " * 1000)
    faults = report_of(capsys, 3, "--store", str(root))["faults"]
    (fault,) = [fault for fault in faults if fault["level"] == "wrong"]
    assert (fault["path"], fault["means"]) == (overlay.path, "tags and notes of jobs can't be read")
    (root / FILE).unlink()
    job = root / "jobs" / "job2.db"
    job.write_bytes(job.read_bytes()[:5000])
    document = report_of(capsys, 3, "--store", str(root))
    assert [fault["path"] for fault in document["faults"] if fault["level"] == "wrong"] == [
        str(job)
    ]


def report_of(
    capsys: pytest.CaptureFixture[str], code: int, *words: str
) -> dict[str, Any]:  # Any: JSON
    assert main(["fsck", "--json", *words]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_as_it_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = NodeAgent(tmp_path, "http://loki.invalid", cluster="c")
    assert main(["fsck", "--config", str(agent.config)]) == 0
    assert "0 captures, 0 bytes of segments" in capsys.readouterr().out
    agent.spool.mkdir(mode=0o700)
    agent.spool.chmod(0o700)
    assert main(["fsck", "--config", str(agent.config)]) == 3
    output = capsys.readouterr().out
    assert f"wrong {agent.spool}: has mode 0700, and must have 0711\n" in output
    assert "1 wrong, 0 to note, 0 fixed" in output
    assert main(["fsck", "--repair", "--config", str(agent.config)]) == 0
    assert "fixed: --repair sets it" in capsys.readouterr().out
    assert main(["fsck", "--store", str(tmp_path / "none")]) == 1
