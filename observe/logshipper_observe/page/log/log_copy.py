"""Copies of logs from Loki, which can't return lines by number.

While a page shows the log, a thread reads the job like `logshipper logs --follow`, into an unnamed
file of compressed blocks. The page shows the lines read so far.
"""

import math
import tempfile
import threading
import time
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from logshipper.errors import LogshipperError, StoreError, UnknownJob, os_words
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import LogLine, Position
from logshipper_ingest.model.stores import ALL_KINDS
from logshipper_ingest.store.line_reader import BlockHead
from logshipper_observe.page.data.thread_store import SharedIngest, ThreadStore

if TYPE_CHECKING:
    from logshipper_ingest.model.capture_id import Source
    from logshipper_ingest.model.job import Capture
    from logshipper_ingest.model.stores import Reader

MAX_BYTES = 4 << 30  # of a copy; the page reports a longer log
BLOCK_LINES = 1_000
_BLOCK_CHARS = 1 << 20
_TEXTS = 32  # blocks of one read
IDLE_SECS = 900.0  # without a viewer; then the copy ends
RETRY_SECS = 3.0
_NO_POSITION = Position(0, 0, 0, 0)
_MAX_COPIES = 8


class Copies:
    """The most recently viewed copies, for all threads of the server."""

    def __init__(self, intake: SharedIngest) -> None:
        self._intake = intake
        self._lock = threading.Lock()
        self._copies: OrderedDict[str, Copy] = OrderedDict()

    def of(self, job_id: str) -> "Copy":
        with self._lock:
            copy = self._copies.pop(job_id, None)
            if copy is None or copy.is_over:
                copy = Copy(job_id, self._intake)
            self._copies[job_id] = copy
            if len(self._copies) > _MAX_COPIES:
                self._copies.popitem(last=False)[1].close()
        copy.look()
        return copy

    def close(self) -> None:
        with self._lock:
            for copy in self._copies.values():
                copy.close()


class Copy:
    """One job's lines read so far, in blocks of one stream and capture.

    The copy numbers captures in the order of arrival, because Loki's numbers change with a late
    capture.
    """

    def __init__(self, job_id: str, intake: SharedIngest) -> None:
        self.problem = ""  # the reason for a pause or an end, a sentence
        self.complete = False  # up to date
        # the copy has all lines of the store at this monotonic time; inf after the job's end
        self.read_until = 0.0
        self._job_id = job_id
        self._intake = intake
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile(prefix="logshipper-page-")  # noqa: SIM115  closed with the thread
        self._heads: list[BlockHead] = []
        self._captures: dict[Source, Capture] = {}  # Loki's, in order of the copy's numbers
        self._ends = array("q", [0])  # of each block in the file
        self._after: Position | None = None  # of the last line
        self._last_look = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"copy of {job_id}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, by time or by close."""
        return self._over.is_set()

    def look(self) -> None:
        """Note a viewer."""
        self._last_look = time.monotonic()

    def close(self) -> None:
        self._over.set()

    # ---- Blocks (logs.py)

    @property
    def captures(self) -> "list[Capture]":
        captures = self._captures.values()
        return [replace(capture, capture=number) for number, capture in enumerate(captures, 1)]

    def blocks(self, after: int = 0) -> list[BlockHead]:
        with self._lock:
            return self._heads[after:]  # ids count from 1

    def block_texts(self, ids: Sequence[int]) -> list[bytes]:
        return [
            "".join(f"{text}\n" for _, _, text, _ in self._rows(number)).encode("utf-8", "replace")
            for number in ids[:_TEXTS]
        ]

    def block_lines(self, head: BlockHead) -> list[LogLine]:
        capture = list(self._captures.values())[head.capture - 1]
        stream, attempt, number = Stream(head.stream), capture.attempt, capture.capture
        return [
            LogLine(_NO_POSITION, time_ns, stream, Kind(kind), text, attrs, attempt, number)
            for time_ns, kind, text, attrs in self._rows(head.id)
        ]

    def _rows(self, number: int) -> list[Any]:  # Any: JSON
        with self._lock:
            if self._file.closed:
                raise StoreError(
                    self._job_id, "its copy has ended without a viewer: reload the page"
                )
            begin, end = self._ends[number - 1], self._ends[number]
            self._file.seek(begin)
            payload = self._file.read(end - begin)
        return list(orjson.loads(zlib.decompress(payload)))

    # ---- reading

    def _run(self) -> None:
        store = ThreadStore(self._intake)
        try:
            while not self._over.is_set() and time.monotonic() - self._last_look < IDLE_SECS:
                began = time.monotonic()
                try:
                    with store.job(self._job_id) as reader:
                        self._read(reader)
                        pause = IDLE_SECS if reader.is_over else store.poll_secs()
                        self.read_until = math.inf if reader.is_over else began
                    self.problem = ""
                    self.complete = True
                except UnknownJob as error:
                    self.problem = str(error)
                    return
                except LogshipperError as error:
                    self.problem = str(error)
                    pause = RETRY_SECS
                except OSError as error:  # of the file, such as a full disk
                    folder = tempfile.gettempdir()
                    self._stay(f"can't write the copy in {folder}: {os_words(error)}")
                    return
                if self._is_full:
                    self._stay("the log is too long for a copy")
                    return
                self._pause(pause)
        finally:
            self._over.set()
            store.close()
            with self._lock, suppress(OSError):  # a full disk fails again
                self._file.close()

    def _stay(self, reason: str) -> None:
        """Keep the lines read so far, and read no more, since lines in between are missing."""
        lines = sum(head.lines for head in self._heads)
        self.problem = f"{reason}: the page shows only the first {lines:,} lines"
        self.complete = True
        self._pause(math.inf)

    @property
    def _is_full(self) -> bool:
        return self._ends[-1] > MAX_BYTES

    def _pause(self, secs: float) -> None:
        """Wait; without a viewer, end early."""
        until = time.monotonic() + secs
        while (now := time.monotonic()) < until and now - self._last_look < IDLE_SECS:
            if self._over.wait(min(until - now, IDLE_SECS)):
                return

    def _read(self, reader: "Reader") -> None:
        """Read new lines. Lines before an error stay."""
        captures = {capture.source: capture for capture in reader.captures}
        self._captures = {**self._captures, **captures}
        copy_numbers = {source: number for number, source in enumerate(self._captures, 1)}
        numbers = {capture.capture: copy_numbers[source] for source, capture in captures.items()}
        block: list[LogLine] = []
        chars = 0
        try:
            for line in reader.lines(
                streams=(Stream.STDOUT, Stream.STDERR), kinds=ALL_KINDS, after=self._after
            ):
                self._after = line.position
                is_full = len(block) >= BLOCK_LINES or chars >= _BLOCK_CHARS
                source = (line.stream, line.capture)
                if block and (is_full or source != (block[0].stream, block[0].capture)):
                    self._put(block, numbers[block[0].capture])
                    block, chars = [], 0
                block.append(line)
                chars += len(line.text)
                if self._over.is_set() or self._is_full:
                    return
        finally:
            if block:
                self._put(block, numbers[block[0].capture])

    def _put(self, lines: list[LogLine], capture: int) -> None:
        """Append a block of a capture, by the copy's number."""
        rows = [
            (line.time_ns, line.kind, line.text.replace("\n", "\u240a"), dict(line.attrs))
            for line in lines
        ]
        payload = zlib.compress(orjson.dumps(rows), 1)
        with self._lock:
            self._file.seek(self._ends[-1])
            self._file.write(payload)
            self._file.flush()
            number = len(self._heads) + 1
            self._ends.append(self._ends[-1] + len(payload))
            self._heads.append(
                BlockHead(number, lines[0].time_ns, len(lines), lines[0].stream, capture)
            )
