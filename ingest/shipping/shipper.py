"""The shipper: brings what captures have spooled to Loki, in rounds: read, send, and only then remember.

A round takes a share of each capture that has something, so that no job waits for another's flood; its entries go
stream by stream, the oldest first. When all of a round is acknowledged, or what Loki refused for good lies in the
quarantine, one transaction moves the positions. Whoever is killed before that sends the same bytes again, which Loki
drops as exact repeats. An error of our own goes back to the last checkpoint; so do captures of a user whose tenant
doesn't take them now, and those with lines of a stream that Loki doesn't take, while the others' are remembered.

What is far behind its stream's newest entry goes to a replay stream. Which that is, is written down before a round is
sent (ingest/shipping/attempts.py), and kept to where it is sent again. Then what may have been sent goes first, for a
while: anything newer in the same stream would have Loki refuse it there.

A tenant or stream that failed last is tried with a batch or so of one capture: what is taken counts against its limits.
For the same reason, what it took of a capture that went back isn't sent again by the same agent; else a tenant that
takes every second push might never take all streams of a round.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ingest.capture.capture_folder import Life
from ingest.capture.followed_capture import in_turn
from ingest.capture.learning import own_fault
from ingest.capture.segment_reader import Batch, Outcome
from ingest.config.agent_config import AgentConfig
from ingest.metrics.metrics_server import SinkMetrics
from ingest.shipping.attempts import Attempts, End
from ingest.shipping.checkpoints import Checkpoints
from ingest.shipping.delivery import MAX_AHEAD_NS, Delivery
from ingest.shipping.entries import StreamKey
from ingest.shipping.loki_sink import LokiSink, Stopped
from ingest.shipping.pieces import Piece, PieceMaker
from ingest.shipping.quarantine import Quarantine, Refusal
from ingest.shipping.seldom import Seldom
from ingest.shipping.shares import Shares
from ingest.shipping.shipped_capture import ShippedCapture
from logshipper.errors import StoreError
from logshipper.fault_points import fault_point

FULL_ROUND_BYTES = 256 << 10  # so much needn't wait for more: pushes of it cost Loki no more than larger ones
LEAST_PAUSE_SECS = 0.05  # between two rounds
RESEND_SECS = 60.0  # how long others wait, after a start or an error, for what may have been sent before


class Shipper:
    """To one Loki, config's. quarantine, sink, checkpoints: its own. Not thread-safe: one thread's."""

    def __init__(
        self,
        config: AgentConfig,
        checkpoints: Checkpoints,
        sink: LokiSink,
        quarantine: Quarantine,
        metrics: SinkMetrics,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._checkpoints = checkpoints
        self._sink = sink
        self._quarantine = quarantine
        self._metrics = metrics
        self._say = say
        self._newest = {StreamKey.from_text(text): time_ns for text, time_ns in checkpoints.streams().items()}
        self._attempts = Attempts(checkpoints)
        self._resend_until = time.monotonic() + RESEND_SECS
        self._maker = PieceMaker(config, sink)
        self._delivery = Delivery(config, sink, self._attempts)
        self._turn = 0
        self.round_bytes = 0  # of spooled frames, in the last round
        self._blocked: dict[str, frozenset[StreamKey]] = {}  # by capture: streams that didn't take its lines

    def close(self) -> None:
        self._delivery.close()

    def round(self, captures: Sequence[ShippedCapture]) -> bool:
        """Ships a share of each; whether more waits already. Raises Stopped; StoreError, OSError and what a fault of
        our own brings out, after going back to the last checkpoint."""
        pieces: list[Piece] = []
        touched: list[ShippedCapture] = []
        if self._delivery.remembers or self._blocked:
            there = {capture.folder.key for capture in captures}
            self._delivery.keep(there)
            self._blocked = {key: blocked for key, blocked in self._blocked.items() if key in there}
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
        self, captures: Sequence[ShippedCapture], touched: list[ShippedCapture], pieces: list[Piece]
    ) -> bool:
        self.round_bytes, more = 0, False
        self._turn += 1
        tenant_of = self._maker.tenant
        waiting = [capture for capture in captures if capture.waits or self._end(capture)]
        self._sink.want("captures", {tenant_of(capture) for capture in waiting})
        held, streams = self._sink.waiting_tenants(), self._sink.waiting_streams()
        waiting = [one for one in waiting if tenant_of(one) not in held and not self._blocked_by(one) & streams]
        waiting = self._first_again(waiting)
        shares = Shares(self._sink, Counter(map(tenant_of, waiting)))
        waiting.sort(key=lambda capture: capture.served_turn)  # first those that have waited the longest
        for capture in in_turn(waiting):
            if shares.is_full:
                return True
            tenant, blocked = tenant_of(capture), self._blocked_by(capture)
            most = shares.share(tenant, blocked)
            if not most:
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
                batch, life = capture.held or (capture.reader.read(most, alive=alive, until=until), life)
            except OSError as error:  # that capture's trouble; the others go on
                touched.pop()
                capture.reload()
                self._tell_once(capture, str(error))
                continue
            capture.held = None
            ends = batch.outcome is Outcome.CLOSED or (batch.outcome is Outcome.CUT and life is Life.DEAD)
            if ends and not capture.learnt.done:
                capture.held = batch, life  # its last event tells what the learner has to know first
                continue
            self.round_bytes += batch.size
            more |= batch.outcome is Outcome.MORE
            moved = end is not None and batch.position > capture.shipped.position
            if batch.frames:
                capture.read_at = time.monotonic()
            sends = bool(batch.frames or batch.damages or ends or moved or capture.is_silent)
            piece = self._guarded_piece(capture, batch, life, again=end is not None) if sends else None
            shares.took(tenant, blocked, batch.size, sends=piece is not None)
            if piece is not None:
                pieces.append(piece)
        return more

    def _blocked_by(self, capture: ShippedCapture) -> frozenset[StreamKey]:
        return self._blocked.get(capture.folder.key, frozenset())

    def _end(self, capture: ShippedCapture) -> End | None:
        """Up to where it may have been sent."""
        return self._attempts.end(capture.shipped)

    def _first_again(self, waiting: list[ShippedCapture]) -> list[ShippedCapture]:
        """Without those that wait for what their tenant may have been sent; not for what this agent has tried and a
        stream didn't take: of that it knows what was sent."""
        if time.monotonic() > self._resend_until:
            return waiting
        begun = {one.folder.key for one in waiting if self._end(one) and not self._blocked_by(one)}
        tenants = {self._maker.tenant(capture) for capture in waiting if capture.folder.key in begun}
        return [one for one in waiting if one.folder.key in begun or self._maker.tenant(one) not in tenants]

    def _resend_first(self) -> None:
        """For a while. Where errors follow each other, others have their turn as well."""
        now = time.monotonic()
        if now > self._resend_until + RESEND_SECS:
            self._resend_until = now + RESEND_SECS

    def _note_clock(self, capture: ShippedCapture) -> None:
        """Before anything of a capture is sent: where this node's clock is so far ahead that Loki would refuse its
        times, by how much they are set back. All of them, as they follow the monotonic clock; and noted first, so that
        what is sent again has the same times."""
        shipped = capture.shipped
        if shipped.changed_ns:
            return
        ahead_ns = self._sink.clock.ahead_ns()
        if ahead_ns:
            shipped.counts.ahead_ns, shipped.changed_ns = ahead_ns, time.time_ns()
            self._checkpoints.commit([shipped], {})
            self._say(
                f"{capture.folder.path}: this node's clock is {ahead_ns / 1e9:.0f} s ahead of Loki's, which would "
                "refuse its times: they are set back; set the clock"
            )

    def _tell_once(self, capture: ShippedCapture, words: str) -> None:
        if capture.trouble != words:
            capture.trouble = words
            self._say(f"{capture.folder.path}: can't be read: {words}; tried again")

    def _guarded_piece(self, capture: ShippedCapture, batch: Batch, life: Life, *, again: bool) -> Piece | None:
        """None where the frames, which are hostile, have found a fault of ours: the others go on."""
        try:
            return self._maker.piece(capture, batch, life, again=again)
        except Exception as error:
            capture.reload()
            self._tell_once(capture, own_fault(error))
            return None

    # ---- sending

    def _send(self, pieces: Sequence[Piece]) -> None:
        self._begin_attempt(pieces)
        sent = self._delivery.send(pieces)
        refusals = sent.refusals
        if sent.back:
            self._delivery.remember(chunk for chunk in sent.taken if chunk.capture in sent.back)
            refusals = [one for one in refusals if one.chunk.capture not in sent.back]
            pieces = self._without(sent.back, pieces)
        try:
            if refusals:
                self._put_aside(refusals)
            fault_point("sent")
            self._commit(pieces, refusals)
        except (StoreError, OSError):  # a full disk: what is sent needn't be sent again when there is room
            self._delivery.remember(sent.taken)
            raise

    def _begin_attempt(self, pieces: Sequence[Piece]) -> None:
        """Of the captures that have none."""
        ends = {
            piece.capture.folder.key: End(piece.capture.shipped.position, piece.done)
            for piece in pieces
            if not piece.again
        }
        if any(piece.chunks for piece in pieces if not piece.again):
            newest = _newest_ns(pieces, time.time_ns() + MAX_AHEAD_NS)
            self._attempts.begin(ends, {key: max(newest[key], self._newest.get(key, 0)) for key in newest})
            fault_point("attempt_noted")

    def _without(self, back: dict[str, frozenset[StreamKey]], pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces of other captures than these, which go back to their last checkpoint."""
        kept: list[Piece] = []
        for piece in pieces:
            if piece.capture.folder.key in back:
                if back[piece.capture.folder.key]:
                    self._blocked[piece.capture.folder.key] = back[piece.capture.folder.key]
                piece.capture.stale = True
                piece.capture.reload()
            else:
                kept.append(piece)
        return kept

    def _put_aside(self, refusals: list[Refusal]) -> None:
        dropped = self._quarantine.put(refusals)
        fault_point("set_aside")
        reasons: Counter[str] = Counter()
        for refusal in refusals:
            reasons[refusal.reason] += len(refusal.chunk.lines)
        for reason, count in reasons.items():
            self._metrics.refused_entries.labels(reason).inc(count)
            words = next(refusal.words for refusal in refusals if refusal.reason == reason)
            self._say(
                f"{self._sink.server} refuses {count} entries for good ({reason}), they are in the quarantine: {words}"
            )
        if dropped:
            self._metrics.left_out.labels("quarantine_full").inc(dropped)
            self._say(f"the quarantine is full: {dropped} refused entries are dropped")

    def _commit(self, pieces: Sequence[Piece], refusals: Sequence[Refusal]) -> None:
        now_ns = time.time_ns()
        newest = _newest_ns(pieces, now_ns + MAX_AHEAD_NS)
        by_folder = {piece.capture.folder.key: piece.capture.shipped for piece in pieces}
        for piece in pieces:
            shipped = piece.capture.shipped
            shipped.done = piece.done
            shipped.changed_ns = now_ns
            for chunk in piece.chunks:
                counts, kind = shipped.counts, chunk.key.kind
                counts.entries[kind] = counts.entries.get(kind, 0) + len(chunk.lines)
                counts.bytes += chunk.line_bytes
                counts.last_ns = max(counts.last_ns, chunk.times_ns[-1])
                self._metrics.entries.labels(kind).inc(len(chunk.lines))
        for refusal in refusals:
            counts = by_folder[refusal.chunk.capture].counts
            count = len(refusal.chunk.lines)
            counts.entries[refusal.chunk.key.kind] -= count
            counts.refused[refusal.reason] = counts.refused.get(refusal.reason, 0) + count
        texts = {key.text: time_ns for key, time_ns in newest.items()}
        self._checkpoints.commit(by_folder.values(), texts)
        fault_point("committed")
        for key, time_ns in newest.items():
            self._newest[key] = max(self._newest.get(key, 0), time_ns)
        for piece in pieces:
            piece.capture.noted_shipped()
            self._attempts.settle(piece.capture.shipped)
            piece.capture.capture.remove_old_segments()
            fault_point("shipped_segments_removed")
            self._delivery.forget(piece)
            self._blocked.pop(piece.capture.folder.key, None)


def _newest_ns(pieces: Iterable[Piece], taken_until_ns: int) -> dict[StreamKey, int]:
    """By stream, of what Loki takes."""
    newest: dict[StreamKey, int] = {}
    for piece in pieces:
        for chunk in piece.chunks:
            if chunk.times_ns[0] <= taken_until_ns:
                newest[chunk.key] = max(newest.get(chunk.key, 0), min(chunk.times_ns[-1], taken_until_ns))
    return newest


def ship_until(
    shipper: Shipper,
    captures: Callable[[], Sequence[ShippedCapture]],
    stop: threading.Event,
    wait_secs: float,
    say: Callable[[str], None],
    wake: threading.Event,
) -> None:
    """The shipper's thread: round after round, wait_secs apart where nothing is left over, sooner after large ones, and
    once after a rest: a capture's first lines come right behind its start.

    wake: set when there is something to ship, and with stop; a look is due every wait_secs all the same.
    """
    trouble = Seldom(say)
    rested = wait_secs  # that the next pause may be shorter
    due = time.monotonic()
    while not stop.is_set():
        wake.clear()
        begin = time.monotonic()
        rested = min(rested + begin - due, wait_secs)
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
            share = max(1 - shipper.round_bytes / FULL_ROUND_BYTES, 0.25)
            pause = max(LEAST_PAUSE_SECS, wait_secs * share - (time.monotonic() - begin))
            shorter = min(rested, pause - LEAST_PAUSE_SECS)
            rested -= shorter
            stop.wait(pause - shorter)
        due = time.monotonic()
        wake.wait(wait_secs)
