"""What may go to Loki now: each stream's own allowance, and each tenant's pace. For several threads."""

import random
import threading
import time

from ingest.agent_config import LokiSection
from ingest.backoff import Allowance
from ingest.entries import Chunk, StreamKey
from ingest.pace import Pace


class Rates:
    """section: [loki] of the agent's configuration."""

    def __init__(self, section: LokiSection) -> None:
        self._section = section
        self._lock = threading.Lock()
        self._allowances: dict[StreamKey, Allowance] = {}
        self._paces: dict[str, Pace] = {}

    def take(self, part: list[Chunk], *, again: bool = False) -> float:
        """How many seconds to wait before chunks of one stream may go; they count as sent then. again: they were sent
        before, and refused for the tenant's rate."""
        key, now = part[0].key, time.monotonic()
        with self._lock:
            # above some 1.5 MB/s Loki splits a stream into shards, and the refusal of one is hidden by another's 204
            allowance = self._allowances.get(key) or Allowance.full(self._section.stream_max_bytes_per_sec, now)
            size = 0 if again else sum(chunk.size for chunk in part)
            self._allowances[key], pause = allowance.take(size, now)
            self._paces[key.tenant], pause_of_all = self._pace(key.tenant).take(_weight(part), now)
        return max(pause, pause_of_all)

    def taken(self, part: list[Chunk]) -> None:
        """Loki has acknowledged them."""
        with self._lock:
            tenant = part[0].key.tenant
            self._paces[tenant] = self._pace(tenant).taken(_weight(part))

    def refused(self, part: list[Chunk], begun: float) -> None:
        """The tenant's rate was exceeded by what was sent at begun (monotonic clock)."""
        with self._lock:
            tenant = part[0].key.tenant
            jitter = random.random()  # noqa: S311
            self._paces[tenant] = self._pace(tenant).refused(_weight(part), begun, time.monotonic(), jitter)

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


def _weight(part: list[Chunk]) -> int:
    return sum(chunk.weight for chunk in part)
