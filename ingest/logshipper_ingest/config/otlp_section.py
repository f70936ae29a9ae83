"""`[otlp]` and `[otlp.NAME]` of the node agent's configuration: sinks for entries as
OpenTelemetry's log records, and for metadata records as points of a metric. Imported only if the
file has such a table."""

import importlib.util
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from logshipper.errors import ConfigError
from logshipper_ingest.config.delivery_options import (
    MAX_LINE_BYTES,
    DeliveryOptions,
    delivery_rules,
    fill_servers,
)
from logshipper_ingest.config.toml_section import broken, within, zero_or_at_least
from logshipper_ingest.servers import server_access

if TYPE_CHECKING:
    import requests

OTLP_SINK = "otlp"  # name of [otlp]
METRICS_SUFFIX = "-metrics"  # of the name of a table's second sink
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*([^ \t].*)")
_MAX_HEADERS = 32
_OURS = frozenset(
    "accept accept-encoding connection content-encoding content-length content-type expect host"
    " te trailer transfer-encoding upgrade user-agent".split()
)


@dataclass(frozen=True)
class OtlpAccess(server_access.ServerAccess):
    """Access to a server, with its required headers."""

    headers_file: str = ""  # lines of `Name: value`

    def problems(self, where: str) -> list[str]:
        problems = super().problems(where)
        parts = server_access.split_url(self.url)
        if parts is not None and re.search(r"/v1/(logs|metrics)/*$", parts.path):
            problems.append(f"[{where}] url: ends before /v1/logs and /v1/metrics")
        return problems + [f"[{where}] {problem}" for problem in self._file_problems()]

    def _file_problems(self) -> list[str]:
        problems = server_access.file_problems("headers_file", self.headers_file, secret=True)
        if problems or not self.headers_file:
            return problems
        try:
            names = {name.lower() for name in read_headers(self.headers_file)}
        except ConfigError as error:
            return [f"headers_file: {self.headers_file}: {problem}" for problem in error.problems]
        if "authorization" in names and (self.username or self.token_file):
            return ["headers_file: has an Authorization; not together with username or token_file"]
        return []

    def session(self) -> "requests.Session":
        session = super().session()
        if self.headers_file:
            headers = read_headers(self.headers_file)
            # http.client writes latin-1, so these arrive as UTF-8
            for name, value in headers.items():
                session.headers[name] = value.encode().decode("latin-1")
            auth = session.auth
            if isinstance(auth, server_access.Credentials):
                session.auth = server_access.Credentials(
                    auth.header, (*auth.secrets, *headers.values())
                )
        return session


def read_headers(path: str) -> dict[str, str]:
    """Read headers from a file, one per line, without empty lines and comments (`#`). Raises
    ConfigError without any value."""
    source = f"headers_file: {path}"
    data = server_access.read_secret_file(path, source)
    problems: list[str] = []
    headers: dict[str, str] = {}
    if len(data) > server_access.MAX_SECRET_BYTES:
        problems.append(f"is over {server_access.MAX_SECRET_BYTES >> 10} KiB")
    lines = data[: server_access.MAX_SECRET_BYTES].decode("utf-8", "replace").splitlines()
    for number, text in enumerate(map(str.strip, lines), start=1):
        if not text or text.startswith("#"):
            continue
        match = _HEADER.fullmatch(text)
        if match is None or not match[2].isprintable():
            problems.append(f"line {number} isn't a header: it looks like `Name: value`")
        elif match[1].lower() in _OURS:
            problems.append(f"line {number}: {match[1]} is the agent's own to send")
        elif match[1].lower() in map(str.lower, headers):
            problems.append(f"line {number}: {match[1]} stands there twice")
        else:
            headers[match[1]] = match[2]
    if len(headers) > _MAX_HEADERS:
        problems.append(f"has {len(headers)} headers, at most {_MAX_HEADERS}")
    if not headers and not problems:
        problems.append("has no header: a line of `Name: value` is expected")
    if problems:
        raise ConfigError(source, problems)
    return headers


@dataclass(frozen=True)
class OtlpSection(DeliveryOptions):
    """A server for OTLP by HTTP and its delivery. It has no tenants by user. Its accepted range
    of times is unknown."""

    kind: ClassVar = "otlp"

    access: OtlpAccess = field(default_factory=OtlpAccess)
    logs: bool = True  # send all entries as log records
    metrics: bool = True  # send numbers of metadata records as points
    max_bytes_per_sec: int = 4_000_000  # of each signal, 0 for any
    max_line_bytes: int = 256_000  # longer lines are split
    heartbeat_secs: float = 10.0  # between two heartbeats of a capture

    @property
    def tenant_max_bytes_per_sec(self) -> int:
        return self.max_bytes_per_sec

    @property
    def path(self) -> str:
        """Path behind the address, for a section of one signal (`signals`)."""
        return "/v1/logs" if self.logs else "/v1/metrics"

    def signals(self, name: str) -> "dict[str, OtlpSection]":
        """Return a section for each signal, by its sink's name. Each has its own checkpoint, so
        that no signal waits for another."""
        logs = {name: replace(self, metrics=False)} if self.logs else {}
        metrics = {f"{name}{METRICS_SUFFIX}": replace(self, logs=False)} if self.metrics else {}
        return logs | metrics


def fill_otlps(tables: object, problems: list[str]) -> dict[str, OtlpSection]:
    """Return the sections [otlp] and [otlp.NAME] by name."""
    sections = fill_servers(OtlpSection, tables, OTLP_SINK, _problems, problems)
    if sections and not _has_package():
        problems.append(
            "[otlp]: needs the package opentelemetry-proto, which isn't in the agent's environment:"
            " `pip install opentelemetry-proto`, or the wheel's extra `otlp`"
        )
    return sections


def _has_package() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.proto") is not None
    except ModuleNotFoundError:
        return False


def _problems(section: OtlpSection, table: str) -> list[str]:
    rules = {
        "url": (
            bool(section.access.url),
            "is missing: what stands before /v1/logs, such as http://collector.example.org:4318",
        ),
        "logs": (
            section.logs or section.metrics,
            "or metrics must be true: else nothing goes there",
        ),
        **zero_or_at_least(section, max_bytes_per_sec=100_000),
        **within(section, max_line_bytes=(1000, MAX_LINE_BYTES), heartbeat_secs=(5, 3600)),
        **delivery_rules(section),
    }
    return broken(rules, table) + section.access.problems(table)
