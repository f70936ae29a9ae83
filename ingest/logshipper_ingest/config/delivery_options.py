"""Options of delivery, common to all kinds of sinks."""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from logshipper_ingest.config.toml_section import Rules, Section, fill, split_named, within

SINK_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
SINK_NAME_FORM = "a small letter, then small letters, digits, `_`, `-`, at most 32"


class DeliveryOptions(Protocol):
    """Options of a sink's table, or fixed values for its kind."""

    @property
    def tenant_by(self) -> str:
        """ "user": a tenant for each user; "": one for all."""

    @property
    def batch_max_bytes(self) -> int:
        """Bytes of a push before compression."""

    @property
    def batch_wait_secs(self) -> float:
        """Longest wait of entries for others."""

    @property
    def stream_max_bytes_per_sec(self) -> int:
        """Rate of one stream, 0 for any."""

    @property
    def tenant_max_bytes_per_sec(self) -> int:
        """Rate of all streams of a tenant, 0 for any."""

    @property
    def max_line_bytes(self) -> int:
        """Longer lines are split."""

    @property
    def max_age_hours(self) -> float:
        """Age from which the server would refuse entries."""

    @property
    def retry_min_secs(self) -> float:
        """First pause between attempts."""

    @property
    def retry_max_secs(self) -> float:
        """Longest pause between attempts."""

    @property
    def settle_secs(self) -> float:
        """Pause from the first answer after an outage to the next push."""

    @property
    def heartbeat_secs(self) -> float:
        """Interval of a capture's heartbeats."""

    @property
    def quarantine_max_bytes(self) -> int:
        """Size of the quarantine on this node."""


class RetryOptions(Protocol):
    """Pauses between attempts."""

    @property
    def retry_min_secs(self) -> float: ...
    @property
    def retry_max_secs(self) -> float: ...


def retry_rules(options: RetryOptions) -> Rules:
    least, longest = options.retry_min_secs, options.retry_max_secs
    return {
        "retry_min_secs": (0 < least <= longest, "must be over 0, at most retry_max_secs"),
        "retry_max_secs": (longest <= 600, "must be at most 600"),
    }


def delivery_rules(options: DeliveryOptions) -> Rules:
    """Return the rules for options of all kinds."""
    return {
        **within(options, batch_max_bytes=(10_000, 10_000_000), batch_wait_secs=(0, 60)),
        **retry_rules(options),
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
