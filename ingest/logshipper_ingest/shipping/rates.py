"""What may go to Loki now: each stream's own allowance, and each tenant's pace. For several
threads."""

import random
import threading
import time

from logshipper_ingest.config.delivery_options import DeliveryOptions
from logshipper_ingest.servers.backoff import Allowance
from logshipper_ingest.shipping.entries import StreamKey
from logshipper_ingest.shipping.pace import Pace

# Loki splits a stream where its rate of the last second and the push together exceed 1.5 MiB
# (shard_streams: desired_rate): then the refusal of one part is hidden by another's 204, and what
# is sent again may be split otherwise. So bursts and pushes are limited, too: rate, burst and push
# stay below that.
STREAM_BURST = 1 / 4  # of stream_max_bytes_per_sec
LEAST_BATCH_BYTES = 10_000


class Rates:
    """Of one sink."""

    def __init__(self, options: DeliveryOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._allowances: dict[StreamKey, Allowance] = {}
        self._paces: dict[str, Pace] = {}

    def take(self, key: StreamKey, weight: int) -> float:
        """How many seconds to wait before a push to a stream may go; it counts as sent then, also
        where it was sent before, as Loki counts what it has already, too. weight: of its entries,
        as Loki counts them."""
        now = time.monotonic()
        with self._lock:
            max_rate = self._options.stream_max_bytes_per_sec
            allowance = self._allowances.get(key) or Allowance.full(
                max_rate, self._stream_burst, now
            )
            self._allowances[key], pause = allowance.take(weight, now)
            self._paces[key.tenant], pause_of_all = self._pace(key.tenant).take(weight, now)
        return max(pause, pause_of_all)

    def note_push(self, tenant: str, weight: int) -> None:
        """Loki has acknowledged a push."""
        with self._lock:
            self._paces[tenant] = self._pace(tenant).after_push(weight)

    def note_refusal(self, tenant: str, weight: int, sent_at: float) -> None:
        """The tenant's rate was exceeded. sent_at: when that was sent, by the monotonic clock."""
        jitter = random.random()  # noqa: S311
        with self._lock:
            self._paces[tenant] = self._pace(tenant).after_refusal(
                weight, sent_at, time.monotonic(), jitter
            )

    def note_outage(self, tenant: str) -> None:
        """Loki has been away for a while."""
        with self._lock:
            self._paces[tenant] = self._pace(tenant).after_outage(time.monotonic())

    def forget(self, tenants: set[str]) -> None:
        """But for these, and the one that has no name: users come and go."""
        with self._lock:
            self._paces = {
                tenant: pace
                for tenant, pace in self._paces.items()
                if not tenant or tenant in tenants
            }

    @property
    def _stream_burst(self) -> float:
        return self._options.stream_max_bytes_per_sec * STREAM_BURST

    def batch_bytes(self, tenant: str) -> int:
        """Of a push, at most."""
        max_bytes = self._options.batch_max_bytes
        if self._stream_burst:
            max_bytes = min(max_bytes, max(int(self._stream_burst), LEAST_BATCH_BYTES))
        with self._lock:
            return self._pace(tenant).batch_bytes(max_bytes)

    def round_bytes(self, tenant: str, max_bytes: int) -> int:
        """Of what is read for a tenant at a time, at most."""
        with self._lock:
            return self._pace(tenant).round_bytes(max_bytes)

    def _pace(self, tenant: str) -> Pace:
        return self._paces.get(tenant) or Pace.begin(
            self._options.tenant_max_bytes_per_sec, time.monotonic()
        )
