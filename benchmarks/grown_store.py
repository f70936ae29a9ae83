"""A local store with years of growth, made by the store's own writers: many jobs, and one job with
many lines.

Of each 20 jobs, one has four tasks on four nodes, one was queued again, and one stayed silent for a
minute. Every tenth job is imported. All others ran once, on one node. The long job has BLOCK lines
a block, like floods, and a record after each block. A twentieth of it has FEW lines a block, like
loops that print now and then.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from logshipper.spool.segment import Frame, FrameType, Kind, Stream, decode_frame, encode_record
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.imported import ImportedChange, ImportedJob
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.job_db import JobWriter
from logshipper_ingest.store.local_store import LocalStore
from logshipper_ingest.store.new_databases import MAX_WAITING, NewDatabases

NS = 10**9
LONG = "longj0b"
BLOCK, FEW = 1_000, 20  # lines of a block
_ENDS = (("COMPLETED", 0),) * 7 + (("FAILED", 1), ("CANCELLED", 143), ("TIMEOUT", 143))
_BATCH_BLOCKS = 1_000


class _Run(NamedTuple):
    """A capture to write. silent: it sends no heartbeat for a minute."""

    source: Source
    host: str
    started_ns: int
    ended_ns: int
    state: str
    exit_code: int
    silent: bool = False


def grow(root: Path, jobs: int, lines: int) -> None:
    """Fill a store. jobs: number of jobs; lines: of the long job, 0 to leave it out."""
    now_ns = time.time_ns()
    with closing(LocalStore(str(root), create=True)) as store:
        _imports(store, range(0, jobs, 10), now_ns)
        captured = [number for number in range(jobs) if number % 10]
        for begin in range(0, len(captured), MAX_WAITING):
            _captured(store, captured[begin : begin + MAX_WAITING], now_ns)
        if lines:
            _long_job(store, lines, now_ns)


def _begin_ns(number: int, now_ns: int) -> int:
    """Return the begin of a job: one every ten minutes, number 0 the newest."""
    return now_ns - (number + 2) * 600 * NS


def _imports(store: LocalStore, numbers: range, now_ns: int) -> None:
    for begin in range(0, len(numbers), MAX_WAITING):
        with store.importing(lambda marks: None) as imports:
            for number in numbers[begin : begin + MAX_WAITING]:
                begun_ns = _begin_ns(number, now_ns)
                states = (
                    "CREATED",
                    "STAGED_IN",
                    "PREPROCESSED",
                    "RUNNING",
                    "RUN_DONE",
                    "JOB_FINISHED",
                )
                changes = [
                    ImportedChange(begun_ns + 60 * at * NS, state)
                    for at, state in enumerate(states)
                ]
                imports.put(
                    ImportedJob(
                        f"balsam:{number}", [f"balsam-{number}"], f"sim-{number % 50}", "balsam", nodes=1 + number % 4,
                        changes=changes, is_small=True,
                    )
                )  # fmt: skip


def _captured(store: LocalStore, numbers: list[int], now_ns: int) -> None:
    new = NewDatabases(store.root, store._jobs)
    rows = []
    for number in numbers:
        job_id = f"j{number:06d}"
        path = new.make(job_id, job_id, small=True)
        with closing(JobWriter(path, wal=False, synced=False)) as job:
            for run in _runs(number, _begin_ns(number, now_ns)):
                _write_run(job, number, run)
            rows.append(_catalogue_row(job_id, job))
    new.publish()
    store._catalogue.current.put_all(rows)


def _catalogue_row(job_id: str, job: JobWriter) -> CatalogueRow:
    row = job.catalogue_row(job_id)
    assert row is not None
    return row


def _runs(number: int, begun_ns: int) -> list[_Run]:
    state, exit_code = _ENDS[number % len(_ENDS)]
    ended_ns = begun_ns + (30 + number % 7000) * NS
    run = _Run(Source(1, "", 0), f"node{number % 100}", begun_ns, ended_ns, state, exit_code)
    if number % 20 == 1:
        return [
            run._replace(source=Source(1, "0", task), host=f"node{(number + task) % 100}")
            for task in range(4)
        ]
    if number % 20 == 2:
        begun_ns = ended_ns + 30 * NS
        second = run._replace(source=Source(2, "", 0), started_ns=begun_ns)
        return [
            run._replace(state="PREEMPTED", exit_code=143),
            second._replace(ended_ns=begun_ns + 90 * NS),
        ]
    return [run._replace(silent=number % 20 == 3)]


def _write_run(job: JobWriter, number: int, run: _Run) -> None:
    account = CaptureAccount(name=f"train-{number % 200}", user="ada", host=run.host)
    row = job.add_capture(f"{number}-{run.source.attempt}-{run.source.task}", run.source, account)
    rows = Rows()
    first_ns, last_ns = run.started_ns, run.ended_ns + (90 * NS if run.silent else 0)
    records = [
        (first_ns, {"type": "start", "started_ns": first_ns, "host": run.host, "mode": "enabled"}),
        (last_ns, {"type": "end", "state": run.state, "exit_code": run.exit_code, "signal": 0, "ended_ns": last_ns}),
    ]  # fmt: skip
    frames = [decode_frame(encode_record(time_ns, record), 0) for time_ns, record in records]
    start, end = (frame[0] for frame in frames if frame is not None)
    text = b"epoch 1: loss 0.5\nepoch 2: loss 0.25\n"
    middle_ns = first_ns + NS
    for frame in (start, _lines(middle_ns, text), end):
        if frame is end and not run.silent:  # stands for uncounted heartbeats
            account.newest_ns = last_ns - NS
        account.take(frame, row.axis, rows, last_ns)
    job.write(row._replace(done=True), rows)


def _lines(time_ns: int, text: bytes, kind: Kind = Kind.LOG) -> Frame:
    count = text.count(b"\n")
    return Frame(FrameType.LINES, Stream.STDOUT, time_ns, count, text, ((kind, count),))


def _long_job(store: LocalStore, lines: int, now_ns: int) -> None:
    with closing(JobWriter(store.path_of(LONG), wal=store.uses_wal)) as job:
        account = CaptureAccount(
            name="long", user="ada", host="node1", started_ns=now_ns - 500 * NS
        )
        row = job.add_capture(LONG, Source(1, "", 0), account)
        rows, number = Rows(), 0
        while number < lines:
            few = number % max(lines // 10, 1) >= lines // 10 * 0.95
            count = min(FEW if few else BLOCK, lines - number)
            text = "".join([_line(at) for at in range(number, number + count)]).encode()
            time_ns = account.started_ns + number * 1_000
            account.take(_lines(time_ns, text), row.axis, rows, time_ns)
            if not few:
                record = b'{"epoch": %d, "step": %d, "loss": %.5f}\n' % (
                    number // 10**6,
                    number,
                    1 / (number + 1),
                )
                account.take(_lines(time_ns + count, record, Kind.METADATA), row.axis, rows, time_ns)  # fmt: skip
            number += count
            if len(rows.blocks) >= _BATCH_BLOCKS or number == lines:
                job.write(row, rows)
                rows = Rows()
        account.state, account.exit_code, account.ended_ns = "COMPLETED", 0, now_ns
        job.write(row._replace(done=True), rows)
        store._catalogue.current.put(_catalogue_row(LONG, job))


def _line(number: int) -> str:
    return f"[{number:9d}] step {number} of the training: batch {number % 977}, took {number % 13} ms\n"
