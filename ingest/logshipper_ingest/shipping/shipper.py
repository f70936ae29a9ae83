"""The shipper: sends the entries of captures to one sink, in rounds of reading, sending and
committing.

A round takes a share of each capture, so that no job waits for another's flood, and sends it stream
by stream, the oldest entries first. After the sink has acknowledged everything, or the quarantine
holds the refused entries, one transaction moves the positions, if possible the one that notes the
next round. An agent that dies before that sends the same bytes again, and Loki drops exact repeats.
An internal error makes all captures of the round go back to their last checkpoint. Captures also go
back alone, if their user's tenant or one of their streams accepts nothing now, while others commit.

Entries far behind their stream's newest one go to a replay stream. The shipper writes this decision
down before it sends a round (shipping/attempts.py), so that a repeated round goes to the same
streams. Repeats go first, for a while: Loki would refuse them behind anything newer in their stream.

After a failure, the next try for a tenant or stream is about one batch of one capture, because
accepted entries count against its limits. For the same reason, an agent does not repeat acknowledged
entries of a capture that went back. Otherwise a tenant that accepts every second push might never
accept all streams of a round.
"""

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from logshipper.errors import StoreError
from logshipper.fault_points import fault_point
from logshipper_ingest.config.sink_config import Server, SinkConfig
from logshipper_ingest.config.tenants import tenant_of
from logshipper_ingest.console.service_log import Kind, LogLine
from logshipper_ingest.metrics.agent_metrics import SinkMetrics
from logshipper_ingest.shipping.attempts import Attempts, End
from logshipper_ingest.shipping.capture_pieces import Piece, PieceBuilder
from logshipper_ingest.shipping.delivery import Delivery, Stopped
from logshipper_ingest.shipping.entries import Chunk, StreamKey, with_replay
from logshipper_ingest.shipping.followed_capture import ShippedCapture, in_turn
from logshipper_ingest.shipping.quarantine import Quarantine, Refusal
from logshipper_ingest.shipping.round_delivery import DeliveryReport, RoundDelivery
from logshipper_ingest.shipping.shares import RoundPauses, Shares
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.learning import describe_fault
from logshipper_ingest.spool.segment_reader import FrameBatch, Outcome
from logshipper_ingest.state.checkpoints import Checkpoints

MAX_AHEAD_NS = 10 * 60 * 10**9  # Loki refuses newer entries
BEFORE_BEGIN_NS = 3600 * 10**9  # by which lines may be older than their capture's directory
REPLAY_AFTER_NS = 45 * 60 * 10**9  # behind the stream's newest entry; Loki accepts an hour
RESEND_SECS = 60.0  # after a start or an error, during which repeats go before other entries


class Shipper:
    """The shipper to one sink; one thread's."""

    def __init__(
        self,
        config: SinkConfig[Server],
        checkpoints: Checkpoints,
        delivery: Delivery,
        quarantine: Quarantine,
        metrics: SinkMetrics,
        log: Callable[[str], None],
    ) -> None:
        self._config = config
        self._checkpoints = checkpoints
        self._delivery = delivery
        self._quarantine = quarantine
        self._metrics = metrics
        self._log = log
        streams = checkpoints.streams().items()
        self._newest = {StreamKey.from_text(text): time_ns for text, time_ns in streams}
        self._attempts = Attempts(checkpoints)
        self._resend_until = time.monotonic() + RESEND_SECS
        self._pieces = PieceBuilder(config, delivery.sink)
        self._round_delivery = RoundDelivery(delivery)
        self._acknowledged = self._round_delivery.acknowledged
        self._turn = 0
        self.round_bytes = 0  # of spooled frames, in the last round
        self.round_streams = 0  # with entries in the last round, so at least as many pushes
        # by capture: streams that did not accept its lines
        self._blocked: dict[str, frozenset[StreamKey]] = {}

    def close(self) -> None:
        self._round_delivery.close()

    def round(self, captures: Sequence[ShippedCapture]) -> bool:
        """Ship a share of each capture; return whether more waits already. Raises Stopped. After
        going back to the last checkpoint, raises StoreError, OSError and internal errors."""
        pieces: list[Piece] = []
        touched: list[ShippedCapture] = []
        keys = {capture.folder.key for capture in captures}
        self._acknowledged.keep(keys)
        self._blocked = {key: self._blocked[key] for key in self._blocked.keys() & keys}
        if time.monotonic() > self._resend_until:
            self._attempts.keep(keys)
        try:
            more = self._read_share(captures, touched, pieces)
            if pieces:
                self._send(pieces)
            else:
                self._checkpoints.flush()
        except Stopped:
            raise
        except BaseException:
            self._resend_first()
            for capture in touched:
                capture.stale = True  # and stays so if going back fails as well
            for capture in touched:
                capture.reload()
            raise
        return more

    # ---- reading

    def _read_share(
        self, captures: Sequence[ShippedCapture], touched: list[ShippedCapture], pieces: list[Piece]
    ) -> bool:
        self.round_bytes, self.round_streams, more = 0, 0, False
        self._turn += 1
        candidates = self._candidates(captures)
        shares = Shares(self._delivery, Counter(map(self._tenant, candidates)))
        for capture in in_turn(candidates):
            if shares.is_full:
                return True
            tenant = self._tenant(capture)
            blocked = self._blocked.get(capture.folder.key, frozenset())
            share_bytes = shares.share(tenant, blocked)
            if not share_bytes:
                more = True
                continue
            capture.served_turn = self._turn
            touched.append(capture)
            if capture.stale:
                capture.reload()
            self._note_clock(capture)
            end = self._end(capture)
            try:
                batch, life = capture.pending_batch or self._read(capture, share_bytes, end)
            except OSError as error:  # the others go on
                touched.pop()
                capture.reload()
                self._log_once(capture, str(error))
                continue
            capture.pending_batch = None
            ends = batch.outcome is Outcome.CLOSED or (
                batch.outcome is Outcome.CUT and life is Life.DEAD
            )
            if ends and not capture.knowledge.done:
                # Its last event needs the learner's results.
                capture.pending_batch = batch, life
                continue
            self.round_bytes += batch.size
            more |= batch.outcome is Outcome.MORE
            has_advanced = end is not None and batch.position > capture.progress.position
            if batch.frames:
                capture.read_at = time.monotonic()
            piece = None
            if batch.frames or batch.damages or ends or has_advanced or capture.is_silent:
                piece = self._guarded_piece(capture, batch, life, tenant, again=end is not None)
            shares.note_read(tenant, blocked, batch.size, sends=piece is not None)
            if piece is not None:
                pieces.append(piece)
        return more

    def _read(
        self, capture: ShippedCapture, share_bytes: int, end: End | None
    ) -> tuple[FrameBatch, Life]:
        life = capture.life  # before the read
        until = None if end is None or end.done else end.position
        return capture.reader.read(share_bytes, alive=life is Life.LIVE, until=until), life

    def _candidates(self, captures: Sequence[ShippedCapture]) -> list[ShippedCapture]:
        """Return the captures that may be sent now, those with the longest wait first."""
        candidates = [capture for capture in captures if capture.waits or self._end(capture)]
        self._delivery.want("captures", set(map(self._tenant, candidates)))
        waiting_tenants = self._delivery.waiting_tenants()
        waiting_streams = self._delivery.waiting_streams()
        candidates = [
            capture
            for capture in candidates
            if self._tenant(capture) not in waiting_tenants
            and waiting_streams.isdisjoint(self._blocked.get(capture.folder.key, ()))
        ]
        if time.monotonic() <= self._resend_until:
            # Repeats first. A blocked capture isn't one: this agent knows which entries it sent.
            repeats = [
                capture
                for capture in candidates
                if self._end(capture) and capture.folder.key not in self._blocked
            ]
            tenants = set(map(self._tenant, repeats))
            candidates = repeats + [
                capture for capture in candidates if self._tenant(capture) not in tenants
            ]
        return sorted(candidates, key=lambda capture: capture.served_turn)

    def _end(self, capture: ShippedCapture) -> End | None:
        """Return the end of a possible earlier try."""
        return self._attempts.end(capture.progress)

    def _resend_first(self) -> None:
        """Resend first for RESEND_SECS, then let other captures proceed even if errors continue."""
        now = time.monotonic()
        if now > self._resend_until + RESEND_SECS:
            self._resend_until = now + RESEND_SECS

    def _note_clock(self, capture: ShippedCapture) -> None:
        """Before a capture's first piece, note whether this node's clock is so far ahead that Loki
        would refuse its times. Then all its times are set back, since they follow the monotonic
        clock. The note comes first, so that repeats have the same times."""
        progress = capture.progress
        if progress.changed_ns:
            return
        ahead_ns = self._delivery.clock.ahead_ns()
        if ahead_ns:
            progress.counts.ahead_ns, progress.changed_ns = ahead_ns, time.time_ns()
            self._checkpoints.commit([progress], {})
            words = f"this node's clock is {ahead_ns / 1e9:.0f} s ahead of Loki's, which would"
            words += " refuse its times: the agent sets them back; set the clock"
            self._log(capture.capture.line(words))

    def _log_once(self, capture: ShippedCapture, words: str) -> None:
        if capture.trouble != words:
            capture.trouble = words
            self._log(capture.capture.line(f"can't be read: {words}; the agent retries"))

    def _guarded_piece(
        self, capture: ShippedCapture, batch: FrameBatch, life: Life, tenant: str, *, again: bool
    ) -> Piece | None:
        """Build a piece; return None if a read fails, or if hostile frames have found a fault of
        logshipper. The other captures go on."""
        try:
            return self._pieces.build(capture, batch, life, tenant, again=again)
        except Exception as error:
            capture.reload()
            words = str(error) if isinstance(error, OSError) else describe_fault(error)
            self._log_once(capture, words)
            return None

    def _tenant(self, capture: ShippedCapture) -> str:
        return tenant_of(
            self._config.delivery.tenant_by, capture.identity.user, capture.identity.uid
        )

    # ---- sending

    def _send(self, pieces: Sequence[Piece]) -> None:
        self._begin_attempt(pieces)
        streams = self._by_stream(
            chunk for piece in pieces for chunk in piece.chunks if chunk not in self._acknowledged
        )
        pauses = RoundPauses(self._delivery.waiting_streams())
        report = DeliveryReport(self._remove_untimely(pieces, streams), [])
        self.round_streams += self._round_delivery.deliver(streams, pauses, report)
        late = [refusal for refusal in report.refusals if refusal.is_behind]
        if late:
            report.refusals[:] = [refusal for refusal in report.refusals if not refusal.is_behind]
            replay_streams = self._by_stream(
                chunk
                for refusal in late
                for chunk in with_replay(refusal.chunk, refusal.chunk.times_ns[-1] + 1)
            )
            self.round_streams += self._round_delivery.deliver(replay_streams, pauses, report)
            for key, chunks in replay_streams.items():
                streams.setdefault(key, []).extend(chunks)
        refusals = report.refusals
        incomplete = self._incomplete(pieces, streams, pauses)
        if incomplete:
            self._acknowledged.add(
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
        except (StoreError, OSError):  # a full disk: don't repeat acknowledged entries afterwards
            self._acknowledged.add(report.acknowledged_chunks)
            raise

    def _begin_attempt(self, pieces: Sequence[Piece]) -> None:
        """Write down this try for all captures without an earlier one."""
        ends = {
            piece.capture.folder.key: End(piece.capture.progress.position, piece.done)
            for piece in pieces
            if not piece.again
        }
        if any(piece.chunks for piece in pieces if not piece.again):
            newest = _newest_ns(pieces, time.time_ns() + MAX_AHEAD_NS)
            newest = {key: max(at_ns, self._newest.get(key, 0)) for key, at_ns in newest.items()}
            self._attempts.begin(ends, newest)
            fault_point("attempt_noted")

    def _incomplete(
        self, pieces: Sequence[Piece], streams: dict[StreamKey, list[Chunk]], pauses: RoundPauses
    ) -> dict[str, frozenset[StreamKey]]:
        """Return captures with unsent entries, and the streams that did not accept these."""
        blocked: dict[str, set[StreamKey]] = defaultdict(set)
        for key in pauses.streams & streams.keys():
            for chunk in streams[key]:
                blocked[chunk.capture].add(key)
        for piece in pieces:
            if self._tenant(piece.capture) in pauses.tenants:
                blocked[piece.capture.folder.key] |= set()
        return {capture: frozenset(keys) for capture, keys in blocked.items()}

    def _reload_incomplete(
        self, incomplete: dict[str, frozenset[StreamKey]], pieces: Sequence[Piece]
    ) -> list[Piece]:
        """Make captures go back to their last checkpoint; return the others' pieces."""
        self._blocked |= {capture: streams for capture, streams in incomplete.items() if streams}
        for piece in pieces:
            if piece.capture.folder.key in incomplete:
                piece.capture.stale = True
                piece.capture.reload()
        return [piece for piece in pieces if piece.capture.folder.key not in incomplete]

    def _by_stream(self, chunks: Iterable[Chunk]) -> dict[StreamKey, list[Chunk]]:
        """Sort chunks by stream, the oldest first. Entries far behind the newest one of their
        stream and this round go to a replay stream."""
        streams: dict[StreamKey, list[Chunk]] = {}
        for chunk in chunks:
            newest_ns = self._attempts.newest_ns(chunk.capture, chunk.key)
            for part in with_replay(chunk, newest_ns - REPLAY_AFTER_NS):
                streams.setdefault(part.key, []).append(part)
        for stream_chunks in streams.values():
            stream_chunks.sort(key=lambda chunk: chunk.times_ns[0])
        return streams

    def _remove_untimely(
        self, pieces: Sequence[Piece], streams: dict[StreamKey, list[Chunk]]
    ) -> list[Refusal]:
        """Remove entries that Loki would refuse for their time, and entries older than their
        capture: forged times must not open hundreds of streams, or cause a refusal per line."""
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
                    words = "more than 10 minutes ahead of the node's clock"
                    refusals.append(Refusal(late, "too_new", 0, words))
                if first < last:
                    is_whole = last - first == len(chunk.lines)
                    timely_chunks.append(chunk if is_whole else chunk.slice(first, last))
            streams[key] = timely_chunks
        return refusals

    def _report_refusals(self, refusals: Sequence[Refusal], dropped_count: int) -> None:
        reasons: Counter[str] = Counter()
        for refusal in refusals:
            reasons[refusal.reason] += len(refusal.chunk.lines)
        jobs = {refusal.chunk.common.pairs["job_id"] for refusal in refusals}
        about = {"job": min(jobs)} if len(jobs) == 1 else {}
        for reason, count in reasons.items():
            self._metrics.refused_entries.labels(reason).inc(count)
            words = next(refusal.words for refusal in refusals if refusal.reason == reason)
            kind = self._delivery.sink.kind
            line = f"{kind} refused {count} entries for good ({reason}); the quarantine has them"
            self._log(LogLine(f"{line}: {words}", Kind.REFUSED, **about))
        if dropped_count:
            self._metrics.left_out.labels("quarantine_full").inc(dropped_count)
            self._log(f"the quarantine is full: the agent dropped {dropped_count} refused entries")

    def _commit(
        self, pieces: Sequence[Piece], refusals: Sequence[Refusal], dropped_count: int
    ) -> None:
        """Store positions and counts. dropped_count: refused entries that the quarantine dropped."""
        now_ns = time.time_ns()
        newest = _newest_ns(pieces, now_ns + MAX_AHEAD_NS)
        by_folder = {piece.capture.folder.key: piece.capture.progress for piece in pieces}
        entry_counts = Counter[str]()
        for piece in pieces:
            progress = piece.capture.progress
            progress.done = piece.done
            progress.changed_ns = now_ns
            for chunk in piece.chunks:
                counts, kind = progress.counts, chunk.key.kind
                counts.entries[kind] = counts.entries.get(kind, 0) + len(chunk.lines)
                entry_counts[kind] += len(chunk.lines)
                counts.bytes += chunk.line_bytes
                counts.last_ns = max(counts.last_ns, chunk.times_ns[-1])
        for refusal in refusals:
            counts = by_folder[refusal.chunk.capture].counts
            kind, count = refusal.chunk.key.kind, len(refusal.chunk.lines)
            counts.entries[kind] -= count
            entry_counts[kind] -= count
            counts.refused[refusal.reason] = counts.refused.get(refusal.reason, 0) + count
        texts = {key.text: time_ns for key, time_ns in newest.items()}
        must_last = refusals or any(piece.done or piece.capture.frees_segments for piece in pieces)
        self._checkpoints.commit(by_folder.values(), texts, later=not must_last)
        fault_point("committed")
        for kind, count in entry_counts.items():  # only now: entries without a commit come again
            self._metrics.entries.labels(kind).inc(count)
        self._report_refusals(refusals, dropped_count)
        for key, time_ns in newest.items():
            self._newest[key] = max(self._newest.get(key, 0), time_ns)
        for piece in pieces:
            capture = piece.capture
            capture.note_round()
            self._attempts.settle(capture.progress)
            capture.capture.remove_old_segments()
            fault_point("shipped_segments_removed")
            self._acknowledged.settle(capture.folder.key, piece.chunks, done=piece.done)
            self._blocked.pop(capture.folder.key, None)


def _newest_ns(pieces: Iterable[Piece], until_ns: int) -> dict[StreamKey, int]:
    """Return the newest time by stream, of entries that Loki accepts."""
    newest: dict[StreamKey, int] = {}
    for piece in pieces:
        for chunk in piece.chunks:
            if chunk.times_ns[0] <= until_ns:
                newest[chunk.key] = max(newest.get(chunk.key, 0), min(chunk.times_ns[-1], until_ns))
    return newest
