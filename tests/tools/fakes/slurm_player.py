"""Run commands as tasks of a Slurm step without Slurm.

`play-step` of deploy/slurm/spank plays slurmstepd with the plugin's own code. Keeper and relay are
the real ones. `Logged` reads the log from the spool.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.segment import Frame, FrameType, Kind, Stream
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life
from logshipper_ingest.spool.segment_reader import Outcome, SegmentReader, SpoolPosition
from tests.slurm.tools import gate
from tests.slurm.tools.plugin import copy_of_build
from tests.tools.captures.captured_runs import comm_of, wait_until
from tests.tools.captures.other_users import ANN, ordinary_python, public_folder
from tests.tools.sources import SOURCES
from tests.tools.waiting import scaled

HEADER = Path("/usr/include/slurm/spank.h")
RELAY, KEEPER, SIDECAR = "logship-relay", "logship-keeper", "logshipper-side"
TIMEOUT_SECS = scaled(60)


def build_obstacle() -> str:
    """Return the reason why the C parts cannot be built here; "" if they can."""
    if not (shutil.which("gcc") and shutil.which("make")):
        return "gcc and make are needed to build the Slurm plugin"
    if not HEADER.exists():
        return f"{HEADER} is needed to build the Slurm plugin: install libslurm-dev"
    return ""


def build(folder: Path) -> Path:
    """Put all C parts below folder, which must be open to other users; return their folder."""
    return copy_of_build(folder / "built", "all", "relay-test")


@pytest.fixture(scope="session")
def binaries() -> Iterator[Path]:
    """Yield a folder with all C parts (fixture in tests/conftest.py).

    Skip the test if they cannot be built.
    """
    gate.skip_if_off()
    if build_obstacle():
        gate.lacking(build_obstacle())
    with public_folder("logshipper-plugin-") as folder:
        yield build(folder)


def checked_node(binaries: Path) -> "Iterator[Node]":
    """Yield a node whose user has opted in, for fixtures.

    AddressSanitizer checks its keepers; its reports fail the test.
    """
    with public_folder("logshipper-node-") as folder:
        node = Node(folder, binaries)
        node.opt_in()
        try:
            yield node
        finally:
            node.close()
    logs = sorted((binaries / "test" / "log").iterdir())
    texts = [path.read_text() for path in logs]
    for path in logs:
        path.unlink()
    assert not texts, texts


@pytest.fixture
def node(binaries: Path) -> "Iterator[Node]":
    yield from checked_node(binaries)


class Logged:
    """One capture in the spool."""

    def __init__(self, spool: Path, name: str) -> None:
        self.name = name
        self.path = spool / name
        # Any: JSON
        self.identity: dict[str, Any] = json.loads((self.path / "identity.json").read_text())
        self.damages: list[str] = []
        self._frames: list[Frame] = []
        self.outcome = Outcome.MORE
        spool_fd = os.open(spool, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with CaptureFolder(spool_fd, str(spool), name, os.geteuid(), node=True) as folder:
                self.life = folder.life()
                self.counters = folder.counters()
                self._read(folder)
        finally:
            os.close(spool_fd)

    def _read(self, folder: CaptureFolder) -> None:
        with contextlib.closing(
            SegmentReader(folder.segments_fd, str(self.path), SpoolPosition(), owner=folder.writer)
        ) as reader:
            while self.outcome is Outcome.MORE:
                batch = reader.read(1 << 20, alive=self.life is Life.LIVE)
                self._frames += batch.frames
                self.damages += [str(damage.error) for damage in batch.damages]
                self.outcome = batch.outcome

    def lines(self, stream: Stream = Stream.STDOUT, *kinds: Kind) -> list[bytes]:
        """Return the job's own lines of a stream; kinds selects others."""
        selection = kinds or (Kind.LOG, Kind.METADATA, Kind.COMMAND)
        return [line for line, kind in self._lines(stream) if kind in selection]

    def notes(self) -> list[bytes]:
        return [
            line
            for stream in (Stream.STDOUT, Stream.STDERR)
            for line in self.lines(stream, Kind.NOTE)
        ]

    def _lines(self, stream: Stream) -> Iterator[tuple[bytes, Kind]]:
        for frame in self._frames:
            if frame.type is FrameType.LINES and frame.stream is stream:
                yield from ((text, kind) for _, kind, text, _ in frame.lines())

    def records(self, kind: str) -> list[dict[str, Any]]:  # Any: JSON
        records = [
            json.loads(frame.text) for frame in self._frames if frame.type is FrameType.RECORD
        ]
        return [record for record in records if record["type"] == kind]

    def events(self) -> list[str]:
        return [record["event"] for record in self.records("event")]

    def ledger(self) -> dict[str, Any]:  # Any: JSON
        ledger: dict[str, Any] = self.records("end")[-1]["ledger"]
        return ledger


class Played:
    """A running or finished step. out, err: output of its tasks, after `finish`."""

    def __init__(self, process: "subprocess.Popen[bytes]", report: Path) -> None:
        self.process = process
        self._report = report
        self.out = self.err = b""
        self.code = -1

    def finish(self, stdin: bytes | None = None) -> "Played":
        try:
            self.out, self.err = self.process.communicate(stdin, timeout=TIMEOUT_SECS)
        finally:
            self.process.kill()
        self.code = self.process.returncode
        return self

    def reports(self, kind: str) -> list[list[str]]:
        """Return the words after `begin`, `exit`, `drained`, `init` or `say` in slurmstepd's
        report."""
        lines = [line.split(" ") for line in self._report.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == kind]

    def captured(self) -> list[bool]:
        return [
            words[1] == "1"
            for words in sorted(self.reports("begin"), key=lambda words: int(words[0]))
        ]

    def messages(self) -> str:
        return "\n".join(" ".join(words) for words in self.reports("say"))


class Node:
    """A node with a spool, on which a user runs steps. sanitized: use the keeper built with
    AddressSanitizer."""

    def __init__(self, folder: Path, binaries: Path, *, sanitized: bool = True) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.spool = folder / "spool"
        self.home = folder / "home"
        self.home.mkdir()
        self.spool.mkdir()
        self.spool.chmod(0o711)
        self.keeper = (
            binaries / "test" / "logshipper-keeper" if sanitized else binaries / "logshipper-keeper"
        )
        self._play = binaries / "test" / "play-step"
        interpreter = ordinary_python(copied=True)
        self.uid = ANN if os.getuid() == 0 and interpreter else os.getuid()
        python, path = interpreter or (
            sys.executable,
            os.pathsep.join([SOURCES, *filter(None, sys.path)]),
        )
        self.python = self.script("python", f'PYTHONPATH={path} exec {python} "$@"')
        if os.getuid() == 0:
            os.chown(self.home, self.uid, self.uid)
        self._reports = 0
        self._running: list[Played] = []

    def script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    @property
    def optin(self) -> Path:
        return self.home / ".logoptin"

    def opt_in(self, content: bytes = b"") -> None:
        self.optin.write_bytes(content)
        self.optin.chmod(0o644)

    def start(
        self,
        *command: str,
        settings: tuple[str, ...] = (),
        words: tuple[str | bytes, ...] = (),
        **options: Any,  # Any: of Popen
    ) -> Played:
        self._reports += 1
        report = self.folder / f"report{self._reports}"
        report.touch()
        argv: list[str | bytes] = [
            str(self._play),
            str(self.keeper),
            f"spool={self.spool}",
            f"python={self.python}",
            *settings,
            "--",
        ]
        gid = self.uid if os.getuid() == 0 else os.getgid()
        argv += [
            *words,
            f"uid={self.uid}",
            f"gid={gid}",
            f"home={self.home}",
            f"report={report}",
            "--",
            *command,
        ]
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        process = subprocess.Popen(argv, cwd="/", **options)
        played = Played(process, report)
        self._running.append(played)
        return played

    def run(self, *command: str, **options: Any) -> Played:  # Any: as start's
        return self.start(*command, **options).finish()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.spool.iterdir() if not path.name.startswith("."))

    def logged(self, count: int = 1) -> list[Logged]:
        """Return the captures, sorted by task, once all are over."""
        wait_until(lambda: self._are_over(count), f"{count} captures are over, of {self.names()}")
        return sorted(
            (Logged(self.spool, name) for name in self.names()),
            key=lambda capture: capture.identity["task"],
        )

    def readable(self) -> list[Logged]:
        """Return the captures in their current state."""
        return [Logged(self.spool, name) for name in self.names()]

    def _are_over(self, count: int) -> bool:
        names = self.names()
        return len(names) == count and all(
            Logged(self.spool, name).outcome is Outcome.CLOSED for name in names
        )

    def process(self, name: str, count: int = 1) -> list[int]:
        """Return the pids of this node's processes of a name, once there are `count` of them."""
        pids: list[int] = []

        def look() -> bool:
            pids[:] = self.processes(name)
            return len(pids) == count

        wait_until(look, f"{count} of {name}")
        return pids

    def processes(self, name: str) -> list[int]:
        mark = str(self.spool).encode()
        return [pid for pid in _pids() if comm_of(pid) == name and mark in _command_line(pid)]

    def close(self) -> None:
        """Kill the steps that a test left running; fail if their helpers do not end."""
        for played in self._running:
            if played.process.poll() is None:
                played.process.kill()
            played.process.wait()
            for pipe in (played.process.stdin, played.process.stdout, played.process.stderr):
                if pipe is not None:
                    pipe.close()
        try:
            wait_until(
                lambda: not self._helper_pids(), "keepers, relays and sidecars end", TIMEOUT_SECS
            )
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {[_how_it_stands(pid) for pid in self._helper_pids()]}"
            ) from None
        finally:
            for pid in self._helper_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _helper_pids(self) -> list[int]:
        return [pid for name in (RELAY, KEEPER, SIDECAR) for pid in self.processes(name)]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _how_it_stands(pid: int) -> str:
    """Return the pid, name, state and kernel function of a process that should have ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return f"{pid} {comm_of(pid)} {state} {Path(f'/proc/{pid}/wchan').read_text()}"
    except OSError:
        return f"{pid} is gone by now"


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def hung_folder(path: Path) -> Iterator[None]:
    """Mount a file system that never answers: FUSE without a server. Skip the test without FUSE."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        gate.lacking(f"no FUSE here: {error.strerror}")
    options = f"fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other".encode()
    try:
        if libc.mount(b"hung", os.fsencode(path), b"fuse", 0, options):
            gate.lacking(f"FUSE can't be mounted: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            os.close(fd)  # all waiting calls get an error
            fd = -1
            libc.umount2(os.fsencode(path), 2)  # MNT_DETACH
    finally:
        if fd >= 0:
            os.close(fd)


@contextlib.contextmanager
def small_disk(path: Path, kib: int) -> Iterator[None]:
    """Mount a tmpfs on path. Skip the test if that fails."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=0711", "small", str(path)]
    )
    if mounted.returncode:
        gate.lacking("no tmpfs can be mounted")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def late_python(node: Node) -> tuple[str, Path]:
    """Return a setting and a path. The setting delays Python's start until the path exists."""
    go = node.folder / "go"
    looks = f"while [ ! -e {go} ]; do [ -d {node.folder} ] || exit 1; sleep 0.1; done"  # the test may be over
    waits = node.script("waits", f'{looks}; exec {node.python} "$@"')
    return f"python={waits}", go


def python(code: str) -> list[str]:
    """Return a command that runs a piece of Python; any user can run it."""
    return [
        "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable,
        "-c",
        code,
    ]


def resident_bytes(pid: int) -> int:
    """Return the RSS of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def fill(path: Path) -> None:
    """Write to a file until the disk is full."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except OSError:
        pass  # the disk is full
    finally:
        os.close(fd)
