"""Reads one job from Loki: lines in order of time, metadata records, events, live status, keys and
X axis.

Entries come in pages and go on at once, so memory does not grow with the job. Loki's content is
untrusted: the reader skips invalid entries.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import islice
from typing import Literal, NamedTuple, Protocol

from logshipper.classify.metadata import Hint, keys_of
from logshipper.config import JSON
from logshipper.spool.segment import COPY, ORIGIN, Kind, Stream
from logshipper_ingest.loki.account import STREAMS, JobAccount, LokiEntry, as_capture
from logshipper_ingest.loki.lines import KINDS, Captures, LokiLine, begins_alike, clean, join_pieces
from logshipper_ingest.loki.seen import ReadHistory
from logshipper_ingest.model.capture_id import CaptureId
from logshipper_ingest.model.job import (
    JOB_ENDED,
    RUNNING,
    SHIPPED_UNRESPONSIVE_NS,
    UNRESPONSIVE,
    JobEvent,
    JobEventFilter,
    JobSummary,
    LineQuery,
    LogLine,
    MetadataRecord,
    Position,
    RecordQuery,
    heartbeat_lost,
    job_shard,
)
from logshipper_ingest.model.metadata_keys import line_by_origin, parse_record
from logshipper_ingest.model.stores import ALL_KINDS, Progress, Reader
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.servers.logql import selector, with_metadata

SECOND_NS = 10**9
AHEAD_NS = 600 * SECOND_NS  # Loki takes entries that are so far in the future
MARGIN_NS = 60 * SECOND_NS  # around a job's time
HOLD_NS = 10 * SECOND_NS  # how long a long line may wait for its last pieces
MAX_HELD = 20_000  # kept lines of a tail; of a longer one, the reader keeps the begin
MAX_READS = 16
_PAGE = 5000
_TAIL_LOOK_BACK = 1000  # lines before a tail that count as read
_STATUS_PAGE = 100
_MAX_STATUSES = 2000  # newest entries to search for bars
_PROGRESS_EVERY = 1000  # records

Direction = Literal["forward", "backward"]


class Entries(Protocol):
    """Loki's queries; logshipper_ingest.loki.client.LokiClient implements them."""

    @property
    def name(self) -> str: ...

    def entries(
        self,
        logql: str,
        begin_ns: int,
        end_ns: int,
        *,
        direction: Direction = "forward",
        page: int = _PAGE,
    ) -> Iterator[LokiEntry]: ...


class QuerySpan(NamedTuple):
    """Place and time of a job, for its queries."""

    begin_ns: int
    end_ns: int
    hosts: frozenset[str]


class Reads:
    """Reading positions of readers that may continue; the oldest are dropped."""

    def __init__(self) -> None:
        self._histories: dict[int, ReadHistory] = {}
        self._last = 0

    def begin(self) -> tuple[int, ReadHistory]:
        self._last += 1
        if len(self._histories) >= MAX_READS:
            del self._histories[min(self._histories)]
        history = self._histories[self._last] = ReadHistory()
        return self._last, history

    def go_on(self, position: Position) -> ReadHistory:
        history = self._histories.get(position.base)
        if history is None or position.block != history.lines:
            raise ValueError("reading goes on only from the line that was read last")
        return history


class _Query(NamedTuple):
    """The selected lines."""

    kinds: frozenset[Kind]
    streams: frozenset[Stream]
    attempt: int | None = None
    copies: bool = False  # includes records whose lines the log repeats


class LokiJobReader(Reader):
    """One job as of its opening (summary, captures); lines and records as of each call.

    Counts of a running job come from its last heartbeats, raised to the number of lines read for
    its keys. Raises QueryError if Loki does not answer. progress: gets records read, and all
    records; (0, 0) at the end.
    """

    def __init__(
        self,
        client: Entries,
        account: JobAccount,
        summary: JobSummary,
        span: QuerySpan,
        reads: Reads,
        *,
        now: Callable[[], int] = time.time_ns,
        progress: Progress | None = None,
    ) -> None:
        now_ns = now()
        numbered = account.numbered()
        self.summary = summary
        self.captures = [
            as_capture(number, capture, now_ns) for number, capture in enumerate(numbered, start=1)
        ]
        newest = max(capture.attempt for capture in numbered)
        may_print = any(
            capture.account.may_print(now_ns) for capture in numbered if capture.attempt == newest
        )
        self.is_over = summary.state not in (RUNNING, UNRESPONSIVE) and not may_print
        self._client = client
        self._account = account
        self._span = span
        self._reads = reads
        self._now = now
        self._progress = progress
        self._keys = [capture.key for capture in numbered]
        self._silent = [  # no event reports these: their agent may have gone
            JobEvent(
                loki_capture.account.heartbeat_ns + SHIPPED_UNRESPONSIVE_NS,
                heartbeat_lost(),
                loki_capture.key.attempt,
                capture.capture,
            )
            for loki_capture, capture in zip(numbered, self.captures, strict=True)
            if capture.state == UNRESPONSIVE and not loki_capture.account.is_lost
        ]
        self._running = {capture.key for capture in numbered if capture.account.state == RUNNING}
        self._numbers = Captures(self._keys)

    # ---- asking

    def _selector(self, kinds: Collection[str], streams: Collection[Stream] = ()) -> str:
        named = {*streams, Stream.NONE} if streams else set(STREAMS.values())
        names = [name for name, stream in STREAMS.items() if stream in named]
        job = self._account.key
        logql = selector(
            kinds,
            cluster=job.cluster,
            hosts=self._span.hosts,
            streams=[] if len(names) == len(STREAMS) else names,
            shard=job_shard(job.job_id),
        )
        return logql + with_metadata({"job_id": job.job_id})

    def _lines(
        self,
        query: _Query,
        direction: Direction = "forward",
        *,
        begin_ns: int = 0,
        end_ns: int = 0,
        page: int = _PAGE,
    ) -> Iterator[LokiLine]:
        """Yield the selected lines in order of time; holds back lines with missing pieces."""
        kinds = {Kind.LOG if kind is Kind.NOTE else kind for kind in query.kinds}
        labels = [label for label, kind in KINDS.items() if kind in kinds]
        if not labels:
            return
        logql = self._selector(labels, query.streams)
        if query.attempt is not None:
            logql += with_metadata({"attempt": str(query.attempt)})
        end_ns = min(end_ns or self._end_ns(), self._end_ns())
        entries = self._client.entries(
            logql, max(begin_ns, self._span.begin_ns), end_ns, direction=direction, page=page
        )
        due_ns = self._now() - HOLD_NS
        for line in join_pieces(entries, self._numbers, newest_first=direction == "backward"):
            if line.kind not in query.kinds or query.attempt not in (None, line.key.attempt):
                continue
            if COPY in line.attrs and not query.copies:
                continue
            if line.complete or line.time_ns < due_ns or self.is_over:
                yield line

    def _end_ns(self) -> int:
        return min(self._span.end_ns, self._now() + AHEAD_NS)

    # ---- lines

    def _select_lines(
        self, line_query: LineQuery, after: Position | None, tail: int | None, since_ns: int
    ) -> Iterator[LogLine]:
        query = _Query(*line_query)
        if after is not None:
            history = self._reads.go_on(after)
            begin_ns = history.read_from_ns(self._now(), last=self.is_over)
            lines = self._unseen(query, after.base, history, begin_ns)
            return lines if tail is None else iter(deque(lines, maxlen=tail))
        number, history = self._reads.begin()
        if tail is None:
            history.floor_ns = since_ns
            return self._unseen(query, number, history, since_ns)
        return self._tail(query, number, history, tail)

    def _unseen(
        self, query: _Query, number: int, history: ReadHistory, begin_ns: int
    ) -> Iterator[LogLine]:
        # pieces of a line that will never be whole share their time
        at: tuple[CaptureId, int] | None = None
        is_read = False
        for line in self._lines(query, begin_ns=begin_ns):
            if at != (line.key, line.time_ns):
                at = line.key, line.time_ns
                is_read = history.has(*at)
            if not is_read:
                yield _log_line(line, number, history)

    def _tail(
        self, query: _Query, number: int, history: ReadHistory, tail: int
    ) -> Iterator[LogLine]:
        """Find the begin of the tail backwards, and a little further, to recognise late lines.

        If the tail is too long to keep, read it again from its begin.
        """
        tail_lines: deque[LokiLine] = deque()
        older: list[LokiLine] = []
        tail_count, first_ns, skipped = 0, 0, 0
        page = min(tail + _TAIL_LOOK_BACK, _PAGE)
        for line in self._lines(query, "backward", page=page):
            if tail_count < tail:
                tail_count += 1
                first_ns = line.time_ns
                if tail <= MAX_HELD:
                    tail_lines.appendleft(line)
                continue
            skipped += line.time_ns == first_ns
            older.append(line)
            if len(older) >= _TAIL_LOOK_BACK:
                break
        for line in reversed(older):
            history.add(line.key, line.time_ns)
        history.lines = 0
        if len(older) >= _TAIL_LOOK_BACK:
            history.floor_ns = older[-1].time_ns + 1
        if tail <= MAX_HELD:
            for line in tail_lines:
                yield _log_line(line, number, history)
            return
        for at, line in enumerate(self._lines(query, begin_ns=first_ns)):
            if at >= skipped:
                yield _log_line(line, number, history)

    def lines_near(self, time_ns: int, before: int, after: int) -> list[LokiLine]:
        """Return numbers of lines before a time and behind it, in order."""
        query = _Query(frozenset(ALL_KINDS), frozenset())
        older = self._lines(query, "backward", end_ns=time_ns, page=max(before, 2))
        newer = self._lines(query, begin_ns=time_ns + 1, page=max(after, 2))
        return [*reversed([*islice(older, before)]), *islice(newer, after)]

    # ---- records, events, status

    def _select_records(self, query: RecordQuery) -> Iterator[MetadataRecord]:
        """Newest first (R23): backwards."""
        for line in self._record_lines(query):
            yield MetadataRecord(
                line.time_ns,
                line.attrs.get("n", 0),
                line.key.attempt,
                line.capture,
                line.text,
                line.stream,
                line.attrs.get(ORIGIN, JSON),
            )

    def _record_lines(self, query: RecordQuery) -> Iterator[LokiLine]:
        # backwards often only the newest ones are needed
        page = _TAIL_LOOK_BACK if query.newest_first else _PAGE
        lines = self._lines(
            _Query(frozenset({Kind.METADATA}), frozenset(), query.attempt, copies=True),
            "backward" if query.newest_first else "forward",
            begin_ns=query.begin_ns,
            end_ns=query.end_ns,
            page=page,
        )
        for line in lines:
            keys = keys_of(line.text.encode("utf-8", "surrogatepass"))
            if keys is not None and not isinstance(keys, Hint):
                yield line

    def _select_events(self, event_filter: JobEventFilter) -> Iterator[JobEvent]:
        """Summary and captures have those about start, life and end of captures.

        Slurm's end of the job belongs to no capture: its number is 0.
        """
        events = list(filter(event_filter.has, self._job_events()))
        yield from event_filter.merge(
            reversed(events) if event_filter.newest_first else events, self._silent
        )

    def _job_events(self) -> Iterator[JobEvent]:
        numbers = {key: number for number, key in enumerate(self._keys, start=1)}
        for (time_ns, key, _), event in self._account.events():
            if key in numbers or event["event"] == JOB_ENDED:
                yield JobEvent(time_ns, event, key.attempt, numbers.get(key, 0))

    def status(self) -> dict[Stream, tuple[int, str]]:
        """Return as Reader.status; nothing for ended captures."""
        newest: dict[tuple[CaptureId, Stream], tuple[int, str]] = {}
        if not self._running:
            return {}
        entries = self._client.entries(
            self._selector(["status"]),
            self._span.begin_ns,
            self._end_ns(),
            direction="backward",
            page=_STATUS_PAGE,
        )
        for read, entry in enumerate(entries, start=1):
            stream = STREAMS.get(entry.labels.get("stream", ""))
            _, key = self._numbers.of(entry)
            if stream is not None and key in self._running:
                text = "\n".join(map(clean, entry.line.split("\n")))
                newest.setdefault((key, stream), (entry.time_ns, text))
            if read >= _MAX_STATUSES or len(newest) >= 2 * len(self._running):
                break
        bars = {source: bar for source, bar in newest.items() if bar[1] not in ("", " ")}
        if bars:
            self._drop_ended(bars)
        ordered = sorted((time_ns, stream, text) for (_, stream), (time_ns, text) in bars.items())
        return {stream: (time_ns, text) for time_ns, stream, text in ordered}

    def _drop_ended(self, bars: dict[tuple[CaptureId, Stream], tuple[int, str]]) -> None:
        """Drops bars that stand finished in the log: the capture withdraws a bar up to 10 s
        later."""
        query = _Query(frozenset({Kind.LOG}), frozenset(stream for _, stream in bars))
        begin_ns = min(time_ns for time_ns, _ in bars.values())
        lines = self._lines(query, "backward", begin_ns=begin_ns, page=_STATUS_PAGE)
        for line in islice(lines, _STATUS_PAGE):
            source = line.key, line.stream
            time_ns, text = bars.get(source, (line.time_ns, ""))
            if time_ns >= line.time_ns:
                continue
            rest = [bar for bar in text.split("\n") if not begins_alike(bar, line.text)]
            if rest:
                bars[source] = time_ns, "\n".join(rest)
            else:
                del bars[source]

    # ---- keys and X axis

    def _axes(self) -> list[XAxis]:
        """Build the X axes from all records, capture by capture.

        Counts from a heartbeat rise to the number of records read.
        """
        axes = {number: XAxis() for number in range(1, len(self.captures) + 1)}
        read = 0
        try:
            for read, line in enumerate(self._record_lines(RecordQuery()), start=1):
                record = parse_record(line.text.encode("utf-8", "surrogatepass"))
                if record is not None:
                    axes.setdefault(line.capture, XAxis()).add(
                        record, line.time_ns, origin=line.attrs.get(ORIGIN, JSON)
                    )
                if self._progress is not None and not read % _PROGRESS_EVERY:
                    self._progress(read, max(self.summary.records, read))
        finally:
            if self._progress is not None:
                self._progress(0, 0)
        if not self.is_over:
            records = max(self.summary.records, read)
            lines = max(self.summary.lines, records)
            self.summary = replace(self.summary, records=records, lines=lines)
        return [axes[number] for number in sorted(axes)]

    def _records_at(self, time_ns: int) -> list[str]:
        lines = self._record_lines(RecordQuery(begin_ns=time_ns, end_ns=time_ns + 1))
        return [line_by_origin(line.text, line.attrs.get(ORIGIN, JSON)) for line in lines][::-1]


def _log_line(line: LokiLine, number: int, history: ReadHistory) -> LogLine:
    """Convert a line, and add it to the history."""
    history.add(line.key, line.time_ns)
    position = Position(number, 0, line.time_ns, history.lines)
    return LogLine(
        position,
        line.time_ns,
        line.stream,
        line.kind,
        line.text,
        line.attrs,
        line.key.attempt,
        line.capture,
    )
