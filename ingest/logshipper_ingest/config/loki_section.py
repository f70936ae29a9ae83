"""`[loki]` and `[loki.NAME]` of the node agent's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from logshipper_ingest.config import delivery_options
from logshipper_ingest.config.tenants import NOBODYS, TENANT_BY
from logshipper_ingest.config.toml_section import (
    broken,
    fill,
    split_named,
    within,
    zero_or_at_least,
)

FIRST_SINK = "loki"  # default name of [loki]
MAX_SINKS = 8


@dataclass(frozen=True)
class LokiSection(delivery_options.DeliveryOptions):
    """A Loki and its delivery."""

    kind: ClassVar = "loki"

    name: str = ""  # the sink's name, "" for the default of the first
    tenant_by: str = ""  # "user": each job to a tenant called after its user; "": all to `tenant`
    # Of one stream, 0 for any: above some 1.5 MB/s Loki may hide refusals (docs/agent.md).
    stream_max_bytes_per_sec: int = 1_000_000
    # Of all streams of a tenant, as Loki counts them, 0 for any: where Loki takes less (429), the
    # agent finds out how much.
    tenant_max_bytes_per_sec: int = 4_000_000
    max_line_bytes: int = 256_000  # longer lines are split
    max_age_hours: float = 160.0  # Loki would refuse older entries
    settle_secs: float = 10.0  # from the first answer after an outage to the next push
    heartbeat_secs: float = 10.0  # between two heartbeats of a capture, in Loki


def fill_lokis(
    loki_table: object, problems: list[str]
) -> tuple[LokiSection, dict[str, LokiSection], list[str]]:
    """Return [loki], the sections [loki.NAME] by name, and problems with values. Problems with
    single options go to `problems`."""
    first_table, named_tables = split_named(LokiSection, loki_table)
    loki = fill(LokiSection, first_table, "loki", problems)
    named_lokis = {
        name: _for_nobody(_named_loki(loki, name, table, problems))
        for name, table in named_tables.items()
    }
    loki = _for_nobody(loki)
    loki_problems = _rules(loki, "loki") + loki.access.problems("loki")
    return loki, named_lokis, loki_problems + _named_problems(loki, named_lokis)


_INHERITED = {option.name for option in fields(LokiSection)} - {"access", "name"}


def _named_loki(
    first: LokiSection, name: str, table: Mapping[str, object], problems: list[str]
) -> LokiSection:
    """Fill a named section. It inherits rates, sizes, pauses and tenant_by from [loki], but no
    access: another server must not get the first one's credentials."""
    if "name" in table:
        problems.append(f"[loki.{name}] name: the table's own is the name")
    options = {option: value for option, value in table.items() if option != "name"}
    loki = fill(LokiSection, options, f"loki.{name}", problems)
    inherited = {option: getattr(first, option) for option in _INHERITED if option not in table}
    return replace(loki, name=name, **inherited)


def _for_nobody(loki: LokiSection) -> LokiSection:
    if not loki.tenant_by:
        return loki
    return replace(loki, access=replace(loki.access, tenant=loki.access.tenant or NOBODYS))


def _named_problems(first: LokiSection, named_lokis: Mapping[str, LokiSection]) -> list[str]:
    """Return the problems of a named section, without those of inherited values."""
    problems = []
    inherited = {problem.partition("] ")[2] for problem in _rules(first, "loki")}
    places = {(first.access.url.rstrip("/"), first.access.tenant): "loki"}
    for name, loki in named_lokis.items():
        table = f"loki.{name}"
        problems += [
            problem
            for problem in _rules(loki, table)
            if "] url:" in problem or problem.partition("] ")[2] not in inherited
        ]
        problems += loki.access.problems(table)
        if name == first.name:
            problems.append(f"[{table}]: is the name of [loki]; another name tells them apart")
        first_table = places.setdefault((loki.access.url.rstrip("/"), loki.access.tenant), table)
        if first_table != table and loki.access.url:
            problems.append(
                f"[{table}]: has url and tenant of [{first_table}]: all would be sent there twice"
            )
    if len(named_lokis) >= MAX_SINKS:
        problems.append(
            f"[loki]: {len(named_lokis)} tables more than itself, at most {MAX_SINKS - 1}"
        )
    return problems


def _rules(loki: LokiSection, table: str) -> list[str]:
    rules = {
        "name": (
            not loki.name
            or (bool(delivery_options.SINK_NAME.fullmatch(loki.name)) and loki.name != FIRST_SINK),
            f"{delivery_options.SINK_NAME_FORM}; not `{FIRST_SINK}`",
        ),
        "url": (
            bool(loki.access.url),
            "is missing: where Loki is, such as http://loki.example.org:3100",
        ),
        "tenant_by": (loki.tenant_by in TENANT_BY, 'must be "user", or "" for one tenant'),
        **delivery_options.delivery_rules(loki),
        **zero_or_at_least(loki, stream_max_bytes_per_sec=10_000, tenant_max_bytes_per_sec=100_000),
        **within(loki, max_line_bytes=(1000, delivery_options.MAX_LINE_BYTES)),
        "max_age_hours": (
            1 <= loki.max_age_hours <= 167,
            "must be 1 to 167: replay streams are distinguished for a week",
        ),
        **within(loki, settle_secs=(0, 600), heartbeat_secs=(5, 3600)),
    }
    return broken(rules, table)
