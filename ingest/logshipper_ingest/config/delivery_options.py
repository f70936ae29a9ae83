"""What shipping has to know of a server of any kind."""

from typing import Protocol


class DeliveryOptions(Protocol):
    """The options of its table, or what holds for all servers of its kind."""

    @property
    def tenant_by(self) -> str:
        """ "user": a tenant for each user; "": one for all."""

    @property
    def batch_max_bytes(self) -> int:
        """Of a push, before compression."""

    @property
    def batch_wait_secs(self) -> float:
        """How long entries may wait for others."""

    @property
    def stream_max_bytes_per_sec(self) -> int:
        """0: any."""

    @property
    def tenant_max_bytes_per_sec(self) -> int:
        """Of all streams of a tenant; 0: any."""

    @property
    def max_line_bytes(self) -> int:
        """Longer lines are split."""

    @property
    def max_age_hours(self) -> float:
        """The server would refuse older entries."""

    @property
    def retry_min_secs(self) -> float:
        """The first pause between tries."""

    @property
    def retry_max_secs(self) -> float:
        """The longest one."""

    @property
    def settle_secs(self) -> float:
        """From the server's first answer after it was away to the next push."""

    @property
    def heartbeat_secs(self) -> float:
        """Between two heartbeats of a capture."""

    @property
    def quarantine_max_bytes(self) -> int:
        """Of what the server refused for good, on this node."""


def delivery_rules(options: DeliveryOptions) -> dict[str, tuple[bool, str]]:
    """Of the options that all kinds have: whether each is right, and what is wrong with it if not
    (`toml_section.broken`)."""
    retry_min_secs, retry_max_secs = options.retry_min_secs, options.retry_max_secs
    return {
        "batch_max_bytes": (
            10_000 <= options.batch_max_bytes <= 10_000_000,
            "must be 10000 to 10000000",
        ),
        "batch_wait_secs": (0 <= options.batch_wait_secs <= 60, "must be 0 to 60"),
        "retry_min_secs": (
            0 < retry_min_secs <= retry_max_secs,
            "must be over 0, at most retry_max_secs",
        ),
        "retry_max_secs": (retry_max_secs <= 600, "must be at most 600"),
        "quarantine_max_bytes": (options.quarantine_max_bytes >= 0, "must not be negative"),
    }
