"""The shipper: brings what captures have spooled to Loki, in rounds: read, send, and only then
remember.

A round takes a share of each capture that has something, so that no job waits for another's flood;
its entries go stream by stream, the oldest first. When all of a round is acknowledged, or what Loki
refused for good lies in the quarantine, one transaction moves the positions. Whoever is killed
before that sends the same bytes again, which Loki drops as exact repeats. An error of our own goes
back to the last checkpoint; so do captures of a user whose tenant doesn't take them now, and those
with lines of a stream that Loki doesn't take, while the others' are remembered.

What is far behind its stream's newest entry goes to a replay stream. Which that is, is written down
before a round is sent (shipping/attempts.py), and kept to where it is sent again. Then what may
have been sent goes first, for a while: anything newer in the same stream would have Loki refuse it
there.

A tenant or stream that failed last is tried with a batch or so of one capture: what is taken counts
against its limits. For the same reason, what it took of a capture that went back isn't sent again
by the same agent; else a tenant that takes every second push might never take all streams of a
round.
"""

import hashlib
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from logshipper.errors import StoreError
from logshipper.fault_points import fault_point
from logshipper.spool.segment import Json
from logshipper_ingest.config.sink_config import Server, SinkConfig
from logshipper_ingest.config.tenants import tenant_of
from logshipper_ingest.console.seldom import Seldom
from logshipper_ingest.console.service_log import Kind, LogLine
from logshipper_ingest.metrics.agent_metrics import SinkMetrics
from logshipper_ingest.model.capture_account import EventRow, ReportRow, Rows
from logshipper_ingest.model.job import (
    EVENT_KINDS,
    HEARTBEAT,
    STARTED,
    STILL_RUNNING,
    STILL_RUNNING_SECS,
)
from logshipper_ingest.model.ranks import reported_documents
from logshipper_ingest.shipping.attempts import Attempts, End
from logshipper_ingest.shipping.delivery import Delivery, Stopped, StreamWaits, TenantWaits
from logshipper_ingest.shipping.entries import Chunk, EntryBuilder, StreamKey, batches, with_replay
from logshipper_ingest.shipping.followed_capture import in_turn
from logshipper_ingest.shipping.quarantine import Quarantine, Refusal
from logshipper_ingest.shipping.shares import RoundPauses, Shares
from logshipper_ingest.shipping.shipped_capture import ShippedCapture
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.learning import learn, own_fault
from logshipper_ingest.spool.segment_reader import FrameBatch, Outcome
from logshipper_ingest.state.checkpoints import Checkpoints

# so much needn't wait for more: pushes of it cost Loki no more than larger ones
FULL_ROUND_BYTES = 256 << 10
MANY_PUSHES = 10  # of a round: then what is little waits for more, or small pushes would be most
FEW_PUSHES = 3
LEAST_WAIT = 0.25  # of batch_wait_secs
LEAST_PAUSE_SECS = 0.05  # between two rounds
STREAMS_AT_ONCE = 8
MAX_AHEAD_NS = 10 * 60 * 10**9  # Loki refuses what is newer
BEFORE_BEGIN_NS = 3600 * 10**9  # how long before its directory was made a capture's lines may be
_IDENTITY_FIELDS = ("name", "user", "uid", "account", "partition")  # of an identity
REPLAY_AFTER_NS = 45 * 60 * 10**9  # behind the stream's newest entry; Loki takes an hour
RESEND_SECS = (
    60.0  # how long others wait, after a start or an error, for what may have been sent before
)


class _Piece(NamedTuple):
    """What a round has of one capture."""

    capture: ShippedCapture
    chunks: list[Chunk]
    done: bool  # to the capture's end
    again: bool  # it may have been sent before


class _DeliveryReport(NamedTuple):
    """What came of a stream, or of several. acknowledged_chunks: but for those next to refused
    entries of the same capture."""

    refusals: list[Refusal]
    acknowledged_chunks: list[Chunk]


class Shipper:
    """To one sink. quarantine, delivery, checkpoints: of that one. Not thread-safe: one thread's."""

    def __init__(
        self,
        config: SinkConfig[Server],
        checkpoints: Checkpoints,
        delivery: Delivery,
        quarantine: Quarantine,
        metrics: SinkMetrics,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._checkpoints = checkpoints
        self._delivery = delivery
        self._quarantine = quarantine
        self._metrics = metrics
        self._say = say
        self._newest = {
            StreamKey.from_text(text): time_ns for text, time_ns in checkpoints.streams().items()
        }
        self._attempts = Attempts(checkpoints)
        self._resend_until = time.monotonic() + RESEND_SECS
        self._pool = ThreadPoolExecutor(max(1, STREAMS_AT_ONCE - 1), "ship")
        self._turn = 0
        self.round_bytes = 0  # of spooled frames, in the last round
        self.round_streams = 0  # that the last round had something for: at least as many pushes
        # Of acknowledged chunks, by capture, of those that went back.
        self._digests: dict[str, set[bytes]] = {}
        # By capture: streams that didn't take its lines.
        self._blocked: dict[str, frozenset[StreamKey]] = {}

    def close(self) -> None:
        self._pool.shutdown()

    def round(self, captures: Sequence[ShippedCapture]) -> bool:
        """Ships a share of each; whether more waits already. Raises Stopped; StoreError, OSError
        and what a fault of our own brings out, after going back to the last checkpoint."""
        pieces: list[_Piece] = []
        touched: list[ShippedCapture] = []
        if self._digests or self._blocked:
            keys = {capture.folder.key for capture in captures}
            self._digests = {key: digests for key, digests in self._digests.items() if key in keys}
            self._blocked = {key: blocked for key, blocked in self._blocked.items() if key in keys}
        if time.monotonic() > self._resend_until:
            self._attempts.keep(capture.folder.key for capture in captures)
        try:
            more = self._read_share(captures, touched, pieces)
            if pieces:
                self._send(pieces)
        except Stopped:
            raise
        except BaseException:
            self._resend_first()
            for capture in touched:
                capture.stale = True  # and stays so where going back fails as well
            for capture in touched:
                capture.reload()
            raise
        return more

    # ---- reading

    def _read_share(
        self,
        captures: Sequence[ShippedCapture],
        touched: list[ShippedCapture],
        pieces: list[_Piece],
    ) -> bool:
        self.round_bytes, self.round_streams, more = 0, 0, False
        self._turn += 1
        candidates = [capture for capture in captures if capture.waits or self._end(capture)]
        self._delivery.want("captures", {self._tenant(capture) for capture in candidates})
        waiting_tenants = self._delivery.waiting_tenants()
        waiting_streams = self._delivery.waiting_streams()
        candidates = [
            capture
            for capture in candidates
            if self._tenant(capture) not in waiting_tenants
            and not self._blocked_by(capture) & waiting_streams
        ]
        candidates = self._resends_first(candidates)
        shares = Shares(self._delivery, Counter(map(self._tenant, candidates)))
        # First those that have waited the longest.
        candidates.sort(key=lambda capture: capture.served_turn)
        for capture in in_turn(candidates):
            if shares.is_full:
                return True
            tenant, blocked = self._tenant(capture), self._blocked_by(capture)
            share_bytes = shares.share(tenant, blocked)
            if not share_bytes:
                more = True
                continue
            capture.served_turn = self._turn
            touched.append(capture)
            if capture.stale:
                capture.reload()
            self._note_clock(capture)
            life, end = capture.life, self._end(capture)
            until = None if end is None or end.done else end.position
            try:
                alive = life is Life.LIVE
                batch, life = capture.pending_batch or (
                    capture.reader.read(share_bytes, alive=alive, until=until),
                    life,
                )
            except OSError as error:  # that capture's trouble; the others go on
                touched.pop()
                capture.reload()
                self._log_once(capture, str(error))
                continue
            capture.pending_batch = None
            ends = batch.outcome is Outcome.CLOSED or (
                batch.outcome is Outcome.CUT and life is Life.DEAD
            )
            if ends and not capture.learnt.done:
                # Its last event says what the learner has to know first.
                capture.pending_batch = batch, life
                continue
            self.round_bytes += batch.size
            more |= batch.outcome is Outcome.MORE
            has_advanced = end is not None and batch.position > capture.progress.position
            if batch.frames:
                capture.read_at = time.monotonic()
            sends = bool(batch.frames or batch.damages or ends or has_advanced or capture.is_silent)
            piece = (
                self._guarded_piece(capture, batch, life, again=end is not None) if sends else None
            )
            shares.note_read(tenant, blocked, batch.size, sends=piece is not None)
            if piece is not None:
                pieces.append(piece)
        return more

    def _blocked_by(self, capture: ShippedCapture) -> frozenset[StreamKey]:
        return self._blocked.get(capture.folder.key, frozenset())

    def _end(self, capture: ShippedCapture) -> End | None:
        """Up to where it may have been sent."""
        return self._attempts.end(capture.progress)

    def _resends_first(self, captures: list[ShippedCapture]) -> list[ShippedCapture]:
        """Without those that wait for what their tenant may have been sent; not for what this agent
        has tried and a stream didn't take: of that it knows what was sent."""
        if time.monotonic() > self._resend_until:
            return captures
        resends = {
            capture.folder.key
            for capture in captures
            if self._end(capture) and not self._blocked_by(capture)
        }
        tenants = {self._tenant(capture) for capture in captures if capture.folder.key in resends}
        return [
            capture
            for capture in captures
            if capture.folder.key in resends or self._tenant(capture) not in tenants
        ]

    def _resend_first(self) -> None:
        """For a while. Where errors follow each other, others have their turn as well."""
        now = time.monotonic()
        if now > self._resend_until + RESEND_SECS:
            self._resend_until = now + RESEND_SECS

    def _note_clock(self, capture: ShippedCapture) -> None:
        """Before anything of a capture is sent: where this node's clock is so far ahead that Loki
        would refuse its times, by how much they are set back. All of them, as they follow the
        monotonic clock; and noted first, so that what is sent again has the same times."""
        progress = capture.progress
        if progress.changed_ns:
            return
        ahead_ns = self._delivery.clock.ahead_ns()
        if ahead_ns:
            progress.counts.ahead_ns, progress.changed_ns = ahead_ns, time.time_ns()
            self._checkpoints.commit([progress], {})
            self._say(
                capture.capture.line(
                    f"this node's clock is {ahead_ns / 1e9:.0f} s ahead of Loki's, which would "
                    "refuse its times: they are set back; set the clock"
                )
            )

    def _log_once(self, capture: ShippedCapture, words: str) -> None:
        if capture.trouble != words:
            capture.trouble = words
            self._say(capture.capture.line(f"can't be read: {words}; tried again"))

    def _guarded_piece(
        self, capture: ShippedCapture, batch: FrameBatch, life: Life, *, again: bool
    ) -> _Piece | None:
        """None where the frames, which are hostile, have found a fault of ours, or what goes with
        them can't be read: the others go on."""
        try:
            return self._piece(capture, batch, life, again=again)
        except Exception as error:
            capture.reload()
            self._log_once(capture, str(error) if isinstance(error, OSError) else own_fault(error))
            return None

    def _piece(
        self, capture: ShippedCapture, batch: FrameBatch, life: Life, *, again: bool
    ) -> _Piece:
        account, rows = capture.progress.account, Rows()
        begin_ns = account.newest_ns
        # what the relay counts meanwhile would be other counts when the same frames are sent again
        learnt = learn(
            account, None, rows, batch, capture.folder, life, time.time_ns(), with_counters=False
        )
        if capture.is_silent:
            account.add_heartbeat_lost(rows)
        rows.marks = [done for mark in rows.marks for done in self._complete_marks(mark, capture)]
        if (
            capture.progress.counts.skipped and not capture.progress.counts.entries
        ):  # nothing else of it was sent yet
            rows.marks[:0] = self._late_begin(capture, begin_ns)
        if learnt.done:
            # nothing of it comes later
            closed_ns = max(account.newest_ns, account.started_ns, account.heartbeat_lost_ns) + 1
            rows.marks.append(EventRow(closed_ns, {"event": "closed", **self._last_words(capture)}))
            reports = reported_documents(capture.learnt.axis, over=True)
            rows.report = ReportRow(closed_ns, reports, final=True)
        else:
            rows.report = self._due_report(capture)
        if capture.entries is None:
            max_line_bytes = self._config.delivery.max_line_bytes
            ahead_ns = capture.progress.counts.ahead_ns
            capture.entries = EntryBuilder(
                capture.folder.key,
                capture.identity,
                max_line_bytes,
                self._tenant(capture),
                ahead_ns=ahead_ns,
            )
        capture.progress.position = batch.position
        chunks = [
            chunk for chunk in capture.entries.chunks(rows) if self._delivery.sink.takes(chunk.key)
        ]
        return _Piece(capture, chunks, learnt.done, again)

    def _complete_marks(self, mark: EventRow, capture: ShippedCapture) -> list[EventRow]:
        """A mark as it goes to Loki: with who it is, or where it ran; none for a heartbeat too many.
        With a heartbeat every STILL_RUNNING_SECS of the capture's own comes who it is once more, so
        that a list of jobs needs to look back no further."""
        kind, counts = mark.event["event"], capture.progress.counts
        mark = EventRow(mark.time_ns, _set_back(mark.event, counts.ahead_ns))
        if kind == STARTED:
            return [self._with_identity(mark, capture)]
        if kind == HEARTBEAT:
            if mark.time_ns - counts.heartbeat_ns < self._config.delivery.heartbeat_secs * 1e9:
                return []
            started_ns = capture.progress.account.started_ns
            newest_ns = max(counts.heartbeat_ns, started_ns)
            counts.heartbeat_ns = mark.time_ns
            periods = {
                (time_ns - started_ns) // (STILL_RUNNING_SECS * 10**9)
                for time_ns in (newest_ns, mark.time_ns)
            }
            if len(periods) == 1 or not started_ns:
                return [mark]
            facts = _set_back(capture.progress.account.start_facts(), counts.ahead_ns)
            del facts["mode"]  # it may be that of a later frame, or not where this is sent again
            running = EventRow(mark.time_ns, {"event": STILL_RUNNING, **facts})
            return [mark, self._with_identity(running, capture)]
        return [EventRow(mark.time_ns, {**mark.event, "hosts": [self._host(capture)]})]

    def _with_identity(self, mark: EventRow, capture: ShippedCapture) -> EventRow:
        fields = {name: getattr(capture.identity, name) for name in _IDENTITY_FIELDS}
        place = {"host": self._host(capture), "cluster": self._config.cluster}
        return EventRow(mark.time_ns, {**mark.event, **fields, **place})

    def _due_report(self, capture: ShippedCapture) -> ReportRow | None:
        """The newest report of its keys, where all records before it are sent: once, and no more
        of them than heartbeats."""
        report, progress = capture.capture.report, capture.progress
        earliest_ns = progress.counts.report_ns + int(self._config.delivery.heartbeat_secs * 1e9)
        if report is None or not earliest_ns <= report.time_ns <= progress.account.newest_ns:
            return None
        progress.counts.report_ns = report.time_ns
        return report

    def _late_begin(self, capture: ShippedCapture, time_ns: int) -> list[EventRow]:
        """The first marks for a Loki that was added in the midst of a capture, of which it gets the
        rest."""
        skipped = capture.progress.counts.skipped
        words = f"{skipped} lines before this were sent to others, before this Loki was added"
        started = EventRow(time_ns, {"event": STARTED, **capture.progress.account.start_facts()})
        added = EventRow(time_ns, {"event": "sink_added", "message": words, "lines": skipped})
        return [*self._complete_marks(started, capture), added]

    def _tenant(self, capture: ShippedCapture) -> str:
        return tenant_of(
            self._config.delivery.tenant_by, capture.identity.user, capture.identity.uid
        )

    def _host(self, capture: ShippedCapture) -> str:
        return capture.identity.host or self._config.host

    def _last_words(self, capture: ShippedCapture) -> dict[str, object]:
        choice = capture.learnt.axis.choose()
        x_axis = {
            "key": choice.key,
            "rule": choice.rule,
            "words": choice.words,
            "path": list(choice.path),
        }
        account, identity = capture.progress.account, capture.identity
        facts = {"started_ns": account.started_ns, **account.end_facts()}
        # so that a list of jobs that are over needs no other event
        who = {name: getattr(identity, name) for name in ("name", "account", "partition")}
        nodes = {"nodes": account.nodes} if account.nodes else {}
        facts = _set_back(facts, capture.progress.counts.ahead_ns)
        return {**facts, **who, **nodes, "hosts": [self._host(capture)], "x_axis": x_axis}

    # ---- sending

    def _send(self, pieces: Sequence[_Piece]) -> None:
        self._begin_attempt(pieces)
        streams = self._by_stream(
            chunk for piece in pieces for chunk in piece.chunks if not self._is_acknowledged(chunk)
        )
        pauses = RoundPauses(self._delivery.waiting_streams())
        refusals = self._remove_untimely(pieces, streams)
        report = self._deliver(streams, pauses)
        refusals += report.refusals
        late = [
            refusal
            for refusal in refusals
            if refusal.reason == "too_far_behind" and not refusal.chunk.key.replay
        ]
        if late:
            refusals = [
                refusal
                for refusal in refusals
                if refusal.reason != "too_far_behind" or refusal.chunk.key.replay
            ]
            replay_streams = self._by_stream(
                chunk for refusal in late for chunk in _replay_chunks(refusal)
            )
            replay_report = self._deliver(replay_streams, pauses)
            refusals += replay_report.refusals
            report.acknowledged_chunks.extend(replay_report.acknowledged_chunks)
            streams = {
                **streams,
                **{key: [*streams.get(key, ()), *chunks] for key, chunks in replay_streams.items()},
            }
        incomplete = self._incomplete(pieces, streams, pauses)
        if incomplete:
            self._remember(
                chunk for chunk in report.acknowledged_chunks if chunk.capture in incomplete
            )
            refusals = [refusal for refusal in refusals if refusal.chunk.capture not in incomplete]
            pieces = self._reload_incomplete(incomplete, pieces)
        try:
            dropped_count = self._quarantine.put(refusals)
            if refusals:
                fault_point("set_aside")
            fault_point("sent")
            self._commit(pieces, refusals, dropped_count)
        except (
            StoreError,
            OSError,
        ):  # a full disk: what is sent needn't be sent again when there is room
            self._remember(report.acknowledged_chunks)
            raise

    def _begin_attempt(self, pieces: Sequence[_Piece]) -> None:
        """Of the captures that have none."""
        ends = {
            piece.capture.folder.key: End(piece.capture.progress.position, piece.done)
            for piece in pieces
            if not piece.again
        }
        if any(piece.chunks for piece in pieces if not piece.again):
            newest = _newest_ns(pieces, time.time_ns() + MAX_AHEAD_NS)
            self._attempts.begin(
                ends, {key: max(newest[key], self._newest.get(key, 0)) for key in newest}
            )
            fault_point("attempt_noted")

    def _remember(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._digests.setdefault(chunk.capture, set()).add(_digest(chunk))

    def _forget_digests(self, piece: _Piece) -> None:
        """But for what lies behind the piece: a larger share was tried before."""
        key = piece.capture.folder.key
        if key in self._digests:
            self._digests[key] -= set(map(_digest, piece.chunks))
            if piece.done or not self._digests[key]:
                del self._digests[key]

    def _is_acknowledged(self, chunk: Chunk) -> bool:
        digests = self._digests.get(chunk.capture)
        return digests is not None and _digest(chunk) in digests

    def _incomplete(
        self, pieces: Sequence[_Piece], streams: dict[StreamKey, list[Chunk]], pauses: RoundPauses
    ) -> dict[str, frozenset[StreamKey]]:
        """Captures of which not all was sent, and the streams that didn't take theirs."""
        blocked: dict[str, set[StreamKey]] = defaultdict(set)
        for key in pauses.streams & streams.keys():
            for chunk in streams[key]:
                blocked[chunk.capture].add(key)
        for piece in pieces:
            if self._tenant(piece.capture) in pauses.tenants:
                blocked[piece.capture.folder.key] |= set()
        return {capture: frozenset(keys) for capture, keys in blocked.items()}

    def _reload_incomplete(
        self, incomplete: dict[str, frozenset[StreamKey]], pieces: Sequence[_Piece]
    ) -> list[_Piece]:
        """These captures go back to their last checkpoint; returns the others' pieces."""
        complete_pieces: list[_Piece] = []
        for piece in pieces:
            if piece.capture.folder.key in incomplete:
                if incomplete[piece.capture.folder.key]:
                    self._blocked[piece.capture.folder.key] = incomplete[piece.capture.folder.key]
                piece.capture.stale = True
                piece.capture.reload()
            else:
                complete_pieces.append(piece)
        return complete_pieces

    def _by_stream(self, chunks: Iterable[Chunk]) -> dict[StreamKey, list[Chunk]]:
        """By stream, the oldest first; what is far behind the newest entry that the stream has,
        with this round's, goes to a replay stream."""
        streams: dict[StreamKey, list[Chunk]] = {}
        for chunk in chunks:
            newest_ns = self._attempts.newest_ns(chunk.capture, chunk.key)
            for part in with_replay(chunk, newest_ns - REPLAY_AFTER_NS):
                streams.setdefault(part.key, []).append(part)
        for stream_chunks in streams.values():
            stream_chunks.sort(key=lambda chunk: chunk.times_ns[0])
        return streams

    def _remove_untimely(
        self, pieces: Sequence[_Piece], streams: dict[StreamKey, list[Chunk]]
    ) -> list[Refusal]:
        """Takes out what Loki would refuse for its time, and what is older than its own capture:
        forged times must not open streams by the hundred, or have Loki refuse line by line."""
        now_ns = self._delivery.clock.now_ns()
        hours = self._config.delivery.max_age_hours
        too_old = f"older than [{self._config.table}] max_age_hours, {hours:g}"
        oldest_ns = now_ns - int(hours * 3600e9)
        begins_ns = {
            piece.capture.folder.key: piece.capture.begun_ns
            - BEFORE_BEGIN_NS
            - piece.capture.progress.counts.ahead_ns
            for piece in pieces
        }
        refusals: list[Refusal] = []
        for key, chunks in streams.items():
            timely_chunks: list[Chunk] = []
            for chunk in chunks:
                begin_ns = begins_ns[chunk.capture]
                first = bisect_left(chunk.times_ns, max(oldest_ns, begin_ns))  # times rise
                last = bisect_right(chunk.times_ns, now_ns + MAX_AHEAD_NS)
                if first:
                    words = too_old if begin_ns < oldest_ns else "before its capture"
                    refusals.append(Refusal(chunk.slice(0, first), "too_old", 0, words))
                if last < len(chunk.lines):
                    late = chunk.slice(max(first, last), len(chunk.lines))
                    refusals.append(
                        Refusal(
                            late, "too_new", 0, "more than 10 minutes ahead of the node's clock"
                        )
                    )
                if first < last:
                    timely_chunks.append(
                        chunk.slice(first, last) if last - first < len(chunk.lines) else chunk
                    )
            streams[key] = timely_chunks
        return refusals

    def _deliver(
        self, streams: dict[StreamKey, list[Chunk]], pauses: RoundPauses
    ) -> _DeliveryReport:
        """Streams next to each other, the batches of each in order; events last: who reads of a
        capture's end finds all its lines. pauses: nothing more is sent to these; those that don't
        take theirs are added. Raises what the first of the others raises."""
        report = _DeliveryReport([], [])
        for events in (False, True):
            queues = [
                chunks
                for key, chunks in streams.items()
                if chunks and (key.kind in EVENT_KINDS) is events and not pauses.has(key)
            ]
            if events and pauses.streams:
                stuck_captures = {
                    chunk.capture
                    for key in pauses.streams & streams.keys()
                    for chunk in streams[key]
                }
                unblocked_queues = (
                    [chunk for chunk in chunks if chunk.capture not in stuck_captures]
                    for chunks in queues
                )
                queues = [chunks for chunks in unblocked_queues if chunks]
            self.round_streams += len(queues)
            # one of them here: to wake a thread costs as much as half a push
            count = 1 if STREAMS_AT_ONCE > 1 else len(queues)
            others = [
                self._pool.submit(self._deliver_stream, chunks, pauses) for chunks in queues[count:]
            ]
            own = [self._deliver_stream(chunks, pauses) for chunks in queues[:count]]
            for refusals, acknowledged_chunks in (*own, *(task.result() for task in others)):
                report.refusals.extend(refusals)
                report.acknowledged_chunks.extend(acknowledged_chunks)
        return report

    def _deliver_stream(self, chunks: Sequence[Chunk], pauses: RoundPauses) -> _DeliveryReport:
        report = _DeliveryReport([], [])
        key = chunks[0].key
        for whole_batch in batches(chunks, self._delivery.rates.batch_bytes(key.tenant)):
            if pauses.has(key):
                break
            # Parts of a chunk are told apart here.
            batch = [chunk for chunk in whole_batch if not self._is_acknowledged(chunk)]
            try:
                refusals = self._delivery.deliver(batch) if batch else []
            except TenantWaits:
                pauses.tenants.add(key.tenant)
                break
            except StreamWaits:
                pauses.streams.add(key)
                break
            report.refusals.extend(refusals)
            partial_captures = {refusal.chunk.capture for refusal in refusals}
            report.acknowledged_chunks.extend(
                chunk for chunk in batch if chunk.capture not in partial_captures
            )
            fault_point("pushed")
        return report

    def _report_refusals(self, refusals: Sequence[Refusal], dropped_count: int) -> None:
        reasons: Counter[str] = Counter()
        for refusal in refusals:
            reasons[refusal.reason] += len(refusal.chunk.lines)
        jobs = {refusal.chunk.common.pairs["job_id"] for refusal in refusals}
        about = {"job": min(jobs)} if len(jobs) == 1 else {}
        for reason, count in reasons.items():
            self._metrics.refused_entries.labels(reason).inc(count)
            words = next(refusal.words for refusal in refusals if refusal.reason == reason)
            self._say(
                LogLine(
                    f"{self._delivery.sink.kind} refuses {count} entries for good ({reason}), "
                    f"they are in the quarantine: {words}",
                    Kind.REFUSED,
                    **about,
                )
            )
        if dropped_count:
            self._metrics.left_out.labels("quarantine_full").inc(dropped_count)
            self._say(f"the quarantine is full: {dropped_count} refused entries are dropped")

    def _commit(
        self, pieces: Sequence[_Piece], refusals: Sequence[Refusal], dropped_count: int
    ) -> None:
        """dropped_count: of the refused entries, those that the quarantine had no room for."""
        now_ns = time.time_ns()
        newest = _newest_ns(pieces, now_ns + MAX_AHEAD_NS)
        by_folder = {piece.capture.folder.key: piece.capture.progress for piece in pieces}
        for piece in pieces:
            progress = piece.capture.progress
            progress.done = piece.done
            progress.changed_ns = now_ns
            for chunk in piece.chunks:
                counts, kind = progress.counts, chunk.key.kind
                counts.entries[kind] = counts.entries.get(kind, 0) + len(chunk.lines)
                counts.bytes += chunk.line_bytes
                counts.last_ns = max(counts.last_ns, chunk.times_ns[-1])
        for refusal in refusals:
            counts = by_folder[refusal.chunk.capture].counts
            count = len(refusal.chunk.lines)
            counts.entries[refusal.chunk.key.kind] -= count
            counts.refused[refusal.reason] = counts.refused.get(refusal.reason, 0) + count
        texts = {key.text: time_ns for key, time_ns in newest.items()}
        self._checkpoints.commit(by_folder.values(), texts)
        fault_point("committed")
        entry_counts = Counter[str]()  # counted only now: what isn't committed comes once more
        for chunk in (chunk for piece in pieces for chunk in piece.chunks):
            entry_counts[chunk.key.kind] += len(chunk.lines)
        for refusal in refusals:
            entry_counts[refusal.chunk.key.kind] -= len(refusal.chunk.lines)
        for kind, count in entry_counts.items():
            self._metrics.entries.labels(kind).inc(count)
        self._report_refusals(refusals, dropped_count)
        for key, time_ns in newest.items():
            self._newest[key] = max(self._newest.get(key, 0), time_ns)
        for piece in pieces:
            piece.capture.note_round()
            self._attempts.settle(piece.capture.progress)
            piece.capture.capture.remove_old_segments()
            fault_point("shipped_segments_removed")
            self._forget_digests(piece)
            self._blocked.pop(piece.capture.folder.key, None)


def _newest_ns(pieces: Iterable[_Piece], until_ns: int) -> dict[StreamKey, int]:
    """By stream, of what Loki takes."""
    newest: dict[StreamKey, int] = {}
    for piece in pieces:
        for chunk in piece.chunks:
            if chunk.times_ns[0] <= until_ns:
                newest[chunk.key] = max(newest.get(chunk.key, 0), min(chunk.times_ns[-1], until_ns))
    return newest


def _set_back(event: Json, ahead_ns: int) -> Json:
    """An event whose own words of times fit the time that it is sent with."""
    if not ahead_ns:
        return event
    times = {name: event[name] - ahead_ns for name in ("started_ns", "ended_ns") if event.get(name)}
    return {**event, **times, "clock_ahead_secs": round(ahead_ns / 1e9, 3)}


def _replay_chunks(refusal: Refusal) -> list[Chunk]:
    return with_replay(refusal.chunk, refusal.chunk.times_ns[-1] + 1)


def _digest(chunk: Chunk) -> bytes:
    """What tells a chunk apart from others of its capture, whichever stream it goes to as a
    replay."""
    where = "/".join((chunk.key.stream, chunk.key.kind, ""))
    return hashlib.blake2b(where.encode() + chunk.encoded(), digest_size=16).digest()


def wait_share(round_bytes: int, round_streams: int) -> float:
    """Of batch_wait_secs, how long what comes next may wait for company: not long after a round that
    was large, or took few pushes. So one job's lines are there soon, and a node's many streams
    make no flood of small pushes."""
    pushes = max(round_streams, FEW_PUSHES)
    return max(min(1 - round_bytes / FULL_ROUND_BYTES, pushes / MANY_PUSHES), LEAST_WAIT)


def ship_until(
    shipper: Shipper,
    captures: Callable[[], Sequence[ShippedCapture]],
    stop: threading.Event,
    wait_secs: float,
    say: Callable[[str], None],
    wake: threading.Event,
) -> None:
    """The shipper's thread: round after round, wait_secs apart at most where nothing is left over (see
    `wait_share`), and sooner once after a rest: a capture's first lines come right behind its start.

    wake: set when there is something to ship, and with stop; a look is due every wait_secs all the
    same.
    """
    trouble = Seldom(say)
    rest_secs = wait_secs  # that the next pause may be shorter
    due = time.monotonic()
    while not stop.is_set():
        wake.clear()
        begin = time.monotonic()
        rest_secs = min(rest_secs + begin - due, wait_secs)
        try:
            more = shipper.round(captures())
        except Stopped:
            return
        except Exception as error:  # one capture or a full disk must not stop all others for good
            words = str(error) if isinstance(error, StoreError) else repr(error)
            trouble.say(f"shipping failed, and is tried again from the last checkpoint: {words}")
            stop.wait(max(wait_secs, 1.0))
            continue
        trouble.is_over()
        if more:
            continue
        pause = 0.0
        if shipper.round_bytes:
            wait = wait_secs * wait_share(shipper.round_bytes, shipper.round_streams)
            pause = max(LEAST_PAUSE_SECS, wait - (time.monotonic() - begin))
            shorter = min(rest_secs, pause - LEAST_PAUSE_SECS)
            rest_secs -= shorter
            stop.wait(pause - shorter)
        due = time.monotonic()
        wake.wait(wait_secs)
