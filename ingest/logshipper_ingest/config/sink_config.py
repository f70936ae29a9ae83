"""Configuration of one sink of the node agent."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeGuard, TypeVar

from logshipper_ingest.config.delivery_options import DeliveryOptions
from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.config.loki_section import FIRST_SINK, LokiSection

if TYPE_CHECKING:
    from logshipper_ingest.config.otlp_section import OtlpSection

SINKS_FOLDER = "sinks"  # in state_dir: a folder for each named sink

Server: TypeAlias = "LokiSection | InfluxdbSection | OtlpSection"
AnyServer = TypeVar("AnyServer", bound="Server")
ServerT_co = TypeVar("ServerT_co", bound="Server", covariant=True)


@dataclass(frozen=True)
class SinkConfig(Generic[ServerT_co]):
    """A sink's server and facts about its node."""

    server: ServerT_co
    name: str  # "" for [loki] without one
    table: str  # its heading in the file, without brackets
    cluster: str  # label of all shipped entries
    host: str  # the node's
    state_dir: str  # the agent's
    ended_dir: str  # records of Slurm's job ends to ship; "" for none

    @property
    def delivery(self) -> DeliveryOptions:
        return self.server

    @property
    def url(self) -> str:
        return self.server.access.url

    @property
    def is_first(self) -> bool:
        """Whether it is the sink of [loki], which logs and metrics do not name."""
        return self.table == FIRST_SINK

    @property
    def label(self) -> str:
        """Name in logs, `status` and metrics."""
        return self.name or FIRST_SINK

    @property
    def folder(self) -> str:
        """Folder of its checkpoints and quarantine."""
        folders = (SINKS_FOLDER, self.name) if self.name else ()
        return os.path.join(self.state_dir, *folders)


def is_loki(sink: SinkConfig[Server]) -> TypeGuard[SinkConfig[LokiSection]]:
    return isinstance(sink.server, LokiSection)


def is_influxdb(sink: SinkConfig[Server]) -> TypeGuard[SinkConfig[InfluxdbSection]]:
    return isinstance(sink.server, InfluxdbSection)


def is_otlp(sink: SinkConfig[Server]) -> "TypeGuard[SinkConfig[OtlpSection]]":
    """Whether the sink is an OTLP server, without an import of its class."""
    return sink.server.kind == "otlp"
