"""From what was read of a capture to what Loki gets of it: its lines, and what happened to it, as entries."""

import time
from typing import NamedTuple

from ingest.capture.capture_account import EventRow, Rows
from ingest.capture.capture_folder import Life
from ingest.capture.learning import learn
from ingest.capture.segment_reader import Batch
from ingest.config.agent_config import AgentConfig
from ingest.shipping.entries import Chunk, EntryBuilder
from ingest.shipping.loki_sink import LokiSink
from ingest.shipping.shipped_capture import ShippedCapture
from ingest.shipping.tenants import tenant_of
from logshipper.segment import Json

_WHO = ("name", "user", "uid", "account", "partition")  # of an identity


class Piece(NamedTuple):
    """What a round has of one capture. again: it may have been sent before."""

    capture: ShippedCapture
    tenant: str
    chunks: list[Chunk]
    done: bool
    again: bool


class PieceMaker:
    """config: as this Loki has it; sink: which kinds of entries it takes."""

    def __init__(self, config: AgentConfig, sink: LokiSink) -> None:
        self._config = config
        self._sink = sink

    def tenant(self, capture: ShippedCapture) -> str:
        return tenant_of(self._config.loki.tenant_by, capture.identity.user, capture.identity.uid)

    def piece(self, capture: ShippedCapture, batch: Batch, life: Life, *, again: bool) -> Piece:
        account, rows = capture.shipped.account, Rows()
        begun_at_ns = account.newest_ns
        # what the relay counts meanwhile would be other counts when the same frames are sent again
        learnt = learn(account, None, rows, batch, capture.folder, life, time.time_ns(), with_counters=False)
        if capture.is_silent:
            account.tell_lost(rows)
        marks = (self._dressed(mark, capture) for mark in rows.marks)
        rows.marks = [mark for mark in marks if mark is not None]
        if capture.shipped.counts.skipped and not capture.shipped.counts.entries:  # nothing else of it was sent yet
            rows.marks[:0] = self._late_begin(capture, begun_at_ns)
        if learnt.done:
            closed_ns = max(account.newest_ns, account.started_ns, account.told_ns) + 1  # nothing of it comes later
            rows.marks.append(EventRow(closed_ns, {"event": "closed", **self._last_words(capture)}))
        if capture.entries is None:
            most = self._config.loki.max_line_bytes
            ahead_ns = capture.shipped.counts.ahead_ns
            capture.entries = EntryBuilder(
                capture.folder.key, capture.identity, most, self.tenant(capture), ahead_ns=ahead_ns
            )
        capture.shipped.position = batch.position
        chunks = [chunk for chunk in capture.entries.chunks(rows) if self._sink.takes(chunk.key)]
        return Piece(capture, self.tenant(capture), chunks, learnt.done, again)

    def _dressed(self, mark: EventRow, capture: ShippedCapture) -> EventRow | None:
        """A mark as it goes to Loki: with who it is, or where it ran; None for a heartbeat too many."""
        kind, counts, agent = mark.event["event"], capture.shipped.counts, self._config.agent
        mark = EventRow(mark.time_ns, _set_back(mark.event, counts.ahead_ns))
        if kind == "started":
            who = {name: getattr(capture.identity, name) for name in _WHO}
            return EventRow(mark.time_ns, {**mark.event, **who, "host": self._host(capture), "cluster": agent.cluster})
        if kind == "heartbeat":
            if mark.time_ns - counts.heartbeat_ns < self._config.loki.heartbeat_secs * 1e9:
                return None
            counts.heartbeat_ns = mark.time_ns
            return mark
        return EventRow(mark.time_ns, {**mark.event, "hosts": [self._host(capture)]})

    def _late_begin(self, capture: ShippedCapture, time_ns: int) -> list[EventRow]:
        """What a Loki is told that was added in the midst of a capture, of which it gets the rest."""
        skipped = capture.shipped.counts.skipped
        words = f"{skipped} lines before this were sent to others, before this Loki was added"
        started = EventRow(time_ns, {"event": "started", **capture.shipped.account.start_facts()})
        marks = [self._dressed(started, capture)]
        marks.append(EventRow(time_ns, {"event": "sink_added", "message": words, "lines": skipped}))
        return [mark for mark in marks if mark is not None]

    def _host(self, capture: ShippedCapture) -> str:
        return capture.identity.host or self._config.agent.host

    def _last_words(self, capture: ShippedCapture) -> dict[str, object]:
        choice = capture.learnt.axis.choose()
        x_axis = {"key": choice.key, "rule": choice.rule, "words": choice.words, "path": list(choice.path)}
        facts = _set_back(capture.shipped.account.end_facts(), capture.shipped.counts.ahead_ns)
        return {**facts, "hosts": [self._host(capture)], "x_axis": x_axis}


def _set_back(event: Json, ahead_ns: int) -> Json:
    """An event whose own words of times fit the time that it is sent with."""
    if not ahead_ns:
        return event
    times = {name: event[name] - ahead_ns for name in ("started_ns", "ended_ns") if event.get(name)}
    return {**event, **times, "clock_ahead_secs": round(ahead_ns / 1e9, 3)}
