"""All faults of Loki and of the gateway before it: afterwards no line is missing, repeated or out
of order."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from logshipper.errors import RejectedPushError
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry, assemble, compress, encode_block
from logshipper_ingest.state.checkpoints import read_state
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.segment_factory import HOUR_NS
from tests.tools.fakes.faulty_server import Said
from tests.tools.fakes.push_decoder import decompress, fields
from tests.tools.sources import INGEST, LOGSHIPPER, ROOT
from tests.tools.stores.node_agents import NodeAgent, Proxy, client, cluster, entries_of
from tests.tools.stress.conservation import (
    Place,
    all_problems,
    balances_in_loki,
    line_of,
    numbering,
    places,
    spool,
)

__all__ = ["client", "cluster"]  # fixtures
LINES = 300


needs_mounts = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="mount namespaces can't be made here",
)


class Site:
    """An agent whose way to Loki breaks in many ways. streams: the number of streams in each
    push."""

    def __init__(self, loki: LokiServer, folder: Path) -> None:
        self.cluster = f"t{uuid.uuid4().hex[:10]}"
        self.streams: set[int] = set()
        self.proxy = Proxy(loki.url)
        self.proxy.look = lambda body: self.streams.add(len(list(fields(decompress(body)))))
        options = {
            "timeout_secs": 0.5,
            "retry_min_secs": 0.02,
            "retry_max_secs": 0.2,
            "max_line_bytes": 300_000,
        }
        self.agent = NodeAgent(folder, self.proxy.url, cluster=self.cluster, loki=options)
        self.section = agent_config.load(str(self.agent.config)).agent


@pytest.fixture(scope="module")
def site(loki: LokiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(loki, tmp_path_factory.mktemp("site"))
    with site.proxy, site.agent:
        yield site
        assert site.streams == {1}, "a 204 for several streams proves nothing"


def every_third(reply: Said) -> Callable[[bytes], Said | None]:
    """Give this answer to all pushes except every third."""
    count = iter(range(1 << 30))
    return lambda _: None if next(count) % 3 == 2 else reply


def larger_than(size: int, reply: Said) -> Callable[[bytes], Said | None]:
    """Give this answer to large pushes; called with half of the body. A single entry, such as an event
    with a host's facts, must fit in the size."""
    return lambda body: reply if len(body) > size // 2 else None


def always(reply: Said) -> Callable[[bytes], Said | None]:
    return lambda _: reply


# the agent waits half a minute after a limit of streams, so that fault is in
# tests/ingest/shipping/test_backpressure.py
FAULTS: dict[str, Callable[[bytes], Said | None]] = {
    "hangs": always(Said(hang=True)),
    "drips its answer's head for minutes": always(
        Said(204, b"", {"X-Long": "x" * 20_000}, drip=True)
    ),
    "answers byte by byte": always(Said(204, drip=True)),
    "fails byte by byte": always(Said(503, b"Ingester is stopping", drip=True)),
    "refuses byte by byte": always(Said(500, b"x" * 2000, pieces=2000)),
    "closes half-way through the request": always(Said(hang_up=True)),
    "closes half-way through the answer": always(Said(500, b"half", body_bytes=4000)),
    "takes one of three": every_third(Said(503)),
    "429": always(Said(429, b"Ingestion rate limit exceeded")),
    "429 with Retry-After": always(
        Said(429, b"Ingestion rate limit exceeded", {"Retry-After": "1"})
    ),
    "429 with a date": always(
        Said(429, b"not now", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    ),
    "429 with a Retry-After that is none": always(Said(429, b"not now", {"Retry-After": "soon"})),
    "200": always(Said(200, b"ok")),
    "260": always(Said(260, b"blocked")),
    "302": always(Said(302, b"", {"Location": "http://127.0.0.1:1/"})),
    "400 in words of a gateway": always(Said(400, b"<html>Bad Request</html>")),
    "400 in words that nobody knows": always(Said(400, b"no", {"Content-Type": "text/plain"})),
    "401": always(Said(401, b"no org id")),
    "403": always(Said(403)),
    "404": always(Said(404, b"404 page not found")),
    "413 for what is large": larger_than(2000, Said(413, b"request entity too large")),
    "500": always(Said(500)),
    "502": always(Said(502)),
    "503": always(Said(503, b"Ingester is stopping")),
    "no HTTP": always(Said(0, b"")),
}


def test_whatever_loki_answers(site: Site, client: LokiClient) -> None:
    """One answer follows another, with a new job before each, while lines of the last job may still
    wait."""
    line_counts: dict[Place, int] = {}
    jobs: dict[str, str] = {}
    for number, (fault, answer) in enumerate(FAULTS.items()):
        jobs[f"fault{number}"] = fault
        site.proxy.broken(answer)
        # a busy agent may ship frame by frame, so large pushes need a large frame
        frames = 1 if "large" in fault else 6
        line_counts |= spool(site.section, f"fault{number}", LINES, frames=frames)
        least = 1 if fault.startswith("429") else 3  # a 429 slows the agent down
        try:
            wait_until(lambda: site.proxy.faults >= least, f"pushes that meet: {fault}")  # noqa: B023  called at once
        finally:
            push_count = site.proxy.pushes
            site.proxy.fixed()
        wait_until(lambda: site.proxy.pushes > push_count, f"a push after: {fault}")  # noqa: B023  called at once
    site.agent.wait_shipped()
    problems = all_problems(
        balances_in_loki(
            entries_of(client, site.cluster, selector='| job_id=~"fault.*"'), line_counts
        )
    )
    assert {jobs[place.split("/")[0]]: problem for place, problem in problems.items()} == {}
    assert not list((site.agent.state / "quarantine").iterdir())
    wait_until(
        lambda: not site.agent.status()["loki"]["waiting"],
        "the agent says that nothing holds it up",
    )


def test_a_head_that_drips_holds_no_push_and_no_sigterm(
    loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    """Each byte comes in time, but the whole answer would take minutes. A push waits for at most
    two time-outs."""
    endless = Said(204, b"", {"X-Long": "x" * 20_000}, drip=True)
    with Proxy(loki.url) as proxy:
        proxy.broken(lambda _: endless)
        options = {"timeout_secs": 1.0, "retry_min_secs": 0.02, "retry_max_secs": 0.1}
        with NodeAgent(tmp_path, proxy.url, cluster=cluster, loki=options) as agent:
            section = agent_config.load(str(agent.config)).agent
            line_counts = spool(section, "dripped", LINES)
            wait_until(lambda: proxy.faults > 2, "pushes are given up and tried again")
            wait_until(lambda: agent.status()["loki"]["trouble"], "status tells of it")
            words = agent.status()["loki"]["trouble"]["words"]
            assert words == "no complete answer within 2 s: the server answers too slowly"
            assert agent.stop() == 0
        proxy.fixed()
        with agent, LokiClient(loki.url) as client:
            agent.wait_shipped()
            assert all_problems(balances_in_loki(entries_of(client, cluster), line_counts)) == {}


def test_one_entry_in_a_thousand_is_refused(site: Site, client: LokiClient) -> None:
    """After Loki's 400, the quarantine has this entry alone, with Loki's message."""
    text = "for number in range(1000): print('x' * 280_000 if number == 500 else f'line {number}')"
    assert (
        site.agent.run(sys.executable, "-c", text, options=("--job-id", "thousand")).returncode == 0
    )
    site.agent.wait_shipped()
    entries = entries_of(client, site.cluster, "log", selector='| job_id=~"thousand.*"')
    assert [entry.line for entry in entries] == [
        line_of(number) for number in range(1000) if number != 500
    ]
    (file,) = (site.agent.state / "quarantine").iterdir()
    (record,) = map(json.loads, file.read_text().splitlines())
    assert (record["line"], record["status"], record["reason"]) == (
        "x" * 280_000,
        400,
        "line_too_long",
    )
    assert "exceeded" in record["words"]


def test_a_204_for_several_streams_hides_a_refusal(client: LokiClient, cluster: str) -> None:
    """This is the reason for pushes with one stream: Loki forgets its refusals for a stream when it
    accepts the next one."""
    now_ns = time.time_ns()
    behind, good = (
        {"cluster": cluster, "kind": "log", "stream": name} for name in ("behind", "good")
    )
    client.push(behind, [Entry(now_ns, "newest")])
    late = assemble(behind, [encode_block([b"late"], now_ns - 2 * HOUR_NS)])
    assert (
        client.push_body(compress(late + assemble(good, [encode_block([b"good"], now_ns)]))).status
        == 204
    )
    assert sorted(entry.line for entry in entries_of(client, cluster, hours=3)) == [
        "good",
        "newest",
    ]
    with pytest.raises(RejectedPushError, match="too far behind"):
        client.push_body(compress(late))


def test_loki_is_killed_and_comes_back(lokis: None, cluster: str, tmp_path: Path) -> None:
    """Jobs print on meanwhile. Loki's write-ahead log has all acknowledged entries."""
    line_counts: dict[Place, int] = {}
    with (
        LokiServer() as loki_server,
        NodeAgent(tmp_path, loki_server.url, cluster=cluster) as agent,
    ):
        section = agent_config.load(str(agent.config)).agent
        for life in range(2):
            for number in range(4):
                line_counts |= spool(section, f"job{life}{number}", 1000)
            wait_until(lambda: "204" in agent.metrics(), "something is taken")
            loki_server.stop(signal.SIGKILL)
            line_counts |= spool(section, f"away{life}", LINES)
            loki_server.start()
        agent.wait_shipped()
        with LokiClient(loki_server.url) as client:
            balances = balances_in_loki(entries_of(client, cluster), line_counts)
    assert all_problems(balances) == {}


def test_the_clock_is_set_back_and_forward(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """The clock goes back by an hour, ahead by a day, and is then three hours fast. Some jobs run
    at that time, and others begin later."""
    clock = tmp_path / "clock"
    line_counts: dict[Place, int] = {}
    running: list[subprocess.Popen[bytes]] = []
    agent = NodeAgent(tmp_path / "node", loki.url, cluster=cluster)

    def set_clock(secs: int) -> None:
        (tmp_path / "new").write_text(str(secs))
        os.replace(tmp_path / "new", clock)

    def by(program: str) -> list[str]:
        return [sys.executable, "-m", "tests.tools.fakes.stepped_clock", str(clock), program]

    set_clock(0)
    with agent.start(by=by("logshipper-agent")):
        environment = {**agent.environment, "HOME": str(tmp_path)}
        for secs in (0, -3600, 86_400, 3 * 3600):
            set_clock(secs)
            job_id = f"off{secs}".replace("-", "m")
            words = ["run", "--job-id", job_id, "--", *numbering(LINES, bursts=10, pause_secs=0.1)]
            running.append(
                subprocess.Popen([*by("logshipper"), *words], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            )  # fmt: skip
            line_counts |= places(f"{job_id}.u{os.getuid()}", LINES)
            of_job = f'| job_id="{job_id}.u{os.getuid()}"'
            wait_until(
                partial(entries_of, client, cluster, "log", hours=2, selector=of_job),
                f"{job_id} has begun",
            )
        for process in running:
            assert process.wait(TIMEOUT_SECS) == 0
        agent.wait_shipped()
        log = agent.log.read_text()
    assert all_problems(balances_in_loki(entries_of(client, cluster, hours=2), line_counts)) == {}
    assert not list((agent.state / "quarantine").iterdir())
    assert [f"clock is {secs} s ahead" in log for secs in (86_400, 86_401, 10_800, 10_801)].count(
        True
    ) == 2


def has_more_than(count: int, client: LokiClient, cluster: str) -> bool:
    return len(entries_of(client, cluster, "log")) > count


def test_an_upgrade_in_the_middle(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Another version of the packages takes over while jobs print, and later the first one
    again."""
    for package in (LOGSHIPPER, INGEST):
        shutil.copytree(package, tmp_path / "newer" / package.name)
    (tmp_path / "newer" / "logshipper" / "__init__.py").write_text('__version__ = "99.0.0"\n')
    agent = NodeAgent(tmp_path / "node", loki.url, cluster=cluster)
    line_counts: dict[Place, int] = {}
    with agent:
        words = [sys.executable, "-m", "logshipper", "run", "--job-id", "on", "--"]
        environment = {**agent.environment, "HOME": str(tmp_path)}
        command = [*words, *numbering(3000, bursts=60, pause_secs=0.05)]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as job:
            for path in (tmp_path / "newer", ROOT):
                before = len(entries_of(client, cluster, "log"))
                wait_until(partial(has_more_than, before, client, cluster), "more has come")
                assert agent.stop() == 0
                agent.start(path=path)
                if path != ROOT:
                    wait_until(lambda: version_of(agent) == "99.0.0", "the newer one is at work")
            assert job.wait(TIMEOUT_SECS) == 0
        line_counts |= places(f"on.u{os.getuid()}", 3000)
        agent.wait_shipped()
    assert all_problems(balances_in_loki(entries_of(client, cluster), line_counts)) == {}


def version_of(agent: NodeAgent) -> object:
    return read_state(str(agent.state / "state.db")).notes["agent"]["version"]


@needs_mounts
def test_the_name_service_is_gone(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    url = f"http://loki.logshipper-test.invalid:{loki.port}"
    agent = NodeAgent(tmp_path / "node", url, cluster=cluster)
    enter = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    by = ["unshare", "--mount", "sh", "-c", enter, "sh", sys.executable, "-m", "logshipper_ingest"]
    line_counts: dict[Place, int] = {}
    section = agent_config.load(str(agent.config)).agent
    for number in range(2):  # each with a new agent, since an open connection needs no name
        line_counts |= spool(section, f"job{number}", LINES)
        with agent.start(by=by):
            wait_until(lambda: agent.status()["loki"]["waiting"], "its name isn't known")
            hosts.write_text("127.0.0.1 localhost loki.logshipper-test.invalid\n")
            agent.wait_shipped()
            hosts.write_text("127.0.0.1 localhost\n")
    assert all_problems(balances_in_loki(entries_of(client, cluster), line_counts)) == {}


@pytest.mark.parametrize("sharded", [True, False])
def test_a_backlog_of_hours_beside_a_flood(
    sharded: bool, loki: LokiServer, cluster: str, tmp_path: Path, lokis: None
) -> None:
    """The backlog is two hours behind the flood in the same streams. Loki's splitting of streams is
    on or off."""
    with ExitStack() as stack:
        server = (
            loki
            if sharded
            else stack.enter_context(LokiServer(limits={"shard_streams": {"enabled": False}}))
        )
        agent = NodeAgent(tmp_path, server.url, cluster=cluster)
        section = agent_config.load(str(agent.config)).agent
        line_counts = spool(section, "flood10", 2000, frames=40, ago_secs=60)
        with agent:
            agent.wait_shipped()
            line_counts |= spool(section, "backlog0", 5000, frames=40, ago_secs=7200)
            line_counts |= spool(section, "flood20", 5000, frames=40, ago_secs=60)
            agent.wait_shipped()
        with LokiClient(server.url) as client:
            entries = entries_of(client, cluster, hours=3)
    assert all_problems(balances_in_loki(entries, line_counts)) == {}
    assert {entry.metadata["job_id"] for entry in entries if "replay" in entry.labels} == {
        "backlog0"
    }
