"""All that Loki, or what stands before it, can do to an agent: no line is missing, twice or out of order afterwards."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest import agent_config
from ingest.loki import Client
from tests.captured_runs import wait_until
from tests.conservation import Place, all_problems, balances_in_loki, spool
from tests.faulty_server import Said
from tests.node_agents import NodeAgent, Proxy, client, entries_of
from tests.push_decoder import decompress, fields
from tests.servers.running import LokiServer

__all__ = ["client"]  # a fixture
LINES = 300
WORDS = b"Maximum active stream limit exceeded when trying to create stream, reduce the number of active streams"


class Site:
    """An agent whose way to Loki is broken in one way after another. streams: how many each push had."""

    def __init__(self, loki: LokiServer, folder: Path) -> None:
        self.cluster = f"t{uuid.uuid4().hex[:10]}"
        self.streams: set[int] = set()
        self.proxy = Proxy(loki.url)
        self.proxy.look = lambda body: self.streams.add(len(list(fields(decompress(body)))))
        options = {"timeout_secs": 0.5, "retry_min_secs": 0.02, "retry_max_secs": 0.2, "max_line_bytes": 300_000}
        self.agent = NodeAgent(folder, self.proxy.url, cluster=self.cluster, loki=options)
        self.section = agent_config.load(str(self.agent.config)).agent


@pytest.fixture(scope="module")
def site(loki: LokiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(loki, tmp_path_factory.mktemp("site"))
    with site.proxy, site.agent:
        yield site
        assert site.streams == {1}, "a 204 for several streams proves nothing"


def every_third(said: Said) -> Callable[[bytes], Said | None]:
    """All but every third push get this answer."""
    count = iter(range(1 << 30))
    return lambda _: None if next(count) % 3 == 2 else said


def larger_than(size: int, said: Said) -> Callable[[bytes], Said | None]:
    """called with half of the body"""
    return lambda body: said if len(body) > size // 2 else None


def each(said: Said) -> Callable[[bytes], Said | None]:
    return lambda _: said


FAULTS: dict[str, Callable[[bytes], Said | None]] = {
    "hangs": each(Said(hang=True)),
    "answers byte by byte": each(Said(204, drip=True)),
    "fails byte by byte": each(Said(503, b"Ingester is stopping", drip=True)),
    "refuses byte by byte": each(Said(500, b"x" * 2000, pieces=2000)),
    "closes half-way through the request": each(Said(hang_up=True)),
    "closes half-way through the answer": each(Said(500, b"half", body_bytes=4000)),
    "takes one of three": every_third(Said(503)),
    "429": each(Said(429, b"Ingestion rate limit exceeded")),
    "429 with Retry-After": each(Said(429, b"Ingestion rate limit exceeded", {"Retry-After": "1"})),
    "429 with a date": each(Said(429, b"not now", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})),
    "429 with a Retry-After that is none": each(Said(429, b"not now", {"Retry-After": "soon"})),
    "stream_limit": each(Said(429, WORDS)),
    "200": each(Said(200, b"ok")),
    "260": each(Said(260, b"blocked")),
    "302": each(Said(302, b"", {"Location": "http://127.0.0.1:1/"})),
    "400 in words of a gateway": each(Said(400, b"<html>Bad Request</html>")),
    "400 in words that nobody knows": each(Said(400, b"no", {"Content-Type": "text/plain"})),
    "401": each(Said(401, b"no org id")),
    "403": each(Said(403)),
    "404": each(Said(404, b"404 page not found")),
    "413 for what is large": larger_than(1500, Said(413, b"request entity too large")),
    "500": each(Said(500)),
    "502": each(Said(502)),
    "503": each(Said(503, b"Ingester is stopping")),
    "no HTTP": each(Said(0, b"")),
}


def test_whatever_loki_answers(site: Site, client: Client) -> None:
    """One answer after another, with a new job before each, while the last one's lines may still wait."""
    sent: dict[Place, int] = {}
    jobs: dict[str, str] = {}
    for number, (fault, answer) in enumerate(FAULTS.items()):
        jobs[f"fault{number}"] = fault
        sent |= spool(site.section, f"fault{number}", LINES)
        site.proxy.broken(answer)
        wait_until(lambda: site.proxy.faults >= 3, f"pushes that meet: {fault}")
        taken = site.proxy.pushes
        site.proxy.mended()
        wait_until(lambda: site.proxy.pushes > taken, f"a push after: {fault}")  # noqa: B023  called at once
    site.agent.wait_shipped()
    problems = all_problems(balances_in_loki(entries_of(client, site.cluster, selector='| job_id=~"fault.*"'), sent))
    assert {jobs[place.split("/")[0]]: found for place, found in problems.items()} == {}
    assert not list((site.agent.state / "quarantine").iterdir())
    assert site.agent.status()["loki"]["waiting"] is False
