"""Make captures as a sidecar leaves them in a spool, complete or broken off at any point."""

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
NO_PROCESS = 0  # a relay that has ended


class CaptureWriter:
    """One capture's directory, written step by step.

    Times rise by a second with each call. They begin at START_NS by default, and an hour later for
    each further attempt.

    path: the directory; segments: its `segments/`; now_ns: the last time used. The context manager
    holds the sidecar's lock: the capture is alive inside it.
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
        """Return a writer into a directory that `logshipper-agent prepare` made.

        alive: lock it before the first segment exists, so that a running agent does not take the
        capture for a dead one.
        """
        capture = cls.__new__(cls)
        capture.path, capture.segments = path, path / "segments"
        capture.job_id = path.name.split("@")[0]
        capture.now_ns, capture.number, capture._lock = start_ns, 0, -1
        # the directory has the age of the capture
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
        """Hold the lock until `die`, as a sidecar does."""
        self._lock = os.open(self.segments / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def die(self) -> None:
        """Release the lock, as the sidecar's death does."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ---- segments

    @property
    def segment(self) -> Path:
        """The current segment."""
        return self.segments / f"{self.number:010d}.seg"

    def open_segment(self) -> None:
        """Begin the next segment with its file header only."""
        self.number += 1
        self.append(segment.encode_file_header(self.number, self.now_ns))

    def rotate(self) -> None:
        """Begin the next segment in the writer's order: first the new file, then the old one's
        END."""
        old = self.segment
        self.open_segment()
        with old.open("ab") as file:
            file.write(segment.encode_end(self.tick(), closed=False))

    def append(self, frames: bytes) -> None:
        """Append bytes to the segment, valid or not."""
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
        """Write a frame of lines of one kind; return its time."""
        texts = [line.encode() if isinstance(line, str) else line for line in lines]
        time_ns = self.tick() if time_ns is None else time_ns
        text = b"".join(line + b"\n" for line in texts)
        self.append(segment.encode_lines(stream, time_ns, text, [(kind, len(texts))], attrs))
        return time_ns

    def mixed(
        self, lines: Sequence[tuple[Kind, str]], *, stream: Stream = Stream.STDOUT, **attrs: Json
    ) -> int:
        """Write a frame of lines of several kinds; return its time. attrs: `at0=...` for the first
        line."""
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
        """Write a frame of metadata records; return its time.

        It numbers the records' sets of keys from 1 on within this call.
        """
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        return self.lines(
            lines, kind=Kind.METADATA, attrs={at: {"n": at + 1} for at in range(len(lines))}
        )

    def status(self, text: str, *, stream: Stream = Stream.STDOUT) -> int:
        """Write a frame of status. text: several bars have LF between them."""
        return self.lines([_status_line(text)], kind=Kind.STATUS, stream=stream)

    def live(self, text: str, *, stream: Stream = Stream.STDOUT) -> int:
        """Replace the content of the live file by a bar's current text; return the time."""
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
        """Write the end record; lines may follow it."""
        outcome = {
            "type": "end",
            "state": state,
            "exit_code": exit_code,
            "signal": signal,
            "reason": "",
        }
        self.record({**outcome, "ended_ns": self.now_ns, "ledger": ledger or make_ledger()})

    def close(self) -> None:
        """Write the END frame of a complete capture."""
        self.append(segment.encode_end(self.tick(), closed=True))

    def counters(
        self,
        stdout: tuple[int, int] = (0, 0),
        stderr: tuple[int, int] = (0, 0),
        pid: int = NO_PROCESS,
        started: int = 0,
    ) -> None:
        """Write the relay's counters (bytes and line feeds of each stream) and its start time."""
        packed = COUNTERS.pack(COUNTERS_MAGIC, 1, pid, *stdout, *stderr).ljust(
            COUNTERS_BYTES - 8, b"\0"
        )
        (self.segments / "counters").write_bytes(packed + started.to_bytes(8, "little"))


def _status_line(text: str) -> str:
    return text.replace("\n", segment.STATUS_BREAK.decode())


def make_ledger(stdout: Json | None = None, stderr: Json | None = None, **counts: int) -> Json:
    """Return a ledger that balances: `read` is the sum of the other counts."""
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
    """Write a COMPLETED job's capture from start record to END, with lines on stdout."""
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
    """Make a capture's directory older, so that it no longer counts as one under creation."""
    date(path, time.time_ns() - int(secs * 10**9))


def date(path: Path, time_ns: int) -> None:
    """Set the creation time of a capture's directory."""
    for entry in (path / "identity.json", path):
        if entry.exists():
            os.utime(entry, ns=(time_ns, time_ns))


def memory_folder() -> str | None:
    """Return a folder in memory for tests that write a lot; None if there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
