"""The fallback for bash without Slurm: a batch script's shell reads BASH_ENV, as task-prolog sets
it."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper import config
from logshipper.spool.segment import Stream
from logshipper.start import batch_output
from tests.tools.captures.captured_runs import TIMEOUT_SECS, comm_of, wait_until
from tests.tools.fakes.slurm_player import Logged
from tests.tools.sources import ROOT, SOURCES
from tests.tools.stores.node_agents import NodeAgent

HOOK = ROOT / "deploy" / "slurm" / "hooks" / "batch-output"
LINES = "".join(f"{n}\n" for n in range(1, 20_001)).encode()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAgent]:
    """Yield an agent without Loki, so captured output stays in the spool."""
    with NodeAgent(
        tmp_path_factory.mktemp("agent"), "http://127.0.0.1:1", cluster="batch"
    ) as running:
        yield running


class Batch:
    """Runs batch scripts in a home of its own. The hook reads `python` and the agent's socket."""

    def __init__(self, folder: Path, agent: NodeAgent) -> None:
        self.home = folder
        self.agent = agent
        self.python = folder / "python"
        self.write_python('exec "$PYTHON_HERE" "$@"')
        (folder / ".logoptin").touch()
        self.job_id = str(secrets.randbelow(1 << 30))
        self.note = Path(f"/tmp/logshipper-batch-{self.job_id}")

    def write_python(self, text: str) -> None:
        lines = f"#!/bin/sh\nPYTHON_HERE={sys.executable} PYTHONPATH={SOURCES}\nexport PYTHONPATH\n{text}\n"
        self.python.write_text(lines)
        self.python.chmod(0o755)

    def start(
        self, script: str, *, bash: str = "bash", **variables: str
    ) -> "subprocess.Popen[bytes]":
        """Start a script with stdout and stderr in the files `out` and `err`."""
        file = self.home / "script"
        file.write_text(script)
        setting = f"$$|{self.python}|{self.agent.socket}|{variables.pop('BASH_ENV', '')}"
        begin = f'LOGSHIPPER_BATCH="{setting}" BASH_ENV={HOOK} exec {bash} {file}'
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "SLURM_JOB_ID": self.job_id,
            **variables,
        }
        with (self.home / "out").open("wb") as out, (self.home / "err").open("wb") as err:
            return subprocess.Popen(
                ["sh", "-c", begin],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def run(self, script: str, **more: str) -> tuple[int, bytes, bytes]:
        """Return exit code and output, after delivery of all output."""
        with self.start(script, **more) as process:
            code = process.wait(TIMEOUT_SECS)
        wait_until(lambda: not self.note.exists(), "all is delivered")
        return code, (self.home / "out").read_bytes(), (self.home / "err").read_bytes()

    def captures(self) -> list[Logged]:
        """Return the job's captures in the agent's spool."""
        name = f"{self.job_id}.u{os.getuid()}"
        return [
            Logged(self.agent.spool, path.name)
            for path in sorted(self.agent.spool.glob(f"{name}@*"))
        ]

    def helper(self, name: str) -> int:
        """Return a process of this capture by its name in `ps`."""
        pids: list[int] = []

        def is_there() -> bool:
            pids[:] = [
                int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is(path, name)
            ]
            return bool(pids)

        wait_until(is_there, f"there is a {name}")
        return pids[0]

    def _is(self, path: Path, name: str) -> bool:
        try:
            return (
                f"note={self.note}".encode() in (path / "cmdline").read_bytes()
                and comm_of(int(path.name)) == name
            )
        except OSError:
            return False


@pytest.fixture
def batch(tmp_path: Path, agent: NodeAgent) -> Iterator[Batch]:
    batch = Batch(tmp_path, agent)
    yield batch
    batch.note.unlink(missing_ok=True)


def test_every_byte_and_every_line(batch: Batch) -> None:
    assert batch.run("seq 20000; echo err >&2; exit 7") == (7, LINES, b"err\n")
    (logged,) = batch.captures()
    assert b"".join(line + b"\n" for line in logged.lines()) == LINES
    assert logged.lines(Stream.STDERR) == [b"err"]


def test_the_jobs_time_limit_is_recorded(batch: Batch) -> None:
    times = {"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700007200"}
    assert batch.run("echo out", **times)[0] == 0
    (logged,) = batch.captures()
    assert [record["limit_secs"] for record in logged.records("start")] == [7200]


def test_colours_are_kept_for_who_asks_for_it(batch: Batch) -> None:
    (batch.home / ".logoptin").write_text("colors: keep\nsnapshots: 30s\n")
    assert batch.run(r"printf '\033[1;31mred\033[0m\n'")[0] == 0
    (logged,) = batch.captures()
    assert (logged.lines(), logged.events()) == ([b"\x1b[1;31mred\x1b[0m"], [])


def test_nothing_is_left_in_the_shell(batch: Batch, tmp_path: Path) -> None:
    script = "set -u; compgen -v | sort; declare -F; trap; env | sort; echo $-; ls /proc/$$/fd; shopt; jobs; umask"
    code, out, err = batch.run(script, bash="bash -eu", BASH_ENV="", SEEN="1")
    file = tmp_path / "script"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": batch.job_id,
        "SEEN": "1",
    }
    plain = subprocess.run(
        ["sh", "-c", f"exec bash -eu {file}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert (code, err) == (plain.returncode, plain.stderr)
    assert out.decode().splitlines() == plain.stdout.decode().splitlines()


def test_traces_are_the_scripts_own(batch: Batch) -> None:
    assert batch.run("echo one\n", bash="bash -x") == (0, b"one\n", b"+ echo one\n")
    code, out, err = batch.run("echo two\n", bash="bash -v")
    assert (code, out) == (0, b"two\n")
    assert err.splitlines()[1:] == [b"echo two"]


def test_the_users_own_file_is_read(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / "own env").write_text("GREETING=hello\n")
    script = "echo $GREETING $BASH_ENV; bash -c 'echo $GREETING'"
    env_file = f"{tmp_path}/own env"
    assert batch.run(script, BASH_ENV=env_file) == (0, f"hello {env_file}\nhello\n".encode(), b"")


@pytest.mark.parametrize(
    "python", ["exit 0", "exit 1", "kill -9 $$", "sleep 1; exit 1", 'exec "$PYTHON_HERE" -c "1/0"']
)
def test_without_logshipper_every_byte_arrives(python: str, batch: Batch) -> None:
    batch.write_python(python)
    assert batch.run("seq 20000; echo err >&2; exit 3") == (3, LINES, b"err\n")
    assert batch.captures() == []


@pytest.mark.parametrize("case", ["no agent", "no home", "somebody else's note"])
def test_what_is_not_captured_is_what_it_is(case: str, batch: Batch, tmp_path: Path) -> None:
    if case == "no agent":
        batch.agent = NodeAgent(tmp_path / "none", "http://127.0.0.1:1", cluster="none")
    elif case == "no home":
        batch.home.joinpath(".logoptin").unlink()
    else:
        batch.note.symlink_to("/nowhere")
    with batch.start("seq 20000; exit 3") as process:
        assert process.wait(TIMEOUT_SECS) == 3
    wait_until(lambda: (tmp_path / "out").read_bytes() == LINES, "all is delivered")
    if case == "somebody else's note":
        assert batch.captures() == []


@pytest.mark.parametrize("name", [batch_output.COMM, "logshipper-side"])
def test_a_killed_process_costs_the_script_nothing(name: str, batch: Batch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"seq 1000; while [ ! -e {go} ]; do sleep 0.05; done; seq 1001 20000"
    with batch.start(script) as process:
        victim = batch.helper(name)
        wait_until(lambda: (tmp_path / "out").read_bytes().endswith(b"\n1000\n"), "it is relayed")
        os.kill(victim, signal.SIGKILL)
        go.touch()
        assert process.wait(TIMEOUT_SECS) == 0
    wait_until(lambda: (tmp_path / "out").read_bytes() == LINES, "all is delivered")


def test_who_removes_the_opt_in_at_once_has_opted_in(batch: Batch) -> None:
    (batch.home / ".logoptin").write_text("mode: metadata\n")
    assert batch.run("rm ~/.logoptin; echo text; echo '{\"a\":1}'")[0] == 0
    (logged,) = batch.captures()
    assert logged.lines() == [b'{"a":1}']


@pytest.mark.parametrize("content", [b"mode: off\n", b"[", b"x" * 70_000])
def test_what_is_malformed_starts_disabled(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    fd = os.open(file, os.O_RDONLY)
    try:
        settings, problems = batch_output.configure(fd)
    finally:
        os.close(fd)
    assert settings == config.Config(mode="disabled")
    assert len(problems) == 1


def test_no_file_that_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert batch_output.configure(999) == (
        config.Config(mode="disabled"),
        ("can't be read any more",),
    )
    os.mkfifo(tmp_path / ".logoptin")
    assert batch_output.configure(999)[1] == ("is a FIFO, not a file",)
