"""Makes captures as a sidecar leaves them in a spool, whole or broken off at any point, for
tests."""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from logshipper.spool import segment
from logshipper.spool.captures import COUNTERS, COUNTERS_BYTES, COUNTERS_MAGIC
from logshipper.spool.live_status import LIVE_FILE
from logshipper.spool.segment import Json, Kind, Stream

START_NS = 1_750_000_000_000_000_000  # 2025-06-15
SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
NO_PROCESS = 0  # a relay that is gone


class CaptureWriter:
    """One capture's directory, written step by step. Times rise by themselves, a second with each
    call; by default they begin at START_NS, each further attempt an hour later.

    path: the directory; segments: its `segments/`; now_ns: the last time given out. A context
    manager holds the sidecar's lock: inside it the capture is alive.
    """

    def __init__(
        self,
        spool: Path,
        job_id: str = "k3f9x2",
        attempt: int = 1,
        *,
        name: str = "train.py",
        step: str = "",
        task: int = 0,
        suffix: str = "aaaa",
        host: str = "node1",
        start_ns: int | None = None,
    ) -> None:
        self.job_id = job_id
        self.path = spool / f"{job_id}@{attempt}.{suffix}"
        self.segments = self.path / "segments"
        self.now_ns = START_NS + (attempt - 1) * HOUR_NS if start_ns is None else start_ns
        self.number = 0
        self._lock = -1
        self.segments.mkdir(parents=True)
        identity = {
            "version": 1,
            "cluster": "local",
            "job_id": job_id,
            "attempt": attempt,
            "step": step,
            "task": task,
            "name": name,
            "user": "me",
            "uid": os.getuid(),
            "host": host,
        }
        (self.path / "identity.json").write_text(json.dumps(identity))
        self.open_segment()

    @classmethod
    def in_node_spool(
        cls, path: Path, *, start_ns: int = START_NS, alive: bool = False
    ) -> "CaptureWriter":
        """Writes into a directory that `logshipper-agent prepare` has made. alive: holds the lock
        before there is a segment, so that an agent at work takes it for no dead one."""
        capture = cls.__new__(cls)
        capture.path, capture.segments = path, path / "segments"
        capture.job_id = path.name.split("@")[0]
        capture.now_ns, capture.number, capture._lock = start_ns, 0, -1
        # its directory was made when it began
        os.utime(path / "identity.json", ns=(start_ns, start_ns))
        if alive:
            capture.be_alive()
        capture.open_segment()
        return capture

    # ---- life

    def __enter__(self) -> "CaptureWriter":
        self.be_alive()
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def be_alive(self) -> None:
        """Holds the lock, as a sidecar does, until it dies."""
        self._lock = os.open(self.segments / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def die(self) -> None:
        """Lets go of the lock, as the sidecar's death does."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ---- segments

    @property
    def segment(self) -> Path:
        """The segment that is written now."""
        return self.segments / f"{self.number:010d}.seg"

    def open_segment(self) -> None:
        """Begins the next segment; its file header only."""
        self.number += 1
        self.append(segment.encode_file_header(self.number, self.now_ns))

    def rotate(self) -> None:
        """The next segment, as the writer makes it: first the new file, then the old one's END."""
        old = self.segment
        self.open_segment()
        with old.open("ab") as file:
            file.write(segment.encode_end(self.tick(), closed=False))

    def append(self, frames: bytes) -> None:
        """Adds bytes to the segment, whatever they are."""
        with self.segment.open("ab") as file:
            file.write(frames)

    def tick(self) -> int:
        self.now_ns += SECOND_NS
        return self.now_ns

    # ---- frames

    def record(self, record: Json) -> None:
        self.append(segment.encode_record(self.tick(), record))

    def start(self, **fields: Any) -> None:  # Any: JSON
        self.record(
            {
                "type": "start",
                "version": "0.1.0",
                "mode": "enabled",
                "columns": 160,
                "rows": 50,
                "tty": True,
                "host": "node1",
                "boot_id": boot_id(),
                "pid": 4242,
                "started_ns": self.now_ns,
                **fields,
            }
        )

    def lines(
        self,
        lines: Iterable[str | bytes],
        *,
        stream: Stream = Stream.STDOUT,
        kind: Kind = Kind.LOG,
        attrs: dict[int, Json] | None = None,
        time_ns: int | None = None,
    ) -> int:
        """A frame of lines of one kind; returns its time."""
        texts = [line.encode() if isinstance(line, str) else line for line in lines]
        time_ns = self.tick() if time_ns is None else time_ns
        text = b"".join(line + b"\n" for line in texts)
        self.append(segment.encode_lines(stream, time_ns, text, [(kind, len(texts))], attrs))
        return time_ns

    def mixed(
        self, lines: Sequence[tuple[Kind, str]], *, stream: Stream = Stream.STDOUT, **attrs: Json
    ) -> int:
        """A frame of lines of several kinds; attrs: `at0=...` for the first line."""
        runs: list[tuple[Kind, int]] = []
        for kind, _ in lines:
            if runs and runs[-1][0] is kind:
                runs[-1] = (kind, runs[-1][1] + 1)
            else:
                runs.append((kind, 1))
        text = "".join(f"{line}\n" for _, line in lines).encode()
        of_lines = {int(name.removeprefix("at")): values for name, values in attrs.items()}
        time_ns = self.tick()
        self.append(segment.encode_lines(stream, time_ns, text, runs, of_lines))
        return time_ns

    def metadata(self, *records: Mapping[str, Any] | str) -> int:  # Any: JSON
        """A frame of metadata records, numbered by their sets of keys from 1 on within this
        call."""
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        return self.lines(
            lines, kind=Kind.METADATA, attrs={at: {"n": at + 1} for at in range(len(lines))}
        )

    def status(self, text: str, *, stream: Stream = Stream.STDOUT) -> int:
        """text: of several bars with LF between them."""
        return self.lines([_status_line(text)], kind=Kind.STATUS, stream=stream)

    def live(self, text: str, *, stream: Stream = Stream.STDOUT) -> int:
        """What a bar shows now; in the place of what the file had."""
        time_ns = self.tick()
        line = f"{_status_line(text)}\n".encode()
        frame = segment.encode_lines(stream, time_ns, line, [(Kind.STATUS, 1)])
        (self.segments / LIVE_FILE).write_bytes(frame)
        return time_ns

    def event(
        self, event: str, message: str = "something happened", **fields: Any
    ) -> None:  # Any: JSON
        self.record({"type": "event", "event": event, "message": message, **fields})

    def heartbeat(self, mode: str = "enabled", ledger: Json | None = None) -> None:
        self.record({"type": "heartbeat", "mode": mode, "ledger": ledger or make_ledger()})

    def ledger(self, ledger: Json) -> None:
        self.record({"type": "ledger", "ledger": ledger})

    def end(
        self,
        state: str = "COMPLETED",
        exit_code: int | None = 0,
        *,
        signal: int = 0,
        ledger: Json | None = None,
    ) -> None:
        """The end record; lines may follow it."""
        outcome = {
            "type": "end",
            "state": state,
            "exit_code": exit_code,
            "signal": signal,
            "reason": "",
        }
        self.record({**outcome, "ended_ns": self.now_ns, "ledger": ledger or make_ledger()})

    def close(self) -> None:
        """The END frame of a capture that is over."""
        self.append(segment.encode_end(self.tick(), closed=True))

    def counters(
        self,
        stdout: tuple[int, int] = (0, 0),
        stderr: tuple[int, int] = (0, 0),
        pid: int = NO_PROCESS,
        started: int = 0,
    ) -> None:
        """What the relay counted, bytes and line feeds, and when it started."""
        packed = COUNTERS.pack(COUNTERS_MAGIC, 1, pid, *stdout, *stderr).ljust(
            COUNTERS_BYTES - 8, b"\0"
        )
        (self.segments / "counters").write_bytes(packed + started.to_bytes(8, "little"))


def _status_line(text: str) -> str:
    return text.replace("\n", segment.STATUS_BREAK.decode())


def make_ledger(stdout: Json | None = None, stderr: Json | None = None, **counts: int) -> Json:
    """A ledger that balances: `read` is the sum of what is given."""
    names = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
    ledgers: Json = {}
    for stream, stream_counts in (("stdout", stdout or {}), ("stderr", stderr or {})):
        account = {name: stream_counts.get(name, 0) for name in names}
        read = sum(account.values())
        ledgers[stream] = {
            "read": read,
            **account,
            "line_feeds": stream_counts.get("line_feeds", read),
            "bytes": stream_counts.get("bytes", 0),
        }
    return {**ledgers, **{name: counts.get(name, 0) for name in ("notes", "status", "parts")}}


def make_capture(
    spool: Path,
    job_id: str = "k3f9x2",
    lines: Sequence[str] = ("one", "two"),
    attempt: int = 1,
    **options: Any,
) -> CaptureWriter:  # Any: CaptureWriter's options
    """A capture from start record to END, whose lines are on stdout: a COMPLETED job's."""
    capture = CaptureWriter(spool, job_id, attempt, **options)
    capture.start()
    if lines:
        capture.lines(lines)
    size = sum(len(line) + 1 for line in lines)
    capture.counters((size, len(lines)))
    capture.end(ledger=make_ledger({"stored": len(lines), "bytes": size}))
    capture.close()
    return capture


def age(path: Path, secs: float) -> None:
    """Makes a capture's directory look older, so that it is no longer taken for one being
    created."""
    date(path, time.time_ns() - int(secs * 10**9))


def date(path: Path, time_ns: int) -> None:
    """Makes a capture's directory look as if it had been created then."""
    for entry in (path / "identity.json", path):
        if entry.exists():
            os.utime(entry, ns=(time_ns, time_ns))


def memory_folder() -> str | None:
    """Where folders of tests that write a lot are made: in memory, where there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
