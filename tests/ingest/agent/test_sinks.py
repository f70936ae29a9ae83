"""One agent and two Lokis: each Loki gets every line once, despite faults of the other, of the
agent and in the configuration."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from logshipper.spool.segment import Json
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.shipping.followed_capture import FollowedCapture
from logshipper_ingest.spool.segment_reader import list_segments
from logshipper_ingest.state.checkpoints import Checkpoints
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import SECOND_NS, CaptureWriter
from tests.tools.fakes.faulty_server import Said
from tests.tools.stores.node_agents import NodeAgent, Proxy, cluster, entries_of
from tests.tools.stores.shipping_node import ShippingNode, soon_ns
from tests.tools.stress.conservation import (
    Place,
    all_problems,
    balances_in_loki,
    line_of,
    refused_in,
    spool,
)

__all__ = ["cluster"]  # a fixture
BETWEEN_SINKS = {"sinks_differ": 1}  # a fault point, and how often the agent passes it
LONGEST = 2000  # bytes of a line in the second Loki
LINES = 200
HOST = "n1"


@pytest.fixture(scope="module")
def national(lokis: None) -> Iterator[LokiServer]:
    """Yield the second Loki, which refuses long lines."""
    with LokiServer(limits={"max_line_size": f"{LONGEST}B"}, deletes=True) as server:
        yield server


class Site:
    """An agent and two Lokis, each behind a proxy that only forwards pushes. urls: the configured
    ones."""

    def __init__(
        self, folder: Path, loki: LokiServer, national: LokiServer, cluster: str, stack: ExitStack
    ) -> None:
        self.lokis = {"loki": loki, "national": national}
        self.cluster = cluster
        self.proxies = {
            name: stack.enter_context(Proxy(server.url)) for name, server in self.lokis.items()
        }
        self.urls = {name: proxy.url for name, proxy in self.proxies.items()}
        self.timeout_secs = 0.5
        self.folder = folder
        self.agent = self.make_agent()
        self.line_counts: dict[Place, int] = {}

    def make_agent(self, **options: Json) -> NodeAgent:
        """Return an agent with a new configuration. options: tables, in place of those of both
        Lokis."""
        quick = {"timeout_secs": self.timeout_secs, "retry_min_secs": 0.05, "retry_max_secs": 0.2}
        tables = options or {"loki": {}, "loki.national": {}}
        for table, values in tables.items():
            name = values.get("name") or table.rpartition(".")[2]
            values.update({"url": self.urls[name], **quick})
        self.agent = NodeAgent(self.folder, "", cluster=self.cluster, host=HOST, **tables)
        return self.agent

    def direct(self) -> NodeAgent:
        """Return an agent without proxies, for commands that query Loki."""
        self.urls = {name: server.url for name, server in self.lokis.items()}
        self.timeout_secs = 10.0
        return self.make_agent()

    def spool(self, job_id: str, *, forged: int = 0) -> None:
        section = agent_config.load(str(self.agent.config)).agent
        self.line_counts |= spool(section, job_id, LINES, forged=forged)

    def entries(self, name: str) -> list[Entry]:
        with LokiClient(self.lokis[name].url) as client:
            return entries_of(client, self.cluster)

    def quarantine(self, name: str) -> Path:
        sink = self.agent.state if name == "loki" else self.agent.state / "sinks" / name
        return sink / "quarantine"

    def problems(self, name: str) -> dict[str, list[str]]:
        """Return problems with lines in this Loki and its quarantine."""
        quarantine_counts = refused_in(self.quarantine(name), self.line_counts)
        return all_problems(
            balances_in_loki(self.entries(name), self.line_counts, quarantine_counts)
        )

    def broken(self, name: str, reply: Said) -> None:
        self.proxies[name].broken(lambda _: reply)

    def fixed(self) -> None:
        for proxy in self.proxies.values():
            proxy.fixed()

    def sink(self, name: str) -> Json:
        (state,) = [sink for sink in self.agent.status()["sinks"] if sink["name"] == name]
        return dict(state)


@pytest.fixture
def site(loki: LokiServer, national: LokiServer, cluster: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path / "node", loki, national, cluster, stack)


def test_killed_between_the_checkpoints_of_two_lokis(site: Site) -> None:
    """One checkpoint is ahead, then the other, then that of the faster Loki. Each Loki has its own
    quarantine."""
    for number, late in enumerate(("loki", "national", "")):
        site.spool(f"job{number}", forged=5)
        if late:
            site.broken(late, Said(hang=True))
        for point, times in BETWEEN_SINKS.items():
            crashed = site.folder / f"crashed-{point}"
            crashed.unlink(missing_ok=True)
            site.agent.start(crash_at=point, times=times, wait=False)
            wait_until(
                site.agent.has_ended, f"it kills itself at {point}: {site.agent.log.read_text()}"
            )
            assert crashed.exists(), site.agent.log.read_text()
        if late:
            behind, ahead = (
                site.sink(name) for name in (late, "national" if late == "loki" else "loki")
            )
            assert behind["ledger"]["shipped"] < ahead["ledger"]["shipped"]
        site.fixed()
    with site.agent:
        site.agent.wait_shipped()
        assert {name: site.problems(name) for name in site.lokis} == {"loki": {}, "national": {}}
        for sink in site.agent.status()["sinks"]:
            assert sink["ledger"]["balances"], sink
            assert (sink["quarantine"]["reasons"], sink["spooled_bytes"]) == ({"too_old": 18}, 0), (
                "with a word on each silence"
            )
        assert {0, 5} == set(refused_in(site.quarantine("national"), site.line_counts).values())


@pytest.mark.parametrize(
    "reply", [Said(503, b"Ingester is stopping"), Said(hang=True), Said(401, b"no org id")]
)
def test_one_of_both_is_down_for_a_while(site: Site, reply: Said) -> None:
    """The other Loki gets all lines meanwhile. The spool keeps them for the broken one, even across
    a restart."""
    site.broken("national", reply)
    with site.agent as agent:
        site.spool("first")
        wait_until(lambda: site.problems("loki") == {}, "the other one has all of it")
        agent.stop()
    with site.make_agent() as agent:
        site.spool("second")
        wait_until(lambda: site.problems("loki") == {}, "all of this, too")
        assert site.entries("national") == []
        assert len(agent.captures()) == 2
        wait_until(lambda: site.sink("national")["loki"]["trouble"], "status tells of it")
        wait_until(
            lambda: not site.sink("loki")["spooled_bytes"],
            "status tells that the other one has all",
        )
        behind, ahead = site.sink("national"), site.sink("loki")
        assert (ahead["spooled_bytes"], ahead["lag_secs"], ahead["loki"]["trouble"]) == (0, 0, None)
        assert behind["spooled_bytes"] > 0
        assert behind["lag_secs"] > 500
        output = agent.call("status").stdout
        assert f"loki   national, {site.proxies['national'].url}: since " in output
        drained = agent.call("drain", "--timeout", "1s")
        assert drained.returncode == 3
        assert "national doesn't take it, since " in drained.stdout
        wait_until(
            lambda: series(agent, 'logshipper_agent_lag_seconds{sink="national"}') > 500,
            "metrics tell it, too",
        )
        assert series(agent, "logshipper_agent_lag_seconds") == 0
        site.fixed()
        agent.wait_shipped()
        assert site.problems("national") == {}
        assert site.problems("loki") == {}


def series(agent: NodeAgent, name: str) -> float:
    (line,) = [line for line in agent.metrics().splitlines() if line.startswith(f"{name} ")] or [
        f"{name} -1"
    ]
    return float(line.rpartition(" ")[2])


def test_what_one_refuses_the_other_has(site: Site, national: LokiServer) -> None:
    """Only that Loki's quarantine has the line, and `replay` delivers it when the cause is gone."""
    long = "x" * (LONGEST + 1)
    with site.direct() as agent:
        site.spool("beside")
        agent.run("sh", "-c", f"echo short; echo {long}; echo last", options=("--job-id", "own"))
        agent.wait_shipped()
        lines = {
            name: [entry.line for entry in site.entries(name) if is_log(entry, "own")]
            for name in site.lokis
        }
        assert lines == {"loki": ["short", long, "last"], "national": ["short", "last"]}
        assert list(site.quarantine("loki").iterdir()) == []
        assert site.sink("national")["quarantine"]["reasons"] == {"line_too_long": 1}
        assert "LOKI" in agent.call("replay", "--dry-run").stdout
        again = agent.call("replay")
        assert again.returncode == 3, again.stderr
        assert (
            "national: 0 entries delivered, 0 were in Loki already, 1 refused again" in again.stdout
        )
        assert agent.call("replay", "--sink", "loki").returncode == 0
        national.stop()
        national.set_limits({"max_line_size": "256KB"})
        try:
            national.start()
            report = json.loads(agent.call("replay", "--sink", "national", "--json").stdout)
            assert (report["delivered"], report["left"]) == (1, 0)
        finally:
            national.stop()
            national.set_limits({"max_line_size": f"{LONGEST}B"})
            national.start()
        assert [entry.line for entry in site.entries("national") if is_log(entry, "own")] == [
            "short",
            long,
            "last",
        ]
        assert site.problems("loki") == site.problems("national") == {}


def is_log(entry: Entry, job_id: str) -> bool:
    """Whether it is a line of the job, whose id in Loki ends with the user's number."""
    return entry.labels["kind"] == "log" and entry.metadata["job_id"].partition(".")[0] == job_id


@contextmanager
def long_capture(site: Site, job_id: str) -> Iterator[CaptureWriter]:
    """Yield a running capture that keeps all its segments; it lives until the end of the block."""
    section = agent_config.load(str(site.agent.config)).agent
    identity = NodeIdentity(job_id, 1, "", 0, "numbered", os.geteuid(), "me", gid=os.getegid())
    folder = Path(prepare_capture(section, identity))
    with (folder / "segments" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield CaptureWriter.in_node_spool(folder, start_ns=time.time_ns() - 600 * SECOND_NS)


def test_a_loki_that_is_added_removed_and_put_first(site: Site) -> None:
    """An agent of one Loki goes on without repeating lines. The new Loki gets whole captures if the
    spool has them whole, else the rest and an event about it. Later only the new one is configured,
    by its name, and `forget` removes the old one."""
    first = site.make_agent(loki={})
    with ExitStack() as stack:
        capture = stack.enter_context(long_capture(site, "long"))
        fresh = stack.enter_context(long_capture(site, "fresh"))
        for writer in (capture, fresh):
            writer.start()
            writer.lines([line_of(number) for number in range(50)])
        capture.rotate()
        capture.lines([line_of(number) for number in range(50, 100)])
        segments = Path(capture.segment).parent
        with first:
            wait_until(
                lambda: not (segments / "0000000001.seg").exists(), "what the first has is removed"
            )
            wait_until(lambda: len(found_lines(site, "loki", "long")) == 100, "it has all of it")
            wait_until(lambda: len(found_lines(site, "loki", "fresh")) == 50, "of the other, too")
            first.stop()
        second = site.make_agent()
        with second:
            for writer in (capture, fresh):
                writer.lines(
                    [line_of(number) for number in range(100 if writer is capture else 50, 150)]
                )
                writer.end()
                writer.close()
            stack.close()
            second.wait_shipped()
            second.stop()
        assert (
            "[loki.national] is new: the agent sends it the present spool" in second.log.read_text()
        )
    whole = [line_of(number) for number in range(150)]
    assert found_lines(site, "loki", "long") == found_lines(site, "loki", "fresh") == whole
    assert found_lines(site, "national", "fresh") == whole
    assert found_lines(site, "national", "long") == whole[100:]
    events = [
        json.loads(entry.line) for entry in site.entries("national") if '"sink_added"' in entry.line
    ]
    assert [event["lines"] for event in events] == [100]
    ended = [
        json.loads(entry.line) for entry in site.entries("national") if '"closed"' in entry.line
    ]
    assert [event["lines"] for event in ended] == [150, 150]

    refusal = second.call("forget", "national")
    assert refusal.returncode == 1
    assert "is in the configuration" in refusal.stderr
    last = site.make_agent(loki={"name": "national"})
    site.spool("later")
    with last:
        last.wait_shipped()
        assert last.status()["removed_sinks"] == ["loki"]
        assert "the agent runs" in last.call("forget", "loki").stderr
        last.stop()
    assert "the sink loki is no longer in the configuration" in last.log.read_text()
    assert (
        "is new" not in last.log.read_text().rpartition("stopped\n")[0].rpartition("stopped\n")[2]
    )
    assert last.call("forget", "loki").returncode == 0
    assert last.status()["removed_sinks"] == []
    assert site.problems("national") == {}
    assert found_lines(site, "loki", "later") == []


def found_lines(site: Site, name: str, job_id: str) -> list[str]:
    return [entry.line for entry in site.entries(name) if is_log(entry, job_id)]


def test_one_that_lost_its_state_begins_anew_and_an_added_one_where_others_are(
    tmp_path: Path,
) -> None:
    """All configured sinks have got the segments that are gone from the spool. Only an added sink
    may skip these; one that lost its state starts from the first position."""
    node = ShippingNode(tmp_path)
    capture = node.capture("long", soon_ns())
    capture.start()
    capture.lines(["one", "two"])
    capture.rotate()
    capture.lines(["three"])
    node.learn()
    node.ship()
    capture.lines(["four"])
    node.learn()
    node.ship()
    first_capture = node.only_capture()
    assert list_segments(first_capture.folder.segments_fd) == [2]
    (tmp_path / "other").mkdir()
    with closing(Checkpoints(str(tmp_path / "other" / "state.db"))) as new_checkpoints:
        sinks = (node.checkpoints, new_checkpoints)
        lost = FollowedCapture(
            first_capture.folder, node.checkpoints, first_capture.identity, sinks
        )
        assert (lost.sinks[1].progress.position, lost.sinks[1].has_checkpoint) == ((0, 0), False)
        newcomer = FollowedCapture(
            first_capture.folder,
            node.checkpoints,
            first_capture.identity,
            sinks,
            new=[new_checkpoints],
        )
        assert newcomer.sinks[1].committed == first_capture.sinks[0].committed
        lines = first_capture.sinks[0].progress.account.lines
        assert (
            newcomer.sinks[1].progress.counts.skipped,
            newcomer.sinks[1].progress.account.lines,
        ) == (lines, lines)
        assert lines >= 3
        assert new_checkpoints.shipped()[0].position == first_capture.sinks[0].progress.position, (
            "before anything is sent"
        )
        again = FollowedCapture(
            first_capture.folder, node.checkpoints, first_capture.identity, sinks
        )
        assert again.sinks[1].has_checkpoint
    node.close()


def test_commands_know_both(site: Site) -> None:
    with site.direct() as agent:
        site.spool("kept", forged=3)
        site.spool("gone", forged=3)
        agent.wait_shipped()
        findings = json.loads(agent.call("check", "--json").stdout)["findings"]
        pushed = {
            finding["about"]: finding["level"]
            for finding in findings
            if finding["about"].endswith("loki push")
        }
        assert pushed == {"loki push": "ok", "national: loki push": "ok"}
        purged = agent.call("purge", "--job", "gone", "--yes", "--wait", "1s", "--json")
        assert purged.returncode == 3, purged.stderr
        report = json.loads(purged.stdout)
        assert report["lines"]["quarantine"] == 8
        assert list(report["requests"]) == ["national"], "the other one has no delete API"
        assert {name: site.sink(name)["quarantine"]["entries"] for name in site.lokis} == {
            "loki": 4,
            "national": 4,
        }
        with next(site.quarantine("national").iterdir()).open("a") as file:
            file.write("no entry\n")
        assert agent.status()["remote_write"] is None
        checked = agent.call("fsck")
        assert checked.returncode == 3
        assert "sinks/national/quarantine" in checked.stdout
