"""`python -m tests.tools.captures.relay_driver [OPTION...] -- CMD ARG...`: run() with a test's own
sidecar.

The sidecar writes its input to --events, one JSON object a line: {"t": "data", "stream": 1,
"flags": 2, "hex": ...}.
"""

import argparse
import json
import mmap
import os
import signal
import struct
import sys
import time
from types import SimpleNamespace
from typing import Any

from logshipper.errors import CaptureError
from logshipper.process.run import RunOptions, run
from logshipper.relay import side_pipe
from logshipper.relay.handover import SidecarPlan
from logshipper.relay.relay import RelaySink
from logshipper.relay.side_pipe import HEADER, SideType
from logshipper.relay.take_over import take_over
from logshipper.spool.captures import COUNTERS, COUNTERS_BYTES, COUNTERS_MAGIC

NAMES = {
    SideType.EMPTY: "empty",
    SideType.CLOSED: "closed",
    SideType.SIZE: "size",
    SideType.EXIT: "exit",
}


class Collector(RelaySink):
    """The simplest sidecar: records its input, and relays after the relay's end as the real one
    does."""

    def __init__(self, plan: SidecarPlan, path: str) -> None:
        self.plan = plan
        self.open = {1, 2}
        self.ended = False
        self.file = open(path, "a", buffering=1) if path else None  # noqa: SIM115  as long as the process lives
        names = ("cmd_pid", "columns", "rows", "tty", "interactive", "relay_pid", "started_ns")
        self.tell(t="plan", pid=os.getpid(), **{name: getattr(plan, name) for name in names})

    def tell(self, **event: Any) -> None:  # Any: all that JSON accepts
        if self.file:
            self.file.write(json.dumps(event) + "\n")

    def report(self, line: str) -> None:
        try:
            os.write(self.plan.report, line.encode() + b"\n")
        except BrokenPipeError:
            pass

    def serve(self) -> None:
        self.report("ready")
        self.follow()
        if not self.ended or self.open:
            self.tell(t="take_over", ended=self.ended)
            take_over(self.plan, self)
            self.tell(t="over")
        self.finish()
        self.report("done")

    def follow(self) -> None:
        carry = b""
        while more := os.read(self.plan.side_pipe, 1 << 20):
            carry += more
            while len(carry) >= HEADER.size:
                kind, stream, flags, size = HEADER.unpack_from(carry)
                if len(carry) < HEADER.size + size:
                    break
                payload, carry = (
                    carry[HEADER.size : HEADER.size + size],
                    carry[HEADER.size + size :],
                )
                self.take(SideType(kind), stream, flags, payload)

    def take(self, kind: SideType, stream: int, flags: int, payload: bytes) -> None:
        if kind is SideType.DATA:
            self.data(stream, payload, flags)
        elif kind is SideType.EMPTY:
            self.empty(flags)
        elif kind is SideType.CLOSED:
            self.closed(stream)
        elif kind is SideType.SIZE:
            self.tell(t="size", size=struct.unpack("<HH", payload))
        else:
            self.ended = True
            self.tell(t="exit", status=struct.unpack("<i", payload)[0])
            if self.open:
                self.report("done")

    def data(self, stream: int, data: bytes, flags: int) -> None:
        self.tell(t="data", stream=stream, flags=flags, hex=data.hex())

    def empty(self, flags: int) -> None:
        self.tell(t="empty", flags=flags)

    def closed(self, stream: int) -> None:
        if stream in self.open:
            self.open.discard(stream)
            self.tell(t="closed", stream=stream)
            for fds in (self.plan.masters, self.plan.outs):
                if stream in fds:
                    os.close(fds.pop(stream))

    def wait_secs(self, *, untold: bool) -> float | None:
        return 0.0 if untold else None

    def finish(self) -> None:
        """Called after the last event. After `done`, the command's caller continues."""


class Digest(Collector):
    """Counts and hashes the bytes of a flood instead of keeping them."""

    def __init__(self, plan: SidecarPlan, path: str) -> None:
        import hashlib

        super().__init__(plan, path)
        self.hashes = {1: hashlib.sha256(), 2: hashlib.sha256()}

    def data(self, stream: int, data: bytes, flags: int) -> None:
        self.hashes[stream].update(data)

    def empty(self, flags: int) -> None:
        pass

    def finish(self) -> None:
        self.tell(
            t="digest",
            **{str(stream): digest.hexdigest() for stream, digest in self.hashes.items()},
        )


class Degraded(Collector):
    """Reports trouble as soon as the job has printed to stderr."""

    is_degraded = False

    def data(self, stream: int, data: bytes, flags: int) -> None:
        super().data(stream, data, flags)
        if stream == 2:
            if not self.is_degraded:
                self.report("degraded the disk is full")
            self.is_degraded = True


class Slow(Digest):
    def data(self, stream: int, data: bytes, flags: int) -> None:
        time.sleep(0.002)
        super().data(stream, data, flags)


def serve_with(kind: str, path: str, plan: SidecarPlan) -> None:
    if kind == "collect":
        Collector(plan, path).serve()
    elif kind == "digest":
        Digest(plan, path).serve()
    elif kind == "slow":
        Slow(plan, path).serve()
    elif kind == "drain":  # reads, and ignores the bytes
        while os.read(plan.side_pipe, 1 << 20):
            pass
        os.write(plan.report, b"done\n")
    elif kind == "crash":
        Collector(plan, path)
        raise RuntimeError("made to crash")
    elif kind == "die":
        Collector(plan, path)
        os.read(plan.side_pipe, 1)
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "degrade":
        Degraded(plan, path).serve()
    elif kind == "hang":  # keeps all files open, reads nothing
        Collector(plan, path)
        signal.pause()
        while True:
            signal.pause()
    elif kind == "stop":
        Collector(plan, path)
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise ValueError(kind)


def make_counters(path: str) -> mmap.mmap:
    with open(path or os.devnull, "w+b" if path else "r+b") as file:
        if not path:
            return mmap.mmap(-1, COUNTERS_BYTES)
        file.write(COUNTERS.pack(COUNTERS_MAGIC, 1, 0, 0, 0, 0, 0).ljust(COUNTERS_BYTES, b"\0"))
        file.flush()
        return mmap.mmap(file.fileno(), COUNTERS_BYTES)


def main() -> int:
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", default="collect")
    parser.add_argument("--events", default="")
    parser.add_argument("--counters", default="")
    parser.add_argument("--no-tty", action="store_true")
    parser.add_argument("--no-capture", action="store_true")
    parser.add_argument("--stall-secs", type=float, default=10.0)
    options = parser.parse_args(sys.argv[1:at])
    capture: Any = None  # Any: stands for a spool.Capture
    if not options.no_capture:
        capture = SimpleNamespace(
            job_id="test1", counters=make_counters(options.counters), in_user_spool=False
        )

    def serve(plan: SidecarPlan) -> None:
        serve_with(options.serve, options.events, plan)

    try:
        return run(
            RunOptions(sys.argv[at + 1 :], not options.no_tty, capture, serve, options.stall_secs)
        )
    except CaptureError as error:
        print(f"logshipper: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    assert side_pipe.MAX_PAYLOAD_BYTES
    sys.exit(main())
