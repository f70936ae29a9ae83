"""A capture's piece of a round: the entries of one batch of frames, with marks for Loki's readers.

Marks are events about the capture itself: started, still running, heartbeat, closed. They carry its
identity and host, so that a list of jobs needs no other entries.
"""

import time
from typing import NamedTuple

from logshipper.spool.segment import Json
from logshipper_ingest.config.sink_config import Server, SinkConfig
from logshipper_ingest.model.capture_rows import EventRow, ReportRow, Rows
from logshipper_ingest.model.job import HEARTBEAT, STARTED, STILL_RUNNING, STILL_RUNNING_SECS
from logshipper_ingest.model.metadata_keys import printed_path
from logshipper_ingest.model.ranks import reported_documents
from logshipper_ingest.shipping.entries import Chunk, EntryBuilder
from logshipper_ingest.shipping.followed_capture import ShippedCapture
from logshipper_ingest.shipping.sink import Sink
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.learning import learn
from logshipper_ingest.spool.segment_reader import FrameBatch

_IDENTITY_FIELDS = ("name", "user", "uid", "account", "partition")


class Piece(NamedTuple):
    """One capture's part of a round."""

    capture: ShippedCapture
    chunks: list[Chunk]
    done: bool  # it reaches the capture's end
    again: bool  # it may have been sent before


class PieceBuilder:
    """Builds the pieces for one sink."""

    def __init__(self, config: SinkConfig[Server], sink: Sink) -> None:
        self._config = config
        self._sink = sink
        self._heartbeat_ns = int(config.delivery.heartbeat_secs * 1e9)

    def build(
        self, capture: ShippedCapture, batch: FrameBatch, life: Life, tenant: str, *, again: bool
    ) -> Piece:
        """Take a batch into the capture's account, and return its entries."""
        progress, rows = capture.progress, Rows()
        account, counts = progress.account, progress.counts
        begin_ns = account.newest_ns
        # Without the relay's counters, which would differ when the same frames are sent again.
        result = learn(
            account, None, rows, batch, capture.folder, life, time.time_ns(), with_counters=False
        )
        if capture.is_silent:
            account.add_heartbeat_lost(rows)
        rows.marks = [done for mark in rows.marks for done in self._complete_marks(mark, capture)]
        if counts.skipped and not counts.entries:  # this is the sink's first piece of it
            rows.marks[:0] = self._late_begin(capture, begin_ns)
        if result.done:
            # nothing of it comes later
            closed_ns = max(account.newest_ns, account.started_ns, account.heartbeat_lost_ns) + 1
            rows.marks.append(EventRow(closed_ns, {"event": "closed", **self._closing(capture)}))
            reports = reported_documents(capture.knowledge.axis, over=True)
            rows.report = ReportRow(closed_ns, reports, final=True)
        else:
            rows.report = self._due_report(capture)
        if capture.entries is None:
            capture.entries = EntryBuilder(
                capture.folder.key,
                capture.identity,
                self._config.delivery.max_line_bytes,
                tenant,
                ahead_ns=counts.ahead_ns,
            )
        progress.position = batch.position
        chunks = [chunk for chunk in capture.entries.chunks(rows) if self._sink.takes(chunk.key)]
        return Piece(capture, chunks, result.done, again)

    def _complete_marks(self, mark: EventRow, capture: ShippedCapture) -> list[EventRow]:
        """Add identity or host to a mark, and drop heartbeats that come too often. Every
        STILL_RUNNING_SECS a heartbeat repeats the identity, so that a list of jobs needs to look
        back no further."""
        kind, counts = mark.event["event"], capture.progress.counts
        mark = mark._replace(event=_set_back(mark.event, counts.ahead_ns))
        if kind == STARTED:
            return [self._with_identity(mark, capture)]
        if kind != HEARTBEAT:
            return [mark._replace(event={**mark.event, "hosts": [self._host(capture)]})]
        if mark.time_ns - counts.heartbeat_ns < self._heartbeat_ns:
            return []
        started_ns = capture.progress.account.started_ns
        period_ns = STILL_RUNNING_SECS * 10**9
        last_period = (max(counts.heartbeat_ns, started_ns) - started_ns) // period_ns
        counts.heartbeat_ns = mark.time_ns
        if not started_ns or (mark.time_ns - started_ns) // period_ns == last_period:
            return [mark]
        facts = _set_back(capture.progress.account.start_facts(), counts.ahead_ns)
        del facts["mode"]  # it may come from a later frame, so a repeated piece might differ
        running = EventRow(mark.time_ns, {"event": STILL_RUNNING, **facts})
        return [mark, self._with_identity(running, capture)]

    def _with_identity(self, mark: EventRow, capture: ShippedCapture) -> EventRow:
        fields = {name: getattr(capture.identity, name) for name in _IDENTITY_FIELDS}
        place = {"host": self._host(capture), "cluster": self._config.cluster}
        return mark._replace(event={**mark.event, **fields, **place})

    def _due_report(self, capture: ShippedCapture) -> ReportRow | None:
        """Return the newest report of its keys once all records before it are sent, at most as
        often as heartbeats."""
        report, progress = capture.capture.report, capture.progress
        earliest_ns = progress.counts.report_ns + self._heartbeat_ns
        if report is None or not earliest_ns <= report.time_ns <= progress.account.newest_ns:
            return None
        progress.counts.report_ns = report.time_ns
        return report

    def _late_begin(self, capture: ShippedCapture, time_ns: int) -> list[EventRow]:
        """Return the first marks for a sink that was added in the middle of a capture."""
        skipped = capture.progress.counts.skipped
        words = f"{skipped} earlier lines went to other sinks, before this Loki was added"
        started = EventRow(time_ns, {"event": STARTED, **capture.progress.account.start_facts()})
        added = EventRow(time_ns, {"event": "sink_added", "message": words, "lines": skipped})
        return [*self._complete_marks(started, capture), added]

    def _host(self, capture: ShippedCapture) -> str:
        return capture.identity.host or self._config.host

    def _closing(self, capture: ShippedCapture) -> dict[str, object]:
        """Return the facts of the last event, from which a list shows finished jobs."""
        choice = capture.knowledge.axis.choose()
        x_axis = {"key": choice.key, "rule": choice.rule, "words": choice.words}
        account, identity = capture.progress.account, capture.identity
        times = {"started_ns": account.started_ns, **account.end_facts()}
        return {
            **_set_back(times, capture.progress.counts.ahead_ns),
            **{name: getattr(identity, name) for name in ("name", "account", "partition")},
            **({"nodes": account.nodes} if account.nodes else {}),
            "hosts": [self._host(capture)],
            "x_axis": {**x_axis, "path": list(printed_path(choice.path))},
        }


def _set_back(event: Json, ahead_ns: int) -> Json:
    """Set an event's own times back like the time with which it is sent."""
    if not ahead_ns:
        return event
    times = {name: event[name] - ahead_ns for name in ("started_ns", "ended_ns") if event.get(name)}
    return {**event, **times, "clock_ahead_secs": round(ahead_ns / 1e9, 3)}
