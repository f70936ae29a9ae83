"""The store during changes by other programs, which create, remove, replace or damage databases
that it has open."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from logshipper.errors import StoreError, UnknownJob
from logshipper.spool.segment import Stream
from logshipper.start.cli import main
from logshipper_ingest import sqlite_file
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.sqlite_file import UnwritableError
from logshipper_ingest.store import job_db
from logshipper_ingest.store.catalogue import Catalogue
from logshipper_ingest.store.intake import intake_lock
from logshipper_ingest.store.job_db import JobWriter
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import NO_MARKS, MarkChange, Overlay
from logshipper_observe.page.log.logs import Log, View
from tests.tools.captures.segment_factory import make_capture
from tests.tools.stores.import_tools import RECORDED
from tests.tools.stores.reading_store import SpooledCapture

BOTH = (Stream.STDOUT, Stream.STDERR)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store with one ingested job, `good1`."""
    root = tmp_path / "store"
    make_capture(root / "spool", "good1", lines=["one", "two"])
    with LocalStore(str(root), create=True) as store:
        assert store.ingest().problems == []
    return root


def ids(store: LocalStore) -> list[str]:
    return sorted(job.job_id for job in store.jobs())


def as_file(path: Path) -> None:
    path.touch()


def as_tables(path: Path) -> None:
    JobWriter(str(path), wal=True).close()


# ---- new and removed databases


@pytest.mark.parametrize("begin", [as_file, as_tables])
def test_a_job_of_which_nothing_is_stored_yet_is_unknown_not_damaged(
    root: Path, begin: Callable[[Path], None]
) -> None:
    begin(root / "jobs" / "new222.db")
    with LocalStore(str(root)) as store:
        with pytest.raises(UnknownJob):
            store.open("new222")
        database = root / "jobs" / "good1.db"
        database.unlink()
        begin(database)
        with pytest.raises(
            StoreError, match="damaged or half-written"
        ):  # since the catalogue knows its content
            store.open("good1")


def test_a_job_that_is_removed_while_it_is_opened_is_unknown(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite_file._connect_reader

    def too_late(path: str) -> sqlite3.Connection:
        os.unlink(path)
        return connect(path)

    with LocalStore(str(root)) as store:
        monkeypatch.setattr(sqlite_file, "_connect_reader", too_late)
        with pytest.raises(UnknownJob):
            store.open("good1")


def test_marks_allocations_and_values_in_the_making_are_none_yet(root: Path) -> None:
    for name in ("overlay.db", "allocations.db", "values.db"):
        (root / name).unlink(missing_ok=True)
        (root / name).touch()
    values = (root / "values.db").stat().st_ino
    messages: list[str] = []
    with LocalStore(str(root)) as store:
        overlay = Overlay.of_local(store, tell=messages.append)
        assert overlay.of(JobKey("good1")) == NO_MARKS
        assert overlay.all() == {}
        assert store.allocations() == []
        store.key_values(store.jobs()[0])
        assert (root / "values.db").stat().st_ino == values  # the file's maker keeps it
        overlay.tag(JobKey("good1"), [MarkChange("a", "")])
        assert overlay.of(JobKey("good1")).tag_words() == ["a"]
    assert messages == []


@pytest.mark.parametrize("questions", range(4))
def test_a_file_that_is_made_while_it_is_looked_at_is_no_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: int
) -> None:
    """questions: number of SQLite statements before the tables are committed."""
    path = tmp_path / "new222.db"
    path.touch()
    questions_left = questions

    class Connection(sqlite3.Connection):
        def execute(self, *words: object) -> sqlite3.Cursor:
            nonlocal questions_left
            if questions_left == 0:
                as_tables(path)
            questions_left -= 1
            return super().execute(*words)  # type: ignore[arg-type]  # as they were given

    with closing(sqlite3.connect(path, factory=Connection)) as connection:
        assert sqlite_file._check_version(connection, str(path), job_db.VERSION) in (
            0,
            job_db.VERSION,
        )
    assert questions_left < 0 or questions == 3


# ---- the catalogue


def test_a_replaced_catalogue_is_followed_where_nothing_is_spooled(root: Path) -> None:
    with LocalStore(str(root)) as store:
        assert ids(store) == ["good1"]
        (root / "catalogue.db").unlink()
        make_capture(root / "spool", "new222")
        with LocalStore(str(root)) as second_store:
            assert second_store.ingest().complete
        assert os.listdir(root / "spool") == []
        assert ids(store) == ["good1", "new222"]


def test_a_catalogue_that_is_replaced_while_it_is_opened_is_not_taken_for_the_new_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "catalogue.db"
    open_writer = sqlite_file.open_writer

    def and_replaced(name: str, *words: object, **options: object) -> sqlite3.Connection:
        connection = open_writer(name, *words, **options)  # type: ignore[arg-type]  # as they were given
        shutil.copyfile(path, root / "other.db")
        (root / "other.db").replace(path)
        return connection

    monkeypatch.setattr("logshipper_ingest.sqlite_file.open_writer", and_replaced)
    with closing(Catalogue.open(str(path), wal=True)) as catalogue:
        assert not catalogue.is_in_place()


def spoil_tables(path: Path) -> None:
    """Spoil all pages but the first, so that the file opens and queries find damage."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek(size)
        file.write(b"\xff" * (path.stat().st_size - size))


def test_damage_that_ingesting_finds_is_fixed_at_once(root: Path) -> None:
    spoil_tables(root / "catalogue.db")
    make_capture(root / "spool", "new222")
    with LocalStore(str(root)) as store:
        outcome = store.ingest()
        assert (outcome.complete, outcome.problems) == (True, [])
    assert os.listdir(root / "spool") == []
    with closing(Catalogue.open(str(root / "catalogue.db"), wal=True)) as catalogue:
        assert sorted(job.job_id for job in catalogue.jobs(0)) == ["good1", "new222"]


def spoil_tombstones(path: Path) -> None:
    """Spoil only the first page of this table, so that lists don't notice it."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'tombstone'"
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek(size * (page - 1))
        file.write(b"\xff" * size)


def test_damage_that_only_removing_finds_is_fixed(root: Path) -> None:
    spoil_tombstones(root / "catalogue.db")
    with LocalStore(str(root)) as store:
        store.remove("good1")
        assert ids(store) == []
    assert not (root / "jobs" / "good1.db").exists()


def test_damage_that_importing_finds_is_fixed_for_the_next_time(root: Path) -> None:
    spoil_tombstones(root / "catalogue.db")
    words = ["import", "xt", str(RECORDED / "xt"), "--store", str(root)]
    assert [main(words), main(words)] == [1, 0]
    with LocalStore(str(root)) as store:
        assert len(store.jobs()) > 1


def test_damage_that_another_program_has_fixed_is_not_fixed_again(root: Path) -> None:
    with LocalStore(str(root)) as store:
        spoil_tables(root / "catalogue.db")
        with LocalStore(str(root)) as second_store:
            assert ids(second_store) == ["good1"]
            fixed = (root / "catalogue.db").stat().st_ino
            assert ids(store) == ["good1"]
        assert (root / "catalogue.db").stat().st_ino == fixed


def test_a_catalogue_that_cannot_be_made_now_is_made_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logshipper_ingest.store.store_catalogue.LOCK_SECS", 0.05)
    (root / "catalogue.db").unlink()
    make_capture(root / "spool", "new222")
    with intake_lock(str(root / "intake.lock"), 0.0) as is_held:
        assert is_held
        store = LocalStore(str(root))
        assert ids(store) == ["good1"]
    with closing(store):
        outcome = store.ingest()
        assert (outcome.complete, outcome.problems) == (True, [])
        assert ids(store) == ["good1", "new222"]
    assert (root / "catalogue.db").exists()


def test_what_the_catalogue_refused_is_put_there_by_the_next_look(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Catalogue.put

    def refuse(catalogue: Catalogue, *row: JobSummary | str | None) -> None:
        raise UnwritableError(catalogue.path, "no room left on the disk")

    with LocalStore(str(root)) as store, SpooledCapture(root, "runs22") as job:
        job.lines("one")
        job.beat()
        monkeypatch.setattr(Catalogue, "put", refuse)
        assert not store.ingest().complete
        monkeypatch.setattr(Catalogue, "put", put)
        assert store.ingest().complete  # the job has printed nothing since then
        assert {summary.job_id: summary.lines for summary in store.jobs()}["runs22"] == 1


# ---- the page's logs


def test_a_reader_that_was_opened_earlier_takes_no_line_back(root: Path) -> None:
    log = Log(View("good1"))
    with LocalStore(str(root)) as store:
        earlier = store.open("good1")
        make_capture(root / "spool", "good1", attempt=2, lines=["three"])
        store.ingest()
        for reader in (store.open("good1"), earlier):
            log.bring_up(reader)
            assert [line.text for line in log.lines(reader, 0, 9)] == ["one", "two", "three"]
        assert log.index.generation == 0


def test_lines_of_another_job_of_the_same_id_are_told_to_be_others(root: Path) -> None:
    log = Log(View("good1"))
    with LocalStore(str(root)) as store:
        log.bring_up(store.open("good1"))
        store.remove("good1")
        make_capture(root / "spool", "good1", attempt=2, lines=["other", "lines", "now"])
        store.ingest()
        reader = store.open("good1")
        log.bring_up(reader)
        assert [line.text for line in log.lines(reader, 0, 9)] == ["other", "lines", "now"]
        assert log.index.generation == 1
