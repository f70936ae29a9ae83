"""Rates of one sink: each stream's allowance, and each tenant's pace. For several threads."""

import random
import threading
import time
from collections.abc import Collection

from logshipper_ingest.config.delivery_options import DeliveryOptions
from logshipper_ingest.servers.backoff import Allowance
from logshipper_ingest.shipping.entries import StreamKey
from logshipper_ingest.shipping.pace import Pace

# Loki splits a stream if its rate of the last second and the push together exceed 1.5 MiB
# (shard_streams: desired_rate). Then a part's 204 hides another part's refusal, and Loki may split a
# repeat otherwise. So rate, burst and push together stay below that.
STREAM_BURST = 1 / 4  # of stream_max_bytes_per_sec
LEAST_BATCH_BYTES = 10_000


class Rates:
    """The rates of one sink."""

    def __init__(self, options: DeliveryOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._allowances: dict[StreamKey, Allowance] = {}
        self._paces: dict[str, Pace] = {}

    def take(self, key: StreamKey, weight: int) -> float:
        """Return the seconds until a push to a stream may go, and count it as sent. Repeats count
        as well, since Loki counts them. weight: of its entries, as Loki counts them."""
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
        with self._lock:
            self._paces[tenant] = self._pace(tenant).after_push(weight)

    def note_refusal(self, tenant: str, weight: int, sent_at: float) -> None:
        """Note a 429 for a push sent at sent_at, by the monotonic clock."""
        jitter = random.random()  # noqa: S311
        with self._lock:
            self._paces[tenant] = self._pace(tenant).after_refusal(
                weight, sent_at, time.monotonic(), jitter
            )

    def note_outage(self, tenant: str) -> None:
        with self._lock:
            self._paces[tenant] = self._pace(tenant).after_outage(time.monotonic())

    def forget_others(self, tenants: Collection[str]) -> None:
        """Forget all other tenants: users come and go."""
        with self._lock:
            self._paces = {name: pace for name, pace in self._paces.items() if name in tenants}

    @property
    def _stream_burst(self) -> float:
        return self._options.stream_max_bytes_per_sec * STREAM_BURST

    def batch_bytes(self, tenant: str) -> int:
        """Return the maximum of a push."""
        max_bytes = self._options.batch_max_bytes
        if self._stream_burst:
            max_bytes = min(max_bytes, max(int(self._stream_burst), LEAST_BATCH_BYTES))
        with self._lock:
            return self._pace(tenant).batch_bytes(max_bytes)

    def round_bytes(self, tenant: str, max_bytes: int) -> int:
        """Return the maximum that a round reads for a tenant."""
        with self._lock:
            return self._pace(tenant).round_bytes(max_bytes)

    def _pace(self, tenant: str) -> Pace:
        return self._paces.get(tenant) or Pace.begin(
            self._options.tenant_max_bytes_per_sec, time.monotonic()
        )
