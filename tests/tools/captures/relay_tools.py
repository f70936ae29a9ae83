"""Shared helpers of the relay's tests: the driver's command line and a check for left-over
processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.captures import read_counters
from tests.tools.captures.captured_runs import comm_of
from tests.tools.sources import SOURCES
from tests.tools.waiting import scaled
from tests.tools.waiting import wait_until as wait_for

__all__ = ["wait_for"]  # re-exported for tests of the driver
WAIT_SECS = scaled(20.0)  # for conditions that hold at once unless the code is broken
_MARK = "LOGSHIPPER_TEST_MARK"

Event = dict[str, Any]  # Any: JSON


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fail the test if any process that it started is still running, and kill such processes."""
    mark = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_MARK, mark)
        try:
            yield
        finally:
            variable = f"{_MARK}={mark}".encode()
            until = time.monotonic() + WAIT_SECS
            while (pids := _pids_with(variable)) and time.monotonic() < until:
                time.sleep(0.01)
            names = [f"{pid} {comm_of(pid)}" for pid in pids]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert not names, "processes left over"


def _pids_with(mark: bytes) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
    return pids


def state(pid: int) -> str:
    """Return a process's state as in /proc (R, S, T, Z ...), X if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_alive(pid: int) -> bool:
    return state(pid) not in "XZ"


class Driver:
    """tests/tools/captures/relay_driver.py in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events_file = folder / "events"
        self.counters_file = folder / "counters"
        self._started: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        """Kill processes that a failed test left, and close their pipes."""
        for process in self._started:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            if process.poll() is None:
                process.kill()
                process.wait()

    def argv(
        self, *command: str, serve: str = "collect", options: tuple[str, ...] = ()
    ) -> list[str]:
        driver_options = [
            "--serve",
            serve,
            "--events",
            str(self.events_file),
            "--counters",
            str(self.counters_file),
        ]
        return [
            sys.executable,
            "-m",
            "tests.tools.captures.relay_driver",
            *driver_options,
            *options,
            "--",
            *command,
        ]

    def environment(self) -> dict[str, str]:
        """Return an environment that runs the driver from any folder. Its captures need no
        agent."""
        return {**os.environ, "PYTHONPATH": SOURCES, "LOGSHIPPER_AGENT": "off"}

    def run(
        self,
        *command: str,
        serve: str = "collect",
        options: tuple[str, ...] = (),
        stdin: Any = None,  # Any: bytes, or a file as subprocess takes it
        env: Mapping[str, str] | None = None,
        **more: Any,  # Any: of subprocess.run
    ) -> "subprocess.CompletedProcess[bytes]":
        if isinstance(stdin, bytes):
            more["input"] = stdin
        else:
            more["stdin"] = subprocess.DEVNULL if stdin is None else stdin
        return subprocess.run(
            self.argv(*command, serve=serve, options=options),
            capture_output="stdout" not in more and "stderr" not in more,
            env={**self.environment(), **(env or {})},
            timeout=scaled(60),
            **more,
        )

    def start(
        self,
        *command: str,
        serve: str = "collect",
        options: tuple[str, ...] = (),
        **more: Any,  # Any: of Popen
    ) -> "subprocess.Popen[bytes]":
        more.setdefault("stdin", subprocess.DEVNULL)
        argv = self.argv(*command, serve=serve, options=options)
        process = subprocess.Popen(argv, env=self.environment(), **more)
        self._started.append(process)
        return process

    def events(self) -> list[Event]:
        if not self.events_file.exists():
            return []
        lines = self.events_file.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def events_of(self, kind: str) -> list[Event]:
        return [event for event in self.events() if event["t"] == kind]

    def plan(self) -> Event:
        wait_for(lambda: self.events_of("plan"), "the sidecar starts")
        return self.events_of("plan")[0]

    def captured(self, stream: int = 1) -> bytes:
        """Return the bytes of a stream that reached the sidecar."""
        return b"".join(
            bytes.fromhex(event["hex"])
            for event in self.events_of("data")
            if event["stream"] == stream
        )

    def printed_counts(self) -> tuple[int, int, int, int]:
        """Return the relay's counts: bytes and line feeds of stdout, then of stderr."""
        counters = read_counters(self.counters_file.read_bytes())
        assert counters is not None
        out, err = ((counters.printed[name], counters.feeds[name]) for name in ("stdout", "stderr"))
        return *out, *err

    def wait_captured(self, text: bytes, stream: int = 1) -> None:
        wait_for(lambda: text in self.captured(stream), f"{text!r} reaches the sidecar")


def python(code: str) -> list[str]:
    """Return a CMD that runs a piece of Python."""
    return [sys.executable, "-c", code]
