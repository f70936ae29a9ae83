"""One of the servers that the node agent ships to, as its configuration has it."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeGuard, TypeVar

from logshipper_ingest.config.delivery_options import DeliveryOptions
from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.config.loki_section import FIRST_SINK, LokiSection

if TYPE_CHECKING:
    from logshipper_ingest.config.otlp_section import OtlpSection

SINKS_FOLDER = "sinks"  # in state_dir: a folder for each sink that has a name

Server: TypeAlias = "LokiSection | InfluxdbSection | OtlpSection"
AnyServer = TypeVar("AnyServer", bound="Server")
ServerT_co = TypeVar("ServerT_co", bound="Server", covariant=True)


@dataclass(frozen=True)
class SinkConfig(Generic[ServerT_co]):
    """A sink, and what it has to know of its node."""

    server: ServerT_co
    name: str  # "" for [loki] without one
    table: str  # over it in the file, without brackets
    cluster: str  # a label of all that is shipped
    host: str  # the node's
    state_dir: str  # the agent's
    ended_dir: str  # how Slurm's jobs ended, which it ships, too; "" for none

    @property
    def delivery(self) -> DeliveryOptions:
        return self.server

    @property
    def url(self) -> str:
        return self.server.access.url

    @property
    def is_first(self) -> bool:
        """Whether it is [loki]'s: logs and metrics don't name that one."""
        return self.table == FIRST_SINK

    @property
    def label(self) -> str:
        """Its name in logs, `status` and metrics."""
        return self.name or FIRST_SINK

    @property
    def folder(self) -> str:
        """Where the agent keeps its checkpoints and what it refused."""
        return (
            os.path.join(self.state_dir, SINKS_FOLDER, self.name) if self.name else self.state_dir
        )


def is_loki(sink: SinkConfig[Server]) -> TypeGuard[SinkConfig[LokiSection]]:
    return isinstance(sink.server, LokiSection)


def is_influxdb(sink: SinkConfig[Server]) -> TypeGuard[SinkConfig[InfluxdbSection]]:
    return isinstance(sink.server, InfluxdbSection)


def is_otlp(sink: SinkConfig[Server]) -> "TypeGuard[SinkConfig[OtlpSection]]":
    """Its class isn't imported where no configuration has such a server."""
    return sink.server.kind == "otlp"
