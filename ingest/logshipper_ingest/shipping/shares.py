"""What a round of the shipper reads of each capture, and whom it doesn't send to any more."""

from collections import Counter

from logshipper_ingest.shipping.delivery import Delivery
from logshipper_ingest.shipping.entries import StreamKey

SHARE_BYTES = 512 << 10  # of a capture in a round; more where few have something
MAX_SHARE_BYTES = 4 << 20
LEAST_SHARE_BYTES = 16 << 10  # where Loki takes little
# what others may have to wait for: some seconds, at the rate that a stream may have
ROUND_BYTES = 4 << 20


class RoundPauses:
    """Tenants and single streams that take nothing more in this round. Shared by its threads."""

    def __init__(self, streams: set[StreamKey]) -> None:
        self.tenants: set[str] = set()
        self.streams = streams

    def has(self, key: StreamKey) -> bool:
        return key.tenant in self.tenants or key in self.streams


class Shares:
    """What a round may still read, by tenant and for those that failed last. capture_counts:
    of captures that have something, by tenant."""

    def __init__(self, delivery: Delivery, capture_counts: Counter[str]) -> None:
        self._rates = delivery.rates
        self._failing = delivery.failing_tenants() | delivery.failing_streams()
        # Failing ones that have had a try in this round.
        self._tries: set[str | StreamKey] = set()
        self._size = 0
        self._room = {
            tenant: delivery.rates.round_bytes(tenant, ROUND_BYTES) for tenant in capture_counts
        }
        usual_share = max(SHARE_BYTES, ROUND_BYTES // max(sum(capture_counts.values()), 1))
        self._max_shares = {
            tenant: min(
                usual_share
                if room == ROUND_BYTES
                else max(room // capture_counts[tenant], LEAST_SHARE_BYTES),
                MAX_SHARE_BYTES,
            )
            for tenant, room in self._room.items()
        }

    @property
    def is_full(self) -> bool:
        return self._size >= ROUND_BYTES

    def share(self, tenant: str, blocked: frozenset[StreamKey]) -> int:
        """Of a capture, in bytes; 0 where it is another's turn."""
        failing = self._failing & {tenant, *blocked}
        if failing & self._tries or self._room[tenant] <= 0:
            return 0
        max_share = self._max_shares[tenant]
        return min(max_share, self._rates.batch_bytes(tenant)) if failing else max_share

    def note_read(
        self, tenant: str, blocked: frozenset[StreamKey], size: int, *, sends: bool
    ) -> None:
        self._size += size
        self._room[tenant] -= size
        if sends:
            self._tries |= self._failing & {tenant, *blocked}
