"""The store with faults: damaged or newer files, full disks, missing permissions, network file
systems, two programs at once."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logshipper.errors import StoreError, UnknownJob
from logshipper.spool.segment import Stream
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.job import IngestOutcome
from logshipper_ingest.spool import learning
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity
from logshipper_ingest.store import intake
from logshipper_ingest.store.catalogue import Catalogue
from logshipper_ingest.store.job_db import JobWriter
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import CaptureWriter, age, make_capture
from tests.tools.sources import ROOT
from tests.tools.stress import crashing
from tests.tools.waiting import scaled

BOTH = (Stream.STDOUT, Stream.STDERR)
CHILD_SECS = scaled(60)
ordinary_user_only = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def spool(root: Path) -> Path:
    return root / "spool"


@pytest.fixture
def store_path(root: Path, spool: Path) -> Path:
    """Return a store with two ingested jobs, `good1` and `job222`."""
    make_capture(spool, "good1", lines=["one", "two"])
    make_capture(spool, "job222", lines=[f"line {number}" for number in range(20_000)])
    assert ingest(root).problems == []
    return root


def ingest(root: Path) -> IngestOutcome:
    with LocalStore(str(root), create=True) as store:
        return store.ingest()


def texts(store: LocalStore, job_id: str) -> list[str]:
    return [line.text for line in store.open(job_id).lines(streams=BOTH)]


# ---- folders that are stores, and others


def test_a_missing_store_is_said_and_made_when_asked(root: Path) -> None:
    with pytest.raises(StoreError, match="no store here yet") as error:
        LocalStore(str(root))
    assert error.value.path == str(root)
    with LocalStore(str(root), create=True) as store:
        assert store.jobs() == []
    assert root.stat().st_mode & 0o777 == 0o700
    with LocalStore(str(root)) as store:
        assert store.ingest() == IngestOutcome(True, [])


def test_other_folders_and_files_are_no_stores(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="isn't a logshipper store"):
        LocalStore(str(tmp_path))
    with pytest.raises(StoreError, match="is no folder"):
        LocalStore(str(tmp_path / "thesis.tex"), create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_store_that_has_only_a_spool_is_one(root: Path, spool: Path) -> None:
    make_capture(spool)
    with LocalStore(str(root)) as store:
        assert store.ingest().complete
        assert texts(store, "k3f9x2") == ["one", "two"]


# ---- newer versions


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")


def test_a_newer_catalogue_is_refused_by_name(store_path: Path) -> None:
    set_version(store_path / "catalogue.db", 7)
    with pytest.raises(StoreError, match=r"newer logshipper.*7.*upgrade") as error:
        LocalStore(str(store_path))
    assert error.value.path == str(store_path / "catalogue.db")


def test_a_newer_job_is_refused_and_others_go_on(store_path: Path, spool: Path) -> None:
    set_version(store_path / "jobs" / "job222.db", 7)
    second_attempt = make_capture(spool, "job222", attempt=2)
    make_capture(spool, "good1", attempt=2, lines=["three"])
    with LocalStore(str(store_path)) as store:
        outcome = store.ingest()
        assert not outcome.complete
        assert [("job222.db" in problem, "newer" in problem) for problem in outcome.problems] == [
            (True, True)
        ]
        assert second_attempt.path.exists()
        assert len(store.jobs()) == 2
        assert texts(store, "good1") == ["one", "two", "three"]
        with pytest.raises(StoreError, match="upgrade"):
            store.open("job222")


def test_a_newer_segment_waits_and_the_rest_goes_on(root: Path, spool: Path) -> None:
    capture = make_capture(spool, "newer1")
    with capture.segment.open("r+b") as file:
        file.seek(8)
        file.write(b"\x02\x00")
    make_capture(spool, "good1")
    with LocalStore(str(root), create=True) as store:
        for _ in range(2):  # the message comes each time
            outcome = store.ingest()
            assert not outcome.complete
            assert len(outcome.problems) == 1
            assert "upgrade" in outcome.problems[0]
        assert texts(store, "good1") == ["one", "two"]
        with capture.segment.open("r+b") as file:
            file.seek(8)
            file.write(b"\x01\x00")
    with LocalStore(str(root)) as store:
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "newer1") == ["one", "two"]


# ---- damaged and half-written files


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to look like one" * 50)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("break_it", [halve, scribble, empty])
def test_a_damaged_job_is_named_and_others_stay_readable(
    store_path: Path, spool: Path, break_it: object
) -> None:
    assert callable(break_it)
    broken = store_path / "jobs" / "job222.db"
    break_it(broken)
    make_capture(spool, "good1", attempt=2, lines=["three"])
    with LocalStore(str(store_path)) as store:
        assert store.ingest().complete
        assert texts(store, "good1") == ["one", "two", "three"]
        with pytest.raises(StoreError, match="damaged or half-written") as error:
            texts(store, "job222")
        assert error.value.path == str(broken)
        store.remove("job222")
        assert [job.job_id for job in store.jobs()] == ["good1"]


def test_a_damaged_job_keeps_its_segments_in_the_spool(store_path: Path, spool: Path) -> None:
    scribble(store_path / "jobs" / "job222.db")
    second_attempt = make_capture(spool, "job222", attempt=2)
    outcome = ingest(store_path)
    assert not outcome.complete
    assert "job222.db" in outcome.problems[0]
    assert second_attempt.segment.exists()


@pytest.mark.parametrize("break_it", [scribble, empty, halve, Path.unlink])
def test_a_damaged_or_missing_catalogue_is_made_again(store_path: Path, break_it: object) -> None:
    with LocalStore(str(store_path)) as store:
        before = list(store.jobs())
    assert callable(break_it)
    break_it(store_path / "catalogue.db")
    scribble(store_path / "jobs" / "bad333.db")
    (store_path / "jobs" / "other.txt").write_text("x")
    with LocalStore(str(store_path)) as store:
        assert store.jobs() == before
        assert ["bad333.db" in problem for problem in store.ingest().problems] == [True]
        assert store.ingest().problems == []


def test_damage_within_the_catalogue_shows_later_and_is_fixed(store_path: Path) -> None:
    with closing(sqlite3.connect(store_path / "catalogue.db")) as connection, connection:
        connection.execute("UPDATE job SET summary = 'nonsense'")
    with LocalStore(str(store_path)) as store:
        assert {job.job_id for job in store.jobs()} == {"good1", "job222"}


def test_a_catalogue_that_another_program_replaced_is_followed(
    store_path: Path, spool: Path
) -> None:
    with LocalStore(str(store_path)) as store:
        (store_path / "catalogue.db").unlink()
        with LocalStore(str(store_path)) as second_store:
            assert len(second_store.jobs()) == 2
            make_capture(spool, "new333")
            assert store.ingest().complete
            assert len(second_store.jobs()) == len(store.jobs()) == 3


def test_a_job_whose_database_was_only_begun_is_no_damage(store_path: Path, spool: Path) -> None:
    """A crash has left the file without any committed data."""
    (store_path / "catalogue.db").unlink()
    empty(store_path / "jobs" / "k3f9x2.db")
    make_capture(spool)
    with LocalStore(str(store_path)) as store:
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "k3f9x2") == ["one", "two"]


def test_another_program_s_database_is_left_alone(store_path: Path) -> None:
    path = store_path / "jobs" / "job222.db"
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE precious (x)")
    with LocalStore(str(store_path)) as store, pytest.raises(StoreError, match="another program"):
        store.open("job222")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM precious").fetchone() == (0,)


def test_a_job_s_missing_database_is_an_unknown_job(store_path: Path) -> None:
    (store_path / "jobs" / "job222.db").unlink()
    with LocalStore(str(store_path)) as store:
        with pytest.raises(UnknownJob):
            store.open("job222")
        store.remove("job222")
        assert len(store.jobs()) == 1


def test_a_log_that_goes_while_somebody_opens_the_database(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last program that closes a database removes its write-ahead log, at any time."""
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: str(path).endswith("-wal") or exists(path))
    with LocalStore(str(store_path)) as store, store.open(store.resolve("last")) as reader:
        assert reader.summary.state == "COMPLETED"


# ---- no permission to write


@ordinary_user_only
def test_a_read_only_store_is_read_without_ingesting(store_path: Path, spool: Path) -> None:
    make_capture(spool, "waits1")
    for folder in (store_path, store_path / "jobs"):
        folder.chmod(0o500)
    try:
        with LocalStore(str(store_path)) as store:
            outcome = store.ingest()
            assert not outcome.complete
            assert outcome.problems == [
                f"{store_path}: can't be written: 1 capture in the spool not ingested"
            ]
            assert len(store.jobs()) == 2
            assert texts(store, "good1") == ["one", "two"]
            with pytest.raises(StoreError, match="cannot be written"):
                store.remove("good1")
    finally:
        for folder in (store_path, store_path / "jobs"):
            folder.chmod(0o700)
    assert ingest(store_path).complete


@ordinary_user_only
@pytest.mark.parametrize("uses_wal", [True, False])
def test_read_only_files_with_and_without_a_log_of_what_was_written_last(
    store_path: Path, tmp_path: Path, uses_wal: bool
) -> None:
    """After a crash, only the write-ahead log has the newest lines."""
    copy = tmp_path / "copy"
    with closing(sqlite3.connect(store_path / "jobs" / "good1.db")) as connection:
        connection.execute(f"PRAGMA journal_mode={'WAL' if uses_wal else 'DELETE'}")
        connection.execute("UPDATE capture SET attempt = 5")
        connection.commit()
        shutil.copytree(store_path, copy)
    for name in ("good1.db-shm", "good1.db-journal"):
        (copy / "jobs" / name).unlink(missing_ok=True)
    assert (copy / "jobs" / "good1.db-wal").exists() == uses_wal
    for path in (*copy.rglob("*"), copy):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        with LocalStore(str(copy)) as store:
            reader = store.open("good1")
            assert reader.captures[0].attempt == 5
            assert texts(store, "good1") == ["one", "two"]
    finally:
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o700)


@ordinary_user_only
def test_unreadable_files_are_named(store_path: Path) -> None:
    broken = store_path / "jobs" / "job222.db"
    broken.chmod(0)
    with LocalStore(str(store_path)) as store:
        with pytest.raises(StoreError, match="cannot be read") as error:
            store.open("job222")
        assert error.value.path == str(broken)
    store_path.chmod(0)
    try:
        with pytest.raises(StoreError, match="cannot be read"):
            LocalStore(str(store_path))
    finally:
        store_path.chmod(0o700)


@ordinary_user_only
def test_a_segment_that_cannot_be_opened_waits_and_the_rest_goes_on(
    root: Path, spool: Path
) -> None:
    locked = make_capture(spool, "locked")
    locked.segment.chmod(0)
    make_capture(spool, "good1")
    outcome = ingest(root)
    assert not outcome.complete
    assert "permission denied" in outcome.problems[0]
    assert locked.segment.exists()
    with LocalStore(str(root)) as store:
        assert texts(store, "good1") == ["one", "two"]
        locked.segment.chmod(0o600)
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "locked") == ["one", "two"]


def test_captures_of_another_user_are_left_alone(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make_capture(spool)
    with LocalStore(str(root), create=True) as store:
        monkeypatch.setattr(store._intake, "_owner", os.geteuid() + 1)
        outcome = store.ingest()
        assert ["another user" in problem for problem in outcome.problems] == [True]
        assert capture.segment.exists()
        assert store.jobs() == []


# ---- no room


@pytest.fixture
def page_limit(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Limit the pages of job databases to the number in the list."""
    pages = [20]
    begin = JobWriter.__init__

    def limited(self: JobWriter, path: str, *, wal: bool) -> None:
        begin(self, path, wal=wal)
        self._connection.execute(f"PRAGMA max_page_count={pages[0]}")

    monkeypatch.setattr(JobWriter, "__init__", limited)
    return pages


def test_no_room_loses_nothing(root: Path, spool: Path, page_limit: list[int]) -> None:
    numbers = [f"{number} {os.urandom(20).hex()}" for number in range(5000)]
    capture = CaptureWriter(spool)
    for begin in range(0, 5000, 500):
        capture.lines(numbers[begin : begin + 500])
    capture.end()
    capture.close()
    make_capture(spool, "small1")
    with LocalStore(str(root), create=True) as store:
        outcome = store.ingest()
        assert not outcome.complete
        assert "no room left" in outcome.problems[0]
        assert capture.segment.exists()
        assert texts(store, "small1") == ["one", "two"]
        page_limit[0] = 1 << 30
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "k3f9x2") == numbers


def test_files_that_may_not_grow_lose_nothing(root: Path, spool: Path) -> None:
    """RLIMIT_FSIZE acts like a quota: writing fails within a page or log."""
    numbers = [f"{number} {os.urandom(20).hex()}" for number in range(20_000)]
    capture = CaptureWriter(spool)
    for begin in range(0, 20_000, 500):
        capture.lines(numbers[begin : begin + 500])
    capture.close()
    code = (
        "import sys; from logshipper_ingest.store.local_store import LocalStore\n"
        "print(LocalStore(sys.argv[1], create=True).ingest())"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    result = subprocess.run(
        [sys.executable, "-c", code, str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHILD_SECS,
        preexec_fn=limit,
    )
    assert result.returncode == 0, result.stderr
    assert "complete=False" in result.stdout
    assert "disk" in result.stdout
    assert ingest(root).complete
    with LocalStore(str(root)) as store:
        assert texts(store, "k3f9x2") == numbers


@pytest.fixture
def small_disk(root_user: None, tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 2 MiB, if root may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_reading_goes_on_and_room_fixes_it(
    small_disk: Path, tmp_path: Path
) -> None:
    root, spool = small_disk / "store", tmp_path / "spool"
    make_capture(spool, "good1")
    with LocalStore(str(root), create=True, spool=str(spool)) as store:
        assert store.ingest().complete
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 512):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass
    capture = make_capture(spool, "late22", lines=[os.urandom(50).hex() for _ in range(2000)])
    with LocalStore(str(root), spool=str(spool)) as store:
        outcome = store.ingest()
        assert not outcome.complete
        assert any("room" in problem or "disk" in problem for problem in outcome.problems), (
            outcome.problems
        )
        assert [job.job_id for job in store.jobs()] == ["good1"]
        assert texts(store, "good1") == ["one", "two"]
    assert capture.segment.exists()
    filler.unlink()
    with LocalStore(str(root), spool=str(spool)) as store:
        assert store.ingest().complete
        assert len(texts(store, "late22")) == 2000


# ---- network file systems


def test_no_write_ahead_log_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []

    def network(path: str) -> str | None:
        paths.append(path)
        return "nfs4"

    root, spool = tmp_path / "store", tmp_path / "spool"
    make_capture(spool)
    monkeypatch.setattr("logshipper_ingest.store.local_store.network_type", network)
    with LocalStore(str(root), create=True, spool=str(spool)) as store:
        assert not store.uses_wal
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "k3f9x2") == ["one", "two"]
        for path in (root / "catalogue.db", root / "jobs" / "k3f9x2.db"):
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert not list(root.rglob("*-wal"))
    assert paths == [str(root)]


def test_a_write_ahead_log_on_a_local_one(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_capture(spool)
    monkeypatch.setattr("logshipper_ingest.store.local_store.network_type", lambda path: None)
    with LocalStore(str(root), create=True) as store:
        store.ingest()
        with closing(sqlite3.connect(root / "jobs" / "k3f9x2.db")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---- two at a time


def test_waiting_for_another_who_takes_in_is_bounded(root: Path, spool: Path) -> None:
    make_capture(spool)
    with LocalStore(str(root), create=True) as store:
        with intake.intake_lock(str(root / "intake.lock"), time.monotonic()) as is_held:
            assert is_held
            outcome = store.ingest(deadline_secs=0.05)
            assert not outcome.complete
            assert "another program" in outcome.problems[0]
            assert store.jobs() == []
        assert store.ingest().complete


_INGEST_UNTIL_STOPPED = """
import os, sys
from logshipper_ingest.store.local_store import LocalStore
root, stop = sys.argv[1:]
with LocalStore(root, create=True) as store:
    stopped = False
    while not stopped:
        stopped = os.path.exists(stop)
        taken = store.ingest(deadline_secs=30)
        assert taken.problems == [], taken.problems
"""


def test_several_ingest_at_a_time_each_line_once(root: Path, spool: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    with LocalStore(str(root), create=True):
        pass
    command = [sys.executable, "-c", _INGEST_UNTIL_STOPPED, str(root), str(stop)]
    children = [
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    with CaptureWriter(spool) as capture:
        for number in range(400):
            capture.lines([f"line {number}"])
            if number % 50 == 49:
                capture.rotate()
        capture.close()
    stop.touch()
    for child in children:
        _, errors = child.communicate(timeout=CHILD_SECS)
        assert child.returncode == 0, errors
    with LocalStore(str(root)) as store:
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "k3f9x2") == [f"line {number}" for number in range(400)]
        assert store.jobs()[0].lines == 400


# ---- killed at any point

TAKING_IN = (
    "store_rows_written",
    "store_committed",
    "store_segments_removed",
    "store_catalogue_updated",
)
REMOVING = (
    "store_job_buried",
    "store_spool_dropped",
    "store_database_removed",
    "store_summary_blanked",
)


@pytest.mark.parametrize("times", [1, 2, 3, 4])
@pytest.mark.parametrize("point", TAKING_IN)
def test_killed_while_ingesting_nothing_is_lost_or_doubled(
    root: Path, spool: Path, point: str, times: int
) -> None:
    texts_in_order: list[str] = []
    records: list[str] = []
    with CaptureWriter(spool, start_ns=time.time_ns()) as capture:
        capture.start()
        for number in range(12):
            lines = [f"{number}: {at:04d} {'x' * 50}" for at in range(25)]
            capture.lines(lines)
            record = f'{{"step": {number}}}'
            capture.metadata(record)
            capture.event("note", str(number))
            texts_in_order += [*lines, record]
            records.append(record)
            if number % 4 == 3:
                capture.rotate()
        capture.status("99%")
        capture.end()
        capture.close()
    make_capture(spool, "after1", lines=["other"])
    died = [
        killed(root.parent / f"killed{life}", point, times, "ingest", str(root)) for life in (1, 2)
    ]
    assert died[0] or times > 1
    with LocalStore(str(root), create=True) as store:
        assert store.ingest() == IngestOutcome(True, [])
        reader = store.open("k3f9x2")
        assert [line.text for line in reader.lines(streams=BOTH)] == texts_in_order
        assert [record.line for record in reader.records()] == records
        assert [event.event["message"] for event in reader.events()] == [
            str(number) for number in range(12)
        ]
        assert reader.x_axis().words == "step: integers that never fall"
        assert (reader.summary.lines, reader.summary.records, reader.summary.state) == (
            312,
            12,
            "COMPLETED",
        )
        assert {job.job_id for job in store.jobs()} == {"k3f9x2", "after1"}
        assert texts(store, "after1") == ["other"]
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize("point", REMOVING)
def test_killed_while_a_job_is_removed_it_is_gone_at_the_next_time(
    root: Path, spool: Path, point: str
) -> None:
    make_capture(spool, "job111", lines=["one", "two"])
    make_capture(spool, "job222", lines=["other"])
    assert ingest(root).problems == []
    make_capture(spool, "job111", attempt=2, lines=["spooled since"])
    assert killed(root.parent / "killed", point, 1, "remove", str(root), "job111")
    with LocalStore(str(root)) as store:
        store.ingest()
        if any(job.job_id == "job111" for job in store.jobs()):
            store.remove("job111")
        assert store.ingest() == IngestOutcome(True, [])
        assert [job.job_id for job in store.jobs()] == ["job222"]
        assert texts(store, "job222") == ["other"]
    assert list(spool.iterdir()) == []
    assert [path.name for path in (root / "jobs").iterdir() if path.name.startswith("job111")] == []


def killed(flag: Path, point: str, times: int, *words: str) -> bool:
    """Run a program of tests.tools.stress.crashing; return whether it reached the point and was
    killed there."""
    result = subprocess.run(
        crashing.command(point, times, flag, *words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHILD_SECS,
    )
    assert result.returncode in (-9, 0), result.stderr
    assert flag.exists() is (result.returncode == -9)
    return flag.exists()


def test_a_fault_of_our_own_in_one_capture_stops_no_other(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = make_capture(spool, "bad111")
    make_capture(spool, "good1")
    new_account = learning.new_account

    def raise_for_bad(folder: CaptureFolder, identity: Identity) -> CaptureAccount:
        if folder.name.startswith("bad"):
            raise RuntimeError("unforeseen")
        return new_account(folder, identity)

    monkeypatch.setattr(intake, "new_account", raise_for_bad)
    outcome = ingest(root)
    assert not outcome.complete
    assert "unforeseen" in outcome.problems[0]
    assert bad.segment.exists()
    with LocalStore(str(root)) as store:
        assert texts(store, "good1") == ["one", "two"]


def test_a_directory_that_cannot_be_removed_is_tried_again(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make_capture(spool)

    def refuse(folder: CaptureFolder) -> None:
        raise PermissionError(13, "Permission denied", folder.path)

    with LocalStore(str(root), create=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(CaptureFolder, "remove", refuse)
            for _ in range(2):
                assert store.ingest() == IngestOutcome(
                    False, [f"{capture.path}: permission denied"]
                )
        assert store.ingest() == IngestOutcome(True, [])
        assert not capture.path.exists()
        assert texts(store, "k3f9x2") == ["one", "two"]


def test_a_catalogue_in_memory_serves_where_none_can_be_written(store_path: Path) -> None:
    with closing(Catalogue.in_memory()) as catalogue:
        assert catalogue.rebuild(str(store_path / "jobs")) == []
        assert {job.job_id for job in catalogue.jobs(time.time_ns())} == {"good1", "job222"}


def test_old_captures_are_ingested_however_old(root: Path, spool: Path) -> None:
    capture = make_capture(spool)
    age(capture.path, 10 * 365 * 86400)
    with LocalStore(str(root), create=True) as store:
        assert store.ingest() == IngestOutcome(True, [])
        assert texts(store, "k3f9x2") == ["one", "two"]
