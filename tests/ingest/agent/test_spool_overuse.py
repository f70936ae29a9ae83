"""Data that a job's processes put into root's spool past the sidecar. The agent finds it in any
form and takes it away from the user. The job runs on, and no other job loses data."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper_ingest.agent import spool_overuse
from logshipper_ingest.agent.spool_overuse import SpoolOveruse
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.spool import folder_removal, folder_size
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life
from logshipper_ingest.spool.folder_removal import TAKEN
from logshipper_ingest.spool.folder_size import FEW_ENTRIES, FolderSize
from logshipper_ingest.spool.learning import TAKEN_AWAY
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import Forked, needs_root
from tests.tools.captures.segment_factory import CaptureWriter
from tests.tools.stores.node_agents import NodeAgent, entries_of
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns
from tests.tools.waiting import scaled

MB = 1 << 20
IS_ROOT = os.geteuid() == 0
HOSTILE, HONEST = (12345, 12346) if IS_ROOT else (os.geteuid(), os.geteuid())
LIMITS = AgentSection(
    job_spool_soft_max_bytes=2 * MB,
    job_spool_hard_max_bytes=4 * MB,
    user_spool_soft_max_bytes=8 * MB,
    user_spool_hard_max_bytes=16 * MB,
)
NO_LIMITS = AgentSection(
    job_spool_soft_max_bytes=0,
    job_spool_hard_max_bytes=0,
    user_spool_soft_max_bytes=0,
    user_spool_hard_max_bytes=0,
)
KEEP_SIZE = 1  # fallocate(2)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShippingNode]:
    monkeypatch.setattr(spool_overuse, "LOOK_SECS", 0.0)
    monkeypatch.setattr(spool_overuse, "MARGIN_BYTES", MB)
    monkeypatch.setattr(spool_overuse, "TURN_SECS", 60.0)
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def captured(node: ShippingNode, job_id: str, uid: int = HOSTILE, **identity: int) -> NodeCapture:
    """Return a capture with some lines and the sidecar's other files."""
    gid = uid if IS_ROOT else os.getegid()
    capture = node.capture(job_id, soon_ns(), uid=uid, gid=gid, user=str(uid), **identity)
    capture.lines([f"first of {job_id}"])
    capture.counters((20, 1))
    for name in ("lock", "reserve", "telegraf"):
        (capture.segments / name).write_bytes(b"\0" * 4096)
    give_to_user(capture)
    return capture


def give_to_user(capture: CaptureWriter) -> None:
    """Give all entries of `segments/` to the user, as if a job had made them."""
    if IS_ROOT:
        uid = capture.segments.stat().st_uid
        for folder, folders, files in os.walk(capture.segments):
            for name in folders + files:
                os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)


def blocks(path: Path, size: int, *, flags: int = 0) -> None:
    """Allocate disk blocks."""
    with path.open("ab") as file:
        done = ctypes.CDLL(None, use_errno=True).fallocate(
            file.fileno(), flags, ctypes.c_long(file.tell()), ctypes.c_long(size)
        )
        if done:
            os.write(file.fileno(), os.urandom(size))  # for a file system without fallocate()


def turns(node: ShippingNode, limits: AgentSection = LIMITS, count: int = 3) -> SpoolOveruse:
    overuse = SpoolOveruse(limits, node.messages.append)
    for _ in range(count):
        overuse.turn(node.follow())
    return overuse


def taken_jobs(node: ShippingNode) -> set[str]:
    return {capture.identity.job_id for capture in node.follow() if capture.folder.is_taken}


# ---- counted data


def one_file(folder: Path) -> None:
    blocks(folder / "junk", 8 * MB)


def odd_name(folder: Path) -> None:
    blocks(folder / os.fsdecode(b".\xff\n\x1b[2J"), 8 * MB)


def behind_a_segments_end(folder: Path) -> None:
    blocks(folder / "0000000001.seg", 8 * MB, flags=KEEP_SIZE)


def named_as_segments(folder: Path) -> None:
    for number in range(2, 10):
        blocks(folder / f"{number:010d}.seg", MB)


def in_folders(folder: Path) -> None:
    for number in range(8):
        below = folder / f"f{number}" / "g"
        below.mkdir(parents=True)
        blocks(below / "junk", MB)


def in_the_counters(folder: Path) -> None:
    blocks(folder / "counters", 80 * MB)


FILLS = [one_file, odd_name, behind_a_segments_end, named_as_segments, in_folders, in_the_counters]


@pytest.mark.parametrize("fill", FILLS, ids=lambda fill: str(fill.__name__))
def test_room_that_a_user_takes_past_the_sidecar_is_found_and_taken_back(
    node: ShippingNode, fill: Callable[[Path], None]
) -> None:
    hostile, honest = captured(node, "hostile"), captured(node, "honest", HONEST)
    fill(hostile.segments)
    give_to_user(hostile)
    overuse = turns(node)
    assert taken_jobs(node) == {"hostile"}
    assert overuse.taken_counts["bytes"] == 1
    assert not hostile.segments.exists()
    assert honest.segments.exists()
    (folder,) = (capture.folder for capture in node.follow() if capture.folder.is_taken)
    assert folder.size().blocks < 6 * MB
    (line,) = [words for words in node.messages if "taken from its user" in words]
    assert "hostile@1" in line
    assert "job_spool_hard_max_bytes" in line


def holes(folder: Path) -> None:
    (folder / "holes").touch()
    os.truncate(folder / "holes", 1 << 40)
    os.truncate(folder / "0000000001.seg", 1 << 40)


def many_names_of_one_file(folder: Path) -> None:
    blocks(folder / "one", MB)
    for number in range(100):
        os.link(folder / "one", folder / f"name{number}")


def links_to_much(folder: Path) -> None:
    elsewhere = folder.parent.parent.parent / "elsewhere"
    blocks(elsewhere, 8 * MB)
    (folder / "link").symlink_to(elsewhere)
    (folder / "folder").symlink_to("/usr")


def pipes(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "0000000002.seg")


@pytest.mark.parametrize(
    "fill", [holes, many_names_of_one_file, links_to_much, pipes], ids=lambda fill: fill.__name__
)
def test_what_takes_no_room_is_left_alone(node: ShippingNode, fill: Callable[[Path], None]) -> None:
    capture = captured(node, "odd")
    fill(capture.segments)
    give_to_user(capture)
    turns(node)
    assert taken_jobs(node) == set()


def test_a_job_at_its_hard_limit_and_a_user_with_many_jobs_are_left_alone(
    node: ShippingNode,
) -> None:
    """Metadata may even exceed the limit by a quarter and a margin."""
    large = captured(node, "large")
    blocks(large.segment, 5 * MB)
    for number in range(40):
        captured(node, f"small{number}")
    turns(node)
    assert taken_jobs(node) == set()


def test_a_capture_of_thousands_of_segments_is_a_normal_one(node: ShippingNode) -> None:
    capture = captured(node, "long")
    text = os.urandom(96 << 10)
    for number in range(2, FEW_ENTRIES + 200):
        (capture.segments / f"{number:010d}.seg").write_bytes(text)
    give_to_user(capture)
    turns(node, NO_LIMITS)
    assert taken_jobs(node) == set()


# ---- inodes


def empty_files(folder: Path) -> None:
    for number in range(3 * FEW_ENTRIES):
        (folder / f"x{number}").touch()


def empty_segments(folder: Path) -> None:
    for number in range(2, 3 * FEW_ENTRIES):
        (folder / f"{number:010d}.seg").touch()


def in_depth(folder: Path) -> None:
    at = os.open(folder, os.O_RDONLY)
    for _ in range(400):  # few enough levels for pytest's recursive removal
        os.mkdir("d", dir_fd=at)
        if IS_ROOT:
            os.chown("d", HOSTILE, HOSTILE, dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.mark.parametrize(
    "fill", [empty_files, empty_segments, in_depth], ids=lambda fill: str(fill.__name__)
)
def test_a_flood_of_inodes_is_taken_away_without_any_limit_of_bytes(
    node: ShippingNode, fill: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_removal, "REMOVED_AT_ONCE", 300)
    capture = captured(node, "flood")
    fill(capture.segments)
    if fill is not in_depth:
        give_to_user(capture)
    (followed,) = node.follow()
    size = followed.folder.size()
    assert size.is_flood
    assert size.entries <= FEW_ENTRIES + 1, "no more is looked at"
    overuse = turns(node, NO_LIMITS, 20)
    assert overuse.taken_counts["entries"] == 1
    assert not followed.folder.size().is_flood
    names = set(os.listdir(capture.path / TAKEN))
    assert {"0000000001.seg", "counters"} <= names, "what it printed"
    assert len(names) <= FEW_ENTRIES // 2 + 1
    assert all(name.endswith(".seg") or name == "counters" for name in names)


def test_a_user_with_entries_in_a_thousand_captures_loses_those_that_have_most(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_overuse, "USER_ENTRIES", 300)
    for number in range(5):
        capture = captured(node, f"many{number}")
        for file in range(20 * number):
            (capture.segments / f"x{file}").touch()
        give_to_user(capture)
    if IS_ROOT:
        captured(node, "honest", HONEST)
    turns(node, NO_LIMITS, 1)
    assert taken_jobs(node) == set(), "some 240 entries"
    more = captured(node, "more")
    for file in range(70):
        (more.segments / f"y{file}").touch()
    turns(node, NO_LIMITS, 1)
    assert taken_jobs(node) == {"many4"}


def test_looking_has_an_end_in_each_turn(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn stops after its time, and goes user by user."""
    monkeypatch.setattr(spool_overuse, "TURN_SECS", -1.0)
    captures = [
        captured(node, f"job{number}", uid) for number, uid in enumerate([HOSTILE] * 5 + [HONEST])
    ]
    looked_at: list[str] = []
    size = CaptureFolder.size

    def looking(folder: CaptureFolder) -> FolderSize:
        looked_at.append(folder.name)
        return size(folder)

    monkeypatch.setattr(CaptureFolder, "size", looking)
    overuse = SpoolOveruse(LIMITS, node.messages.append)
    for count in range(1, 1 + len(captures)):
        overuse.turn(node.follow())
        assert len(looked_at) == count
    assert len(set(looked_at[: 2 if IS_ROOT else 1])) == len(looked_at[: 2 if IS_ROOT else 1])


# ---- consequences


def test_what_it_printed_is_shipped_and_closed_with_the_reason(node: ShippingNode) -> None:
    with captured(node, "hostile") as hostile, captured(node, "honest", HONEST) as honest:
        one_file(hostile.segments)
        give_to_user(hostile)
        node.learn()
        turns(node)
        honest.lines(["second of honest"])
        honest.close()
        node.ship()
    assert sorted(node.loki.lines('kind="log"')) == [
        "first of honest",
        "first of hostile",
        "second of honest",
    ]
    events = {event["event"]: event for event in node.events("hostile")}
    assert events["closed"]["reason"] == TAKEN_AWAY
    assert events["capture_taken"]["message"] == TAKEN_AWAY
    (followed,) = (capture for capture in node.follow() if capture.folder.is_taken)
    assert followed.knowledge.account.reason == TAKEN_AWAY
    node.learn()
    assert followed.is_over
    while not followed.folder.remove():
        pass
    assert not hostile.path.exists()


def test_what_has_ended_keeps_its_own_end(node: ShippingNode) -> None:
    capture = captured(node, "ended")
    capture.end("COMPLETED", 0)
    capture.close()
    one_file(capture.segments)
    give_to_user(capture)
    node.learn()
    turns(node)
    node.ship()
    (closed,) = [event for event in node.events("ended") if event["event"] == "closed"]
    assert (closed["state"], closed["reason"]) == ("COMPLETED", "")


@needs_root
def test_its_user_cannot_go_on_writing_there(node: ShippingNode) -> None:
    """Neither a path nor an open directory lets the user write."""
    hostile = captured(node, "hostile")
    one_file(hostile.segments)
    give_to_user(hostile)
    above, folder_fd = (
        os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (hostile.path, hostile.segments)
    )

    def attempts() -> list[bool]:
        successes = []
        for place, folder in (("segments/a", above), (f"{TAKEN}/b", above), ("c", folder_fd)):
            try:
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
                successes.append(True)
            except OSError:
                successes.append(False)
        try:
            os.fchmod(folder_fd, 0o777)
            successes.append(True)
        except OSError:
            successes.append(False)
        return successes

    assert Forked(HOSTILE, attempts).result() == [True, False, True, True]
    turns(node)
    assert Forked(HOSTILE, attempts).result() == [False, False, False, False]
    os.close(folder_fd)
    os.close(above)


def test_what_grows_all_the_same_loses_its_segments_too(node: ShippingNode) -> None:
    """The user may still write to open files."""
    capture = captured(node, "hostile")
    one_file(capture.segments)
    give_to_user(capture)
    overuse = turns(node)
    blocks(capture.path / TAKEN / "0000000001.seg", 8 * MB)
    for _ in range(3):
        overuse.turn(node.follow())
    assert os.listdir(capture.path / TAKEN) == ["counters"]
    assert [words for words in node.messages if "its segments are removed, too" in words]
    node.ship()
    assert "closed" in {event["event"] for event in node.events("hostile")}


@pytest.mark.parametrize("closed_to_user", [False, True])
def test_an_agent_that_starts_in_between_goes_on(node: ShippingNode, closed_to_user: bool) -> None:
    capture = captured(node, "hostile")
    one_file(capture.segments)
    give_to_user(capture)
    capture.segments.rename(capture.path / TAKEN)
    if closed_to_user and IS_ROOT:
        os.chown(capture.path / TAKEN, 0, 0)
    (followed,) = node.follow()
    assert (followed.folder.is_taken, followed.folder.is_unused(), followed.folder.life()) == (
        True,
        False,
        Life.DEAD,
    )
    turns(node, count=1)
    assert not (capture.path / TAKEN / "junk").exists()
    assert (capture.path / TAKEN).stat().st_uid == os.geteuid()
    node.ship()
    assert node.loki.lines('kind="log"') == ["first of hostile"]
    assert [event["reason"] for event in node.events("hostile") if event["event"] == "closed"] == [
        TAKEN_AWAY
    ]


def test_what_nobody_captures_in_is_removed_at_once_where_it_holds_something(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_removal, "REMOVED_AT_ONCE", 20)
    capture = node.capture(
        "unused", soon_ns(0), uid=HOSTILE, gid=HOSTILE if IS_ROOT else os.getegid()
    )
    capture.segment.unlink()
    overuse = SpoolOveruse(LIMITS, node.messages.append)
    spool_fd = os.open(node.folder / "spool", os.O_RDONLY)

    def look() -> bool:
        with CaptureFolder(
            spool_fd, str(node.folder / "spool"), capture.path.name, os.geteuid(), node=True
        ) as folder:
            assert folder.is_unused()
            return overuse.removes_unused(folder)

    assert not look(), "it was made for a job that hasn't printed"
    for number in range(50):
        (capture.segments / f"x{number}").touch()
    give_to_user(capture)
    rounds = 0
    while capture.path.exists() and look():
        rounds += 1
    assert rounds >= 2
    assert not capture.segments.exists()
    assert overuse.taken_counts["unused"] == 1
    assert len([words for words in node.messages if "nobody captures there" in words]) == 1
    os.close(spool_fd)


def test_a_hostile_name_and_a_folder_that_is_exchanged_while_it_is_walked(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = captured(node, "racing")
    (capture.segments / "folder").mkdir()
    stat = folder_size._Walk._count

    def exchanging(walk: folder_size._Walk, entry: "os.DirEntry[str]") -> None:
        stat(walk, entry)
        if entry.name == "folder" and not (capture.segments / "folder").is_symlink():
            (capture.segments / "folder").rmdir()
            (capture.segments / "folder").symlink_to("/usr")

    monkeypatch.setattr(folder_size._Walk, "_count", exchanging)
    (followed,) = node.follow()
    assert followed.folder.size().entries < 20


def test_an_entry_that_nobody_may_look_at_hides_no_other(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even root may read a file system that the user has mounted there."""
    capture = captured(node, "mounts")
    one_file(capture.segments)
    (capture.segments / "mounted").mkdir()
    enter = folder_size._Walk.enter

    def refusing(walk: folder_size._Walk, name: str, above: int) -> None:
        if name == "mounted":
            raise PermissionError(13, "Permission denied")
        enter(walk, name, above)

    monkeypatch.setattr(folder_size._Walk, "enter", refusing)
    turns(node, count=1)
    assert taken_jobs(node) == {"mounts"}


# ---- a whole agent

FILLING = """
import glob, os, sys, time
print("first", flush=True)
(folder,) = glob.glob(sys.argv[1])
with open(folder + "/junk", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 90 << 20)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
for number in range(1000):
    print("line", number)
"""


def test_a_job_that_fills_the_spool_runs_on_and_status_metrics_and_log_tell(
    loki: LokiServer, tmp_path: Path
) -> None:
    limits = {"job_spool_soft_max_bytes": 1_000_000, "job_spool_hard_max_bytes": 2_000_000}
    with (
        LokiClient(loki.url) as client,
        NodeAgent(tmp_path, loki.url, cluster="overuse", agent=limits) as agent,
    ):
        release = tmp_path / "release"
        job = [sys.executable, "-c", FILLING, f"{agent.spool}/*/segments", str(release)]
        words = [sys.executable, "-m", "logshipper", "run", "--job-id", "fills", "--", *job]
        environment = {**agent.environment, "HOME": str(tmp_path)}
        with subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            wait_until(lambda: list(agent.spool.glob("*/segments")), "it is captured")
            wait_until(lambda: "taken from its user" in agent.log.read_text(), "it is taken away")
            wait_until(lambda: not agent.captures(), "it is shipped and its directory removed")
            release.touch()
            printed, _ = process.communicate(timeout=scaled(60))
        assert (process.returncode, printed.count(b"\n")) == (0, 1001)
        (note,) = agent.status()["taken"]
        assert (note["reason"], note["uid"]) == ("bytes", os.geteuid())
        assert "taken away, job fills" in agent.call("status").stdout
        wait_until(
            lambda: (
                'logshipper_agent_left_out_total{reason="captures_taken"} 1.0' in agent.metrics()
            ),
            "metrics",
        )
        assert "it is taken from its user, and closed; the job runs on" in agent.log.read_text()
        events = [json.loads(entry.line) for entry in entries_of(client, "overuse", "event")]
        logged = [entry.line for entry in entries_of(client, "overuse", "log")]
    assert [event["reason"] for event in events if event["event"] == "closed"] == [TAKEN_AWAY]
    assert logged == ["first"]
    assert (
        subprocess.run(["ls", str(agent.spool)], capture_output=True, text=True, check=True).stdout
        == ""
    )
