"""`[influxdb]` and `[influxdb.NAME]` of the node agent's configuration: where metadata records go
as points."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from logshipper_ingest.config.loki_section import MAX_LINE_BYTES, SINK_NAME, LokiSection
from logshipper_ingest.config.toml_section import broken, fill
from logshipper_ingest.servers.server_access import ServerAccess

INFLUXDB_SINK = "influxdb"  # what [influxdb] is called
_AGES = 24 * 3650.0  # hours: which times it takes its retention policy says
_MEASUREMENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_PLACE = re.compile(r"[^\x00-\x1f\x7f]{0,255}")


@dataclass(frozen=True)
class InfluxdbSection:
    """access: its url is where InfluxDB is, "" for nowhere; database, retention_policy: of the 1.x
    interface; org, bucket: of the 2.x one, which is taken where there is a bucket; measurement:
    that all points have; batch_max_bytes: of records in a request; batch_wait_secs: how long they
    may wait for others; retry_min_secs, retry_max_secs: pauses between tries; quarantine_max_bytes:
    of what InfluxDB refused for good, on this node."""

    access: ServerAccess = field(default_factory=ServerAccess)
    database: str = ""
    retention_policy: str = ""
    org: str = ""
    bucket: str = ""
    measurement: str = "logshipper"
    batch_max_bytes: int = 1_000_000
    batch_wait_secs: float = 0.8
    retry_min_secs: float = 0.5
    retry_max_secs: float = 30.0
    quarantine_max_bytes: int = 1 << 30

    def as_loki(self, name: str) -> LokiSection:
        """What the shipper has to know of any sink. InfluxDB has no rates, and takes lines as long
        as they come."""
        return LokiSection(
            access=self.access,
            name=name,
            batch_max_bytes=self.batch_max_bytes,
            batch_wait_secs=self.batch_wait_secs,
            stream_max_bytes_per_sec=0,
            tenant_max_bytes_per_sec=0,
            max_line_bytes=MAX_LINE_BYTES,
            max_age_hours=_AGES,
            retry_min_secs=self.retry_min_secs,
            retry_max_secs=self.retry_max_secs,
            settle_secs=0.0,
            quarantine_max_bytes=self.quarantine_max_bytes,
        )


def filled(tables: object, problems: list[str]) -> dict[str, InfluxdbSection]:
    """[influxdb] and those within it, by what they are called; none where nothing is said of
    them."""
    found: dict[str, InfluxdbSection] = {}
    if not isinstance(tables, Mapping):
        problems.append("[influxdb]: must be a table, with a line for each option")
        return found
    known = {option.name for of in (InfluxdbSection, ServerAccess) for option in fields(of)}
    further = {
        name: table
        for name, table in tables.items()
        if isinstance(table, Mapping) and name not in known
    }
    own = {name: value for name, value in tables.items() if name not in further}
    first = fill(InfluxdbSection, own, "influxdb", problems)
    if first != InfluxdbSection():
        found[INFLUXDB_SINK] = first
        problems += _problems(first, "influxdb")
    for name, table in further.items():
        section = fill(InfluxdbSection, table, f"influxdb.{name}", problems)
        found[name] = section
        problems += _problems(section, f"influxdb.{name}")
        if not SINK_NAME.fullmatch(name) or name == INFLUXDB_SINK:
            problems.append(
                f"[influxdb.{name}]: a small letter, then small letters, digits, `_`, `-`, at most 32; not `influxdb`"
            )
    return found


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
        "batch_max_bytes": (
            10_000 <= section.batch_max_bytes <= 10_000_000,
            "must be 10000 to 10000000",
        ),
        "batch_wait_secs": (0 <= section.batch_wait_secs <= 60, "must be 0 to 60"),
        "retry_min_secs": (
            0 < section.retry_min_secs <= section.retry_max_secs,
            "must be over 0, at most retry_max_secs",
        ),
        "retry_max_secs": (section.retry_max_secs <= 600, "must be at most 600"),
        "quarantine_max_bytes": (section.quarantine_max_bytes >= 0, "must not be negative"),
    }
    return broken(rules, table) + section.access.problems(table)
