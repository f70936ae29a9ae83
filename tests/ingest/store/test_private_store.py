"""Privacy of a store: only its user has access, under any umask and in a folder that existed
before."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from logshipper.errors import SpoolError, StoreError
from logshipper.private_folder import claim_folder
from logshipper.spool import captures
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import Overlay
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.stores.import_tools import RECORDED
from tests.tools.waiting import scaled

FOREIGN = {
    "notes.txt": 0o644,
    "catalogue": 0o666,
    "data.db": 0o664,
    "jobs/table.csv": 0o666,
    "spool/README": 0o644,
}


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of a folder and its content."""
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


def open_ones(folder: Path) -> dict[str, str]:
    """Return paths and modes with rights for other users, except FOREIGN."""
    foreign = {str(folder / name) for name in FOREIGN}
    return {
        path: oct(mode)
        for path, mode in modes(folder).items()
        if mode & 0o077 and path not in foreign
    }


def use(home: Home) -> None:
    """Run all commands that write into a store."""
    script = """echo x; echo '{"loss": 1}'"""
    options = ("--job-id", "one", "--telegraf")
    assert (
        home.run("sh", "-c", script, options=options, env={"LOGSHIPPER_AGENT": "on"}).returncode
        == 0
    )
    wait_until((home.store / "agent.log").exists, "an agent has begun")
    assert home.run("true", options=("--job-id", "one")).returncode == 0
    for words in (
        ("ls",), ("metadata", "one"), ("tag", "one", "+good"), ("annotate", "one", "a note"), ("show", "one"),
        ("import", "xt", str(RECORDED / "xt")), ("import", "balsam", str(RECORDED / "balsam")),
    ):  # fmt: skip
        done = home.call(*words)
        assert done.returncode == 0, (words, done.stderr)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return Home(folder)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_whatever_the_umask_nobody_else_has_rights(home: Home, umask: int) -> None:
    home.store = home.folder / "above" / "store"
    home.environment["LOGSHIPPER_STORE"] = str(home.store)
    before = os.umask(umask)
    try:
        use(home)
    finally:
        os.umask(before)
    assert {path.name for path in home.store.iterdir()} >= {
        "agent.lock", "agent.log", "allocations.db", "catalogue.db", "intake.lock", "jobs", "overlay.db", "spool",
        "values.db",
    }  # fmt: skip
    assert open_ones(home.store) == {}
    assert not (home.folder / "above").stat().st_mode & 0o022, (
        "who may write there may replace the store"
    )


def test_files_are_private_while_they_are_in_use_as_well(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are logs and journals of databases, and segments."""
    monkeypatch.setenv("HOME", str(home.folder))
    before = os.umask(0)
    try:
        with (
            home.start(
                "run", "--", "sh", "-c", "echo begun; read line", stdin=subprocess.PIPE
            ) as run,
            LocalStore(str(home.store), create=True) as store,
        ):
            wait_until(lambda: store.ingest() and store.jobs(), "the job is in the store")
            with store.open(store.jobs()[0].job_id):
                names = {path.name for path in home.store.rglob("*")}
                assert {
                    "catalogue.db-wal",
                    "catalogue.db-shm",
                    "0000000001.seg",
                    "counters",
                } <= names
                assert open_ones(home.store) == {}
            run.communicate(b"\n", timeout=scaled(60))
    finally:
        os.umask(before)


def open_up(folder: Path) -> None:
    """Give all users rights to a store."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)


def put_foreign(folder: Path) -> None:
    for name, mode in FOREIGN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("theirs\n")
        (folder / name).chmod(mode)


@pytest.mark.parametrize("first", ["run", "ls"])
def test_a_store_that_was_open_is_closed_and_files_that_are_not_its_own_stay(
    home: Home, first: str
) -> None:
    use(home)
    wait_until(lambda: not list((home.store / "spool").glob("*@*")), "all is in the store")
    capture = captures.create_capture(str(home.store), "x")
    put_foreign(home.store)
    (home.store / "link.db").symlink_to(home.folder / "elsewhere")
    (home.folder / "elsewhere").write_text("")
    (home.store / "jobs" / "x.db").symlink_to(home.folder / "elsewhere")
    open_up(home.store)
    (home.folder / "elsewhere").chmod(0o644)
    for name, mode in FOREIGN.items():
        (home.store / name).chmod(mode)
    if first == "run":
        assert home.run("true").returncode == 0
        assert stat.S_IMODE(home.store.stat().st_mode) == 0o700, "from the very start"
    home.call("ls")
    links = {str(home.store / "link.db"), str(home.store / "jobs" / "x.db")}
    assert open_ones(home.store).keys() <= links
    assert os.path.isdir(capture.path)
    assert {name: stat.S_IMODE((home.store / name).stat().st_mode) for name in FOREIGN} == FOREIGN
    assert stat.S_IMODE((home.folder / "elsewhere").stat().st_mode) == 0o644


def test_files_of_an_earlier_version_in_a_closed_folder_are_closed_once(home: Home) -> None:
    use(home)
    for path in home.store.rglob("*.db"):
        path.chmod(0o644)
    home.call("ls")
    assert open_ones(home.store) == {}


@pytest.mark.skipif(
    os.getuid() == 0, reason="for root such a folder is the system's; runs as an ordinary user"
)
def test_an_ordinary_users_folder_with_files_becomes_private(tmp_path: Path) -> None:
    put_foreign(tmp_path / "project")
    (tmp_path / "project").chmod(0o2775)
    with LocalStore(str(tmp_path / "project"), create=True):
        pass
    assert stat.S_IMODE((tmp_path / "project").stat().st_mode) & 0o777 == 0o700
    assert {
        name: stat.S_IMODE((tmp_path / "project" / name).stat().st_mode) for name in FOREIGN
    } == FOREIGN


def shared_places(folder: Path) -> dict[str, str]:
    """Make folders of this user that others use as well; return their messages."""
    for name, mode in (("sticky", 0o1777), ("home", 0o755), ("others", 0o777)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    places = {
        "sticky": "is shared by several users (it is sticky)",
        "home": "is shared: it is a home, or the root",
    }
    if os.getuid() == 0:
        (folder / "others" / "theirs").write_text("")
        os.chown(folder / "others" / "theirs", 12345, 12345)
        places["others"] = "is shared: 'theirs' in it belongs to another user"
        (folder / "opt").mkdir()
        (folder / "opt").chmod(0o755)
        (folder / "opt" / "program").write_text("")
        places["opt"] = "is shared: root's folders that others may enter are the system's"
    return places


def test_a_shared_place_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, words in shared_places(tmp_path).items():
        before = modes(tmp_path / name)
        for make in (captures.create_capture, claim_folder):
            with pytest.raises(SpoolError, match=re.escape(words)) as caught:
                make(str(tmp_path / name), ("x",) if make is claim_folder else "x")  # type: ignore[arg-type]
            assert "name a folder of its own in it with --store" in str(caught.value)
        with pytest.raises(StoreError, match=re.escape(words)):
            LocalStore(str(tmp_path / name), create=True)
        assert modes(tmp_path / name) == before
        captures.create_capture(str(tmp_path / name / "store"), "x")


def test_a_job_runs_where_the_store_would_be_a_shared_place(home: Home) -> None:
    shared = home.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = home.run("echo", "x", options=("--store", str(shared)))
    assert (done.returncode, done.stdout.split()) == (0, [b"x"])
    words = "is shared by several users (it is sticky); name a folder of its own in it with --store or LOGSHIPPER_STORE"
    assert done.stderr.decode() == f"logshipper: nothing of this run is logged: {shared}: {words}\n"
    assert list(shared.iterdir()) == []


@needs_root
def test_a_store_of_another_user_is_read_and_nothing_of_it_is_changed(home: Home) -> None:
    use(home)
    open_up(home.store)
    for path in (home.store, *home.store.rglob("*")):
        os.chown(path, 12345, 12345)
    before = modes(home.store)
    assert b"one" in home.call("ls").stdout
    assert modes(home.store) == before


def test_marks_outside_of_a_store_are_private(tmp_path: Path) -> None:
    """Marks of jobs in Loki are in the user's data folder."""
    path = tmp_path / "share" / "logshipper" / "overlay.db"
    before = os.umask(0)
    try:
        Overlay(str(path)).star(JobKey("loki", "x"), starred=True)
        path.parent.chmod(0o755)
        path.chmod(0o644)
        Overlay(str(path)).star(JobKey("loki", "x"), starred=False)
    finally:
        os.umask(before)
    assert open_ones(path.parent) == {}
