"""`[influxdb]` and `[influxdb.NAME]` of the node agent's configuration: sinks for metadata
records as points."""

import re
from dataclasses import dataclass
from typing import ClassVar

from logshipper_ingest.config.delivery_options import DeliveryOptions, delivery_rules, fill_servers
from logshipper_ingest.config.toml_section import broken

INFLUXDB_SINK = "influxdb"  # name of [influxdb]
_MEASUREMENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_PLACE = re.compile(r"[^\x00-\x1f\x7f]{0,255}")


@dataclass(frozen=True)
class InfluxdbSection(DeliveryOptions):
    """An InfluxDB and its delivery. It has no tenants, rates or limits of lines. Its retention
    policy decides about old times."""

    kind: ClassVar = "influxdb"

    database: str = ""  # of the 1.x interface, like retention_policy
    retention_policy: str = ""  # of the database
    # Of the 2.x interface, like bucket. A bucket selects this interface.
    org: str = ""
    bucket: str = ""  # of the organisation
    measurement: str = "logshipper"  # of all points
    # also write jobs' measurements in their original form
    measurements: bool = False


def fill_influxdbs(tables: object, problems: list[str]) -> dict[str, InfluxdbSection]:
    """Return the sections [influxdb] and [influxdb.NAME] by name."""
    return fill_servers(InfluxdbSection, tables, INFLUXDB_SINK, _problems, problems)


def _problems(section: InfluxdbSection, table: str) -> list[str]:
    places = (section.database, section.retention_policy, section.org, section.bucket)
    is_named = bool(_MEASUREMENT.fullmatch(section.measurement))
    is_short = all(map(_PLACE.fullmatch, places))
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
        "bucket": (is_short, "names have at most 255 characters, none of control"),
        "measurement": (is_named, "a letter, then letters, digits, `_`, `.`, `-`, at most 64"),
        "tenant": (not section.access.tenant, "InfluxDB has none"),
        **delivery_rules(section),
    }
    return broken(rules, table) + section.access.problems(table)
