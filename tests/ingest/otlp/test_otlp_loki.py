"""The agent's OTLP sink with Loki's OTLP endpoint. Every line is there once and in order, despite
kills of the agent, and only refused lines go to the quarantine."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.node_agents import client, cluster
from tests.tools.stores.otlp_sites import KILLED_AT, NumberedLine, OtlpSite, begin_ns, by_stream

__all__ = ["client", "cluster"]  # fixtures
LINES = 1500


@pytest.fixture
def site(loki: LokiServer, cluster: str, tmp_path: Path) -> OtlpSite:
    options = {"metrics": False, "batch_max_bytes": 10_000, "max_bytes_per_sec": 300_000}
    return OtlpSite(tmp_path / "node", loki.url, cluster, f"{loki.url}/otlp", **options)


def entries(client: LokiClient, cluster: str, more: str = "") -> list[Entry]:
    """Return entries that came by OTLP; those of Loki's own interface lack this label."""
    query = f'{{service_name="logshipper", service_namespace="{cluster}"}}{more}'
    return list(client.entries(query, begin_ns(), time.time_ns() + 60 * 10**9))


def numbered(client: LokiClient, cluster: str) -> dict[tuple[str, str], list[int]]:
    return by_stream(
        NumberedLine(
            entry.metadata["logshipper_job_id"], entry.metadata["log_iostream"], entry.line
        )
        for entry in entries(client, cluster, ' | logshipper_kind="log"')
    )


def wait_for_lines(client: LokiClient, cluster: str, job: str) -> None:
    wait_until(lambda: (job, "stdout") in numbered(client, cluster), "some lines are there")


def test_a_job_is_there_as_it_was(site: OtlpSite, client: LokiClient, cluster: str) -> None:
    with site.agent as agent:
        agent.run(
            sys.executable,
            "-c",
            "print('one'); print('{\"loss\": 0.5}')",
            options=("--job-id", "j"),
        )
        agent.wait_shipped()
        line, record = (
            entry
            for entry in entries(client, cluster)
            if entry.metadata["logshipper_kind"] in ("log", "metadata")
        )
        assert (line.line, record.line) == ("one", '{"loss": 0.5}')
        assert line.labels["service_instance_id"] == line.metadata["host_name"] == "n1"
        assert (line.metadata["log_iostream"], line.metadata["logshipper_job_attempt"]) == (
            "stdout",
            "1",
        )
        assert record.metadata["logshipper_n"] == "1"
        closed = entries(client, cluster, ' | logshipper_kind="event"')[-1]
        assert json.loads(closed.line)["event"] == "closed"
        assert closed.metadata["detected_level"] == "info"
        assert "takes logs" in agent.call("check").stdout
        assert "loki   loki" in agent.call("status").stdout


def test_the_agent_is_killed_and_each_line_is_there_once(
    site: OtlpSite, client: LokiClient, cluster: str
) -> None:
    for number, point in enumerate(KILLED_AT):
        site.spool(f"j{number}", LINES)
        site.crash(point, times=2)
    site.spool("torn", LINES)
    site.crash("pushed", times=5)
    torn = numbered(client, cluster)["torn", "stdout"]
    assert len(torn) < LINES, "a kill finds some of a round sent and others not"
    for number in range(3):
        site.agent.start()
        site.spool(f"k{number}", LINES)
        wait_for_lines(client, cluster, f"k{number}")
        site.agent.stop(signal.SIGKILL)
    with site.agent.start() as agent:
        agent.wait_shipped()
    assert site.faults(numbered(client, cluster)) == []
    uids = [entry.metadata["log_record_uid"] for entry in entries(client, cluster)]
    assert len(uids) == len(set(uids))
    assert site.quarantine() == []
    assert site.sink()["ledger"]["balances"]


def test_what_it_refuses_is_put_aside_alone_and_replayed(
    lokis: None, cluster: str, tmp_path: Path
) -> None:
    """The lines exceed Loki's limit, until an admin raises it."""
    with LokiServer(limits={"max_line_size": 1000}) as loki, LokiClient(loki.url) as client:
        site = OtlpSite(tmp_path / "node", loki.url, cluster, f"{loki.url}/otlp", metrics=False)
        texts = ["a", "b" * 2000, "c", "d" * 3000, "e"]
        with site.agent as agent:
            agent.run("printf", "%s\n" * 5, *texts, options=("--job-id", "j"))
            agent.wait_shipped()
            logs = [entry.line for entry in entries(client, cluster, ' | logshipper_kind="log"')]
            assert logs == ["a", "c", "e"]
            aside = [json.loads(line) for line in site.quarantine()]
            assert [entry["line"] for entry in aside] == [texts[1], texts[3]]
            assert {entry["reason"] for entry in aside} == {"line_too_long"}
            assert site.sink()["ledger"]["balances"]
            assert agent.call("replay", "--sink", "otlp").returncode == 3
            loki.stop()
            loki.set_limits({"max_line_size": 100_000})
            loki.start()
            replayed = agent.call("replay", "--sink", "otlp")
            assert replayed.returncode == 0, replayed.stderr
            logs = [entry.line for entry in entries(client, cluster, ' | logshipper_kind="log"')]
            assert sorted(logs) == sorted(texts)
            assert site.quarantine() == []


def test_lines_that_are_late_are_taken(site: OtlpSite, client: LokiClient, cluster: str) -> None:
    """Loki refuses lines an hour older than the newest of their stream. The instance in the labels
    gives late lines their own stream."""
    with site.agent as agent:
        site.spool("new", 100, ago_secs=60)
        agent.wait_shipped()
        site.spool("late", 100, ago_secs=6600)
        agent.wait_shipped()
    assert site.faults(numbered(client, cluster)) == []
    late = entries(client, cluster, ' | logshipper_job_id="late", logshipper_kind="log"')
    assert {entry.metadata["host_name"] for entry in late} == {"n1"}
    assert all(entry.labels["service_instance_id"].startswith("n1/") for entry in late)
    assert site.quarantine() == []
