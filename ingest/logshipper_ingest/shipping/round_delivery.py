"""Delivery of a round's entries: several streams at the same time, each in order."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from logshipper.fault_points import fault_point
from logshipper_ingest.model.job import EVENT_KINDS
from logshipper_ingest.shipping.delivery import Delivery, StreamWaits, TenantWaits
from logshipper_ingest.shipping.entries import Chunk, StreamKey, batches
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.shipping.shares import RoundPauses

STREAMS_AT_ONCE = 8


class DeliveryReport(NamedTuple):
    """The result of delivering one or more streams."""

    refusals: list[Refusal]
    # without chunks that share a batch and a capture with a refused entry
    acknowledged_chunks: list[Chunk]


class AcknowledgedChunks:
    """Chunks that the sink acknowledged but no checkpoint covers, because their capture went back to
    its last one. The same agent does not send them again."""

    def __init__(self) -> None:
        self._digests: dict[str, set[bytes]] = {}  # by capture

    def __contains__(self, chunk: Chunk) -> bool:
        digests = self._digests.get(chunk.capture)
        return digests is not None and _digest(chunk) in digests

    def add(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self._digests.setdefault(chunk.capture, set()).add(_digest(chunk))

    def settle(self, capture: str, chunks: Iterable[Chunk], *, done: bool) -> None:
        """Forget a capture's committed chunks, but keep later ones from an earlier, larger share."""
        if capture in self._digests:
            self._digests[capture].difference_update(map(_digest, chunks))
            if done or not self._digests[capture]:
                del self._digests[capture]

    def keep(self, captures: Collection[str]) -> None:
        """Forget all other captures."""
        self._digests = {key: self._digests[key] for key in self._digests.keys() & captures}


def _digest(chunk: Chunk) -> bytes:
    """Identify a chunk within its capture, whether or not it goes to a replay stream."""
    where = "/".join((chunk.key.stream, chunk.key.kind, ""))
    return hashlib.blake2b(where.encode() + chunk.encoded(), digest_size=16).digest()


class RoundDelivery:
    """Delivers the streams of rounds to one sink."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._pool = ThreadPoolExecutor(STREAMS_AT_ONCE - 1, "ship")
        self.acknowledged = AcknowledgedChunks()

    def close(self) -> None:
        self._pool.shutdown()

    def deliver(
        self, streams: Mapping[StreamKey, list[Chunk]], pauses: RoundPauses, report: DeliveryReport
    ) -> int:
        """Deliver streams and add the results to the report. Return the number of streams that had
        entries to send.

        Skip paused streams, and add to `pauses` those that don't accept their entries. Events come
        last, without those of captures with entries in a paused stream: a reader who sees a
        capture's end must find all its lines. Raises the first other error.
        """
        lines = [
            chunks
            for key, chunks in streams.items()
            if chunks and key.kind not in EVENT_KINDS and not pauses.has(key)
        ]
        self._deliver_at_once(lines, pauses, report)
        blocked_captures = {
            chunk.capture for key in pauses.streams & streams.keys() for chunk in streams[key]
        }
        events = [
            [chunk for chunk in chunks if chunk.capture not in blocked_captures]
            for key, chunks in streams.items()
            if key.kind in EVENT_KINDS and not pauses.has(key)
        ]
        events = [chunks for chunks in events if chunks]
        self._deliver_at_once(events, pauses, report)
        return len(lines) + len(events)

    def _deliver_at_once(
        self, queues: Sequence[Sequence[Chunk]], pauses: RoundPauses, report: DeliveryReport
    ) -> None:
        # This thread takes one stream: waking another costs half as much as a push.
        tasks = [self._pool.submit(self._deliver_stream, chunks, pauses) for chunks in queues[1:]]
        own = [self._deliver_stream(chunks, pauses) for chunks in queues[:1]]
        for part in (*own, *(task.result() for task in tasks)):
            report.refusals.extend(part.refusals)
            report.acknowledged_chunks.extend(part.acknowledged_chunks)

    def _deliver_stream(self, chunks: Sequence[Chunk], pauses: RoundPauses) -> DeliveryReport:
        report = DeliveryReport([], [])
        key = chunks[0].key
        for whole_batch in batches(chunks, self._delivery.rates.batch_bytes(key.tenant)):
            if pauses.has(key):
                break
            # Batches split chunks, so parts of one may be acknowledged.
            batch = [chunk for chunk in whole_batch if chunk not in self.acknowledged]
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
