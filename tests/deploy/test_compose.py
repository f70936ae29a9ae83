"""deploy/compose: complete, pinned, reachable from this machine only, and valid for the programs
that read it. No container runs."""

import fnmatch
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from logshipper_ingest.config.agent_config import AgentConfig, listen_address, parse
from tests.servers.loki import find_loki
from tests.servers.running import COMPOSE, prometheus_program
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

Document = dict[str, Any]  # Any: YAML of ours
DOCKERFILE = COMPOSE / "agent" / "Dockerfile"


def _read(path: str) -> Document:
    document: Document = yaml.safe_load((COMPOSE / path).read_text())
    return document


@pytest.fixture(scope="module")
def services() -> dict[str, Document]:
    table: dict[str, Document] = _read("docker-compose.yaml")["services"]
    assert set(table) == {"loki", "prometheus", "grafana", "agent"}
    return table


@pytest.fixture(scope="module")
def agent() -> AgentConfig:
    config, problems = parse(tomllib.loads((COMPOSE / "agent" / "agent.toml").read_text()))
    assert problems == []
    return config


def _mounts(service: Document) -> dict[str, str]:
    """Return the source of each mount by its path in the container."""
    return {mount.split(":")[1]: mount.split(":")[0] for mount in service["volumes"]}


def _port(service: Document) -> str:
    (published,) = service["ports"]
    return str(published.rsplit(":", 1)[1])


def test_what_is_mounted_exists(services: dict[str, Document]) -> None:
    sources = [source for service in services.values() for source in _mounts(service).values()]
    ours = [source for source in sources if source.startswith(".")]
    assert len(ours) == 7
    assert all((COMPOSE / source).exists() for source in ours)
    assert set(sources) - set(ours) == set(_read("docker-compose.yaml")["volumes"])
    read_only = [
        mount
        for service in services.values()
        for mount in service["volumes"]
        if mount.startswith(".")
    ]
    assert all(mount.endswith(":ro") for mount in read_only)


def test_dashboards_are_where_grafana_looks(services: dict[str, Document]) -> None:
    mounts = _mounts(services["grafana"])
    (provider,) = _read("grafana/dashboards/logshipper.yaml")["providers"]
    place = provider["options"]["path"]
    (inside,) = [target for target in mounts if target == place or target.startswith(f"{place}/")]
    assert len(list((COMPOSE / mounts[inside]).glob("logshipper-*.json"))) == 4
    assert mounts["/etc/grafana/provisioning/dashboards"] == "./grafana/dashboards"


def test_configurations_are_where_the_programs_look(services: dict[str, Document]) -> None:
    files = {
        "loki": "/etc/loki/loki.yaml",
        "prometheus": "/etc/prometheus/prometheus.yml",
        "agent": "/etc/logshipper/agent.toml",
    }
    for name, path in files.items():
        words = services[name].get("command") or DOCKERFILE.read_text().splitlines()[-1:]
        assert path in " ".join(words)
        mounts = _mounts(services[name])
        place = path if path in mounts else path.rpartition("/")[0]
        source = COMPOSE / mounts[place] / path[len(place) :].lstrip("/")
        assert source.is_file()


def test_images_are_pinned(services: dict[str, Document]) -> None:
    images = {name: service["image"] for name, service in services.items()}
    assert images["agent"].endswith(":local")
    for name in ("loki", "prometheus", "grafana"):
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", images[name])
    base = re.search(
        r"^FROM python:(\d+)\.(\d+)\.\d+-slim-\w+$", DOCKERFILE.read_text(), re.MULTILINE
    )
    assert base is not None
    assert (3, 11) <= (int(base[1]), int(base[2])) <= (3, 14)
    page = (COMPOSE / "README.md").read_text()
    assert all(f"`{images[name]}`" in page for name in ("loki", "prometheus", "grafana"))


def test_ports_are_this_machines_only(services: dict[str, Document]) -> None:
    for service in services.values():
        for port in service["ports"]:
            assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)
        assert not service.get("privileged")
        assert service.get("network_mode") is None


def test_the_agent_is_accepted_and_fits_the_services(
    services: dict[str, Document], agent: AgentConfig
) -> None:
    assert agent.loki.access.url == f"http://loki:{_port(services['loki'])}"
    assert agent.prometheus.access.url == f"http://prometheus:{_port(services['prometheus'])}"
    assert listen_address(agent.metrics.listen) == ("", int(_port(services["agent"])))
    assert {agent.agent.spool_dir, agent.agent.state_dir} <= set(_mounts(services["agent"]))
    dockerfile = DOCKERFILE.read_text()
    for folder in (
        agent.agent.spool_dir,
        agent.agent.state_dir,
        str(Path(agent.agent.socket).parent),
    ):
        assert re.search(rf"install -d -o logshipper -g logshipper -m 0\d+ {folder}\b", dockerfile)


def test_prometheus_scrapes_the_agent(services: dict[str, Document]) -> None:
    (targets,) = yaml.safe_load((COMPOSE / "prometheus" / "targets" / "agents.yml").read_text())
    assert targets == {"targets": [f"agent:{_port(services['agent'])}"]}
    interval = _read("prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert (
        _read("grafana/datasources/logshipper.yaml")["datasources"][1]["jsonData"]["timeInterval"]
        == interval
    )


def test_prometheus_has_the_rules(services: dict[str, Document]) -> None:
    (pattern,) = _read("prometheus/prometheus.yml")["rule_files"]
    folder = COMPOSE / _mounts(services["prometheus"])[pattern.rpartition("/")[0]]
    names = {path.name for path in folder.glob(pattern.rpartition("/")[2])}
    rules = ("alerts", "recording", "user-alerts")
    assert names == {f"logshipper-{name}.yml" for name in rules}


def test_data_sources_are_the_services(services: dict[str, Document]) -> None:
    sources = _read("grafana/datasources/logshipper.yaml")["datasources"]
    addresses = {name: f"http://{name}:{_port(services[name])}" for name in ("loki", "prometheus")}
    assert [source["url"] for source in sources] == [
        *addresses.values(),
        f"{addresses['loki']}/loki",
    ]
    assert [source["type"] for source in sources if source.get("isDefault")] == ["prometheus"]


def test_the_image_runs_as_an_ordinary_user() -> None:
    users = re.findall(r"^USER (\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert users == ["logshipper"]


def test_the_image_is_made_of_files_that_are_there_and_sent() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    paths = [path for words in copied for path in words.split()]
    assert len(paths) == 9
    assert all((ROOT / path).exists() for path in paths)
    rules = [
        rule
        for rule in (COMPOSE / "agent" / "Dockerfile.dockerignore").read_text().splitlines()
        if rule[0] != "#"
    ]
    assert rules[0] == "*"
    exceptions = [rule[1:] for rule in rules if rule.startswith("!")]
    assert sorted(exceptions) == sorted(paths)
    exclusions = [rule for rule in rules[1:] if not rule.startswith("!")]
    assert not any(fnmatch.fnmatch(path, rule) for rule in exclusions for path in paths)


def test_loki_accepts_its_configuration(lokis: None) -> None:
    command = [
        str(find_loki().path),
        f"-config.file={COMPOSE / 'loki' / 'loki.yaml'}",
        "-config.expand-env=true",
    ]
    environment = {"PATH": "/usr/bin:/bin"}  # no variables, like the container
    done = subprocess.run(
        [*command, "-verify-config"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert done.returncode == 0, done.stderr
    config = subprocess.run(
        [*command, "-verify-config", "-print-config-stderr"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=scaled(60),
    ).stderr
    assert re.search(r"(?m)^\s+http_listen_port: 3100$", config)
    assert re.search(r"(?m)^\s+http_listen_address: 0\.0\.0\.0$", config)


def test_prometheus_accepts_its_configuration(prometheuses: None) -> None:
    command = [
        str(prometheus_program().paths[1]),
        "check",
        "config",
        str(COMPOSE / "prometheus" / "prometheus.yml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(60))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
