"""Options of delivery, common to all kinds of sinks."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from logshipper_ingest.config.toml_section import Rules, Section, fill, split_named, within
from logshipper_ingest.servers.server_access import ServerAccess

MAX_LINE_BYTES = 4 << 20
SINK_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
SINK_NAME_FORM = "a small letter, then small letters, digits, `_`, `-`, at most 32"


@dataclass(frozen=True)
class DeliveryOptions:
    """Options of a sink's table, whose values a kind of sinks may replace."""

    access: ServerAccess = field(default_factory=ServerAccess)
    batch_max_bytes: int = 1_000_000  # of a push, before compression
    batch_wait_secs: float = 0.8  # longest wait of entries for others
    retry_min_secs: float = 0.5  # first pause between attempts
    retry_max_secs: float = 30.0  # longest pause
    quarantine_max_bytes: int = 1 << 30  # size of the quarantine on this node

    @property
    def tenant_by(self) -> str:
        """ "user": a tenant for each user; "": one for all."""
        return ""

    @property
    def stream_max_bytes_per_sec(self) -> int:
        """Rate of one stream, 0 for any."""
        return 0

    @property
    def tenant_max_bytes_per_sec(self) -> int:
        """Rate of all streams of a tenant, 0 for any."""
        return 0

    @property
    def max_line_bytes(self) -> int:
        """Longer lines are split."""
        return MAX_LINE_BYTES

    @property
    def max_age_hours(self) -> float:
        """Age from which the server would refuse entries."""
        return 24 * 3650.0

    @property
    def settle_secs(self) -> float:
        """Pause from the first answer after an outage to the next push."""
        return 0.0

    @property
    def heartbeat_secs(self) -> float:
        """Interval of a capture's heartbeats."""
        return 10.0


def retry_rules(min_secs: float, max_secs: float) -> Rules:
    """Return the rules for the pauses between attempts."""
    return {
        "retry_min_secs": (0 < min_secs <= max_secs, "must be over 0, at most retry_max_secs"),
        "retry_max_secs": (max_secs <= 600, "must be at most 600"),
    }


def delivery_rules(options: DeliveryOptions) -> Rules:
    """Return the rules for options of all kinds."""
    return {
        **within(options, batch_max_bytes=(10_000, 10_000_000), batch_wait_secs=(0, 60)),
        **retry_rules(options.retry_min_secs, options.retry_max_secs),
        "quarantine_max_bytes": (options.quarantine_max_bytes >= 0, "must not be negative"),
    }


def fill_servers(
    cls: type[Section],
    tables: object,
    kind: str,
    problems_of: Callable[[Section, str], list[str]],
    problems: list[str],
) -> dict[str, Section]:
    """Return the sections [KIND] and [KIND.NAME] by name; they inherit nothing. problems_of:
    returns the problems of a section with its table's name."""
    sections: dict[str, Section] = {}
    if not isinstance(tables, Mapping):
        problems.append(f"[{kind}]: must be a table, with a line for each option")
        return sections
    first_table, named_tables = split_named(cls, tables)
    first = fill(cls, first_table, kind, problems)
    if first != cls():
        sections[kind] = first
        problems += problems_of(first, kind)
    for name, table in named_tables.items():
        heading = f"{kind}.{name}"
        sections[name] = fill(cls, table, heading, problems)
        problems += problems_of(sections[name], heading)
        if not SINK_NAME.fullmatch(name) or name == kind:
            problems.append(f"[{heading}]: {SINK_NAME_FORM}; not `{kind}`")
    return sections
