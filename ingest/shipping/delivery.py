"""Sends the pieces of a round to Loki: stream by stream, each stream's oldest first, and what Loki would refuse for its
time not at all. What is far behind its stream's newest entry goes to a replay stream."""

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ingest.config.agent_config import AgentConfig
from ingest.shipping.attempts import Attempts
from ingest.shipping.entries import Chunk, StreamKey, batches, with_replay
from ingest.shipping.loki_sink import LokiSink, StreamWaits, TenantWaits
from ingest.shipping.pieces import Piece
from ingest.shipping.quarantine import Refusal
from ingest.shipping.shares import Held
from logshipper.fault_points import fault_point

STREAMS_AT_ONCE = 8
MAX_AHEAD_NS = 10 * 60 * 10**9  # Loki refuses what is newer
BEFORE_BEGIN_NS = 3600 * 10**9  # how long before its directory was made a capture's lines may be
REPLAY_AFTER_NS = 45 * 60 * 10**9  # behind the stream's newest entry; Loki takes an hour


class Sent(NamedTuple):
    """What came of pieces. taken: what is acknowledged, but for what was beside refused entries of the same capture;
    back: captures of which not all was sent, and the streams that didn't take theirs."""

    refusals: list[Refusal]
    taken: list[Chunk]
    back: dict[str, frozenset[StreamKey]]


class _Answers(NamedTuple):
    """As in Sent, of a stream or of several."""

    refusals: list[Refusal]
    taken: list[Chunk]

    def add(self, other: "_Answers") -> None:
        self.refusals.extend(other.refusals)
        self.taken.extend(other.taken)


class Delivery:
    """To one Loki, config's. sink, attempts: its own."""

    def __init__(self, config: AgentConfig, sink: LokiSink, attempts: Attempts) -> None:
        self._config = config
        self._sink = sink
        self._attempts = attempts
        self._pool = ThreadPoolExecutor(STREAMS_AT_ONCE, "ship")
        self._taken: dict[str, set[bytes]] = {}  # by capture, of those that went back

    def close(self) -> None:
        self._pool.shutdown()

    def send(self, pieces: Sequence[Piece]) -> Sent:
        """All of them but what was taken before. Raises what a sink raises that takes nothing from anybody."""
        streams = self._by_stream(chunk for piece in pieces for chunk in piece.chunks if not self._is_taken(chunk))
        held = Held(self._sink.waiting_streams())
        refusals = self._untimely(pieces, streams)
        answers = self._send_streams(streams, held)
        refusals += answers.refusals
        late = [refusal for refusal in refusals if refusal.reason == "too_far_behind" and not refusal.chunk.key.replay]
        if late:
            refusals = [one for one in refusals if one.reason != "too_far_behind" or one.chunk.key.replay]
            replayed = self._by_stream(chunk for refusal in late for chunk in _in_replay(refusal))
            again = self._send_streams(replayed, held)
            refusals += again.refusals
            answers.taken.extend(again.taken)
            streams = {**streams, **{key: [*streams.get(key, ()), *chunks] for key, chunks in replayed.items()}}
        return Sent(refusals, answers.taken, _gone_back(pieces, streams, held))

    @property
    def remembers(self) -> bool:
        """Whether anything was taken of captures that went back."""
        return bool(self._taken)

    def keep(self, captures: Container[str]) -> None:
        """Forgets what was taken of all others: they are gone."""
        self._taken = {key: taken for key, taken in self._taken.items() if key in captures}

    def remember(self, taken: Iterable[Chunk]) -> None:
        """These were taken of captures that go back, and aren't sent again."""
        for chunk in taken:
            self._taken.setdefault(chunk.capture, set()).add(_digest(chunk))

    def forget(self, piece: Piece) -> None:
        """But for what lies behind the piece: a larger share was tried before."""
        key = piece.capture.folder.key
        if key in self._taken:
            self._taken[key] -= set(map(_digest, piece.chunks))
            if piece.done or not self._taken[key]:
                del self._taken[key]

    def _is_taken(self, chunk: Chunk) -> bool:
        known = self._taken.get(chunk.capture)
        return known is not None and _digest(chunk) in known

    # ---- by stream

    def _by_stream(self, chunks: Iterable[Chunk]) -> dict[StreamKey, list[Chunk]]:
        """By stream, the oldest first; what is far behind the newest entry that the stream has, with this round's, goes
        to a replay stream."""
        streams: dict[StreamKey, list[Chunk]] = {}
        for chunk in chunks:
            newest_ns = self._attempts.newest_ns(chunk.capture, chunk.key)
            for part in with_replay(chunk, newest_ns - REPLAY_AFTER_NS):
                streams.setdefault(part.key, []).append(part)
        for of_stream in streams.values():
            of_stream.sort(key=lambda chunk: chunk.times_ns[0])
        return streams

    def _untimely(self, pieces: Sequence[Piece], streams: dict[StreamKey, list[Chunk]]) -> list[Refusal]:
        """Takes out what Loki would refuse for its time, and what is older than its own capture: forged times must not
        open streams by the hundred, or have Loki refuse line by line."""
        now_ns = self._sink.clock.now_ns()
        hours = self._config.loki.max_age_hours
        too_old = f"older than [{self._config.table}] max_age_hours, {hours:g}"
        oldest_ns = now_ns - int(hours * 3600e9)
        begun = {
            piece.capture.folder.key: piece.capture.begun_ns - BEFORE_BEGIN_NS - piece.capture.shipped.counts.ahead_ns
            for piece in pieces
        }
        refusals: list[Refusal] = []
        for key, chunks in streams.items():
            kept: list[Chunk] = []
            for chunk in chunks:
                own_ns = begun[chunk.capture]
                first = bisect_left(chunk.times_ns, max(oldest_ns, own_ns))  # times rise
                last = bisect_right(chunk.times_ns, now_ns + MAX_AHEAD_NS)
                if first:
                    words = too_old if own_ns < oldest_ns else "before its capture"
                    refusals.append(Refusal(chunk.slice(0, first), "too_old", 0, words))
                if last < len(chunk.lines):
                    late = chunk.slice(max(first, last), len(chunk.lines))
                    refusals.append(Refusal(late, "too_new", 0, "more than 10 minutes ahead of the node's clock"))
                if first < last:
                    kept.append(chunk.slice(first, last) if last - first < len(chunk.lines) else chunk)
            streams[key] = kept
        return refusals

    def _send_streams(self, streams: dict[StreamKey, list[Chunk]], held: Held) -> _Answers:
        """Streams beside each other, the batches of each in order; events last: who reads of a capture's end finds all
        its lines. held: nothing more is sent to these; those that don't take theirs are added. Raises what the first of
        the others raises."""
        answers = _Answers([], [])
        for events in (False, True):
            of_kind = [
                chunks
                for key, chunks in streams.items()
                if chunks and (key.kind == "event") is events and not held.has(key)
            ]
            if events and held.streams:
                stuck = {chunk.capture for key in held.streams & streams.keys() for chunk in streams[key]}
                kept = ([chunk for chunk in chunks if chunk.capture not in stuck] for chunks in of_kind)
                of_kind = [chunks for chunks in kept if chunks]
            tasks = [self._pool.submit(self._send_stream, chunks, held) for chunks in of_kind]
            for task in tasks:
                answers.add(task.result())
        return answers

    def _send_stream(self, chunks: Sequence[Chunk], held: Held) -> _Answers:
        answers = _Answers([], [])
        key = chunks[0].key
        for whole in batches(chunks, self._sink.rates.batch_bytes(key.tenant)):
            if held.has(key):
                break
            batch = [chunk for chunk in whole if not self._is_taken(chunk)]  # parts of a chunk are told apart here
            try:
                refusals = self._sink.deliver(batch) if batch else []
            except TenantWaits:
                held.tenants.add(key.tenant)
                break
            except StreamWaits:
                held.streams.add(key)
                break
            not_whole = {refusal.chunk.capture for refusal in refusals}
            answers.add(_Answers(refusals, [chunk for chunk in batch if chunk.capture not in not_whole]))
            fault_point("pushed")
        return answers


def _gone_back(
    pieces: Sequence[Piece], streams: Mapping[StreamKey, Iterable[Chunk]], held: Held
) -> dict[str, frozenset[StreamKey]]:
    blocked: dict[str, set[StreamKey]] = defaultdict(set)
    for key in held.streams & streams.keys():
        for chunk in streams[key]:
            blocked[chunk.capture].add(key)
    for piece in pieces:
        if piece.tenant in held.tenants:
            blocked[piece.capture.folder.key] |= set()
    return {capture: frozenset(keys) for capture, keys in blocked.items()}


def _in_replay(refusal: Refusal) -> list[Chunk]:
    return with_replay(refusal.chunk, refusal.chunk.times_ns[-1] + 1)


def _digest(chunk: Chunk) -> bytes:
    """What tells a chunk apart from others of its capture, whichever stream it goes to as a replay."""
    where = "/".join((chunk.key.stream, chunk.key.kind, ""))
    return hashlib.blake2b(where.encode() + chunk.encoded(), digest_size=16).digest()
