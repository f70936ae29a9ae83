"""`[influxdb]` and `[influxdb.NAME]` of the node agent's configuration: where metadata records go
as points."""

import re
from dataclasses import dataclass, field
from typing import ClassVar

from logshipper_ingest.config.delivery_options import delivery_rules, fill_servers
from logshipper_ingest.config.loki_section import MAX_LINE_BYTES
from logshipper_ingest.config.toml_section import broken
from logshipper_ingest.servers.server_access import ServerAccess

INFLUXDB_SINK = "influxdb"  # what [influxdb] is called
_MEASUREMENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_PLACE = re.compile(r"[^\x00-\x1f\x7f]{0,255}")


@dataclass(frozen=True)
class InfluxdbSection:
    """An InfluxDB, and how it is shipped to. Of what holds for any: it has neither tenants nor
    rates, and takes lines as long as they come; which times it takes its retention policy says."""

    kind: ClassVar = "influxdb"
    tenant_by: ClassVar = ""
    stream_max_bytes_per_sec: ClassVar = 0
    tenant_max_bytes_per_sec: ClassVar = 0
    max_line_bytes: ClassVar = MAX_LINE_BYTES
    max_age_hours: ClassVar = 24 * 3650.0
    settle_secs: ClassVar = 0.0
    heartbeat_secs: ClassVar = 10.0

    access: ServerAccess = field(default_factory=ServerAccess)
    database: str = ""  # of the 1.x interface, as is retention_policy
    retention_policy: str = ""
    # Of the 2.x interface, as is bucket; the one that is used where there is a bucket.
    org: str = ""
    bucket: str = ""
    measurement: str = "logshipper"  # of all points
    # whether what jobs sent as measurements is written as it was sent, too
    measurements: bool = False
    batch_max_bytes: int = 1_000_000  # of records in a request
    batch_wait_secs: float = 0.8  # how long records may wait for others
    retry_min_secs: float = 0.5  # the first pause between tries
    retry_max_secs: float = 30.0  # the longest one
    quarantine_max_bytes: int = 1 << 30  # of what InfluxDB refused for good, on this node


def fill_influxdbs(tables: object, problems: list[str]) -> dict[str, InfluxdbSection]:
    """[influxdb] and those within it, by what they are called; none where the file has
    none."""
    return fill_servers(InfluxdbSection, tables, INFLUXDB_SINK, _problems, problems)


def _problems(section: InfluxdbSection, table: str) -> list[str]:
    places = (section.database, section.retention_policy, section.org, section.bucket)
    rules = {
        "url": (
            bool(section.access.url),
            "is missing: where InfluxDB is, such as http://influxdb.example.org:8086",
        ),
        "database": (
            bool(section.database) != bool(section.bucket),
            "either database (1.x), or org and bucket (2.x), says where points go",
        ),
        "retention_policy": (
            not section.retention_policy or bool(section.database),
            "belongs to database",
        ),
        "org": (not section.org or bool(section.bucket), "belongs to bucket"),
        "bucket ": (not section.bucket or bool(section.org), "belongs to org"),
        "bucket": (
            all(map(_PLACE.fullmatch, places)),
            "names have at most 255 characters, none of control",
        ),
        "measurement": (
            bool(_MEASUREMENT.fullmatch(section.measurement)),
            "a letter, then letters, digits, `_`, `.`, `-`, at most 64",
        ),
        "tenant": (not section.access.tenant, "InfluxDB has none"),
        **delivery_rules(section),
    }
    return broken(rules, table) + section.access.problems(table)
