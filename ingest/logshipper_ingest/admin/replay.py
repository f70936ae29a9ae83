"""`logshipper-agent replay`: sends the quarantine to Loki after the cause is fixed.

Entries keep their time, line and metadata. Files follow each other, with entries by time. Entries
get their own streams: `replay="q"` and the hour of the week. So only this process uses the rate of
a stream, even next to a running agent, and no entry is too far behind another. After a kill, the
same entries go to the same stream, where Loki merges exact repeats.

The replay first queries the entries that Loki already has: an agent killed before its checkpoint
may have sent them. An entry leaves its file only when Loki has it.
"""

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, Protocol

import orjson

from logshipper.errors import QueryError
from logshipper.fault_points import fault_point
from logshipper_ingest.agent.sink_parts import make_delivery
from logshipper_ingest.config.sink_config import Server, SinkConfig
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.servers import logql
from logshipper_ingest.servers.loki_push import Entry, encode_metadata
from logshipper_ingest.shipping.delivery import Stopped, TenantWaits
from logshipper_ingest.shipping.entries import Chunk, Metadata, StreamKey, replay_hour
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.shipping.sink import PushClient
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.quarantine_files import QuarantineEntry, QuarantineLine

WINDOW_ENTRIES = 2000  # entries per step
PATIENCE_SECS = 60.0
_DENSE_NS = 1_000_000  # largest gap in a group that is queried without a line filter
_DENSE_ENTRIES = 500
_SPARSE_NS = 15 * 60 * 10**9  # longest time of a group, queried by its lines' beginnings
_SPARSE_ENTRIES = 50
_BEGIN_CHARS = 60
_PAUSE_SECS = 0.5


class ReplayClient(Protocol):
    """The part of `logshipper_ingest.loki.client.LokiClient` for queries."""

    def entries(self, logql: str, begin_ns: int, end_ns: int) -> Iterator[Entry]: ...


class ReplaySelection(NamedTuple):
    """Selected entries: "" and 0 for all. since_ns: refused at that time or later."""

    job_id: str = ""
    reason: str = ""
    since_ns: int = 0

    def has(self, entry: QuarantineEntry) -> bool:
        return (
            self.job_id in ("", entry.job_id)
            and self.reason in ("", entry.reason)
            and entry.refused_ns >= self.since_ns
        )


@dataclass
class ReplayResult:
    """Results for the selected entries."""

    total: int = 0
    delivered: int = 0
    in_loki: int = 0  # already there before the replay
    refusals: Counter[str] = field(default_factory=Counter)  # by reason
    words: dict[str, str] = field(default_factory=dict)  # Loki's newest message, by reason
    stop_reason: str = ""  # "" if not stopped

    @property
    def untried(self) -> int:
        return self.total - self.delivered - self.in_loki - self.refusals.total()


_Read = tuple[QuarantineLine, QuarantineEntry]  # a line's place, and its content


class Replayer:
    """One pass through the quarantine of one sink. push, ask: create a client for a tenant (""
    for the configuration's own); ask None: no queries. stop: ends the pass early without loss;
    bar: receives finished and total entries."""

    def __init__(
        self,
        config: SinkConfig[Server],
        selection: ReplaySelection,
        push: Callable[[], PushClient],
        ask: Callable[[str], ReplayClient] | None,
        stop: threading.Event,
        say: Callable[[str], None],
        bar: Callable[[int, int], None] = lambda done, total: None,
        patience_secs: float = PATIENCE_SECS,
    ) -> None:
        self._config = config
        self._selection = selection
        self._folder = os.path.join(config.folder, quarantine_files.FOLDER)
        self._stop = stop
        self._ask = ask
        self._clients: dict[str, ReplayClient] = {}
        self._bar = bar
        self._patience_secs = patience_secs
        metrics = AgentMetrics(config.cluster, config.host)
        self._delivery = make_delivery(config, push, metrics, stop, say)
        self.tally = ReplayResult()

    def run(self) -> ReplayResult:
        """Replay. Raises StoreError, QueryError. Entries delivered before have left the
        quarantine."""
        with quarantine_files.rewriter_lock(self._config.state_dir), self._patience_watch():
            quarantine_files.remove_leftovers(self._folder)
            files = {name: self._select(name) for name in quarantine_files.names(self._folder)}
            self.tally.total = sum(map(len, files.values()))
            for name, lines in files.items():
                if not self._replay_file(name, lines):
                    break
        return self.tally

    def _select(self, name: str) -> list[QuarantineLine]:
        """Return the places of a file's selected entries, by time."""
        places = [
            (line.entry.time_ns, line._replace(entry=None))
            for line in quarantine_files.read_lines(self._folder, name)
            if line.entry is not None and self._selection.has(line.entry)
        ]
        return [line for _, line in sorted(places, key=itemgetter(0))]

    @contextmanager
    def _patience_watch(self) -> Iterator[None]:
        """Stop the replay if Loki accepts nothing for patience_secs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_PAUSE_SECS):
                state = self._delivery.state
                if state.since_ns and time.time_ns() - state.since_ns > self._patience_secs * 1e9:
                    status = f"HTTP {state.status}: " if state.status else ""
                    words = f"Loki takes nothing for {self._patience_secs:g} s"
                    self.tally.stop_reason = f"{words}: {status}{state.words}"
                    self._stop.set()
                    return

        thread = threading.Thread(target=watch, name="patience")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # ---- a file

    def _replay_file(self, name: str, lines: Sequence[QuarantineLine]) -> bool:
        """Replay a file; return False if stopped. Finished entries leave the file in any case."""
        changed: dict[int, Refusal | None] = {}  # by offset; None: remove
        try:
            begin = 0
            while begin < len(lines):
                if self._stop.is_set():
                    raise Stopped
                end = self._window_end(lines, begin)
                window = [
                    (line, quarantine_files.read_at(self._folder, name, line))
                    for line in lines[begin:end]
                ]
                self._replay_window(window, changed)
                begin = end
        except Stopped:
            return False
        finally:
            fault_point("replay_sent")
            if changed:
                self._rewrite(name, changed)
                fault_point("replay_rewritten")
        return True

    def _window_end(self, lines: Sequence[QuarantineLine], begin: int) -> int:
        room = self._config.delivery.batch_max_bytes - lines[begin].size
        last = min(len(lines), begin + WINDOW_ENTRIES)
        for end in range(begin + 1, last):
            if room < lines[end].size:
                return end
            room -= lines[end].size
        return last

    def _replay_window(self, window: Sequence[_Read], changed: dict[int, Refusal | None]) -> None:
        offsets = self._offsets_in_loki(window)
        streams: dict[StreamKey, list[_Read]] = {}
        for line, entry in window:
            if line.offset in offsets:
                changed[line.offset] = None
                self.tally.in_loki += 1
            else:
                streams.setdefault(_key(entry), []).append((line, entry))
        self._show()
        for key, stream_entries in streams.items():
            refusals = self._deliver(key, [entry for _, entry in stream_entries])
            for at, (line, _) in enumerate(stream_entries):
                refusal = refusals.get(at)
                changed[line.offset] = refusal
                if refusal is None:
                    self.tally.delivered += 1
                else:
                    self.tally.refusals[refusal.reason] += 1
                    self.tally.words[refusal.reason] = refusal.words
            self._show()

    def _show(self) -> None:
        self._bar(self.tally.total - self.tally.untried, self.tally.total)

    def _deliver(self, key: StreamKey, entries: Sequence[QuarantineEntry]) -> dict[int, Refusal]:
        """Return new refusals by place in entries."""
        # one object per entry identifies the entries of a refusal
        extra = [dict(entry.metadata) for entry in entries]
        common = Metadata({}, encode_metadata({}), entries[0].uid)
        lines = [entry.line.encode("utf-8", "replace") for entry in entries]
        chunk = Chunk("", key, [entry.time_ns for entry in entries], lines, common, extra)
        while True:
            try:
                refusals = self._delivery.deliver([chunk])
                break
            except TenantWaits:
                if self._stop.wait(_PAUSE_SECS):
                    raise Stopped from None
        places = {id(metadata): at for at, metadata in enumerate(extra)}
        return {places[id(own)]: refusal for refusal in refusals for own in refusal.chunk.extra}

    def _rewrite(self, name: str, changed: dict[int, Refusal | None]) -> None:
        now_ns = time.time_ns()

        def decide(line: QuarantineLine, raw: bytes) -> bytes:
            if line.offset not in changed:
                return raw
            refusal = changed[line.offset]
            return b"" if refusal is None else _with_new_words(raw, refusal, now_ns)

        quarantine_files.rewrite(self._folder, name, decide)

    # ---- what Loki has already

    def _offsets_in_loki(self, window: Sequence[_Read]) -> set[int]:
        """Return the offsets of entries that Loki has in any stream. Raises QueryError."""
        ask = self._ask
        if ask is None:
            return set()
        groups: dict[tuple[str, ...], list[_Read]] = {}
        for line, entry in window:
            of = (entry.tenant, entry.host, entry.kind, entry.stream, entry.job_id)
            groups.setdefault(of, []).append((line, entry))
        offsets: set[int] = set()
        for group in groups.values():
            for near in _neighbours(group):
                loki_entries = self._entries_in_loki(ask, near)
                offsets |= {line.offset for line, entry in near if _is_among(entry, loki_entries)}
        return offsets

    def _entries_in_loki(
        self, ask: Callable[[str], ReplayClient], near: Sequence[_Read]
    ) -> dict[tuple[int, str], list[Entry]]:
        first, last = near[0][1], near[-1][1]
        if first.tenant not in self._clients:
            self._clients[first.tenant] = ask(first.tenant)
        client = self._clients[first.tenant]
        streams = logql.selector(
            [first.kind],
            cluster=self._config.cluster,
            hosts=[first.host or self._config.host],
            streams=[first.stream],
        )
        query = streams + logql.with_metadata({"job_id": first.job_id}) + _beginnings(near)
        loki_entries: dict[tuple[int, str], list[Entry]] = {}
        for entry in self._answer(client, query, first.time_ns, last.time_ns + 1):
            loki_entries.setdefault((entry.time_ns, entry.line), []).append(entry)
        return loki_entries

    def _answer(self, client: ReplayClient, query: str, begin_ns: int, end_ns: int) -> list[Entry]:
        """Query, with retries while they make sense."""
        deadline = time.monotonic() + self._patience_secs
        while True:
            try:
                return list(client.entries(query, begin_ns, end_ns))
            except QueryError as error:
                later = error.status in (0, 429) or error.status >= 500
                if not later or time.monotonic() > deadline:
                    words = f"{error.excerpt} (asked which entries it has; --no-query sends them without asking)"
                    raise QueryError(error.server, error.status, words) from None
            if self._stop.wait(_PAUSE_SECS):
                raise Stopped


def _neighbours(group: Sequence[_Read]) -> Iterator[list[_Read]]:
    """Yield groups of entries for one query, by time."""
    near: list[_Read] = []
    for neighbour in group:
        time_ns = neighbour[1].time_ns
        if near and not (
            (time_ns - near[-1][1].time_ns <= _DENSE_NS and len(near) < _DENSE_ENTRIES)
            or (time_ns - near[0][1].time_ns <= _SPARSE_NS and len(near) < _SPARSE_ENTRIES)
        ):
            yield near
            near = []
        near.append(neighbour)
    if near:
        yield near


def _beginnings(near: Sequence[_Read]) -> str:
    """Return a line filter for these entries that excludes most of a flood between them, "" if
    too long."""
    if near[-1][1].time_ns - near[0][1].time_ns <= _DENSE_NS * len(near):
        return ""
    beginnings = sorted({_beginning(entry.line) for _, entry in near})
    return f" |~ {logql.quoted('^(?:' + '|'.join(beginnings) + ')')}"


def _beginning(line: str) -> str:
    """Return a regular expression (RE2) for the beginning of a line, or for a short line as a
    whole."""
    text = "".join(re.escape(char) if char.isprintable() else "." for char in line[:_BEGIN_CHARS])
    return text if len(line) > _BEGIN_CHARS else f"{text}$"


def _is_among(entry: QuarantineEntry, loki_entries: dict[tuple[int, str], list[Entry]]) -> bool:
    """Whether Loki has the entry, even with metadata that Loki adds, such as detected_level."""
    candidates = loki_entries.get((entry.time_ns, entry.line), [])
    return any(entry.metadata.items() <= candidate.metadata.items() for candidate in candidates)


def _key(entry: QuarantineEntry) -> StreamKey:
    hour = f"q{replay_hour(entry.time_ns)}"
    return StreamKey(entry.stream, entry.kind, replay=hour, host=entry.host, tenant=entry.tenant)


def _with_new_words(raw: bytes, refusal: Refusal, now_ns: int) -> bytes:
    document = orjson.loads(raw)
    document |= {"reason": refusal.reason, "status": refusal.status, "words": refusal.words}
    document["replayed_ns"] = now_ns
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
