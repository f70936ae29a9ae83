"""What may go to Loki now: each stream's own allowance, and each tenant's pace. For several threads."""

import random
import threading
import time

from ingest.agent_config import LokiSection
from ingest.backoff import Allowance
from ingest.entries import StreamKey
from ingest.pace import Pace


class Rates:
    """section: [loki] of the agent's configuration."""

    def __init__(self, section: LokiSection) -> None:
        self._section = section
        self._lock = threading.Lock()
        self._allowances: dict[StreamKey, Allowance] = {}
        self._paces: dict[str, Pace] = {}

    def take(self, key: StreamKey, size: int, weight: int) -> float:
        """How many seconds to wait before a push to a stream may go; it counts as sent then. size: of its entries,
        encoded, 0 where they were sent before; weight: as Loki counts them against the tenant's rate."""
        now = time.monotonic()
        with self._lock:
            # above some 1.5 MB/s Loki splits a stream into shards, and the refusal of one is hidden by another's 204
            allowance = self._allowances.get(key) or Allowance.full(self._section.stream_max_bytes_per_sec, now)
            self._allowances[key], pause = allowance.take(size, now)
            self._paces[key.tenant], pause_of_all = self._pace(key.tenant).take(weight, now)
        return max(pause, pause_of_all)

    def taken(self, tenant: str, weight: int) -> None:
        """Loki has acknowledged a push."""
        with self._lock:
            self._paces[tenant] = self._pace(tenant).taken(weight)

    def refused(self, tenant: str, weight: int, begun: float) -> None:
        """The tenant's rate was exceeded by what was sent at begun (monotonic clock)."""
        jitter = random.random()  # noqa: S311
        with self._lock:
            self._paces[tenant] = self._pace(tenant).refused(weight, begun, time.monotonic(), jitter)

    def interrupted(self, tenant: str) -> None:
        """Loki hasn't been there for a while."""
        with self._lock:
            self._paces[tenant] = self._pace(tenant).interrupted(time.monotonic())

    def forget(self, tenants: set[str]) -> None:
        """But for these, and the one that has no name: users come and go."""
        with self._lock:
            self._paces = {tenant: pace for tenant, pace in self._paces.items() if not tenant or tenant in tenants}

    def batch_bytes(self, tenant: str) -> int:
        """Of a push, at most."""
        with self._lock:
            return self._pace(tenant).batch_bytes(self._section.batch_max_bytes)

    def round_bytes(self, tenant: str, most: int) -> int:
        """Of what is read for a tenant at a time, at most."""
        with self._lock:
            return self._pace(tenant).round_bytes(most)

    def _pace(self, tenant: str) -> Pace:
        return self._paces.get(tenant) or Pace.begin(self._section.tenant_max_bytes_per_sec, time.monotonic())
