"""Limits of Loki that are below the agent's load, each by itself. No tenant or stream holds up
another, and no line is lost or repeated."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper.errors import PushError
from logshipper.spool.segment import Stream
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.shipping import delivery
from tests.servers.running import LokiServer
from tests.tools.fakes.modelled_loki import rejection, throttled
from tests.tools.stores.node_agents import NodeAgent, entries_of
from tests.tools.stores.shipping_node import ShippingNode, soon_ns

STREAM_LIMIT = (
    "maximum active stream limit exceeded when trying to create stream {...}, reduce the number of active streams "
    "(reduce labels or reduce label values), or contact your Loki administrator to see if the limit can be increased"
)
STREAM_RATE = (
    "Per stream rate limit exceeded (limit: 3MB/sec) while attempting to ingest for stream '{...}'"
)
RATE = (
    "ingestion rate limit exceeded for user fake (limit: 4194304 bytes/sec) while attempting to ingest '7' lines "
    "totaling '900' bytes, reduce log volume"
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def whole(
    node: ShippingNode, job_id: str, stdout: list[str], stderr: list[str], minutes: float = 10
) -> None:
    """Spool a capture from START to END."""
    with node.capture(job_id, soon_ns(minutes)) as capture:
        capture.start()
        capture.lines(stdout)
        if stderr:
            capture.lines(stderr, stream=Stream.STDERR)
        capture.end()
        capture.close()


def rounds(node: ShippingNode, number: int) -> None:
    node.learn()
    for _ in range(number):
        node.round()


def ailing(part: str, error: PushError) -> Callable[[str], PushError | None]:
    return lambda labels: error if part in labels else None


def throttles(node: ShippingNode, limit: str) -> float:
    return (
        node.health.registry.get_sample_value("logshipper_agent_throttled_total", {"limit": limit})
        or 0.0
    )


# ---- one stream


@pytest.mark.parametrize("words", [STREAM_LIMIT, STREAM_RATE])
def test_a_stream_that_loki_limits_holds_up_no_other(node: ShippingNode, words: str) -> None:
    node.loki.ails = ailing('stream="stderr"', throttled(words=words))
    whole(node, "job1", ["one"], ["oops"])
    whole(node, "job2", ["two"], [])
    rounds(node, 3)
    assert node.loki.lines('kind="log"') == ["one", "two"]
    assert [event["event"] for event in node.events("job2")] == ["started", "ended", "closed"]
    assert node.events("job1") == [], "who reads of its end finds all its lines"
    assert {
        name.split("@")[0]: capture.sinks[0].progress.done
        for name, capture in node.captures.items()
    } == {"job1": False, "job2": True}


def test_a_job_that_comes_later_doesn_t_wait_for_a_stream_either(node: ShippingNode) -> None:
    """The agent may send some entries of the earlier job twice."""
    node.loki.ails = ailing('stream="stderr"', throttled(words=STREAM_LIMIT))
    whole(node, "job1", ["one"], ["oops"])
    rounds(node, 2)
    whole(node, "job2", ["two"], [])
    rounds(node, 2)
    assert node.loki.lines('kind="log"') == ["one", "two"]
    assert node.loki.doubles() == []


def test_a_user_s_limit_of_streams_holds_up_neither_the_user_s_others_nor_other_users(
    tmp_path: Path,
) -> None:
    node = ShippingNode(tmp_path, tenant_by="user")
    node.loki.ails = lambda labels: (
        throttled(words=STREAM_LIMIT)
        if 'stream="stderr"' in labels and 'tenant="ann"' in labels
        else None
    )
    for job_id, user, stderr in (
        ("job1", "ann", ["oops"]),
        ("job2", "ann", []),
        ("job3", "ben", ["oops"]),
    ):
        with node.capture(job_id, soon_ns(), user=user) as capture:
            capture.lines([job_id])
            if stderr:
                capture.lines(stderr, stream=Stream.STDERR)
    rounds(node, 4)
    assert sorted(node.loki.lines('kind="log"')) == ["job1", "job2", "job3", "oops"]
    done = {
        name.split("@")[0]: capture.sinks[0].progress.done
        for name, capture in node.captures.items()
    }
    assert done == {"job1": False, "job2": True, "job3": True}
    assert node.delivery.waiting_tenants() == set()
    node.close()


@pytest.mark.parametrize("status", [500, 503])
def test_a_part_of_loki_that_is_away_holds_up_no_other_stream(
    node: ShippingNode, status: int
) -> None:
    whole(node, "before", ["zero"], ["zero"])
    node.ship()
    node.loki.ails = ailing(
        'stream="stderr"', rejection(status, "at least 1 live replicas required")
    )
    whole(node, "job1", ["one"] * 3, ["oops"], minutes=5)
    whole(node, "job2", ["two"] * 3, [], minutes=5)
    rounds(node, 8)
    assert "closed" in [event["event"] for event in node.events("job2")]
    assert "closed" not in [event["event"] for event in node.events("job1")]


def test_who_comes_while_a_part_of_loki_is_away_doesn_t_wait(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else was on its way, so the agent can't know yet that Loki accepts other streams."""
    monkeypatch.setattr(delivery, "PART_SECS", 0.02)
    node.loki.ails = ailing('stream="stderr"', rejection(500, "at least 1 live replicas required"))
    whole(node, "job1", [], ["oops"], minutes=5)
    rounds(node, 2)
    assert node.loki.lines('kind="log"') == []
    whole(node, "job2", ["two"], [], minutes=5)
    rounds(node, 3)
    assert node.loki.lines('kind="log"') == ["two"]
    assert "closed" in [event["event"] for event in node.events("job2")]
    assert "closed" not in [event["event"] for event in node.events("job1")]
    node.loki.ails = lambda labels: None
    node.ship()
    assert sorted(node.loki.lines('kind="log"')) == ["oops", "two"]
    assert node.loki.doubles() == []


def test_a_stream_is_taken_up_again_and_nothing_is_missing_or_double(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "STREAM_LIMIT_SECS", (0.001, 0.002))
    node.loki.ails = ailing('stream="stderr"', throttled(words=STREAM_LIMIT))
    for number in range(6):
        whole(node, f"job{number}", [f"out {number}"] * 50, [f"err {number}"] * 50)
    rounds(node, 20)
    assert throttles(node, "stream_limit") > 0
    node.loki.ails = lambda labels: None
    node.ship()
    assert len(node.loki.find('kind="log"', 'stream="stderr"')) == 300
    assert len(node.loki.stored) == len(set(node.loki.stored)), "what was taken isn't sent again"
    assert node.loki.doubles() == []
    assert node.quarantined() == []
    assert node.delivery.state.since_ns == 0


def test_a_limit_of_streams_that_lasts_is_not_hammered(node: ShippingNode) -> None:
    node.loki.ails = ailing('stream="stderr"', throttled(words=STREAM_LIMIT))
    for number in range(5):
        whole(node, f"job{number}", [f"out {number}"], [f"err {number}"])
    rounds(node, 50)
    refusals = [labels for labels, _ in node.loki.requests if 'stream="stderr"' in labels]
    assert len(refusals) == len(set(refusals)), "one try of each stream in half a minute"
    assert node.delivery.state.status == 429
    (line,) = node.messages
    assert "max_global_streams_per_user" in line
    assert delivery.STREAM_LIMIT_SECS[0] >= 30


def test_the_same_trouble_in_other_numbers_is_said_once(node: ShippingNode) -> None:
    whole(node, "job1", ["one"], [])
    node.loki.script = [throttled(words=RATE.replace("900", str(number))) for number in range(5)]
    node.loki.script += [
        rejection(500, f"shard {number} of {{a={number}}} is away") for number in range(5)
    ]
    node.ship()
    assert len([line for line in node.messages if "rate limit" in line]) == 1
    assert len([line for line in node.messages if "is away" in line]) == 1


# ---- a tenant's rate


def test_what_a_tenant_is_refused_goes_in_smaller_pushes(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst of Loki that is smaller than a push refuses it after any pause."""

    def small(labels: str) -> PushError | None:
        size = sum(len(entry.line) for entry in node.loki.requests[-1][1])
        return throttled(words=RATE) if size > 50_000 else None

    node.loki.ails = small
    monkeypatch.setattr(node.delivery, "_wait", lambda secs: None)
    with node.capture("job1", soon_ns()) as capture:
        capture.lines([f"{number} {'x' * 1000}" for number in range(300)])
        node.ship()
    assert len(node.loki.find('kind="log"')) == 300
    assert node.loki.doubles() == []
    assert throttles(node, "tenant_rate") < 10, "it learns"


def test_a_round_is_as_small_as_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a quiet job would wait for minutes of another job's flood."""
    monkeypatch.setattr("logshipper_ingest.shipping.pace.START_BYTES_PER_SEC", 40_000)
    node = ShippingNode(tmp_path, tenant_max_bytes_per_sec=4_000_000)
    waited: list[float] = []
    monkeypatch.setattr(node.delivery, "_wait", waited.append)
    with node.capture("flood", soon_ns()) as flood, node.capture("quiet", soon_ns()) as quiet:
        for _ in range(50):
            flood.lines(["x" * 1000] * 100)
        quiet.lines(["quiet"])
        node.learn()
        node.round()
        node.round()
        assert "quiet" in node.loki.lines()
        assert sum(len(entry.line) for entry in node.loki.stored) < 600_000
    node.close()


# ---- a real Loki with low limits


@pytest.fixture(scope="module")
def tight(lokis: None) -> Iterator[LokiServer]:
    limits = {
        "ingestion_rate_mb": 1,
        "ingestion_burst_size_mb": 1,
        "max_global_streams_per_user": 4,
    }
    with LokiServer(limits=limits, auth_enabled=True) as server:
        yield server


def reader(server: LokiServer, tenant: str) -> LokiClient:
    return LokiClient(access_to(server, tenant))


def access_to(server: LokiServer, tenant: str) -> ServerAccess:
    return ServerAccess(url=server.url, tenant=tenant)


def throttled_in(metrics: str) -> dict[str, float]:
    lines = [
        line
        for line in metrics.splitlines()
        if line.startswith("logshipper_agent_throttled_total{")
    ]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


def test_a_backlog_beyond_a_real_loki_s_rate_is_taken_with_few_refusals(
    tight: LokiServer, tmp_path: Path
) -> None:
    lines = 15_000
    agent = NodeAgent(
        tmp_path,
        tight.url,
        cluster="rate",
        loki={"tenant": "rate", "stream_max_bytes_per_sec": 3_000_000},
    )
    script = f"for n in range({lines}): print(n, 'x' * 150)"
    with agent:
        assert agent.run("python3", "-c", script).returncode == 0
        agent.wait_shipped(60)
        throttled_by = throttled_in(agent.metrics())
    with reader(tight, "rate") as client:
        numbers = [int(entry.line.split()[0]) for entry in entries_of(client, "rate", "log")]
    assert numbers == list(range(lines))
    assert 0 < throttled_by["tenant_rate"] < 20, throttled_by
    assert throttled_by["stream_limit"] == throttled_by["other"] == 0


def test_a_real_loki_s_limit_of_streams_stops_new_streams_alone(
    tight: LokiServer, tmp_path: Path
) -> None:
    with reader(tight, "streams") as client:
        node = ShippingNode(tmp_path, access=access_to(tight, "streams"))
        whole(node, "job1", ["one"], ["oops"])
        with node.capture("job11", soon_ns()) as metadata:
            metadata.metadata({"loss": "low"})  # without a number, so that there is no fifth stream
        node.ship()  # four streams: events, both outputs, metadata
        with node.capture("job21", soon_ns(5)) as fifth:
            fifth.lines(["stuck"])
            fifth.status("50 %")
        whole(node, "job31", ["two"], [], minutes=4)
        rounds(node, 5)
        lines = {entry.line for entry in entries_of(client, "testing", "log")}
        assert {"one", "oops", "two"} <= lines
        done = {
            name.split("@")[0]: capture.sinks[0].progress.done
            for name, capture in node.captures.items()
        }
        assert done == {"job1": True, "job11": True, "job21": False, "job31": True}
        assert "maximum active stream limit exceeded" in node.delivery.state.words
        assert throttles(node, "stream_limit") == 1
        node.close()
