"""Spools of captures: ids, attempts, folders."""

import os
from pathlib import Path

import pytest

from logshipper import filesystem
from logshipper.errors import ConfigError, SpoolError
from logshipper.spool import captures
from tests.tools.captures.other_users import needs_root

_MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw
31 22 0:41 / /scratch\\040big rw - lustre mds@tcp:/scratch rw
32 22 0:42 / /mnt/ssh rw - fuse.sshfs host: rw
33 22 0:43 / /home/local rw - xfs /dev/sdb1 rw
34 22 0:44 / /mnt/over rw - fuse.fuse-overlayfs x rw
garbage
"""


def test_network_file_systems(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(_MOUNTS)
    types = {
        "/home/me/x": "nfs4",
        "/home": "nfs4",
        "/homes": None,
        "/scratch big/y": "lustre",
        "/mnt/ssh/z": "fuse.sshfs",
        "/home/local/me": None,
        "/mnt/over": None,
        "/tmp": None,
    }
    assert {path: filesystem.network_type(path, str(table)) for path in types} == types
    assert filesystem.network_type("/home", str(tmp_path / "none")) is None


def test_store_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """--store, then LOGSHIPPER_STORE, then the data folder. Host-local on a network, or without a
    home."""
    monkeypatch.setenv("LOGSHIPPER_STORE", "/a/store")
    assert captures.store_root("/b") == "/b"
    assert captures.store_root() == "/a/store"
    monkeypatch.delenv("LOGSHIPPER_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert captures.store_root() == "/data/logshipper"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/some/home")
    assert captures.store_root() == "/some/home/.local/share/logshipper"
    monkeypatch.setattr(
        captures, "network_type", lambda path: "nfs4" if path.startswith("/some") else None
    )
    assert captures.store_root() == f"/var/tmp/logshipper-{os.getuid()}"
    monkeypatch.delenv("HOME")
    assert captures.store_root() == f"/var/tmp/logshipper-{os.getuid()}"


def test_spool_of_a_store_on_a_network_is_host_local() -> None:
    """The spool never lies on NFS."""
    assert captures.spool_root("/home/me/store", None) == "/home/me/store/spool"
    first, second = captures.spool_root("/n/a", "nfs4"), captures.spool_root("/n/b", "nfs4")
    assert first != second
    assert first.startswith(f"/var/tmp/logshipper-{os.getuid()}/spool-")


def test_create(tmp_path: Path) -> None:
    capture = captures.create_capture(str(tmp_path / "store"), "train.py")
    assert capture.attempt == 1
    assert len(capture.job_id) == 6
    assert capture.job_id[0].isalpha()
    assert Path(capture.path).parent == tmp_path / "store" / "spool"
    assert (Path(capture.path) / "segments").stat().st_mode & 0o777 == 0o700
    capture.counters[16:24] = (77).to_bytes(8, "little")
    counters = captures.read_counters((Path(capture.path) / "segments" / "counters").read_bytes())
    assert counters is not None
    assert (counters.pid, counters.printed, counters.end) == (
        os.getpid(),
        {"stdout": 77, "stderr": 0},
        None,
    )
    assert counters.started == captures.process_started(os.getpid()) > 0
    assert captures.process_started(2**22 + 1) == 0  # no process can have this id
    assert captures.read_counters(b"short") is None
    assert captures.read_counters(b"x" * 64) is None


def test_ids_are_unique_and_attempts_count(tmp_path: Path) -> None:
    """A reused --job-id is a new attempt; local ids are unique."""
    root = str(tmp_path)
    assert len({captures.create_capture(root, "x").job_id for _ in range(50)}) == 50
    assert [captures.create_capture(root, "x", "night-7").attempt for _ in range(3)] == [1, 2, 3]
    assert captures.create_capture(root, "x", "night-8").attempt == 1


@pytest.mark.parametrize("job_id", ["", ".x", "-x", "a/b", "..", "a b", "ä", "x" * 65, "a@1"])
def test_ids_that_are_none(job_id: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="isn't a job id"):
        captures.create_capture(str(tmp_path), "x", job_id)


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="isn't a folder"):
        captures.create_capture(str(tmp_path / "file"), "x")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(SpoolError, match="isn't a folder"):
        captures.create_capture(str(tmp_path / "link"), "x")


@needs_root  # only root can give a folder to another user
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(SpoolError, match="belongs to another user"):
        captures.create_capture(str(tmp_path), "x")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere; runs as an ordinary user")
def test_a_read_only_store(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SpoolError, match="permission denied; choose another place with --store"):
        captures.create_capture(str(tmp_path), "x")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/bin/make", "-j"], "make"),
        (["python3", "SCRIPT", "--token=secret"], "train.py"),
        (["python3", "-u", "SCRIPT"], "train.py"),
        (["python3", "-m", "secret"], "python3"),
        (["bash", "-c", "secret"], "bash"),
        (["python", "secret-that-is-no-file"], "python"),
        (["./run.sh"], "run.sh"),
    ],
)
def test_default_names_tell_nothing_of_the_arguments(
    argv: list[str], name: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert (
        captures.default_name([str(script) if word == "SCRIPT" else word for word in argv]) == name
    )


def test_the_relays_word_on_the_end(tmp_path: Path) -> None:
    """The relay records CMD's end, in case the sidecar has died."""
    capture = captures.create_capture(str(tmp_path), "x")
    counters = Path(capture.path) / "segments" / "counters"
    captures.note_end(capture.counters, 3 << 8, 99)
    read = captures.read_counters(counters.read_bytes())
    assert read is not None
    assert read.end == (3 << 8, 99)
    assert captures.outcome(0) == ("COMPLETED", 0, 0)
    assert captures.outcome(3 << 8) == ("FAILED", 3, 0)
    assert captures.outcome(15) == ("CANCELLED", None, 15)
    assert captures.outcome(11) == ("FAILED", None, 11)


def test_a_command_that_could_not_be_run_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    capture = captures.create_capture(str(tmp_path), "x", "a1")
    captures.give_up(capture, 127)
    assert not Path(capture.path).exists()
    capture = captures.create_capture(str(tmp_path), "x", "a1")
    # a node's spool, which only the node's agent clears
    capture = capture._replace(in_user_spool=False)
    captures.give_up(capture, 126)
    read = captures.read_counters((Path(capture.path) / "segments" / "counters").read_bytes())
    assert read is not None
    assert read.end is not None
    assert read.end[0] == 126 << 8
    assert (Path(capture.path) / "identity.json").exists()
