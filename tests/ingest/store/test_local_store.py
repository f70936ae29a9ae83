"""The local store: it ingests spooled captures once and completely, and readers get their output
unchanged."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper.errors import StoreError, UnknownJob
from logshipper.spool.captures import process_started
from logshipper.spool.live_status import LIVE_FILE
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life
from logshipper_ingest.store.job_reader import JobReader
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import (
    SECOND_NS,
    START_NS,
    CaptureWriter,
    age,
    boot_id,
    make_capture,
    make_ledger,
)
from tests.tools.stores.reading_store import assert_spans

BOTH = (Stream.STDOUT, Stream.STDERR)
R19 = (
    '{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}',
    '{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}',
    '{"size": "big", "speed": "slow", "lr": 0.1}',
)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "store" / "spool"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(str(tmp_path / "store"), create=True) as store:
        yield store


def texts_of(reader: JobReader, streams: tuple[Stream, ...] = BOTH) -> list[str]:
    return [line.text for line in reader.lines(streams=streams)]


def take(store: LocalStore, job_id: str = "k3f9x2") -> JobReader:
    outcome = store.ingest()
    assert outcome.problems == []
    assert outcome.complete
    return store.open(job_id)


# ---- a whole job


def test_a_completed_job(store: LocalStore, spool: Path) -> None:
    make_capture(spool, lines=["one", "zwei ü", ""])
    reader = take(store)
    assert texts_of(reader) == ["one", "zwei ü", ""]
    job = reader.summary
    assert store.jobs() == [job]
    assert (job.job_id, job.name, job.user, job.host) == ("k3f9x2", "train.py", "me", "node1")
    assert (job.state, job.exit_code, job.signal, job.attempts, job.reason) == (
        "COMPLETED",
        0,
        0,
        1,
        "",
    )
    assert (job.lines, job.records, job.lost, job.bytes_printed, job.bytes_logged) == (
        3,
        0,
        0,
        12,
        13,
    )
    assert job.started_ns == START_NS
    assert job.ended_ns is not None
    assert job.ended_ns > START_NS
    assert list(spool.iterdir()) == []


def test_ingesting_again_changes_nothing(store: LocalStore, spool: Path) -> None:
    make_capture(spool)
    take(store)
    reader = take(store)
    assert texts_of(reader) == ["one", "two"]
    assert reader.summary.lines == 2


@pytest.mark.parametrize(
    ("state", "exit_code", "signal"),
    [("FAILED", 3, 0), ("CANCELLED", None, 15), ("FAILED", None, 11)],
)
def test_how_a_job_ended(
    store: LocalStore, spool: Path, state: str, exit_code: int | None, signal: int
) -> None:
    capture = CaptureWriter(spool)
    capture.start()
    capture.end(state, exit_code, signal=signal)
    capture.close()
    job = take(store).summary
    assert (job.state, job.exit_code, job.signal) == (state, exit_code, signal)


def test_start_record_events_and_modes_are_kept(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool, host="elsewhere") as capture:
        capture.start(mode="disabled", columns=200, rows=24, tty=False, host="forged")
        capture.event(
            "mode_changed",
            "mode changed",
            **{"from": "disabled", "to": "metadata"},
            stream="stdout",
        )
        reader = take(store)
        assert (reader.captures[0].columns, reader.captures[0].rows, reader.captures[0].tty) == (
            200,
            24,
            False,
        )
        assert (reader.summary.mode, reader.summary.host) == ("metadata", "elsewhere")
        event = next(reader.events()).event
        assert (event["event"], event["to"], event["message"]) == (
            "mode_changed",
            "metadata",
            "mode changed",
        )
        capture.heartbeat("enabled")
        assert take(store).summary.mode == "enabled"


def test_kinds_streams_and_attributes(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.mixed(
        [
            (Kind.LOG, "text"),
            (Kind.METADATA, '{"a": 1}'),
            (Kind.NOTE, "[repeated]"),
            (Kind.COMMAND, "/LOGCOMMAND {}"),
        ],
        at1={"n": 7},
        at2={"repeat": 5},
    )
    capture.lines(["err"], stream=Stream.STDERR)
    reader = take(store)
    lines = list(reader.lines(streams=BOTH))
    assert [(line.kind, line.text, dict(line.attrs)) for line in lines] == [
        (Kind.LOG, "text", {}),
        (Kind.METADATA, '{"a": 1}', {"n": 7}),
        (Kind.NOTE, "[repeated]", {"repeat": 5}),
        (Kind.COMMAND, "/LOGCOMMAND {}", {}),
        (Kind.LOG, "err", {}),
    ]
    assert [line.time_ns - START_NS for line in lines[:4]] == [SECOND_NS + at for at in range(4)]
    assert [line.stream for line in lines] == [Stream.STDOUT] * 4 + [Stream.STDERR]
    assert texts_of(reader, (Stream.STDERR,)) == ["err"]
    console = reader.lines(streams=(Stream.STDOUT,), kinds=(Kind.LOG, Kind.METADATA))
    assert [line.text for line in console] == ["text", '{"a": 1}']
    assert reader.summary.lines == 3  # without the command and the note


def test_metadata_is_exact_r18_r19_r23(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.metadata(*R19)
    capture.metadata('{"big": 123456789012345678901234567890, "f": 1e3}')
    reader = take(store)
    assert [record.line for record in reader.records()][:3] == list(R19)
    assert [record.n for record in reader.records()] == [1, 2, 3, 1]
    newest_first = list(reader.records(newest_first=True))
    assert newest_first == list(reader.records())[::-1]
    assert newest_first[0].line == '{"big": 123456789012345678901234567890, "f": 1e3}'
    last = {stats.key: stats.last for stats in reader.keys()}  # noqa: SIM118  not a dict's
    assert list(last) == [
        "acc",
        "big",
        "epoch",
        "f",
        "flops",
        "loss",
        "lr",
        "size",
        "speed",
        "step",
        "time",
    ]
    assert (last["big"], last["f"], last["size"], last["lr"]) == (
        "123456789012345678901234567890",
        "1e3",
        '"big"',
        "0.1",
    )
    assert reader.x_axis().key == "epoch"
    assert reader.summary.records == 4


def test_equal_times_of_two_tasks_newest_first_is_the_later_arrival_r23(
    store: LocalStore, spool: Path
) -> None:
    for task in (0, 1):
        capture = CaptureWriter(spool, task=task, suffix=f"task{task}")
        capture.metadata({"task": task})
        capture.close()
    reader = take(store)
    assert [record.line for record in reader.records(newest_first=True)] == [
        '{"task": 1}',
        '{"task": 0}',
    ]


def test_records_of_a_span_of_time(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    for a in range(600):  # more than a page of the reader
        capture.metadata({"a": a})
    reader = take(store)
    assert_spans(reader)


def test_parts_of_a_long_line_count_once(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.lines(
        ["a" * 10, "b" * 10, "c"], attrs={0: {"part": "1"}, 1: {"part": "2"}, 2: {"part": "3/3"}}
    )
    assert take(store).summary.lines == 1


def test_bytes_that_are_no_utf_8_are_replaced_never_fatal_r29(
    store: LocalStore, spool: Path
) -> None:
    capture = CaptureWriter(spool)
    capture.lines([b"\xff\xfe", b"ok"])
    capture.lines([b'{"a": 1, "b": "\xff"}'], kind=Kind.METADATA)
    assert texts_of(take(store)) == ["\ufffd\ufffd", "ok", '{"a": 1, "b": "\ufffd"}']


# ---- live status


def test_live_status_is_replaced_withdrawn_and_never_logged_r29(
    store: LocalStore, spool: Path
) -> None:
    with CaptureWriter(spool) as capture:
        capture.status("10%")
        time_ns = capture.status("20%")
        capture.status("warming up", stream=Stream.STDERR)
        reader = take(store)
        assert reader.status() == {
            Stream.STDOUT: (time_ns, "20%"),
            Stream.STDERR: (time_ns + SECOND_NS, "warming up"),
        }
        capture.mixed(
            [
                (Kind.LOG, "before"),
                (Kind.STATUS, ""),
                (Kind.LOG, "after"),
                (Kind.METADATA, '{"a":1}'),
            ],
            at3={"n": 1},
        )
        reader = take(store)
        assert set(reader.status()) == {Stream.STDERR}
        lines = list(reader.lines(streams=BOTH))
        assert [line.text for line in lines] == ["before", "after", '{"a":1}']
        assert [line.time_ns - lines[0].time_ns for line in lines] == [0, 2, 3]
        assert lines[2].attrs == {"n": 1}
        capture.end()
    assert take(store).status() == {}


def test_the_spool_has_the_newest_live_status_r29(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool) as capture:
        capture.status("10%")
        reader = take(store)
        for percent in (20, 30):
            time_ns = capture.live(f"{percent}%")
            assert reader.status() == {Stream.STDOUT: (time_ns, f"{percent}%")}, "without ingesting"
        capture.live("")
        assert reader.status() == {}, "withdrawn before that is ingested"
        time_ns = capture.status("40%")
        assert take(store).status() == {Stream.STDOUT: (time_ns, "40%")}, "an older file"
        capture.live("warming\x07 up", stream=Stream.STDERR)
        assert reader.status()[Stream.STDERR][1] == "warming\ufffd up"
        capture.end()
        assert take(store).status() == {}


def test_a_live_status_has_a_line_for_each_bar(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool) as capture:
        time_ns = capture.status("epoch 1/3\nbatch 2/40")
        reader = take(store)
        assert reader.status() == {Stream.STDOUT: (time_ns, "epoch 1/3\nbatch 2/40")}
        time_ns = capture.live("epoch 1/3\nbatch\x07 3/40")
        assert reader.status() == {Stream.STDOUT: (time_ns, "epoch 1/3\nbatch\ufffd 3/40")}
        capture.end()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_live_status_that_is_no_file(
    store: LocalStore, spool: Path, make: Callable[[Path], None]
) -> None:
    with CaptureWriter(spool) as capture:
        time_ns = capture.status("10%")
        make(capture.segments / LIVE_FILE)
        assert take(store).status() == {Stream.STDOUT: (time_ns, "10%")}


# ---- while a job runs


def test_a_running_job_shows_what_there_is(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool, start_ns=time.time_ns()) as capture:
        capture.start()
        assert take(store).summary.state == "RUNNING"
        for number in range(5):
            capture.lines([f"line {number}"])
            assert texts_of(take(store)) == [f"line {line}" for line in range(number + 1)]
            if number == 2:
                capture.rotate()
                assert len(list(capture.segments.glob("*.seg"))) == 2
                take(store)
                assert [path.name for path in capture.segments.glob("*.seg")] == ["0000000002.seg"]
        capture.end()
        capture.close()
    assert take(store).summary.state == "COMPLETED"


def test_lines_may_follow_the_end_record_until_the_capture_is_closed(
    store: LocalStore, spool: Path
) -> None:
    with CaptureWriter(spool) as capture:
        capture.lines(["from the command"])
        capture.end()
        assert take(store).summary.state == "COMPLETED"
        capture.lines(["from a child left behind"])
        capture.close()
    assert texts_of(take(store)) == ["from the command", "from a child left behind"]


def test_no_heartbeat_for_20_seconds_is_unresponsive(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool) as capture:  # with times of long ago
        capture.start()
        age(capture.path, 3600)
        take(store)
        assert store.jobs()[0].state == "UNRESPONSIVE"
        assert store.open("k3f9x2").captures[0].state == "UNRESPONSIVE"
        capture.now_ns = time.time_ns()
        capture.heartbeat()
        assert take(store).summary.state == "RUNNING"


def test_a_capture_in_the_making_is_left_alone(store: LocalStore, spool: Path) -> None:
    folder = spool / "abcdef@1.xxxx"
    folder.mkdir(parents=True)
    assert store.ingest().problems == []
    (folder / "segments").mkdir()
    assert store.ingest().problems == []
    assert store.jobs() == []
    assert folder.exists()


# ---- captures that died


def died(capture: CaptureWriter) -> None:
    age(capture.path, 3600)


def test_a_capture_that_died_is_failed_and_its_loss_counted(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.start()
    capture.lines(["one", "two"])
    capture.ledger(make_ledger({"stored": 2, "collapsed": 1, "bytes": 20}))
    capture.lines(["three"])
    capture.append(b"\xf1LSF torn")
    capture.counters((100, 10), (7, 1))
    died(capture)
    outcome = store.ingest()
    assert ["cut short" in problem for problem in outcome.problems] == [True]
    reader = store.open("k3f9x2")
    job = reader.summary
    assert (job.state, job.exit_code, job.lost, job.bytes_printed) == ("FAILED", None, 7, 107)
    assert "died" in job.reason
    assert job.ended_ns == job.heartbeat_ns
    stdout, stderr = (reader.captures[0].ledger[stream] for stream in ("stdout", "stderr"))
    # 10 line feeds: 3 in the ledger, 1 stored after it, 6 lost
    assert (stdout["read"], stdout["stored"], stdout["collapsed"], stdout["lost"]) == (10, 3, 1, 6)
    assert (stderr["read"], stderr["stored"], stderr["lost"]) == (1, 0, 1)
    assert not capture.path.exists()
    damaged, lost = (event.event for event in reader.events())
    assert damaged["event"] == "segment_damaged"
    assert (lost["event"], lost["lines"]) == ("lines_lost", 7)
    assert lost["reason"] == "its capture died before it had written them"


def test_what_was_pending_when_a_capture_died_is_lost(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.start()
    capture.ledger(make_ledger({"pending": 3, "line_feeds": 0}))
    capture.counters((50, 2))
    died(capture)
    ledger = take(store).captures[0].ledger["stdout"]
    assert (ledger["read"], ledger["pending"], ledger["lost"]) == (3, 0, 3)


def test_a_capture_that_died_after_its_end_record_keeps_its_state(
    store: LocalStore, spool: Path
) -> None:
    capture = CaptureWriter(spool)
    capture.start()
    capture.end("FAILED", 3, ledger=make_ledger({"stored": 0}))
    capture.counters((10, 1))
    died(capture)
    job = take(store).summary
    assert (job.state, job.exit_code, job.lost) == ("FAILED", 3, 1)


def test_another_boot_id_is_node_fail(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.start(boot_id="00000000-0000-0000-0000-000000000000")
    died(capture)
    assert take(store).summary.state == "NODE_FAIL"
    assert boot_id() != "00000000-0000-0000-0000-000000000000"


def test_a_capture_that_died_before_its_first_frame_is_a_failed_job(
    store: LocalStore, spool: Path
) -> None:
    folder = spool / "abcdef@2.xxxx"
    (folder / "segments").mkdir(parents=True)
    age(folder, 3600)
    reader = take(store, "abcdef")
    assert (reader.summary.state, reader.captures[0].attempt) == ("FAILED", 2)
    assert not folder.exists()


def test_a_closed_capture_without_an_end_record_is_failed(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    capture.lines(["one"])
    capture.close()
    job = take(store).summary
    assert (job.state, job.lost) == ("FAILED", 0)
    assert job.reason


def test_while_the_relay_runs_on_the_job_does_too(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool, start_ns=time.time_ns())
    capture.start()
    capture.lines(["one"])
    capture.counters((4, 1), pid=os.getpid())
    reader = take(store)
    assert reader.summary.state == "RUNNING"
    assert "isn't logged" in reader.summary.reason
    capture.counters((400, 100), pid=2**22 + 1)  # no process can have this id
    job = take(store).summary
    assert (job.state, job.lost) == ("FAILED", 99)
    assert not capture.path.exists()


def test_the_relay_is_known_by_its_number_and_its_start(store: LocalStore, spool: Path) -> None:
    """A capture is not over before its sidecar comes. The relay may come long after the directory
    on a busy node, and the wall clock may have changed since."""
    capture = CaptureWriter(spool)
    died(capture)
    for segment in capture.segments.glob("*.seg"):
        segment.unlink()
    start_time = process_started(os.getpid())
    capture.counters((400, 100), pid=os.getpid(), started=start_time)
    assert life(capture) is Life.STARTING
    capture.counters((400, 100), pid=os.getpid(), started=0)  # from an earlier release
    assert life(capture) is Life.STARTING
    # a later process has the same number
    capture.counters((400, 100), pid=os.getpid(), started=start_time - 1)
    assert life(capture) is Life.DEAD
    job = take(store).summary
    assert (job.state, job.lost) == ("FAILED", 100)


def life(capture: CaptureWriter) -> Life:
    spool_fd = os.open(capture.path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with CaptureFolder(
            spool_fd, str(capture.path.parent), capture.path.name, os.geteuid()
        ) as folder:
            return folder.life()
    finally:
        os.close(spool_fd)


# ---- attempts, tasks, steps


def test_attempts_and_tasks_are_one_job(store: LocalStore, spool: Path) -> None:
    for attempt, task in ((1, 0), (1, 1), (2, 0)):
        make_capture(
            spool,
            lines=[f"{attempt}/{task}"],
            attempt=attempt,
            task=task,
            suffix=f"s{attempt}{task}",
        )
    reader = take(store)
    assert (reader.summary.attempts, reader.summary.lines) == (2, 3)
    assert [(capture.attempt, capture.task) for capture in reader.captures] == [
        (1, 0),
        (1, 1),
        (2, 0),
    ]
    assert [line.text for line in reader.lines(streams=BOTH, attempt=2)] == ["2/0"]
    assert {line.text for line in reader.lines(streams=BOTH, attempt=1)} == {"1/0", "1/1"}
    assert list(reader.records(attempt=3)) == []


def test_state_is_the_newest_attempt_s_and_the_worst_of_its_tasks(
    store: LocalStore, spool: Path
) -> None:
    for attempt, task, state, code in (
        (1, 0, "FAILED", 9),
        (2, 0, "COMPLETED", 0),
        (2, 1, "FAILED", 4),
        (2, 2, "CANCELLED", None),
    ):
        capture = CaptureWriter(spool, attempt=attempt, task=task, suffix=f"s{attempt}{task}")
        capture.start()
        capture.end(state, code)
        capture.close()
    job = take(store).summary
    assert (job.state, job.exit_code) == ("FAILED", 4)


def test_the_same_attempt_twice_is_another_attempt(store: LocalStore, spool: Path) -> None:
    make_capture(spool, lines=["first"], suffix="aaaa")
    take(store)
    make_capture(spool, lines=["second"], suffix="bbbb")
    reader = take(store)
    assert [capture.attempt for capture in reader.captures] == [1, 2]
    assert texts_of(reader) == ["first", "second"]


def test_x_axis_is_judged_within_attempts_r25(store: LocalStore, spool: Path) -> None:
    for attempt in (1, 2):
        capture = CaptureWriter(spool, attempt=attempt)
        capture.metadata(
            *({"step": step, "loss": 1 / step} for step in range(1, 5)),
            {"val": 0.5, "iter": 1},
            {"val": 0.4, "iter": 2},
        )
        capture.close()
    reader = take(store)
    assert (reader.x_axis().key, reader.x_axis().rule) == ("iter", 3)
    assert reader.x_for("loss").key == "step"
    assert reader.notes() == []
    step = next(stats for stats in reader.keys() if stats.key == "step")  # noqa: SIM118  not a dict's
    assert (step.count, step.min, step.max, step.last, step.integer) == (8, 1, 4, "4", True)


def test_state_of_the_x_axis_survives_between_batches(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool) as capture:
        for step in range(6):
            capture.metadata({"step": step, "noise": (-1) ** step})
            take(store)
        assert take(store).x_axis().words == "step: integers that never fall"


# ---- finding a job


def test_resolve_by_id_name_prefix_and_last(store: LocalStore, spool: Path) -> None:
    for at, (job_id, name) in enumerate(
        (("abc111", "train.py"), ("abd222", "train.py"), ("xyz333", "eval.py"))
    ):
        make_capture(spool, job_id, name=name, start_ns=START_NS + at * 100 * SECOND_NS)
    store.ingest()
    assert [job.job_id for job in store.jobs()] == ["xyz333", "abd222", "abc111"]
    assert store.resolve("last") == "xyz333"
    assert store.resolve("abc111") == "abc111"
    assert store.resolve("train.py") == "abd222"
    assert store.resolve("x") == "xyz333"
    with pytest.raises(UnknownJob) as ambiguous:
        store.resolve("ab")
    assert set(ambiguous.value.suggestions) == {"abc111", "abd222"}
    with pytest.raises(UnknownJob) as unknown:
        store.resolve("trian.py")
    assert unknown.value.suggestions == ("train.py",)
    with pytest.raises(UnknownJob):
        store.resolve("")


def test_an_empty_store_has_no_last_job(store: LocalStore) -> None:
    assert store.jobs() == []
    with pytest.raises(UnknownJob, match="no jobs"):
        store.resolve("last")


@pytest.mark.parametrize("job_id", ["nothing", "../catalogue", "", "a/b", "k3f9x2.db\0"])
def test_opening_what_is_no_job(store: LocalStore, spool: Path, job_id: str) -> None:
    make_capture(spool)
    store.ingest()
    with pytest.raises(UnknownJob):
        store.open(job_id)


# ---- removing a job


def test_remove_takes_all_of_a_job_and_nothing_else(store: LocalStore, spool: Path) -> None:
    make_capture(spool, "other")
    make_capture(spool)
    store.ingest()
    make_capture(spool, attempt=2)
    reader = store.open("k3f9x2")
    store.remove("k3f9x2")
    assert [job.job_id for job in store.jobs()] == ["other"]
    assert list(spool.iterdir()) == []
    assert not list(Path(store.root, "jobs").glob("k3f9x2*"))
    with pytest.raises(UnknownJob):
        store.open("k3f9x2")
    with pytest.raises(UnknownJob):
        store.remove("k3f9x2")
    reader.close()


def test_a_running_job_is_not_removed(store: LocalStore, spool: Path) -> None:
    with CaptureWriter(spool, start_ns=time.time_ns()) as capture:
        capture.lines(["one"])
        store.ingest()
        with pytest.raises(StoreError, match="runs"):
            store.remove("k3f9x2")
        # nor if the store doesn't know yet that it runs, or takes it for ended
        capture.end()
        store.ingest()
        with pytest.raises(StoreError, match="runs"):
            store.remove("k3f9x2")
    assert texts_of(take(store)) == ["one"]


def test_several_jobs_are_removed_or_none(store: LocalStore, spool: Path) -> None:
    for job_id in ("first", "second", "third"):
        make_capture(spool, job_id)
    with CaptureWriter(spool, start_ns=time.time_ns()) as capture:
        capture.lines(["one"])
        store.ingest()
        with pytest.raises(StoreError, match="k3f9x2 runs"):
            store.remove("first", "k3f9x2", "second")
        with pytest.raises(UnknownJob, match="nothing"):
            store.remove("first", "nothing")
        assert len(store.jobs()) == 4
        store.remove("first", "third")
        assert {job.job_id for job in store.jobs()} == {"second", "k3f9x2"}


def test_jobs_removed_before_an_error_are_forgotten(
    store: LocalStore, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in ("first", "second"):
        make_capture(spool, job_id)
    store.ingest()
    removed = store._remove_files

    def failing(job_id: str) -> list[str]:
        if job_id == "second":
            raise StoreError(store.root, "the disk is full")
        return removed(job_id)

    monkeypatch.setattr(store, "_remove_files", failing)
    with pytest.raises(StoreError, match="disk is full"):
        store.remove("first", "second")
    assert [job.job_id for job in store.jobs()] == ["second"]


def test_late_segments_of_a_removed_job_are_not_resurrected(
    store: LocalStore, spool: Path, tmp_path: Path
) -> None:
    make_capture(spool)
    late = make_capture(tmp_path / "elsewhere", suffix="late")
    store.ingest()
    store.remove("k3f9x2")
    late.path.rename(spool / late.path.name)
    assert store.ingest().problems == []
    assert store.jobs() == []
    assert list(spool.iterdir()) == []
    assert not list(Path(store.root, "jobs").iterdir())


def test_a_removed_job_s_id_is_used_again_as_a_higher_attempt(
    store: LocalStore, spool: Path
) -> None:
    make_capture(spool, attempt=3)
    store.ingest()
    store.remove("k3f9x2")
    again = make_capture(spool, lines=["again"], attempt=1)
    # after the removal
    os.utime(again.path / "identity.json", (time.time() + 5, time.time() + 5))
    reader = take(store)
    assert [capture.attempt for capture in reader.captures] == [4]
    assert texts_of(reader) == ["again"]


# ---- bounds and progress


def test_progress_and_the_deadline(
    store: LocalStore, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logshipper_ingest.store.intake.BATCH_BYTES", 10_000)
    capture = CaptureWriter(spool)
    for number in range(30):
        capture.lines([f"{number:04d}" + "x" * 995] * 4)
    capture.close()
    size = capture.segment.stat().st_size
    assert not store.ingest(deadline_secs=0).complete
    line_count = len(texts_of(store.open("k3f9x2")))
    assert 0 < line_count < 120
    reports: list[tuple[int, int]] = []
    assert store.ingest(progress=lambda done, total: reports.append((done, total))).complete
    assert len(texts_of(store.open("k3f9x2"))) == 120
    assert reports == sorted(reports)
    assert {total for _, total in reports} == {size}
    assert size - 200 < reports[-1][0] <= size


def test_a_job_that_prints_on_does_not_hold_ingesting_up(
    store: LocalStore, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store ingests the data that was there at its begin."""
    with CaptureWriter(spool) as capture:
        capture.lines(["x" * 1000])

        def print_on(done: int, total: int) -> None:
            capture.lines(["x" * 1000])

        monkeypatch.setattr("logshipper_ingest.store.intake.BATCH_BYTES", 500)
        assert store.ingest(progress=print_on, deadline_secs=60).complete


def test_one_job_only(store: LocalStore, spool: Path) -> None:
    make_capture(spool, "wanted")
    make_capture(spool, "other")
    assert store.ingest(job_id="wanted").complete
    assert [job.job_id for job in store.jobs()] == ["wanted"]


# ---- hostile folders


def test_identity_of_any_shape_never_stops_the_others(store: LocalStore, spool: Path) -> None:
    shapes = (
        "[]",
        "{",
        '"x"',
        '{"job_id": "../../etc"}',
        '{"job_id": 5}',
        '{"version": 2}',
        "[" * 70_000,
    )
    for at, shape in enumerate(shapes):
        folder = make_capture(spool, f"bad{at}", suffix=f"s{at}").path
        (folder / "identity.json").write_text(shape)
        age(folder, 3600)
    make_capture(spool, "good")
    outcome = store.ingest()
    assert len(outcome.problems) == len(shapes)
    assert [job.job_id for job in store.jobs()] == ["good"]
    assert sum("upgrade" in problem for problem in outcome.problems) == 1


def test_identity_with_fields_of_any_type(store: LocalStore, spool: Path) -> None:
    capture = make_capture(spool)
    identity = {
        "job_id": "k3f9x2",
        "attempt": "x",
        "step": 5,
        "task": -1,
        "name": "a\x1b[31m\n" * 99,
        "user": None,
    }
    (capture.path / "identity.json").write_text(json.dumps(identity))
    job = take(store).summary
    assert job.name.isprintable()
    assert len(job.name) <= 256
    assert (job.user, job.host) == ("", "node1")


def test_links_in_the_place_of_folders_are_not_followed(
    store: LocalStore, spool: Path, tmp_path: Path
) -> None:
    elsewhere = make_capture(tmp_path / "elsewhere")
    spool.mkdir()
    (spool / "k3f9x2@1.link").symlink_to(elsewhere.path)
    folder = spool / "other@1.aaaa"
    folder.mkdir()
    (folder / "segments").symlink_to(elsewhere.segments)
    assert len(store.ingest().problems) == 1
    assert store.jobs() == []
    assert elsewhere.segment.exists()


def test_names_of_any_bytes_are_ingested_and_said_safely(store: LocalStore, spool: Path) -> None:
    make_capture(spool, suffix="\udcff\x1b[31m")
    assert texts_of(take(store)) == ["one", "two"]
    make_capture(spool, "other1", suffix="\udcff\x1b[31m", lines=[]).append(b"junk")
    (spool / "stray \udcff\x1b[31m").mkdir()
    age(spool / "stray \udcff\x1b[31m", 3600)
    problems = store.ingest().problems
    assert len(problems) == 1
    assert problems[0].isprintable()


def test_a_capture_s_links_are_removed_not_followed(
    store: LocalStore, spool: Path, tmp_path: Path
) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "keep").write_text("x")
    capture = make_capture(spool)
    (capture.segments / "link").symlink_to(treasure)
    (capture.segments / "folder").mkdir()
    (capture.segments / "folder" / "link").symlink_to(treasure)
    take(store)
    assert not capture.path.exists()
    assert (treasure / "keep").exists()


def test_records_of_any_shape_never_raise(store: LocalStore, spool: Path) -> None:
    capture = CaptureWriter(spool)
    odd: list[object] = [None, True, -1, 2**80, 1.5, "x" * 100_000, "\ud800", [], {}, {"stdout": 5}]
    for value in odd:
        names = (
            "mode",
            "columns",
            "started_ns",
            "host",
            "boot_id",
            "ledger",
            "state",
            "exit_code",
            "signal",
            "ended_ns",
            "reason",
            "event",
        )
        for kind in ("start", "heartbeat", "ledger", "event", "end", value):
            capture.record({"type": kind, **dict.fromkeys(names, value)})
    capture.append(b"")
    capture.lines(["after"], time_ns=2**64 - 5)
    capture.lines(["and after"], time_ns=2**64 - 5)
    capture.close()
    outcome = store.ingest()
    assert outcome.complete, outcome.problems
    reader = store.open("k3f9x2")
    assert texts_of(reader) == ["after", "and after"]
    list(reader.events())
    json.dumps([capture.ledger for capture in reader.captures])
    assert store.jobs()[0].lines == 2


def test_times_that_stand_still_or_fall_keep_the_order_of_lines(
    store: LocalStore, spool: Path
) -> None:
    capture = CaptureWriter(spool)
    for number, time_ns in enumerate((1000, 1000, 5, 2000, 2001)):
        capture.lines([f"{number}a", f"{number}b"], time_ns=time_ns)
    reader = take(store)
    assert texts_of(reader) == [f"{number}{letter}" for number in range(5) for letter in "ab"]
    times = [line.time_ns for line in reader.lines(streams=BOTH)]
    assert times == sorted(set(times))
