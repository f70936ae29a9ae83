"""`[telegraf]` of the node agent's configuration: the listener for measurements."""

import re
from dataclasses import dataclass

from logshipper_ingest.config.toml_section import broken, socket_rules, within

_LOOPBACK = re.compile(r"(127(?:\.[0-9]{1,3}){3}):([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True)
class TelegrafSection:
    """The listener for measurements."""

    enabled: bool = False  # accept measurements
    # Address and port, UDP and TCP. Only on loopback can the agent identify the sender.
    listen: str = "127.0.0.1:8092"
    socket: str = ""  # of a Unix datagram socket, "" for none
    max_lines_per_sec: int = 20_000  # of all
    # Stored text of unidentified senders, 0 for none.
    unidentified_max_bytes: int = 0

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host, int(port)

    def problems(self) -> list[str]:
        """Return a sentence for each problem."""
        match = _LOOPBACK.fullmatch(self.listen)
        fits = (
            match is not None
            and int(match[2]) < 65536
            and all(int(part) < 256 for part in match[1].split("."))
        )
        rules = {
            "listen": (fits, "looks like 127.0.0.1:8092: an address of 127.0.0.0/8, and a port"),
            **socket_rules(self.socket),
            **within(self, max_lines_per_sec=(10, 1_000_000)),
            "unidentified_max_bytes": (self.unidentified_max_bytes >= 0, "must not be negative"),
        }
        return broken(rules, "telegraf")
