"""`[loki]` and `[loki.NAME]` of the node agent's configuration."""

import re
from dataclasses import dataclass, field

from logshipper_ingest.servers.server_access import ServerAccess

MAX_LINE_BYTES = 4 << 20
SINK_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)


@dataclass(frozen=True)
class LokiSection:
    """name: the sink's, "" for the first one's usual; tenant_by: "user" sends each job to a tenant
    that is called after its user, "" all to `tenant`; batch_max_bytes: of a push, before
    compression; batch_wait_secs: how long entries may wait for others; stream_max_bytes_per_sec: of
    one stream, 0 for any: above some 1.5 MB/s Loki may hide refusals (docs/agent.md);
    tenant_max_bytes_per_sec: of all streams of a tenant, as Loki counts them, 0 for any: where Loki
    takes less (429), the agent finds out how much; max_line_bytes: longer lines are split;
    max_age_hours: older entries Loki would refuse; retry_min_secs, retry_max_secs: pauses between
    tries; settle_secs: from Loki's first answer after it was away to the next push; heartbeat_secs:
    between two heartbeats of a capture, in Loki; quarantine_max_bytes: of what Loki refused for
    good, on this node."""

    access: ServerAccess = field(default_factory=ServerAccess)
    name: str = ""
    tenant_by: str = ""
    batch_max_bytes: int = 1_000_000
    batch_wait_secs: float = 0.8
    stream_max_bytes_per_sec: int = 1_000_000
    tenant_max_bytes_per_sec: int = 4_000_000
    max_line_bytes: int = 256_000
    max_age_hours: float = 160.0
    retry_min_secs: float = 0.5
    retry_max_secs: float = 30.0
    settle_secs: float = 10.0
    heartbeat_secs: float = 10.0
    quarantine_max_bytes: int = 1 << 30
