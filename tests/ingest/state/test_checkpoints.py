"""The agent's checkpoints: exact content, forgotten in time, and robust against other files in
their place."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logshipper.errors import StoreError
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import Identity
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state.checkpoints import (
    CaptureCheckpoint,
    CaptureKnowledge,
    Checkpoints,
    Counts,
    read_state,
)
from tests.tools.captures.segment_factory import make_ledger

DAY_NS = 86400 * 10**9
IDENTITY = Identity(
    "job1", 1, "0.run1", 3, "trai\u00f1.py \ufffd", "ann", "n1", "local", 1000, "phys", "gpu"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state.db")


@pytest.fixture
def checkpoints(path: str) -> Iterator[Checkpoints]:
    with closing(Checkpoints(path)) as state:
        yield state


def checkpoint(folder: str = "job1@1.aaaa", **fields: object) -> CaptureCheckpoint:
    result = CaptureCheckpoint(
        folder, IDENTITY, CaptureAccount(name="train.py", stored={"stdout": 7}, started_ns=5)
    )
    for name, value in fields.items():
        setattr(result, name, value)
    return result


def learnt(folder: str = "job1@1.aaaa", *, done: bool = False) -> CaptureKnowledge:
    axis = XAxis()
    for step in range(5):
        axis.add({"step": step, "loss": 1.5 - step}, step)
    return CaptureKnowledge(folder, SpoolPosition(3, 77), done, CaptureAccount(records=5), axis)


def test_what_was_put_in_comes_out_after_a_restart(path: str) -> None:
    counts = Counts({"log": 5, "event": 1}, 99, {"too_old": 2}, 123, 45)
    put = checkpoint(position=SpoolPosition(2, 1 << 40), done=True, counts=counts, changed_ns=9)
    with closing(Checkpoints(path)) as first:
        first.commit([put], {"stdout/log/": 5})
        first.put_knowledge([learnt()])
    with closing(Checkpoints(path)) as second:
        (row,) = second.shipped()
        assert row == put
        assert second.shipped("job1@1.aaaa") == [put]
        assert second.shipped("job1@1.AAAA") == []
        assert second.streams() == {"stdout/log/": 5}
        state = second.knowledge("job1@1.aaaa")
        assert state is not None
        assert state[:4] == learnt()[:4]
        assert state.axis.choose() == learnt().axis.choose()
        assert state.axis.latest() == learnt().axis.latest()
        assert second.knowledge("other") is None


def test_a_later_commit_replaces_and_a_streams_newest_time_only_rises(
    checkpoints: Checkpoints,
) -> None:
    checkpoints.commit([checkpoint(position=SpoolPosition(1, 10))], {"a": 100, "b": 5})
    checkpoints.commit([checkpoint(position=SpoolPosition(2, 0))], {"a": 50, "b": 6})
    assert [row.position for row in checkpoints.shipped()] == [(2, 0)]
    assert checkpoints.streams() == {"a": 100, "b": 6}


def test_a_commit_is_all_or_nothing(checkpoints: Checkpoints) -> None:
    checkpoints.commit([checkpoint("one", position=SpoolPosition(1, 1))], {"a": 1})
    bad = checkpoint("two")
    bad.changed_ns = 1 << 70  # SQLite has no such integer
    with pytest.raises((OverflowError, StoreError)):
        checkpoints.commit([checkpoint("one", position=SpoolPosition(9, 9)), bad], {"a": 9})
    assert [(row.folder, row.position) for row in checkpoints.shipped()] == [("one", (1, 1))]
    assert checkpoints.streams() == {"a": 1}
    checkpoints.commit([checkpoint("two")], {})
    assert len(checkpoints.shipped()) == 2


def test_folders_with_odd_names_are_kept_apart(checkpoints: Checkpoints) -> None:
    names = ["a'; DROP TABLE shipped; --", "%", "_", "a\\udcff", "\u00e9", "e\u0301"]
    checkpoints.commit([checkpoint(name) for name in names], {})
    assert {row.folder for row in checkpoints.shipped()} == set(names)
    for name in names:
        assert [row.folder for row in checkpoints.shipped(name)] == [name]


def test_captures_come_by_time_of_change(checkpoints: Checkpoints) -> None:
    checkpoints.commit([checkpoint("late", changed_ns=9), checkpoint("early", changed_ns=1)], {})
    assert [row.folder for row in checkpoints.shipped()] == ["early", "late"]


# ---- forgetting


def test_what_is_done_and_gone_is_forgotten_in_time(checkpoints: Checkpoints) -> None:
    checkpoints.commit(
        [
            checkpoint("old", done=True, changed_ns=10),
            checkpoint("in the spool", done=True, changed_ns=10),
            checkpoint("young", done=True, changed_ns=100),
        ],
        {},
    )
    checkpoints.put_knowledge([learnt("old", done=True), learnt("in the spool"), learnt("young")])
    checkpoints.forget(["in the spool"], 50)
    assert {row.folder for row in checkpoints.shipped()} == {"in the spool", "young"}
    assert checkpoints.knowledge("old") is None
    assert checkpoints.knowledge("in the spool") is not None
    assert checkpoints.knowledge("young") is not None


def test_what_somebody_removed_before_it_was_shipped_is_forgotten_as_well(
    checkpoints: Checkpoints,
) -> None:
    """Otherwise the file would grow with every such capture, and `status` would always show it."""
    checkpoints.commit([checkpoint("removed halfway", changed_ns=10)], {})
    checkpoints.put_knowledge([learnt("removed halfway"), learnt("removed unshipped")])
    checkpoints.forget([], time.time_ns() + 30 * DAY_NS)
    assert checkpoints.shipped() == []
    assert checkpoints.knowledge("removed halfway") is None
    assert checkpoints.knowledge("removed unshipped") is None


def test_of_captures_that_are_done_the_newest_are_kept(checkpoints: Checkpoints) -> None:
    done = [checkpoint(f"done{number}", done=True, changed_ns=100 + number) for number in range(5)]
    checkpoints.commit([*done, checkpoint("at work", changed_ns=100)], {})
    checkpoints.forget(["done0"], 50, most_captures=2)
    assert {row.folder for row in checkpoints.shipped()} == {"done0", "done3", "done4", "at work"}


def test_what_was_learnt_of_a_capture_that_is_gone_goes(checkpoints: Checkpoints) -> None:
    checkpoints.commit([checkpoint("gone", done=True)], {})
    checkpoints.put_knowledge([learnt("gone", done=True), learnt("there")])
    checkpoints.put_knowledge([], gone=["gone"])
    assert checkpoints.knowledge("gone") is None
    assert checkpoints.knowledge("there") is not None
    assert [row.folder for row in checkpoints.shipped()] == ["gone"]


def test_a_capture_that_is_done_takes_no_page_of_its_own(
    checkpoints: Checkpoints, path: str
) -> None:
    account = CaptureAccount(
        cluster="local", name="train.py", user="ann", host="node0123", state="COMPLETED", exit_code=0,
        started_ns=10**18, ended_ns=10**18, heartbeat_ns=10**18, columns=160, rows=50,
        ledger=make_ledger({"stored": 10**6, "bytes": 10**9}, {"stored": 7}), version="0.1.0",
        boot_id="c161f5c4-9768-4139-bd24-129c23ba567f", stored={"stdout": 10**6, "stderr": 7},
        last_ns={"stdout": 10**18, "stderr": 10**18}, newest_ns=10**18, records=1000, bytes_logged=10**9,
        marks=2, marked_ns=10**18,
    )  # fmt: skip
    counts = Counts(
        {"log": 10**6, "metadata": 1000, "event": 100, "value": 9}, 10**9, last_ns=10**18
    )
    rows = [
        checkpoint(f"job{number}@1.aaaaaaaa", done=True, account=account, counts=counts)
        for number in range(400)
    ]
    checkpoints.commit(rows, {})
    assert checkpoints.shipped("job7@1.aaaaaaaa") == [rows[7]]
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    assert pages < len(rows) / 2  # pages of 4 KiB


def test_a_look_at_a_capture_goes_through_no_others(checkpoints: Checkpoints, path: str) -> None:
    """Otherwise a capture would cost more, the more captures the agent has shipped."""
    checkpoints.commit([checkpoint()], {})
    checkpoints.put_knowledge([learnt()])
    statements: list[str] = []
    checkpoints._connection.set_trace_callback(statements.append)
    checkpoints.shipped("job1@1.aaaa")
    checkpoints.knowledge("job1@1.aaaa")
    checkpoints._connection.set_trace_callback(None)
    with closing(sqlite3.connect(path)) as connection:
        plans = [
            row[3]
            for statement in statements
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]
    assert [plan.split()[:2] for plan in plans if "TEMP B-TREE" not in plan] == [
        ["SEARCH", "shipped"],
        ["SEARCH", "learnt"],
    ]


# ---- reading next to the agent


def test_status_reads_beside_a_running_agent(checkpoints: Checkpoints, path: str) -> None:
    checkpoints.commit([checkpoint()], {})
    checkpoints.put_notes({"loki": {"url": "http://x", "since_ns": 0}, "text": "\u00e9\n"})
    rows, _, notes = read_state(path)
    assert rows == checkpoints.shipped()
    assert notes == {"loki": {"url": "http://x", "since_ns": 0}, "text": "\u00e9\n"}
    checkpoints.put_notes({"text": "other"})
    assert read_state(path).notes["text"] == "other"


def test_threads_share_it(checkpoints: Checkpoints) -> None:
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(20):
                checkpoints.commit(
                    [checkpoint(name, position=SpoolPosition(1, number))], {name: number}
                )
                checkpoints.put_knowledge([learnt(name)])
                assert checkpoints.shipped(name)[0].position.offset == number
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert checkpoints.streams() == {"a": 19, "b": 19, "c": 19}


# ---- wrong files


def test_a_missing_state_is_said(path: str) -> None:
    with pytest.raises(StoreError, match="is missing"):
        read_state(path)
    assert not os.path.exists(path)


def test_another_programs_file_is_left_alone(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE thesis (chapter TEXT)")
        connection.commit()
    with pytest.raises(StoreError, match="another program made it"):
        Checkpoints(path)


def test_garbage_is_said_and_kept(path: str) -> None:
    Path(path).write_bytes(b"garbage " * 1000)
    with pytest.raises(StoreError, match="damaged"):
        Checkpoints(path)
    assert Path(path).read_bytes() == b"garbage " * 1000


def test_a_newer_logshippers_file_is_left_alone(path: str) -> None:
    Checkpoints(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="newer logshipper"):
        Checkpoints(path)
    with pytest.raises(StoreError, match="newer logshipper"):
        read_state(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE shipped SET account = '{'",
        "UPDATE shipped SET account = '[]'",
        "UPDATE shipped SET identity = '[1]'",
        "UPDATE shipped SET identity = '{}'",
        "UPDATE shipped SET counts = '5'",
    ],
)
def test_rows_that_cannot_be_understood_are_damage_with_words(
    checkpoints: Checkpoints, path: str, change: str
) -> None:
    checkpoints.commit([checkpoint()], {})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    with pytest.raises(StoreError, match=r"state\.db: is damaged"):
        checkpoints.shipped()
    with pytest.raises(StoreError, match=r"state\.db: is damaged"):
        read_state(path)


@pytest.mark.parametrize(
    "change", ["account = ''", "x_axis = '{}'", "x_axis = 'x'", "account = '[1]'"]
)
def test_learnt_rows_that_cannot_be_understood_are_damage_with_words(
    checkpoints: Checkpoints, path: str, change: str
) -> None:
    checkpoints.put_knowledge([learnt()])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE learnt SET {change}")  # noqa: S608  the test's own
        connection.commit()
    with pytest.raises(StoreError, match=r"state\.db: is damaged"):
        checkpoints.knowledge("job1@1.aaaa")


def test_a_later_versions_further_fields_do_no_harm(checkpoints: Checkpoints, path: str) -> None:
    checkpoints.commit([checkpoint()], {})
    with closing(sqlite3.connect(path)) as connection:
        for column in ("account", "identity", "counts"):
            update = f"UPDATE shipped SET {column} = json_set({column}, '$.mood', 'good')"  # noqa: S608
            connection.execute(update)
        connection.commit()
    assert checkpoints.shipped() == [checkpoint()]
