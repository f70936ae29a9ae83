"""Removal of a capture's directory with any content, even while its user changes it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper_ingest.model.job import IngestOutcome
from logshipper_ingest.spool import folder_removal
from logshipper_ingest.spool.capture_folder import CaptureFolder
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.other_users import ANN, as_user, error_names, needs_root
from tests.tools.captures.segment_factory import CaptureWriter, age, make_capture


class Spool:
    """A spool with one capture. folder: the capture's open directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.capture = CaptureWriter(path)
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.folder = self.open()

    def open(self) -> CaptureFolder:
        return CaptureFolder(self.fd, str(self.path), self.capture.path.name, os.geteuid())

    def remove(self) -> int:
        """Remove the capture; return the number of calls."""
        calls = 1
        while not self.folder.remove():
            calls += 1
            assert calls < 1000
        assert list(self.path.iterdir()) == []
        return calls

    def close(self) -> None:
        self.folder.close()
        os.close(self.fd)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    path = tmp_path / "spool"
    path.mkdir()
    spool = Spool(path)
    yield spool
    spool.close()


def nest(path: Path, depth: int) -> None:
    """Nest directories so deeply that no path can name the innermost."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def test_any_depth_is_removed_with_few_descriptors(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nest(spool.capture.segments, 1500)
    max_fds = 0
    scandir = os.scandir

    def counting(fd: int) -> "os._ScandirIterator[str]":  # typeshed's name for what it returns
        nonlocal max_fds
        max_fds = max(max_fds, len(os.listdir("/proc/self/fd")))
        return scandir(fd)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "scandir", counting)
    assert spool.remove() == 1
    assert max_fds <= before + 2


def test_what_is_linked_to_stays(spool: Spool, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    (target / "below").mkdir(parents=True)
    (target / "file").write_text("mine")
    for folder in (spool.capture.path, spool.capture.segments):
        (folder / "link").symlink_to(target, target_is_directory=True)
        (folder / "dangling").symlink_to("nothing")
        os.mkfifo(folder / "pipe")
        (folder / "identity.json.d").mkdir()
        (folder / "full").mkdir()
        (folder / "full" / "link").symlink_to(target)
    spool.remove()
    assert sorted(path.name for path in target.iterdir()) == ["below", "file"]


def test_a_call_has_an_end_and_the_identity_goes_last(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_removal, "REMOVED_AT_ONCE", 100)
    for number in range(300):
        (spool.capture.segments / f"file{number}").touch()
        (spool.capture.segments / f"folder{number}").mkdir()
    for number in range(100):
        (spool.capture.segments / f"folder{number}" / "file").touch()
    calls = 1
    while not spool.folder.remove():
        calls += 1
        assert (spool.capture.path / "identity.json").exists()
        with spool.open() as folder:  # like the next agent; nothing half removed is read
            assert folder.segments_fd < 0
            assert folder.is_unused()
    assert 7 <= calls <= 20
    assert list(spool.path.iterdir()) == []


def test_what_cannot_be_removed_is_an_os_error(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, *, dir_fd: int) -> None:
        raise PermissionError(1, "Operation not permitted", name)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError):
        spool.folder.remove()
    assert (spool.capture.path / "identity.json").exists()


@pytest.mark.parametrize("action", ["ingest", "remove"])
def test_the_local_store_goes_on_until_it_is_gone(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_removal, "REMOVED_AT_ONCE", 3)
    with LocalStore(str(tmp_path / "store"), create=True) as store:
        capture = make_capture(tmp_path / "store" / "spool")
        if action == "remove":
            store.ingest()
            capture = make_capture(tmp_path / "store" / "spool", suffix="bbbb")
        nest(capture.segments, 20)
        if action == "ingest":
            assert store.ingest() == IngestOutcome(True, [])
        else:
            store.remove("k3f9x2")
        assert list((tmp_path / "store" / "spool").iterdir()) == []


def test_the_local_store_leaves_the_rest_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_removal, "REMOVED_AT_ONCE", 3)
    with LocalStore(str(tmp_path / "store"), create=True) as store:
        capture = make_capture(tmp_path / "store" / "spool")
        nest(capture.segments, 20)
        age(capture.path, 60)
        runs = 1
        while not store.ingest(deadline_secs=0).complete:
            runs += 1
        assert runs > 5
        assert list((tmp_path / "store" / "spool").iterdir()) == []
        assert store.open("k3f9x2").summary.lines == 2


@needs_root
def test_nothing_can_be_changed_any_more_while_it_is_removed(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user has descriptors of all directories, and tries to change each directory while the
    agent reads it."""
    (open_folder / "spool").mkdir()
    spool = Spool(open_folder / "spool")
    try:
        segments = spool.capture.segments
        (segments / "full").mkdir()
        (segments / "full" / "deep").mkdir()
        for path in (segments, segments / "full", segments / "full" / "deep"):
            (path / "file").touch()
            os.chown(path, ANN, ANN)
            path.chmod(0o777)
        errors: list[list[str]] = []
        scandir = os.scandir

        def trying(fd: int) -> "os._ScandirIterator[str]":  # typeshed's name for what it returns
            if fd != spool.folder._fd:
                assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o700

                def act() -> list[str]:
                    return error_names(
                        [
                            lambda: os.mkdir("new", dir_fd=fd),
                            lambda: os.symlink("/etc", "link", dir_fd=fd),
                            lambda: os.rename("file", "other", src_dir_fd=fd, dst_dir_fd=fd),
                            lambda: os.fchmod(fd, 0o777),
                        ]
                    )

                errors.append(as_user(ANN, act))
            return scandir(fd)

        monkeypatch.setattr(os, "scandir", trying)
        spool.remove()
        assert len(errors) >= 3
        assert {name for names in errors for name in names} == {"PermissionError"}
    finally:
        spool.close()
