"""The node's spool: only root determines a capture's owner. Processes of real users test it."""

import argparse
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import ConfigError, SpoolError, SpoolFull
from logshipper_ingest.agent import node_spool, prepare
from logshipper_ingest.agent.node_spool import (
    NodeIdentity,
    NodeSpool,
    TooManyCaptures,
    prepare_capture,
)
from logshipper_ingest.config.agent_config import AgentConfig, AgentSection
from tests.tools.captures.other_users import ANN, BEN, as_user, error_names, needs_root
from tests.tools.sources import ROOT

ME = os.getuid()


def _section(folder: Path, **options: Any) -> AgentSection:  # Any: its fields
    return AgentSection(
        cluster="c1", host="n1", spool_dir=str(folder / "deep" / "spool"), **options
    )


@pytest.fixture
def agent(tmp_path: Path) -> AgentSection:
    return _section(tmp_path)


def _identity(uid: int = ME, **fields: Any) -> NodeIdentity:  # Any: its fields
    values = {
        "job_id": "42",
        "attempt": 1,
        "step": "0",
        "task": 3,
        "name": "train.py",
        "uid": uid,
        "user": "ann",
    }
    return NodeIdentity(**{**values, "gid": uid, **fields})


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def _captures(agent: AgentSection) -> list[str]:
    return sorted(name for name in os.listdir(agent.spool_dir) if not name.startswith("."))


# ---- contents


def test_layout(agent: AgentSection) -> None:
    old = os.umask(0o077)  # the result must not depend on it
    try:
        path = Path(prepare_capture(agent, _identity(account="hpc", partition="gpu")))
    finally:
        os.umask(old)
    spool = Path(agent.spool_dir)
    assert path.parent == spool
    assert path.name.startswith("42@1.")
    assert (_mode(spool), _mode(path), _mode(path / "segments")) == (0o711, 0o711, 0o700)
    assert _mode(spool.parent) == 0o755
    assert _mode(path / "identity.json") == 0o600
    assert sorted(os.listdir(path)) == ["identity.json", "limits", "segments"]
    identity = json.loads((path / "identity.json").read_bytes())
    assert identity == {
        "version": 1, "cluster": "c1", "host": "n1", "job_id": "42", "attempt": 1, "step": "0", "task": 3,
        "name": "train.py", "uid": ME, "user": "ann", "account": "hpc", "partition": "gpu",
    }  # fmt: skip


def test_a_task_of_an_array(agent: AgentSection) -> None:
    path = Path(prepare_capture(agent, _identity(array_job_id="40", array_task_id="2")))
    identity = json.loads((path / "identity.json").read_bytes())
    assert (identity["array_job_id"], identity["array_task_id"]) == ("40", "2")


def test_names_are_cleaned(agent: AgentSection) -> None:
    path = Path(prepare_capture(agent, _identity(name='a\n\x1b[2J"\udc80é' + "x" * 500)))
    name = json.loads((path / "identity.json").read_bytes())["name"]
    assert name.startswith('a\ufffd\ufffd[2J"\ufffdé')
    assert len(name) == 256


@pytest.mark.parametrize(
    "fields",
    [
        *({"job_id": job_id} for job_id in ("", ".", "..", "../x", "a/b", "a\nb", "a@1", "-x", "x" * 65, "ä")),
        *({"step": step} for step in ("x" * 65, "a\nb", "ä", "\0")),
        *({"user": user} for user in ("", "a\nb", "x" * 129, "\udc80")),
        {"attempt": 0}, {"attempt": 1 << 31}, {"task": -1}, {"uid": -1}, {"uid": (1 << 32) - 1}, {"gid": -2},
        {"account": "\x1b"}, {"partition": "\n"}, {"array_job_id": "\n"},
    ],
)  # fmt: skip
def test_what_is_refused(agent: AgentSection, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        prepare_capture(agent, _identity(**fields))
    assert _captures(agent) == []


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert len(_identity(job_id="/", attempt=0, task=-1, step="\n", user="").problems()) == 5


def test_a_user_has_so_many(tmp_path: Path) -> None:
    agent = _section(tmp_path, max_captures_per_user=2)
    first = prepare_capture(agent, _identity())
    prepare_capture(agent, _identity())
    with pytest.raises(
        TooManyCaptures,
        match=r"has 2 captures .* limit per user is 2 \(\[agent\] max_captures_per_user\)",
    ):
        prepare_capture(agent, _identity())
    shutil.rmtree(first)
    prepare_capture(agent, _identity())
    assert len(_captures(agent)) == 2


def test_no_two_names_of_thousands_are_the_same(agent: AgentSection) -> None:
    """The agent remembers names of shipped captures, and would mistake a new capture of the same
    name for one of them."""
    names = set()
    with NodeSpool(agent) as spool:
        for _ in range(3000):
            name = spool.make(_identity())
            names.add(name)
            shutil.rmtree(Path(agent.spool_dir) / name)
    assert len(names) == 3000


def test_many_makers_at_once(tmp_path: Path) -> None:
    """The limit also applies to captures from several processes, and every capture is complete."""
    agent = _section(tmp_path, max_captures_per_user=20)
    code = (
        "import sys\n"
        "from logshipper_ingest.config.agent_config import AgentSection\n"
        "from logshipper_ingest.agent import node_spool\n"
        "from logshipper_ingest.agent.node_spool import *\n"
        "node_spool.LOCK_SECS = 60.0  # none of the makers may give up\n"
        f"agent = AgentSection(cluster='c1', host='n1', spool_dir={agent.spool_dir!r}, max_captures_per_user=20)\n"
        "for n in range(12):\n"
        "    try: prepare_capture(agent, NodeIdentity('42', 1, '', n, 'x', "
        f"{ME}, 'ann', gid={ME}))\n"
        "    except TooManyCaptures: pass\n"
    )
    makers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(3)]
    assert [maker.wait() for maker in makers] == [0, 0, 0]
    names = _captures(agent)
    assert len(names) == 20
    contents = ["identity.json", "limits", "segments"]
    assert all(sorted(os.listdir(Path(agent.spool_dir) / name)) == contents for name in names)


def test_what_a_dead_maker_left(agent: AgentSection) -> None:
    prepare_capture(agent, _identity())
    leftover = Path(agent.spool_dir) / ".new-43@1.abcd"
    (leftover / "segments").mkdir(parents=True)
    prepare_capture(agent, _identity())
    assert not leftover.exists()
    assert len(_captures(agent)) == 2


def test_a_maker_that_fails_leaves_nothing(
    agent: AgentSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    prepare_capture(agent, _identity())
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(SpoolFull, match=r"no room left there; .*spool_dir"):
        prepare_capture(agent, _identity())
    assert sorted(
        name for name in os.listdir(agent.spool_dir) if name not in (".lock", ".attempts")
    ) == _captures(agent)
    assert len(_captures(agent)) == 1


def test_numbers(agent: AgentSection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are counted per user, and the oldest counts are dropped, so that nobody fills the
    disk with ids."""
    monkeypatch.setattr(node_spool, "MAX_NUMBERS_PER_USER", 20)
    with NodeSpool(agent) as spool:
        assert [
            spool.next_number(5, "a"),
            spool.next_number(5, "a"),
            spool.next_number(6, "a"),
        ] == [1, 2, 1]
        for number in range(100):
            assert spool.next_number(6, f"k{number}") == 1
        assert spool.next_number(6, "k99") == 2
        assert spool.next_number(5, "a") == 3
    assert len(os.listdir(Path(agent.spool_dir) / ".attempts" / "6")) <= 20
    assert _mode(Path(agent.spool_dir) / ".attempts") == 0o700


def test_ids_are_new(agent: AgentSection) -> None:
    with NodeSpool(agent) as spool:
        ids = {spool.new_job_id() for _ in range(100)}
    assert len(ids) == 100
    # never like a scheduler's number
    assert all(job_id.isalnum() and job_id[0].isalpha() for job_id in ids)


# ---- wrong folders of the spool


def test_folders_that_are_refused(tmp_path: Path) -> None:
    for mode in (0o777, 0o755, 0o700, 0o731):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(SpoolError, match=rf"has mode {mode:04o}; run `chmod 711`"):
            prepare_capture(AgentSection(spool_dir=str(folder)), _identity())
        assert _mode(folder) == mode
    (tmp_path / "file").write_text("")
    (tmp_path / "good").mkdir()
    (tmp_path / "good").chmod(0o711)
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "nowhere").symlink_to("none")
    for name in ("file", "link", "nowhere"):
        with pytest.raises(SpoolError, match="must be a folder"):
            prepare_capture(AgentSection(spool_dir=str(tmp_path / name)), _identity())
    assert list((tmp_path / "good").iterdir()) == []
    assert not (tmp_path / "none").exists()


def test_a_folder_whose_maker_was_killed(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir(mode=0o500)
    prepare_capture(AgentSection(spool_dir=str(tmp_path / "spool")), _identity())
    assert _mode(tmp_path / "spool") == 0o711


def test_a_lock_that_is_held(agent: AgentSection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_spool, "LOCK_SECS", 0.05)
    prepare_capture(agent, _identity())
    with (Path(agent.spool_dir) / ".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SpoolError, match="is locked by another process"):
            prepare_capture(agent, _identity())


@needs_root
def test_a_folder_of_another_user(open_folder: Path) -> None:
    folder = open_folder / "spool"
    folder.mkdir()
    folder.chmod(0o711)
    os.chown(folder, ANN, ANN)
    with pytest.raises(SpoolError, match=f"belongs to uid {ANN}"):
        prepare_capture(AgentSection(spool_dir=str(folder)), _identity())


@needs_root
def test_a_full_disk(open_folder: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "nr_inodes=6,mode=0711", "none", str(open_folder)]
    ).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        agent = AgentSection(spool_dir=str(open_folder))
        prepare_capture(agent, _identity())
        with pytest.raises(SpoolFull, match="no room left"):
            prepare_capture(agent, _identity())
        assert len(_captures(agent)) == 1
        assert len(os.listdir(open_folder)) == 2  # with the lock
    finally:
        subprocess.run(["umount", str(open_folder)], check=True)


# ---- as real users


@needs_root
def test_what_users_can_do_in_the_spool(open_folder: Path) -> None:
    """Users can write into their own segments only. Everywhere else, writing, listing, renaming,
    replacing and removing fail."""
    agent = _section(open_folder)
    ann_capture = Path(prepare_capture(agent, _identity(ANN)))
    ben_capture = Path(prepare_capture(agent, _identity(BEN)))
    (ben_capture / "segments" / "counters").write_bytes(b"x")
    os.chown(ben_capture / "segments" / "counters", BEN, BEN)
    spool = Path(agent.spool_dir)
    assert [(path / "segments").stat().st_uid for path in (ann_capture, ben_capture)] == [ANN, BEN]
    assert [(path / "segments").stat().st_gid for path in (ann_capture, ben_capture)] == [ANN, BEN]

    with NodeSpool(agent) as node_spool:
        node_spool.next_number(ANN, "mine")
    mine, segments, identity = (
        ann_capture / "segments" / "mine",
        ben_capture / "segments",
        ben_capture / "identity.json",
    )

    def act() -> list[str]:
        mine.write_text("x")
        attempts: list[Callable[[], object]] = [
            partial(open, identity, "rb"),
            partial(os.listdir, spool),
            partial(os.listdir, ann_capture),  # the owner knows its content anyway
            partial(os.listdir, segments),
            partial(open, segments / "counters", "rb"),
            partial(open, segments / "counters", "r+b"),
            partial(open, segments / "new", "w"),
            partial(os.unlink, segments / "counters"),
            partial(os.rename, segments, ann_capture / "segments" / "theirs"),
            partial(os.mkdir, spool / "43@1.abcd"),
            partial(os.symlink, "/etc", spool / "43@1.abcd"),
            partial(open, spool / ".attempts" / str(ANN) / "mine", "w"),
            partial(open, spool / ".lock", "r"),
            partial(os.chmod, spool, 0o777),
            partial(os.rename, spool, spool.parent / "x"),
            partial(os.chmod, segments, 0o777),
        ]
        for path in (ann_capture, ben_capture):
            attempts += [
                partial(open, path / "identity.json", "w"),
                partial(os.unlink, path / "identity.json"),
                partial(os.chmod, path / "identity.json", 0o666),
                partial(os.rename, mine, path / "identity.json"),
                partial(os.link, mine, path / "more"),
                partial(os.symlink, "/etc", path / "more"),
                partial(os.rename, path / "segments", path / "moved"),
                partial(os.rmdir, path / "segments"),
                partial(os.mkdir, path / "new"),
                partial(os.chmod, path, 0o777),
                partial(os.chown, path, ANN, ANN),
                partial(os.rename, path, spool / "42@2.abcd"),
                partial(os.rmdir, path),
            ]
        return error_names(attempts)

    assert set(as_user(ANN, act)) == {"PermissionError"}
    assert (ann_capture / "segments" / "mine").stat().st_uid == ANN
    assert len(_captures(agent)) == 2


@needs_root
def test_an_agent_that_isnt_root(open_folder: Path) -> None:
    """It makes captures of its own user only."""
    mine = open_folder / "mine"
    mine.mkdir()
    os.chown(mine, ANN, ANN)
    agent = _section(mine)

    def act() -> str:
        path = prepare_capture(agent, _identity(ANN))
        with pytest.raises(
            SpoolError,
            match=f"uid {ANN} creates only its own captures; run it as root for those of uid {BEN}",
        ):
            prepare_capture(agent, _identity(BEN))
        return path

    path = Path(as_user(ANN, act))
    assert (path.stat().st_uid, (path / "segments").stat().st_uid, _mode(path)) == (ANN, ANN, 0o711)
    assert len(_captures(agent)) == 1


# ---- `logshipper-agent prepare`


def _call(agent: AgentSection, *words: str) -> int:
    parser = argparse.ArgumentParser()
    prepare.add_arguments(parser)
    return prepare.call(parser.parse_args(words), AgentConfig(agent=agent))


def test_prepare(agent: AgentSection, capsys: pytest.CaptureFixture[str]) -> None:
    account = ["--user", "ann", "--uid", str(ME), "--gid", str(os.getgid())]
    assert _call(agent, "--job-id", "42", "--task", "3", *account) == 0
    path = Path(capsys.readouterr().out.removesuffix("\n"))
    assert json.loads((path / "identity.json").read_bytes())["name"] == "42"
    assert _call(agent, "--job-id", "42", "--attempt", "2", "--name", "x", *account, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert Path(answer["path"]).name.startswith("42@2.")
    assert (answer["user"], answer["uid"], answer["cluster"], answer["name"]) == (
        "ann",
        ME,
        "c1",
        "x",
    )


@needs_root
def test_prepare_by_name_and_by_number(
    agent: AgentSection, capsys: pytest.CaptureFixture[str]
) -> None:
    for user in ("root", "0"):
        assert _call(agent, "--job-id", "42", "--user", user, "--json") == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["user"], answer["uid"], answer["gid"]) == ("root", 0, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--job-id", "../x", "--user", "a", "--uid", str(ME), "--gid", "0"], "isn't a job id"),
        (
            ["--job-id", "1", "--user", "no-such-user"],
            "'no-such-user' is unknown on this node; add --uid and --gid",
        ),
        (["--job-id", "1", "--user", "4294967000"], "is unknown on this node"),
        (["--job-id", "1", "--user", "a", "--uid", "-5", "--gid", "0"], "uid and gid must be"),
        (["--job-id", "1", "--user", "a", "--uid", "9" * 30, "--gid", "0"], "uid and gid must be"),
        (["--job-id", "1", "--user", "a", "--uid", "9" * 30], "is unknown on this node"),
    ],
)
def test_prepare_refuses(
    agent: AgentSection, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _call(agent, *words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("logshipper-agent prepare: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(ME == 0, reason="root may; runs as an ordinary user")
def test_prepare_for_another_user(agent: AgentSection, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call(agent, "--job-id", "1", "--user", "root") == 1
    assert "run it as root for those of uid 0" in capsys.readouterr().err
