"""The agent's OTLP sink with a real OpenTelemetry collector that writes to a file. Every record is
there once and in order, despite kills of collector and agent."""

import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.otel_collector import OtelCollector, StoredRecord
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.node_agents import cluster
from tests.tools.stores.otlp_sites import KILLED_AT, NumberedLine, OtlpSite, by_stream

__all__ = ["cluster"]  # a fixture
LINES = 1500
SLOW = {"batch_max_bytes": 10_000, "max_bytes_per_sec": 300_000}  # kills find it at work
PRINTING = """
import json, sys
print("begin")
print("trouble", file=sys.stderr)
for step in range(50):
    print(json.dumps({"step": step, "loss": 1 / (step + 1), "who": "ann", "opt": {"lr": 0.1}}))
print("x" * 3000)
print("end")
"""


@pytest.fixture
def site(loki: LokiServer, collector: OtelCollector, cluster: str, tmp_path: Path) -> OtlpSite:
    return OtlpSite(tmp_path / "node", loki.url, cluster, collector.url, max_line_bytes=1000)


def wait_for_more(collector: OtelCollector, count: int) -> None:
    wait_until(lambda: len(collector.records()) > count, "more records are there")


def once(records: list[StoredRecord]) -> list[StoredRecord]:
    """Return records without repeats, which have the same uid and the same content."""
    first: dict[str, StoredRecord] = {}
    for record in records:
        assert first.setdefault(record.uid, record) == record
    return list(first.values())


def numbered(records: list[StoredRecord]) -> list[NumberedLine]:
    return [
        NumberedLine(
            str(record.resource["logshipper.job.id"]),
            str(record.attributes["log.iostream"]),
            record.body,
        )
        for record in records
        if record.attributes["logshipper.kind"] == "log"
    ]


def test_a_job_is_there_as_it_was(site: OtlpSite, collector: OtelCollector, cluster: str) -> None:
    with site.agent as agent:
        done = agent.run(sys.executable, "-c", PRINTING, options=("--job-id", "j"))
        assert (done.returncode, done.stderr) == (0, b"trouble\n")
        agent.wait_shipped()
        records = collector.records()
        assert len(once(records)) == len(records), "nothing was killed, nothing is repeated"
        assert {record.resource["service.name"] for record in records} == {"logshipper"}
        (host,) = {record.resource["host.name"] for record in records}
        assert host == "n1"
        assert {record.resource["service.namespace"] for record in records} == {cluster}
        (job,) = {record.resource["logshipper.job.id"] for record in records}
        assert job.startswith("j.u")
        assert all(record.resource["process.owner"] for record in records)

        def bodies(kind: str, stream: str = "stdout") -> list[str]:
            return [
                record.body
                for record in sorted(records, key=lambda record: record.time_ns)
                if record.attributes["logshipper.kind"] == kind
                and record.attributes.get("log.iostream", "") == stream
            ]

        assert bodies("log") == ["begin", *["x" * 1000] * 3, "end"]
        assert bodies("log", "stderr") == ["trouble"]
        parts = [
            record.attributes.get("logshipper.part")
            for record in records
            if record.body[:2] == "xx"
        ]
        assert parts == ["1/3", "2/3", "3/3"]
        assert [json.loads(body)["step"] for body in bodies("metadata")] == list(range(50))
        events = [
            record.event for record in records if record.attributes["logshipper.kind"] == "event"
        ]
        assert events[0] == "logshipper.started"
        assert events[-1] == "logshipper.closed"
        values = {json.loads(body)["key"]: json.loads(body) for body in bodies("value", "")}
        assert values["loss"]["largest"] == 1

        points = collector.points()
        assert Counter(point.attributes["logshipper.key"] for point in points) == {
            "step": 50, "loss": 50, "opt.lr": 50,
        }  # fmt: skip
        losses = [point.value for point in points if point.attributes["logshipper.key"] == "loss"]
        assert losses == [1 / (step + 1) for step in range(50)]
        assert {point.resource["logshipper.job.id"] for point in points} == {job}
        assert {point.time_ns for point in points} == {
            record.time_ns
            for record in records
            if record.attributes["logshipper.kind"] == "metadata"
        }

        status = agent.call("status").stdout
        assert f"otlp   otlp, {collector.url}: no trouble known" in status
        assert f"otlp   otlp-metrics, {collector.url}: no trouble known" in status
        assert (site.quarantine(), site.quarantine("otlp-metrics")) == ([], [])
        assert site.sink()["ledger"]["balances"]
        checked = agent.call("check").stdout
        assert f"OTLP at {collector.url} takes logs" in checked
        assert f"OTLP at {collector.url} takes metrics" in checked
        assert 'entries_total{kind="metadata",sink="otlp-metrics"} 50.0' in agent.metrics()
        purged = agent.call("purge", "--job", job, "--yes", "--no-loki")
        assert f"otlp isn't purged: what was sent to {collector.url} may be there" in purged.stderr


def test_collector_and_agent_are_killed_and_each_record_is_there_once(
    loki: LokiServer, collector: OtelCollector, cluster: str, tmp_path: Path
) -> None:
    """Requests are small, so that a kill falls within a round."""
    site = OtlpSite(tmp_path / "node", loki.url, cluster, collector.url, **SLOW)
    for number, point in enumerate(KILLED_AT):
        site.spool(f"j{number}", LINES)
        site.crash(point, times=2)
    site.spool("torn", LINES)
    site.crash("pushed", times=5)
    before = len(by_stream(numbered(collector.records()))["torn", "stdout"])
    assert before < LINES, "a kill finds some of a round sent and others not"
    kills = len(KILLED_AT) + 1
    with site.agent.start() as agent:
        for number in range(3):
            before = len(collector.records())
            site.spool(f"k{number}", LINES)
            wait_for_more(collector, before)
            collector.stop(signal.SIGKILL)
            agent.stop(signal.SIGKILL)
            kills += 2
            agent.start()
            wait_until(lambda: site.sink()["loki"]["trouble"], "the collector is missed")
            collector.start()
        agent.wait_shipped()
    records = collector.records()
    kept = once(records)
    assert site.faults(by_stream(numbered(kept))) == []
    assert len(kept) - len(numbered(kept)) > 0, "events, too"
    repeats = len(records) - len(kept)
    print(f"{kills} kills, {len(kept)} records, {repeats} repeated with the same uid")
    assert site.quarantine() == []
    assert site.sink()["ledger"]["balances"]


def test_where_only_the_collector_is_killed_little_is_repeated(
    loki: LokiServer, collector: OtelCollector, cluster: str, tmp_path: Path
) -> None:
    """At most some requests of each stream repeat, since the sink never repeats acknowledged
    ones."""
    site = OtlpSite(tmp_path / "node", loki.url, cluster, collector.url, **SLOW)
    with site.agent as agent:
        for number in range(3):
            before = len(collector.records())
            site.spool(f"k{number}", LINES)
            wait_for_more(collector, before)
            collector.stop(signal.SIGKILL)
            wait_until(lambda: site.sink()["loki"]["trouble"], "it is missed")
            collector.start()
        agent.wait_shipped()
    records = collector.records()
    kept = once(records)
    assert site.faults(by_stream(numbered(kept))) == []
    repeats = len(records) - len(kept)
    print(f"3 kills, {len(kept)} records, {repeats} repeated with the same uid")
    assert repeats <= 3 * 8 * 400, "requests of 10 kB, at most 8 at once"
