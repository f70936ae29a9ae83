"""`logshipper rm`: afterwards no byte on the disk has the job's text, name, tags or notes, even if
other programs have the store open."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import MarkChange, Overlay
from tests.ingest.store.test_local_store_faults import REMOVING, killed
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store
from tests.tools.stress.secret_oracle import SECRETS, Secret, holding

__all__ = ["ask", "store"]  # fixtures
OTHERS = 12  # other jobs


@pytest.fixture(autouse=True)
def sqlite_that_overwrites_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's SQLite overwrites deleted data (SQLITE_SECURE_DELETE), but other builds don't."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_as_elsewhere(*args: Any, **options: Any) -> sqlite3.Connection:  # Any: passed on
        connection = connect(*args, **options)
        connection.execute("PRAGMA secure_delete=OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_as_elsewhere)


def make_store(root: Path, secret: Secret) -> None:
    """Make a store in which job1 has the secret everywhere: in its name, output, tag and notes.
    Other jobs lack it."""
    printed = secret.printed
    for number in range(OTHERS):
        with SpooledCapture(root, f"other{number}", name=f"other{number}.py") as neighbour:
            neighbour.metadata({"step": number})
            neighbour.end()
    for attempt in (1, 2):
        with SpooledCapture(root, "job1", attempt, name=secret.text) as capture:
            for number in range(100):
                capture.lines(f"{number} of it", f"{number} {printed}")
                capture.metadata({"step": number, "key": printed, f"under {secret.text}": number})
            capture.event("odd", f"it was {secret.text}", data={secret.text: [printed]})
            capture.status(f"50% {printed}")
            with LocalStore(str(root), create=True) as store:
                store.ingest()
            capture.lines(f"later {printed}")
            capture.end()
    with LocalStore(str(root)) as store:
        store.ingest()
        for job in store.jobs():
            store.key_values(job)
        overlay = Overlay.of_local(store)
        for number in range(OTHERS):
            overlay.annotate(JobKey(f"other{number}"), "about another")
        overlay.tag(JobKey("job1"), [MarkChange("secret", secret.text)])
        overlay.annotate(JobKey("job1"), f"a first note about {secret.text}")
        overlay.annotate(JobKey("job1"), f"a note about {secret.text}")
    with SpooledCapture(root, "job1", 3, name=secret.text) as capture:
        capture.lines(printed)
        capture.end()


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_what_is_removed_is_nowhere(store: Path, ask: Ask, secret: Secret) -> None:
    make_store(store, secret)
    before = "\n".join(holding(secret.text, store))
    for place in (
        "jobs/job1.db: block.text",
        "catalogue.db: job.summary",
        "overlay.db: mark.note",
        "spool/job1@3",
    ):
        assert place in before, before
    status, _, errors = ask("rm", "job1", "--yes")
    assert (status, errors) == (0, "")
    assert holding(secret.text, store) == []
    with LocalStore(str(store)) as local_store:
        assert len(local_store.jobs()) == OTHERS
        assert len(Overlay.of_local(local_store).all()) == OTHERS
        assert local_store.key_values(local_store.jobs()[0])["step"].last is not None


def test_others_who_have_the_store_open_leave_nothing_when_they_rest(store: Path, ask: Ask) -> None:
    """One is the user's agent, which has read the job's values and will write them later. The other
    one is a page that reads."""
    secret = SECRETS["plain"]
    make_store(store, secret)
    (store / "values.db").unlink()
    agent, page = LocalStore(str(store)), LocalStore(str(store))
    agent.ingest()
    for program in (agent, page):
        for job in program.jobs():
            program.key_values(job)
    with page.open("job1") as reader:
        assert next(reader.lines(streams=(1, 2))) is not None  # type: ignore[arg-type]  # numbers do
        assert ask("rm", "job1", "--yes")[0] == 0
    page.ingest()
    agent.ingest()
    page.close()
    agent.close()
    assert holding(secret.text, store) == []


@pytest.mark.parametrize("point", REMOVING)
def test_killed_while_it_is_removed_nothing_is_left_the_next_time(
    store: Path, ask: Ask, point: str
) -> None:
    secret = SECRETS["umlauts"]
    make_store(store, secret)
    assert killed(store.parent / "killed", point, 1, "rm", "job1", "--yes", "--store", str(store))
    with LocalStore(str(store)) as local_store:
        local_store.ingest()
        is_there = any(job.job_id == "job1" for job in local_store.jobs())
    if is_there:
        assert ask("rm", "job1", "--yes")[0] == 0
    assert holding(secret.text, store) == []


def test_what_an_import_that_was_stopped_left_of_it_goes_as_well(store: Path, ask: Ask) -> None:
    secret = SECRETS["quotes"]
    make_store(store, secret)
    (store / "importing").mkdir()
    (store / "importing" / "job1.db").write_bytes((store / "jobs" / "job1.db").read_bytes())
    assert ask("rm", "job1", "--yes")[0] == 0
    assert holding(secret.text, store) == []


def test_files_that_were_moved_aside_as_damaged_are_said(store: Path, ask: Ask) -> None:
    """Their content is unknown, so the user must remove them."""
    make_store(store, SECRETS["plain"])
    aside = store / "catalogue.db.damaged"
    aside.write_bytes((store / "catalogue.db").read_bytes())
    status, _, errors = ask("rm", "job1", "--yes")
    assert str(aside) in errors
    assert status == 3
    assert {place.split(":")[0] for place in holding(SECRETS["plain"].text, store)} == {aside.name}
