"""Hostile entries in place of a job's segments: they only cost this job its log. The agent's time
and memory stay bounded, and it ships another user's lines next to them. Each refusal has a reason,
a count and a log line."""

import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper.spool import segment
from logshipper.spool.segment import FRAME_MAGIC, Kind, Stream
from logshipper_ingest.agent.spool_overuse import SpoolOveruse
from logshipper_ingest.shipping import shares
from logshipper_ingest.spool import segment_reader
from logshipper_ingest.spool.capture_folder import CaptureFolder
from tests.tools.captures.other_users import needs_root
from tests.tools.captures.segment_factory import CaptureWriter
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns

HOSTILE, HONEST, OTHER = 12345, 12346, 12347
CPU_SECS = 10.0  # for a case, which takes some tenths
MOST_READ = 400 << 20  # bytes of both parties: enough for one search, less than a gibibyte

pytestmark = needs_root


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShippingNode]:
    # a quarter of the real limit, to save time
    monkeypatch.setattr(segment_reader, "SEARCH_BYTES", 64 << 20)
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


@pytest.fixture
def went_over(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of all reads."""
    sizes: list[int] = []
    pread = os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counting)
    return sizes


def captured(node: ShippingNode, job_id: str, uid: int) -> NodeCapture:
    """Return a user's capture with a line in its first segment."""
    capture = node.capture(job_id, soon_ns(), uid=uid, gid=uid, user=str(uid))
    capture.lines([f"first of {job_id}"])
    give_to_user(capture)
    return capture


def give_to_user(capture: CaptureWriter) -> None:
    """Give root's entries of `segments/` to the user, as if a job had made them."""
    uid = capture.segments.stat().st_uid
    for path in capture.segments.iterdir():
        if path.lstat().st_uid == 0:
            os.chown(path, uid, uid, follow_symlinks=False)


def next_segment(capture: CaptureWriter) -> Path:
    capture.append(segment.encode_end(capture.tick(), closed=False))
    capture.number += 1
    return capture.segment


# ---- entries in place of a segment


def link(capture: CaptureWriter, place: Path) -> None:
    place.symlink_to("/etc/passwd")


def link_to_nothing(capture: CaptureWriter, place: Path) -> None:
    place.symlink_to("nothing")


def link_to_itself(capture: CaptureWriter, place: Path) -> None:
    place.symlink_to(place)


def pipe(capture: CaptureWriter, place: Path) -> None:
    os.mkfifo(place)


def listening_socket(capture: CaptureWriter, place: Path) -> None:
    fd = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{fd}/{place.name}")  # the socket's own path may be too long
    os.close(fd)


def folder(capture: CaptureWriter, place: Path) -> None:
    (place / place.name).mkdir(parents=True)


def device(capture: CaptureWriter, place: Path) -> None:
    os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


def anothers_file(capture: CaptureWriter, place: Path) -> None:
    secret = capture.path.parent.parent / "secret"
    line = segment.encode_lines(Stream.STDOUT, capture.tick(), b"secret\n", [(Kind.LOG, 1)])
    secret.write_bytes(segment.encode_file_header(2, 5) + line)
    os.chown(secret, OTHER, OTHER)
    os.link(secret, place)


NO_SEGMENT = "this isn't a regular file of the capture's owner"


@pytest.mark.parametrize(
    "make",
    [link, link_to_nothing, link_to_itself, pipe, listening_socket, folder, device, anothers_file],
    ids=lambda make: str(make.__name__),
)
def test_what_is_no_segment_is_passed_over(
    node: ShippingNode, make: Callable[[CaptureWriter, Path], None]
) -> None:
    with captured(node, "hostile", HOSTILE) as hostile, captured(node, "honest", HONEST):
        make(hostile, next_segment(hostile))
        hostile.open_segment()
        hostile.lines(["after"])
        hostile.close()
        give_to_user(hostile)
        node.ship()
    assert sorted(node.loki.lines('kind="log"')) == ["after", "first of honest", "first of hostile"]
    (event,) = [event for event in node.events("hostile") if event["event"] == "segment_damaged"]
    assert NO_SEGMENT in event["message"]
    assert [words for words in node.messages if NO_SEGMENT in words and "/hostile@" in words]
    assert value(node, "logshipper_agent_damages_total") == 1


def value(node: ShippingNode, name: str) -> float:
    sample = node.health.registry.get_sample_value(name)
    assert sample is not None
    return sample


# ---- content of a segment


def frame_of_16_mib(capture: CaptureWriter) -> None:
    """Promise frames of 16 MiB in a file with a hole."""
    head = segment._FRAME_HEADER.pack(FRAME_MAGIC, 1, 1, 0, segment.MAX_PAYLOAD_BYTES, 1, 5, 0, 0)
    capture.append(head * 100)
    os.truncate(capture.segment, 1 << 30)


def impossible_lengths(capture: CaptureWriter) -> None:
    for payload in (segment.MAX_PAYLOAD_BYTES + 1, (1 << 32) - 1):
        capture.append(
            segment._FRAME_HEADER.pack(FRAME_MAGIC, 1, 1, 0, payload, 1 << 31, 5, 1 << 31, 0)
        )


def holes_of_terabytes(capture: CaptureWriter) -> None:
    os.truncate(capture.segment, 8 << 40)


def magic_numbers(capture: CaptureWriter) -> None:
    capture.append(FRAME_MAGIC * (4 << 20))


def no_rights(capture: CaptureWriter) -> None:
    capture.segment.chmod(0)
    capture.segments.chmod(0)


def nothing_left(capture: CaptureWriter) -> None:
    os.truncate(capture.segment, 0)


def remove_segment(capture: CaptureWriter) -> None:
    capture.segment.unlink()


def another_file(capture: CaptureWriter) -> None:
    capture.segment.unlink()
    capture.append(b"?" * 5000)


def renamed(capture: CaptureWriter) -> None:
    capture.segment.rename(capture.segments / f"{capture.number + 7:010d}.seg")


def odd_names(capture: CaptureWriter) -> None:
    for name in (
        b"\xff\xfe.seg",
        b"\x1b[2J",
        b"0000000002.seg\n",
        "٠٠٠٠٠٠٠٠٠١.seg".encode(),
        b"-1.seg",
        b"x" * 255,
    ):
        (capture.segments / os.fsdecode(name)).write_bytes(b"?")


def thousands_of_names(capture: CaptureWriter) -> None:
    for number in range(2, 1200):
        (capture.segments / f"{number:010d}.seg").touch()
        (capture.segments / f"x{number}").touch()


def counters_of_another_kind(capture: CaptureWriter) -> None:
    os.mkfifo(capture.segments / "counters")
    (capture.segments / "lock").unlink()
    os.mkfifo(capture.segments / "lock")


@pytest.mark.parametrize("when", ["before it is read", "while it is followed"])
@pytest.mark.parametrize(
    "spoil",
    [
        frame_of_16_mib,
        impossible_lengths,
        holes_of_terabytes,
        magic_numbers,
        no_rights,
        nothing_left,
        remove_segment,
        another_file,
        renamed,
        odd_names,
        thousands_of_names,
        counters_of_another_kind,
    ],
    ids=lambda spoil: str(spoil.__name__),
)
def test_what_a_job_does_to_its_segments_costs_others_nothing(
    node: ShippingNode, went_over: list[int], spoil: Callable[[CaptureWriter], None], when: str
) -> None:
    with captured(node, "hostile", HOSTILE) as hostile, captured(node, "honest", HONEST) as honest:
        if when == "while it is followed":
            node.ship()
        spoil(hostile)
        give_to_user(hostile)
        begin = time.process_time()
        turns(node, 20)
        honest.lines(["second of honest"])
        turns(node, 20)
        assert "second of honest" in node.loki.lines('kind="log"')
        honest.close()
    node.ship()
    assert time.process_time() - begin < CPU_SECS
    assert sum(went_over) < MOST_READ
    ends = {event["event"] for event in node.events("honest")}
    assert ends == {"closed"}
    for capture in node.follow():
        while not capture.folder.remove():
            pass
    assert [name for name in os.listdir(node.folder / "spool") if not name.startswith(".")] == []


def turns(node: ShippingNode, count: int) -> None:
    """Do an agent's turns of some seconds, even if they never finish their work."""
    captures = node.follow()
    overuse = SpoolOveruse(node.config.agent, node.messages.append)
    for _ in range(count):
        overuse.turn(captures)
        for capture in captures:
            capture.next_look = 0.0
        node.learner.turn(captures)
        node.round()
    node.learner.save(captures, at_once=True)


def test_a_segment_that_grows_for_ever_is_left_at_a_gibibyte(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "MAX_SEGMENT_BYTES", 1 << 20)
    with captured(node, "hostile", HOSTILE) as hostile:
        for _ in range(5):
            hostile.append(b"?" * (300 << 10))
            give_to_user(hostile)
            node.ship()
        hostile.open_segment()
        hostile.lines(["after"])
        give_to_user(hostile)
        node.ship()
    assert node.loki.lines('kind="log"') == ["first of hostile", "after"]
    words = "the segment is longer than any writer's"
    assert [event for event in node.events("hostile") if words in event.get("message", "")]
    assert [message for message in node.messages if words in message]
    assert not (hostile.segments / "0000000001.seg").exists(), "its room is free"


# ---- large numbers


def test_damages_by_the_thousand_are_few_lines_and_small_rounds(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "ROUND_BYTES", 200_000)
    monkeypatch.setattr(shares, "SHARE_BYTES", 50_000)
    for number in range(20):
        hostile = captured(node, f"hostile{number}", HOSTILE)
        for _ in range(100):
            hostile.append(b"?")
            hostile.lines(["x"])
    captured(node, "honest", HONEST).append(b"?")
    node.learn()
    assert len([words for words in node.messages if "/hostile" in words]) <= 120
    assert [
        words
        for words in node.messages
        if f"uid {HOSTILE}: for up to an hour, the agent only counts" in words
    ]
    assert [words for words in node.messages if "/honest" in words], "another user's are told of"
    assert value(node, "logshipper_agent_damages_total") == 20 * 100 + 1
    node.round()
    events = [event for event in node.events() if event["event"] == "segment_damaged"]
    assert 0 < len(events) <= 250, "each counts as what it costs"


def test_the_learner_goes_user_by_user(node: ShippingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn has a second. One capture must not wait for another user's hundred that take all of
    it."""
    for number in range(30):
        captured(node, f"a-hostile{number}", HOSTILE)
    captured(node, "b-honest", HONEST)
    captures = node.follow()
    clock = [0.0]
    monkeypatch.setattr("logshipper_ingest.agent.learner.time.monotonic", lambda: clock[0])
    life = CaptureFolder.life
    looked_at: list[str] = []

    def slow(folder: CaptureFolder) -> object:
        clock[0] += 0.3  # like tens of thousands of files
        looked_at.append(folder.name)
        return life(folder)

    monkeypatch.setattr(CaptureFolder, "life", slow)
    node.learner.turn(captures)
    assert len(looked_at) < 6
    assert any(name.startswith("b-honest") for name in looked_at)


def test_names_are_listed_until_it_has_begun_and_no_more(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = captured(node, "hostile", HOSTILE)
    (capture,) = node.follow()
    capture.folder.life()
    monkeypatch.setattr(
        "logshipper_ingest.spool.capture_folder.list_segments",
        lambda fd: pytest.fail("listed again"),
    )
    with hostile:
        assert capture.folder.life().value == "live"
