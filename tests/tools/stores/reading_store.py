"""Jobs for tests of reading: captures in a store's spool, and commands that read them.

The captures keep their own account of lines (tests/tools/captures/segment_factory.py).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.segment import STATUS_BREAK, Json, Kind, Stream
from logshipper.start.cli import main
from logshipper_ingest.model.stores import Reader
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.captures.segment_factory import CaptureWriter, date, make_ledger

Ask = Callable[..., tuple[int, str, str]]

_NAMES = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}


class SpooledCapture:
    """A capture that is alive inside its `with` block. Without `end`, it has died.

    Its clock advances by 10 ms with each call.
    """

    def __init__(
        self,
        store: Path,
        job_id: str = "k3f9x2",
        attempt: int = 1,
        *,
        name: str = "train.py",
        started_ns: int = 0,
        nodes: int = 0,
        limit_secs: Any = 0,  # Any: JSON
        **place: Any,  # step, task, suffix and host of CaptureWriter
    ) -> None:
        store.mkdir(mode=0o700, exist_ok=True)
        (store / "spool").mkdir(mode=0o700, exist_ok=True)
        self._writer = _Writer(store / "spool", job_id, attempt, name=name,
                               start_ns=started_ns or time.time_ns() - 60 * NS, **place)  # fmt: skip
        self._accounts: dict[str, dict[str, int]] = {"stdout": {}, "stderr": {}}
        self._note_counts: dict[str, int] = {}
        self._n: dict[tuple[str, ...], int] = {}
        date(self._writer.path, self._writer.now_ns)  # the first sign of life of a capture
        self._writer.__enter__()
        facts = {"nodes": nodes, "limit_secs": limit_secs}
        self._writer.start(**{name: value for name, value in facts.items() if value})

    def lines(
        self,
        *texts: str,
        stream: Stream = Stream.STDOUT,
        kind: Kind = Kind.LOG,
        attrs: dict[int, Json] | None = None,
    ) -> None:
        self._writer.lines(texts, stream=stream, kind=kind, attrs=attrs)
        self._writer.now_ns += len(texts)
        if kind is Kind.NOTE or kind is Kind.STATUS:
            _count(self._note_counts, "notes" if kind is Kind.NOTE else "status", len(texts))
        else:
            _count(
                self._accounts[_NAMES[stream]],
                "commands" if kind is Kind.COMMAND else "stored",
                len(texts),
            )

    def stderr(self, *texts: str, kind: Kind = Kind.LOG) -> None:
        self.lines(*texts, stream=Stream.STDERR, kind=kind)

    def metadata(self, *records: Json | str) -> None:
        """Write records, each numbered among those with the same keys."""
        for record in records:
            line = record if isinstance(record, str) else json.dumps(record)
            number = self._number(tuple(json.loads(line)))
            self.lines(line, kind=Kind.METADATA, attrs={0: {"n": number}})

    def found(self, *records: Json) -> None:
        """Write records of series, which the log does not show."""
        for record in records:
            attrs: Json = {"n": self._number(tuple(record)), "origin": "auto", "copy": 1}
            line = (json.dumps(record),)
            self._writer.lines(line, stream=Stream.STDOUT, kind=Kind.METADATA, attrs={0: attrs})
            self._writer.now_ns += 1

    def _number(self, keys: tuple[str, ...]) -> int:
        self._n[keys] = self._n.get(keys, 0) + 1
        return self._n[keys]

    def status(self, text: str) -> None:
        """Write the text of a running bar on stderr; "" removes the bar."""
        line = text.replace("\n", STATUS_BREAK.decode())
        self.lines(line, stream=Stream.STDERR, kind=Kind.STATUS)

    def live(self, text: str) -> None:
        """Write the same to the capture's live file, which no reader has ingested yet."""
        self._writer.live(text, stream=Stream.STDERR)

    def event(self, name: str, message: str = "", **fields: Any) -> None:  # Any: JSON
        self._writer.event(name, message, **fields)

    def lose(self, lines: int, stream: Stream = Stream.STDOUT, account: str = "lost") -> None:
        """Count lines as read but not stored."""
        _count(self._accounts[_NAMES[stream]], account, lines)

    def sleep(self, secs: float) -> None:
        """Advance the clock, and write nothing."""
        self._writer.now_ns += int(secs * NS)

    def heartbeat(self) -> None:
        self._writer.heartbeat(ledger=self._ledger())

    def beat(self) -> None:
        """Write a heartbeat with the current time."""
        self._writer.now_ns = max(self._writer.now_ns, time.time_ns())
        self._writer.heartbeat(ledger=self._ledger())

    def printed(self, stdout: int, stderr: int = 0) -> None:
        """Set the counts of bytes that the relay read."""
        self._writer.counters((stdout, 0), (stderr, 0))

    def end(self, exit_code: int | None = 0, signal: int = 0, *, time_ns: int = 0) -> None:
        """End the job. time_ns: of its end; by default the capture's own time."""
        self._writer.now_ns = max(self._writer.now_ns, time_ns)
        state = "CANCELLED" if signal else "FAILED" if exit_code else "COMPLETED"
        self._writer.end(state, exit_code, signal=signal, ledger=self._ledger())
        self._writer.close()

    def _ledger(self) -> Json:
        return make_ledger(self._accounts["stdout"], self._accounts["stderr"], **self._note_counts)

    def __enter__(self) -> "SpooledCapture":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.__exit__()


class _Writer(CaptureWriter):
    def tick(self) -> int:
        self.now_ns += NS // 100
        return self.now_ns


def _count(account: dict[str, int], name: str, lines: int) -> None:
    account[name] = account.get(name, 0) + lines


def training(store: Path, epochs: int = 5, **options: Any) -> None:
    """Write a finished job with text, a warning, a bar, records and a command. options: of
    SpooledCapture."""
    with SpooledCapture(store, **options) as job:
        job.lines("Training on 1,000 samples")
        job.stderr("UserWarning: lr is high")
        job.lines(
            "[the line above 499 times more]",
            stream=Stream.STDERR,
            kind=Kind.NOTE,
            attrs={0: {"repeat": 499}},
        )
        job.lose(499, Stream.STDERR, "collapsed")
        for epoch in range(1, epochs + 1):
            job.metadata({"epoch": epoch, "loss": 1 / epoch, "opt": {"lr": 0.1}})
        job.stderr("epoch 5: 100%|██████████| 40/40 [00:00<00:00, 812.3it/s]")
        job.lines('/LOGCOMMAND {"mode":"metadata"}', kind=Kind.COMMAND)
        job.event(
            "mode_changed", "metadata now", **{"from": "enabled", "to": "metadata"}, stream="stdout"
        )
        job.printed(45_000, 5_000)
        job.end()


def assert_spans(reader: Reader) -> None:
    """Assert that each span of a reader's records equals a filter by time, in both orders."""
    records = list(reader.records())
    first, middle, last = (
        records[0].time_ns,
        records[len(records) // 2].time_ns,
        records[-1].time_ns,
    )
    for begin_ns, end_ns in (
        (first, 0),
        (middle, 0),
        (first, middle),
        (0, middle + 1),
        (middle, last),
        (last + 1, 0),
    ):
        selection = [
            record
            for record in records
            if begin_ns <= record.time_ns and record.time_ns < (end_ns or last + 1)
        ]
        assert list(reader.records(begin_ns=begin_ns, end_ns=end_ns)) == selection
        assert (
            list(reader.records(newest_first=True, begin_ns=begin_ns, end_ns=end_ns))
            == selection[::-1]
        )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a path at which a test may create a store."""
    return tmp_path / "store"


@pytest.fixture
def ask(store: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return `asking` of the module's `store`."""
    return asking(store, capsys)


def asking(store: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that runs a command line on the store.

    The function returns exit code, stdout and stderr.
    """

    def run(command: str, *words: str) -> tuple[int, str, str]:
        try:
            code = main([command, "--store", str(store), *words])
        except SystemExit as error:
            code = int(error.code or 0)
        return (code, *capsys.readouterr())

    return run
