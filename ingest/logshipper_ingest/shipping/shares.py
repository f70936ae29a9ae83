"""The shares of captures in a round of the shipper, and the pauses during a round."""

from collections import Counter

from logshipper_ingest.shipping.delivery import Delivery
from logshipper_ingest.shipping.entries import StreamKey

SHARE_BYTES = 512 << 10  # of a capture in a round; more if few captures have something
MAX_SHARE_BYTES = 4 << 20
LEAST_SHARE_BYTES = 16 << 10  # if Loki accepts little
# a delay of some seconds for others, at a stream's maximum rate
ROUND_BYTES = 4 << 20


class RoundPauses:
    """Tenants and single streams that accept nothing more in this round. Its threads share it."""

    def __init__(self, streams: set[StreamKey]) -> None:
        self.tenants: set[str] = set()
        self.streams = streams

    def has(self, key: StreamKey) -> bool:
        return key.tenant in self.tenants or key in self.streams


class Shares:
    """The bytes that a round may still read, by tenant; less of failing tenants and streams."""

    def __init__(self, delivery: Delivery, capture_counts: Counter[str]) -> None:
        """capture_counts: of captures with something to ship, by tenant."""
        self._rates = delivery.rates
        self._failing = delivery.failing()
        # failing ones with a try in this round
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
        """Return the bytes that a capture may read; 0 if it must wait for a later round."""
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
