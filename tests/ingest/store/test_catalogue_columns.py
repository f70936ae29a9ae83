"""Columns of the catalogue besides a job's summary. They are right after any version has written
the file, and reports need no job's database."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.grown_store import grow
from logshipper_ingest.model.imported import ImportedChange, ImportedJob
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.spool.purge_pattern import pattern_of
from logshipper_ingest.store.job_history import EVENTS, MAX_BYTES, JobHistory
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.analytics.job_tasks import tasks_of
from logshipper_observe.model.job_events import EventSelection, events_of
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store
from tests.tools.stress.secret_oracle import holding

__all__ = ["ask", "store"]  # fixtures
JOBS = 30  # with some of each kind from `grow`
REPORTS = ("throughput", "utilization", "nodes", "overheads", "gantt")
CHANGES_ONLY = EventSelection(other_events=False)
SECRET = "hunter2-hunter2"  # noqa: S105  nobody has it


@pytest.fixture
def grown(store: Path) -> Path:
    grow(store, JOBS, 0)
    return store


def catalogue(root: Path) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(root / "catalogue.db", isolation_level=None))


def make_older(root: Path) -> None:
    """Remove the columns, like a file of an older logshipper."""
    with catalogue(root) as connection:
        for statement in (
            "DROP TRIGGER job_columns",
            "DROP INDEX job_name",
            "DROP INDEX job_state",
        ):
            connection.execute(statement)
        for column in ("name", "state", "history"):
            connection.execute(f"ALTER TABLE job DROP COLUMN {column}")


def replace_summary(connection: sqlite3.Connection, job_id: str, **changes: object) -> None:
    """Store a summary like the older logshipper."""
    query = "SELECT started_ns, summary FROM job WHERE job_id = ?"
    started_ns, text = connection.execute(query, (job_id,)).fetchone()
    connection.execute(
        "INSERT OR REPLACE INTO job (job_id, started_ns, summary) VALUES (?, ?, ?)",
        (job_id, started_ns, json.dumps({**json.loads(text), **changes})),
    )


def update_summary(connection: sqlite3.Connection, job_id: str, **changes: object) -> None:
    """Store an imported job's summary like the older logshipper."""
    query = "SELECT started_ns, summary FROM job WHERE job_id = ?"
    started_ns, text = connection.execute(query, (job_id,)).fetchone()
    connection.execute(
        "INSERT INTO job (job_id, started_ns, summary) VALUES (?, ?, ?) ON CONFLICT (job_id) DO UPDATE"
        " SET started_ns = excluded.started_ns, summary = excluded.summary WHERE summary <> excluded.summary",
        (job_id, started_ns, json.dumps({**json.loads(text), **changes})),
    )


def facts(root: Path) -> object:
    with LocalStore(str(root)) as local:
        jobs = list(local.jobs())
        names = {name: local.resolve(name) for job in jobs for name in (job.name, job.job_id)}
        return jobs, local.jobs().states(), names


def test_states_and_names_are_those_of_all_jobs(grown: Path) -> None:
    with LocalStore(str(grown)) as local:
        jobs = list(local.jobs())
        assert len(jobs) == len(local.jobs()) == JOBS
        states = [job.state for job in jobs]
        assert local.jobs().states() == {state: states.count(state) for state in states}
        for job in jobs:
            newest = next(other for other in jobs if other.name == job.name)
            assert local.resolve(job.name) == newest.job_id
            assert local.summary(job.job_id) == job
        assert local.resolve("0") == "balsam-0"
        assert local.resolve("j000001"[:-1] + "1") == "j000001"


def test_an_older_logshippers_file_has_them_once_it_is_opened(grown: Path) -> None:
    before = facts(grown)
    make_older(grown)
    assert facts(grown) == before
    with catalogue(grown) as connection:
        assert connection.execute("SELECT count(*) FROM job WHERE state IS NULL").fetchone() == (0,)


def test_an_older_logshippers_file_is_read_where_it_cant_be_written(
    grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = facts(grown)
    make_older(grown)
    monkeypatch.setattr("os.access", lambda path, mode, **options: not mode & 2)
    assert facts(grown) == before
    with catalogue(grown) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT name FROM job")


@pytest.mark.parametrize("put", [replace_summary, update_summary])
def test_what_an_older_logshipper_puts_there_meanwhile_counts(
    grown: Path, put: Callable[..., None]
) -> None:
    with LocalStore(str(grown)) as local:
        assert local.jobs()[3].name != "another"
        with catalogue(grown) as connection:
            put(connection, "j000004", name="another", state="NODE_FAIL")
    with LocalStore(str(grown)) as local:
        assert local.resolve("another") == "j000004"
        assert local.jobs().states()["NODE_FAIL"] == 1
        assert local._catalogue.current.histories(["j000004"]) == {}, (
            "it may not fit the summary any more"
        )


def histories(root: Path) -> Iterator[tuple[JobSummary, str]]:
    with LocalStore(str(root)) as local:
        jobs = list(local.jobs())
        texts = local._catalogue.current.histories([job.job_id for job in jobs])
        assert texts.keys() == {job.job_id for job in jobs}
        yield from ((job, texts[job.job_id]) for job in jobs)


def test_a_history_says_what_the_database_says(grown: Path) -> None:
    for job, text in histories(grown):
        with LocalStore(str(grown)) as local, local.open(job.job_id) as reader:
            history = JobHistory(job, text)
            assert list(history.events(names=EVENTS)) == list(reader.events(names=EVENTS))
            assert list(events_of(job, history, CHANGES_ONLY)) == list(
                events_of(job, reader, CHANGES_ONLY)
            )
            assert list(tasks_of(history)) == list(tasks_of(reader))


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_opens_no_jobs_database(grown: Path, ask: Ask, report: str) -> None:
    before = ask("analyze", report, "--json")
    assert before[0] == 0
    for file in (grown / "jobs").iterdir():
        file.write_bytes(b"no database at all")
    assert ask("analyze", report, "--json") == before


def test_jobs_of_an_older_logshipper_get_a_history_when_they_are_read(
    grown: Path, ask: Ask
) -> None:
    before = list(histories(grown))
    make_older(grown)
    assert ask("analyze", "overheads")[0] == 0
    assert list(histories(grown)) == before


def test_what_is_purged_meanwhile_comes_into_no_history(store: Path) -> None:
    """A reader from before the purge may write its history after the purge."""
    changes = [
        ImportedChange(1_700_000_000_000_000_000, "RUNNING", data={"said": SECRET}),
        ImportedChange(1_700_000_100_000_000_000, "JOB_FINISHED"),
    ]
    with LocalStore(str(store), create=True) as local:
        with local.importing(lambda marks: None) as imports:
            imports.put(ImportedJob("balsam:1", ["balsam-1"], "sim", "balsam", changes=changes))
        assert "catalogue.db: job.history" in "\n".join(holding(SECRET, store))
    make_older(store)
    with LocalStore(str(store)) as reading, LocalStore(str(store)) as purging:
        jobs = list(reading.jobs())
        with reading.histories(jobs)(jobs[0]) as reader:
            assert list(reader.events())
        assert reading._histories, "it waits to be written"
        assert purging.purge("balsam-1", pattern_of(None, SECRET), dry_run=False).lines
    assert holding(SECRET, store) == []


def test_a_history_that_was_written_is_purged(store: Path) -> None:
    changes = [ImportedChange(1_700_000_000_000_000_000, "JOB_FINISHED", data={"said": SECRET})]
    with LocalStore(str(store), create=True) as local:
        with local.importing(lambda marks: None) as imports:
            imports.put(ImportedJob("balsam:1", ["balsam-1"], "sim", "balsam", changes=changes))
        assert local.purge("balsam-1", pattern_of(None, SECRET), dry_run=False).lines
    assert holding(SECRET, store) == []


def test_a_job_that_runs_or_has_a_long_history_has_none(store: Path) -> None:
    with SpooledCapture(store, "runs1") as job:
        job.lines("one")
        with LocalStore(str(store), create=True) as local:
            local.ingest()
            assert local._catalogue.current.histories(["runs1"]) == {}
            changes = [
                ImportedChange(1_700_000_000_000_000_000 + number, state, data={"at": "x" * 100})
                for number, state in enumerate(["RUNNING", "RESTART_READY"] * (MAX_BYTES // 200))
            ]
            with local.importing(lambda marks: None) as imports:
                imports.put(ImportedJob("balsam:1", ["balsam-1"], "sim", "balsam", changes=changes))
            jobs = list(local.jobs())
            assert local._catalogue.current.histories([job.job_id for job in jobs]) == {}
            open_history = local.histories(jobs)
            for summary in jobs:
                with open_history(summary) as reader:
                    assert not isinstance(reader, JobHistory)
        job.end()
