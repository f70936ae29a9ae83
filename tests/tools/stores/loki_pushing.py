"""Push entries of jobs to a Loki in memory one by one, and read the jobs there."""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import logshipper_observe.query.opening
from logshipper.spool.segment import Json, Stream
from logshipper.start.cli import main
from logshipper_ingest.loki.store import LokiStore
from logshipper_ingest.model.job import LogLine
from logshipper_ingest.servers.loki_push import Entry
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki

BOTH = (Stream.STDOUT, Stream.STDERR)
JOB = "k3f9x2"

Ask = Callable[..., tuple[int, str, str]]


def asking(
    fake: FakeLoki, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ask:
    """Return a function that runs a reading command on the Loki in memory.

    The function returns exit code, stdout and stderr.
    """

    def open_fake(args: argparse.Namespace) -> LokiStore:
        return LokiStore(fake, cluster=args.cluster, since_secs=args.since or 7 * 86_400)

    monkeypatch.setattr(logshipper_observe.query.opening, "_open_loki", open_fake)
    monkeypatch.setenv("LOGSHIPPER_LOKI_URL", "http://loki.invalid")

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--from", "loki"])
        return code, *capsys.readouterr()

    return run


class Pushing:
    """A capture whose lines a test pushes one by one, in its own order."""

    def __init__(
        self,
        fake: FakeLoki,
        *,
        job_id: str = JOB,
        name: str = "train.py",
        host: str = "node1",
        began_ns: int = 0,
        **metadata: str,
    ) -> None:
        self.fake = fake
        self.began_ns = began_ns or time.time_ns() - 60 * NS
        self._metadata = {"job_id": job_id, "user": "me", "task": "0", "attempt": "1", **metadata}
        self._labels = {"cluster": "local", "host": host, "service_name": "logshipper"}
        self.event(
            {
                "event": "started",
                "name": name,
                "user": "me",
                "host": host,
                "started_ns": self.began_ns,
            }
        )

    def push(
        self,
        kind: str,
        at_ns: int,
        line: str,
        *,
        stream: str = "stdout",
        replay: str = "",
        **more: str,
    ) -> None:
        labels = {**self._labels, "kind": kind} | ({"stream": stream} if stream else {})
        labels |= {"replay": replay} if replay else {}
        self.fake.push(labels, [Entry(self.began_ns + at_ns, line, {**self._metadata, **more})])

    def line(self, at_ns: int, line: str, **more: Any) -> None:  # Any: options of push
        self.push("log", at_ns, line, **more)

    def event(self, event: Json, at_ns: int = 0, kind: str = "") -> None:
        """Push an event. kind: by default that of current agents."""
        kind = kind or ("heartbeat" if event["event"] == "heartbeat" else "event")
        self.push(kind, at_ns, json.dumps(event), stream="")

    def close(self, at_ns: int = 50 * NS, **fields: Any) -> None:  # Any: JSON
        ended = {
            "state": "COMPLETED",
            "exit_code": 0,
            "signal": 0,
            "ended_ns": self.began_ns + at_ns,
        }
        self.event({"event": "closed", **ended, **fields}, at_ns)


def open_store(fake: FakeLoki, **options: Any) -> LokiStore:  # Any: LokiStore's options
    return LokiStore(fake, **options)


def read(fake: FakeLoki, **options: Any) -> list[LogLine]:  # Any: options of lines
    with open_store(fake).open(JOB) as reader:
        return list(reader.lines(**{"streams": BOTH, **options}))


def texts(lines: Sequence[LogLine]) -> list[str]:
    return [line.text for line in lines]
