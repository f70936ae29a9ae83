"""`[otlp]`: valid tables, faults, and no loaded modules without a table."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import ConfigError
from logshipper_ingest.config.agent_config import AgentConfig, parse
from logshipper_ingest.config.otlp_section import read_headers
from logshipper_ingest.config.sink_config import is_influxdb, is_loki, is_otlp
from tests.tools.sources import ROOT, SOURCES

LOKI = {"url": "http://loki"}
URL = {"url": "http://collector:4318"}


def config_of(otlp: object, **tables: object) -> AgentConfig:
    config, problems = parse({"loki": LOKI, "otlp": otlp, **tables})
    assert problems == []
    return config


def problems_of(otlp: object, **tables: object) -> list[str]:
    return parse({"loki": {**LOKI, "new": {"url": "http://new"}}, "otlp": otlp, **tables})[1]


def test_each_signal_is_a_sink_of_its_own() -> None:
    tables = {**URL, "elastic": {**URL, "logs": False}, "archive": {**URL, "metrics": False}}
    config = config_of(tables, influxdb={"url": "http://influx", "database": "d"})
    assert [
        (sink.label, sink.table, sink.server.path) for sink in config.sinks if is_otlp(sink)
    ] == [
        ("otlp", "otlp", "/v1/logs"),
        ("otlp-metrics", "otlp", "/v1/metrics"),
        ("elastic-metrics", "otlp.elastic", "/v1/metrics"),
        ("archive", "otlp.archive", "/v1/logs"),
    ]
    assert [sink.label for sink in config.sinks if is_loki(sink)] == ["loki"]
    assert [sink.label for sink in config.sinks if is_influxdb(sink)] == ["influxdb"]
    folders = {sink.folder for sink in config.sinks}
    assert len(folders) == len(config.sinks), "each has checkpoints and a quarantine of its own"


def test_a_table_at_its_defaults_is_none() -> None:
    assert config_of({"url": "", "logs": True}).otlps == {}
    assert config_of({"url": ""}).sinks == config_of({}).sinks


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"logs": False}, "[otlp] url: is missing"),
        ({"url": "http://x/v1/logs"}, "[otlp] url: ends before /v1/logs and /v1/metrics"),
        ({"url": "http://x/otlp/v1/metrics/"}, "[otlp] url: ends before /v1/logs"),
        ({"url": "x:4318"}, "[otlp] url: 'x:4318' isn't an address"),
        ({**URL, "logs": False, "metrics": False}, "[otlp] logs: or metrics must be true"),
        ({**URL, "max_bytes_per_sec": 1}, "[otlp] max_bytes_per_sec: must be 0, or at least"),
        ({**URL, "max_line_bytes": 10}, "[otlp] max_line_bytes: must be 1000 to"),
        ({**URL, "heartbeat_secs": 1}, "[otlp] heartbeat_secs: must be 5 to 3600"),
        ({**URL, "batch_wait_secs": 61}, "[otlp] batch_wait_secs: must be 0 to 60"),
        ({**URL, "headers_file": "h"}, "[otlp] headers_file: 'h' must be an absolute path"),
        ({**URL, "headers_file": "/nowhere/h"}, "[otlp] headers_file: /nowhere/h: no such file"),
        ({**URL, "header_file": ""}, "[otlp] header_file: there is no such option; did you mean headers_file?"),
        ({"new": URL}, "[otlp.new]: is the name of a Loki; another name tells them apart"),
        ({"x": URL, "x-metrics": URL}, "[otlp.x-metrics]: is the name of what [otlp.x] ships to"),
        ({"Two": URL}, "[otlp.Two]: a small letter"),
        ({f"i{n}": URL for n in range(4)}, "[otlp]: 10 servers to ship to, with Lokis, at most 8; logs and"),
        (3, "[otlp]: must be a table"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(table: object, message: str) -> None:
    faults = problems_of(table)
    assert any(line.startswith(message) for line in faults), faults


def test_a_table_with_a_letter_left_out_is_hinted_at() -> None:
    _, problems = parse({"loki": LOKI, "otpl": URL})
    assert problems == ["[otpl]: there is no such table; did you mean otlp?"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (problem,) = parse({"loki": LOKI, "otlp": URL})[1]
    assert "needs the package opentelemetry-proto" in problem
    assert parse({"loki": LOKI})[1] == []


# ---- headers


def headers_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "headers"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_headers_are_read_as_they_stand_there(tmp_path: Path) -> None:
    text = "# of ours\n\nAuthorization: ApiKey s3cret==\r\n x-scope:   a b  \nDD-API-KEY:\u00fc:1\n"
    assert read_headers(str(headers_file(tmp_path, text))) == {
        "Authorization": "ApiKey s3cret==",
        "x-scope": "a b",
        "DD-API-KEY": "\u00fc:1",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no header"),
        ("# only words\n", "has no header"),
        ("s3cret\n", "line 1 isn't a header: it looks like `Name: value`"),
        ("a: 1\nb b: s3cret\n", "line 2 isn't a header"),
        ("a: s3cret\x1b\n", "line 1 isn't a header"),
        ("a:\n", "line 1 isn't a header"),
        ("content-type: s3cret\n", "line 1: content-type is the agent's own to send"),
        ("a: 1\nA: s3cret\n", "line 2: A stands there twice"),
        ("".join(f"h{n}: s3cret\n" for n in range(33)), "has 33 headers, at most 32"),
        (f"a: s3cret{'x' * (64 << 10)}\n", "is over 64 KiB"),
    ],
)
def test_what_is_wrong_with_headers_is_named_without_them(
    tmp_path: Path, text: str, message: str
) -> None:
    path = headers_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_headers(str(path))
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)
    faults = problems_of({**URL, "headers_file": str(path)})
    assert any(line.startswith(f"[otlp] headers_file: {path}: ") for line in faults), faults


def test_headers_that_everybody_may_read_are_refused(tmp_path: Path) -> None:
    path = headers_file(tmp_path, "a: 1\n", mode=0o604)
    (problem,) = problems_of({**URL, "headers_file": str(path)})
    assert problem == f"[otlp] headers_file: {path}: everybody may read it; `chmod o= {path}`"


def test_two_authorizations_are_refused(tmp_path: Path) -> None:
    path = headers_file(tmp_path, "authorization: ApiKey x\n")
    token = tmp_path / "token"
    token.write_text("t\n")
    token.chmod(0o600)
    (problem,) = problems_of({**URL, "headers_file": str(path), "token_file": str(token)})
    assert "headers_file: has an Authorization; not together with" in problem


# ---- modules

LOADED = """
import sys
from logshipper_ingest import cli
from logshipper_ingest.admin import admin_commands, purge_command, replay_command
from logshipper_ingest.agent import node_agent, node_status, sink_course
from logshipper_ingest.agent.sink_parts import make_delivery, push_client
from logshipper_ingest.checks import server_check
from logshipper_ingest.config.agent_config import parse
from logshipper_ingest.metrics.agent_metrics import SinkMetrics

tables = {"loki": {"url": "http://127.0.0.1:9"}, "influxdb": {"url": "http://127.0.0.1:9", "database": "d"}}
config, problems = parse({**tables, **eval(sys.argv[1])})
assert not problems, problems
for sink in config.sinks:
    push_client(sink).close()
    make_delivery(sink, lambda: None, SinkMetrics(), None, print)
print(*sorted(sys.modules))
"""


def modules_with(table: dict[str, Any]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, repr(table)],
        cwd=ROOT,
        env={"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    return {
        name
        for name in names
        if "otlp" in name or name.partition(".")[0] in ("google", "opentelemetry")
    }


def test_nothing_is_loaded_where_it_is_not_configured() -> None:
    assert modules_with({}) == set()
    assert modules_with({"otlp": {"url": ""}}) == {"logshipper_ingest.config.otlp_section"}
    assert {
        "logshipper_ingest.otlp.client",
        "logshipper_ingest.otlp.otlp_sink",
        "opentelemetry.proto.logs.v1.logs_pb2",
        "google.protobuf.message",
    } < modules_with({"otlp": URL}), "the test would see it"
