"""Run `logshipper` as a user does, each with its own home and store."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tools.captures.forked_commands import ForkedCommand
from tests.tools.sources import SOURCES
from tests.tools.waiting import scaled, wait_until

__all__ = ["wait_until"]  # re-exported for tests that run commands
TIMEOUT_SECS = scaled(60.0)


class Home:
    """A user's home in folder. environment: of the user's commands."""

    def __init__(self, folder: Path, *, agent: bool = False) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "PATH": "/usr/local/bin:/usr/bin:/bin",  # an unsearchable folder here makes 126 of 127
            "LOGSHIPPER_STORE": str(self.store),
            "LOGSHIPPER_AGENT": "on" if agent else "off",
            "LOGSHIPPER_CONTEXT": "off",  # otherwise a test's own command line is in most logs
            "PYTHONPATH": SOURCES,
        }

    def opt_in(self, content: bytes = b"") -> None:
        (self.folder / ".logoptin").write_bytes(content)

    def start(
        self, *words: str, **options: Any
    ) -> "subprocess.Popen[bytes]":  # Any: options of Popen
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        command = [sys.executable, "-m", "logshipper", *words]
        return subprocess.Popen(
            command, env={**self.environment, **options.pop("env", {})}, **options
        )

    def call(self, *words: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        if words[0] != "run" and not options:
            return self._read(*words)
        with self.start(*words, **options) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, out or b"", err or b"")

    def _read(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        with (
            open(os.devnull, "rb") as nothing,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            fds = [file.fileno() for file in (nothing, out, err)]
            code = ForkedCommand(words, self.environment, *fds).wait(TIMEOUT_SECS)
            written = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in fds[1:]]
        return subprocess.CompletedProcess(words, code, *written)

    def run(
        self, *command: str, options: Sequence[str] = (), **more: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        return self.call("run", *options, "--", *command, **more)

    def await_known(self, job: str = "last") -> None:
        """Return once the store has the job."""
        wait_until(lambda: self.call("show", job).returncode == 0, f"{job} is in the store")

    def show(self, job: str = "last") -> dict[str, Any]:
        result = self.call("show", job, "--json")
        assert result.returncode == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def logs(self, job: str = "last", *options: str) -> list[str]:
        result = self.call("logs", job, *options)
        assert result.returncode == 0, result.stderr
        return result.stdout.decode().splitlines()

    def events(self, job: str = "last") -> list[str]:
        return [event["event"] for event in self.show(job)["events"]]

    def captures(self) -> list[Path]:
        """Return the directories of captures in the spool."""
        return sorted(path for path in (self.store / "spool").glob("*@*") if path.is_dir())

    def stored_bytes(self) -> bytes:
        """Return the raw bytes of all files in spool and store, and the store's output for the last
        job."""
        raw = b"".join(path.read_bytes() for path in self.store.rglob("*") if path.is_file())
        return raw + self.call("logs", "last").stdout + self.call("show", "last", "--json").stdout


def sidecar_of(relay_pid: int) -> int:
    """Return the pid of a relay's sidecar, once the sidecar serves."""
    pids: list[int] = []

    def look() -> bool:
        children = Path(f"/proc/{relay_pid}/task/{relay_pid}/children").read_text().split()
        pids[:] = [int(pid) for pid in children if comm_of(int(pid)) == "logshipper-side"]
        return bool(pids)

    wait_until(look, f"a sidecar of {relay_pid}")
    return pids[0]


def comm_of(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/comm").read_bytes()).strip()
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def kill(pid: int, signo: int = signal.SIGKILL) -> None:
    os.kill(pid, signo)
