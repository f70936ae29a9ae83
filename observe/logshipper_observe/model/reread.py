"""Finds series in the stored lines of jobs, and reads their records beside the stored ones. The
store stays as it is."""

import heapq
import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from logshipper.classify.metadata import json_record
from logshipper.classify.series.items import Record
from logshipper.classify.series.key_rules import KeyRules
from logshipper.classify.series.recogniser import Recogniser
from logshipper.classify.text_records import TextRecords
from logshipper.config import AUTO, DICT, JSON, PAIRS
from logshipper.safe_text import safe
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model import job as jobs
from logshipper_ingest.model.job import LogLine, MetadataRecord, RecordQuery
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.stores import JobStore, Progress, Reader
from logshipper_ingest.model.x_axis import XAxis
from logshipper_observe.base.running import say
from logshipper_observe.base.words import NS, count, uncoloured
from logshipper_observe.model.own_key_rules import own_key_rules

if TYPE_CHECKING:
    from logshipper_ingest.model.capture_id import JobKey

MAX_RECORDS = 250_000  # of a job: some 100 MB
MAX_STREAMS = 512  # of a job: each has up to 256 shapes
_LOOK_LINES = 1_000  # between two looks at the clock
_TIME = attrgetter("time_ns")


class _StreamLines:
    """The recogniser of one capture's stream. kinds: of other records in its lines."""

    def __init__(self, first: LogLine, kinds: Sequence[str], key_rules: KeyRules) -> None:
        self._first = first
        self._text_records = TextRecords(kinds) if kinds else None
        self._recogniser = Recogniser(key_rules)

    def take(self, line: LogLine) -> list[MetadataRecord]:
        text = uncoloured(line.text).encode("utf-8", "replace")
        if text[:2] == b'{"' or (self._text_records and self._text_records.find(text + b"\n")):
            return []
        secs = (line.time_ns - self._first.time_ns) / NS  # a float holds these nanoseconds
        due = self._recogniser.next_tick()
        records = self._recogniser.tick(secs) if due is not None and due <= secs else []
        return self._made(records + self._recogniser.feed((text,), secs))

    def flush(self) -> list[MetadataRecord]:
        return self._made(self._recogniser.flush())

    def _made(self, records: list[Record]) -> list[MetadataRecord]:
        first = self._first
        return [
            MetadataRecord(first.time_ns + round(record.time * NS), 0, first.attempt, first.capture,
                           json_record(record.values)[1].decode(), first.stream, AUTO)
            for record in records
        ]  # fmt: skip


class SeriesSearch:
    """Reads the lines of one job in the order of printing.

    lines: number of lines read; records: those found, in order of time; captures: numbers of those
    with lines; stored: numbers of the job's records by capture and origin. Raises ConfigError for a
    refused ~/.logoptin.
    """

    def __init__(self, max_records: int | None = None) -> None:
        self.lock = threading.Lock()  # callers in several threads hold it
        self.lines = 0
        self.records: list[MetadataRecord] = []
        self.captures: set[int] = set()
        self.stored: Counter[tuple[int, str]] = Counter()
        self._max_records = max_records or MAX_RECORDS
        self._key_rules = own_key_rules()
        self._streams: dict[tuple[int, Stream], _StreamLines] = {}
        self._left_out: set[tuple[int, Stream]] = set()  # streams over the limit
        self._place_ns = self._at_place = 0  # time of the last line; lines of that time so far

    def read_on(
        self, reader: Reader, secs: float = math.inf, progress: Progress | None = None
    ) -> bool:
        """Read on for about so long. Return whether the last line was read. progress: gets lines
        read, and all lines."""
        deadline = time.monotonic() + secs
        if not self.lines:
            self.stored = Counter((record.capture, record.origin) for record in reader.records())
        skip = self._at_place
        lines = reader.lines(
            streams=(Stream.STDOUT, Stream.STDERR), kinds=(Kind.LOG,), since_ns=self._place_ns
        )
        for read, line in enumerate(lines, start=1):
            if line.time_ns == self._place_ns and skip:
                skip -= 1
                continue
            if len(self.records) >= self._max_records:
                break
            self._take(line)
            if not read % _LOOK_LINES:
                if progress is not None:
                    progress(self.lines, max(reader.summary.lines, self.lines))
                if time.monotonic() > deadline:
                    return False
        for stream in self._streams.values():
            self.records += stream.flush()
        self.records.sort(key=_TIME)
        return True

    def _take(self, line: LogLine) -> None:
        self.lines += 1
        if line.time_ns != self._place_ns:
            self._place_ns, self._at_place = line.time_ns, 0
        self._at_place += 1
        key = line.capture, line.stream
        if key not in self._streams:
            if len(self._streams) >= MAX_STREAMS:
                self._left_out.add(key)
                return
            self.captures.add(line.capture)
            self._streams[key] = _StreamLines(line, self._kinds(line), self._key_rules)
        if "part" not in line.attrs:
            self.records += self._streams[key].take(line)

    def _kinds(self, line: LogLine) -> list[str]:
        """Return the kinds of the capture's other records that come from lines of a stream."""
        if line.stream is not Stream.STDOUT:
            return []
        origins = {origin for capture, origin in self.stored if capture == line.capture}
        return [DICT] * (DICT in origins) + [PAIRS] * bool(origins - {DICT, JSON, AUTO})

    def select(self, query: RecordQuery) -> Iterator[MetadataRecord]:
        """Return the records of a query, in its order."""
        begin = bisect_left(self.records, query.begin_ns, key=_TIME)
        end = bisect_left(self.records, query.end_ns or math.inf, key=_TIME)
        places = range(begin, end)[:: -1 if query.newest_first else 1]
        records = (self.records[at] for at in places)
        return (record for record in records if query.attempt in (None, record.attempt))

    def notes(self, reader: Reader) -> list[str]:
        """Describe a search without result, and omissions, a sentence each."""
        if not self.lines:
            mode = reader.summary.mode
            return [
                f"the store has no lines of its output (mode {mode}), so no series can be found"
            ]
        notes = []
        if not self.records:
            notes.append(f"no series in {plural(self.lines, 'line')} of its output")
        if len(self.records) >= self._max_records:
            lines = plural(self.lines, "line")
            limit = f"{self._max_records:,} records"
            notes.append(f"only the first {lines} were read: a limit of {limit}")
        if self._left_out:
            streams = plural(len(self._left_out), "stream")
            notes.append(f"{streams} left out: the first {MAX_STREAMS} of a job are read")
        return notes


class RereadJob(Reader):
    """A job with the records that a search found in its lines, in the place of stored ones with the
    origin `auto`. with_stored: with its other records, too."""

    def __init__(self, reader: Reader, search: SeriesSearch, *, with_stored: bool = True) -> None:
        self._reader = reader
        self._search = search
        self._with_stored = with_stored
        stored = (n for place, n in search.stored.items() if not self._is_replaced(*place))
        records = len(search.records) + with_stored * sum(stored)
        self.summary = replace(reader.summary, records=records)
        self.captures, self.is_over = reader.captures, reader.is_over

    def _is_replaced(self, capture: int, origin: str) -> bool:
        # mode `metadata` stores records without their lines
        return origin == AUTO and capture in self._search.captures

    def _select_records(self, query: RecordQuery) -> Iterator[MetadataRecord]:
        found = self._search.select(query)
        if not self._with_stored:
            return found
        stored = (
            record
            for record in self._reader._select_records(query)
            if not self._is_replaced(record.capture, record.origin)
        )
        both = (found, stored) if query.newest_first else (stored, found)
        return heapq.merge(*both, key=_TIME, reverse=query.newest_first)

    def _axes(self) -> list[XAxis]:
        axes = {capture.capture: XAxis() for capture in self.captures}
        for record in self.records():
            values = parse_record(record.line.encode("utf-8", "surrogatepass"))
            if values is not None:
                axes.setdefault(record.capture, XAxis()).add(
                    values, record.time_ns, origin=record.origin
                )
        return [axes[capture] for capture in sorted(axes)]

    def _records_at(self, time_ns: int) -> list[str]:
        query = RecordQuery(newest_first=True, begin_ns=time_ns, end_ns=time_ns + 1)
        return [record.keyed_line for record in self._select_records(query)]

    def _select_lines(
        self, query: jobs.LineQuery, after: jobs.Position | None, tail: int | None, since_ns: int
    ) -> Iterator[LogLine]:
        return self._reader._select_lines(query, after, tail, since_ns)

    def _select_events(self, event_filter: jobs.JobEventFilter) -> Iterator[jobs.JobEvent]:
        return self._reader._select_events(event_filter)

    def status(self) -> dict[Stream, tuple[int, str]]:
        return self._reader.status()

    def close(self) -> None:
        self._reader.close()


class RereadStore:
    """A store for `--reread`. Reads the lines of each job once, when it is first opened; shows
    progress and problems on stderr."""

    def __init__(self, stored: JobStore) -> None:
        self.stored = stored
        self._searches: dict[JobKey, SeriesSearch] = {}

    def __getattr__(self, name: str) -> Any:  # Any: the other methods of JobStore
        return getattr(self.stored, name)

    def open(self, job_id: str) -> Reader:
        return self._reread(self.stored.open(job_id))

    def reader_of(self, job: jobs.JobSummary) -> Reader:
        return self._reread(self.stored.reader_of(job))

    def _reread(self, reader: Reader) -> Reader:
        job = reader.summary
        if job.key not in self._searches:
            search = self._searches[job.key] = SeriesSearch()
            bar = Bar("Reading the output", count, " lines")
            search.read_on(reader, progress=bar)
            bar.clear()
            for note in search.notes(reader):
                say(f"--reread: {safe(job.name)}: {note}")
        return RereadJob(reader, self._searches[job.key])
