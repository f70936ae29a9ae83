"""The agent's tenants, one per user: the right tenant for each job, and no effect of one user's
errors on another."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.segment import Stream
from logshipper_ingest.config.agent_config import parse
from logshipper_ingest.config.tenants import BY_USER, NOBODYS, USER, tenant_of
from logshipper_ingest.shipping.entries import StreamKey
from logshipper_ingest.slurm.run_search import uid_of
from logshipper_ingest.state.checkpoints import Checkpoints
from tests.gateway.conftest import ANN, Job, Site, capture, new_job, tenant_agent
from tests.gateway.nginx import question
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import make_ledger
from tests.tools.fakes.modelled_loki import HOUR_NS, rejection, throttled, unreachable
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent
from tests.tools.stores.shipping_node import ShippingNode, one_stream_at_a_time, soon_ns

OF_ANN, OF_BEN = 'tenant="ann"', 'tenant="ben"'


@pytest.mark.parametrize(
    "name", ["ann", "_apt", "a", "ann.b", "ann-b_1", "a" * 32, "faker", "fake-1", "afake"]
)
def test_a_user_s_tenant_is_the_user_s_name(name: str) -> None:
    assert tenant_of(BY_USER, name, 1000) == name
    assert tenant_of("", name, 1000) == ""


@pytest.mark.parametrize(
    "name",
    ["", "Ann", "1000", "ann|ben", "ann\n", "ann ", "../ann", ".ann", "-ann", "a" * 33, "ann@x.org", "X\\ann",
     "b\u00e9n", "machine$", "uid!1000", "nobody!", "\u0661", "fake"],
)  # fmt: skip
def test_other_names_get_a_tenant_that_no_user_can_have(name: str) -> None:
    assert tenant_of(BY_USER, name, 1000) == "uid!1000"
    assert tenant_of(BY_USER, name, -1) == NOBODYS
    for tenant in ("uid!1000", NOBODYS):
        assert USER.fullmatch(tenant) is None


def test_the_gateway_takes_the_same_names() -> None:
    maps = (ROOT / "deploy" / "gateway" / "logshipper" / "maps.conf").read_text()
    assert f'"~^{USER.pattern}\\z"' in maps
    assert f'"~^00 {NOBODYS}+\\z"' in maps


# ---- configuration


def configured(**tables: dict[str, Any]) -> Any:  # Any: TOML
    config, problems = parse(tables)
    assert problems == []
    return config


def test_tenants_by_user_switch_job_values_off() -> None:
    config = configured(loki={"url": "http://x", "tenant_by": "user"}, metrics={"job_values": True})
    assert config.metrics.job_values is False
    assert config.loki.access.tenant == NOBODYS
    with_tenant = configured(loki={"url": "http://x", "tenant_by": "user", "tenant": "ops!"})
    assert with_tenant.loki.access.tenant == "ops!"
    usual = configured(loki={"url": "http://x"})
    assert (usual.metrics.job_values, usual.loki.access.tenant) == (True, "")


def test_streams_are_remembered_with_and_without_a_tenant() -> None:
    for key in (
        StreamKey("stdout", "log", "", "n1"),
        StreamKey("", "event", "007"),
        StreamKey("", "event", tenant="ann"),
        StreamKey("stdout", "log", "007", "n1", "ann", "3"),
        StreamKey("stdout", "log", "", "n1", "", "3"),
    ):
        assert StreamKey.from_text(key.text) == key
    assert StreamKey("stdout", "log", "", "n1").text == "stdout/log//n1"
    assert "tenant" not in StreamKey("stdout", "log", tenant="ann").labels("c", "h")


# ---- shipping


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path, tenant_by="user")
    yield shipping_node
    shipping_node.close()


def captured(
    node: ShippingNode, job_id: str, user: str, lines: list[str], start_ns: int = 0
) -> None:
    """Write a capture from start to END."""
    writer = node.capture(job_id, start_ns or soon_ns(), user=user)
    writer.start()
    writer.lines(lines)
    writer.metadata({"loss": 1.5})
    size = sum(len(line) + 1 for line in lines)
    writer.counters((size, len(lines)))
    writer.end(ledger=make_ledger({"stored": len(lines), "bytes": size}))
    writer.close()


def test_each_job_goes_to_its_user_s_tenant_in_pushes_of_its_own(node: ShippingNode) -> None:
    captured(node, "j1", "ann", ["one"])
    captured(node, "j2", "ben", ["two"])
    captured(node, "j3", "Ann", ["three"])
    node.ship()
    assert node.loki.lines(OF_ANN, 'kind="log"') == ["one"]
    assert node.loki.lines(OF_BEN, 'kind="log"') == ["two"]
    assert node.loki.lines('tenant="uid!', 'kind="log"') == ["three"]
    assert all('tenant="' in labels for labels in node.loki.streams())
    for labels, entries in node.loki.requests:
        users = {dict(entry.metadata)["user"] for entry in entries}
        assert users == {"ann" if OF_ANN in labels else "ben" if OF_BEN in labels else "Ann"}


TROUBLES = [
    throttled(),
    throttled(0.001),
    unreachable(),
    rejection(403),
    rejection(500),
    rejection(400, "no tenant today"),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_a_tenant_that_takes_nothing_holds_up_no_other(node: ShippingNode, trouble: Any) -> None:
    # Any: a PushError
    node.loki.refusing = {"ann": trouble}
    for number in range(3):
        captured(node, f"a{number}", "ann", [f"ann {number}"])
        captured(node, f"b{number}", "ben", [f"ben {number}"])
    node.learn()
    for _ in range(20):
        node.round()
    assert sorted(node.loki.lines(OF_BEN, 'kind="log"')) == ["ben 0", "ben 1", "ben 2"]
    assert node.loki.lines(OF_ANN) == []
    done = {shipped.identity.user for shipped in node.checkpoints.shipped() if shipped.done}
    assert done == {"ben"}
    assert node.quarantined() == []
    assert len(node.messages) == 1, node.messages
    assert node.delivery.state.since_ns > 0
    node.loki.refusing = {}
    wait_until(lambda: "ann" not in node.delivery.waiting_tenants(), "its time comes")
    node.ship()
    assert sorted(node.loki.lines(OF_ANN, 'kind="log"')) == ["ann 0", "ann 1", "ann 2"]
    assert node.loki.doubles() == []
    assert len(node.loki.stored) == len(set(node.loki.stored)), (
        "nothing is sent twice that was taken"
    )
    assert [event["event"] for event in node.events("a0")] == ["started", "ended", "closed"]
    assert node.delivery.state.since_ns == 0


def test_a_tenant_that_waits_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    node = ShippingNode(tmp_path, tenant_by="user", retry_min_secs=0.02, retry_max_secs=600)
    try:
        node.loki.refusing = {"ann": unreachable()}
        captured(node, "a", "ann", ["one"])
        node.learn()
        pushes = []
        for _ in range(4):
            node.round()
            pushes.append(len(node.loki.requests))
            wait_until(lambda: "ann" not in node.delivery.waiting_tenants(), "its time comes")
        node.round()
        pauses = [pause.backoff.tries for pause in node.delivery._pauses.values()]
        assert max(pauses) >= 4
        before = len(node.loki.requests)
        node.round()
        assert len(node.loki.requests) == before, "not before its time"
    finally:
        node.close()


def test_part_of_a_job_that_was_taken_is_sent_again_byte_for_byte(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log arrives, the events fail, and the agent dies in between."""
    captured(node, "a", "ann", ["one", "two"])
    captured(node, "b", "ben", ["three"])
    node.learn()
    passed = node.loki.push_body

    def without_events(body: bytes, tenant: str = "") -> None:
        if tenant == "ann" and b'"event"' in _plain(body):
            raise unreachable()
        passed(body, tenant)

    monkeypatch.setattr(node.loki, "push_body", without_events)
    node.round()
    assert node.loki.lines(OF_ANN, 'kind="log"') == ["one", "two"]
    assert node.loki.lines(OF_ANN, 'kind="event"') == []
    monkeypatch.undo()
    node.restart(save=False)
    node.ship()
    assert node.loki.doubles() == []
    assert node.loki.lines(OF_ANN, 'kind="log"') == ["one", "two"]
    assert [event["event"] for event in node.events("a")] == ["started", "ended", "closed"]
    assert node.loki.lines(OF_BEN, 'kind="log"') == ["three"]


def much(node: ShippingNode, job_id: str) -> list[str]:
    """Write some megabytes of ann's output in all kinds of streams; return the lines of stdout."""
    lines = [f"{job_id} {number} {'x' * 1000}" for number in range(1500)]
    writer = node.capture(job_id, soon_ns(), user="ann")
    writer.start()
    for at in range(0, len(lines), 50):
        writer.lines(lines[at : at + 50])
        writer.lines([f"{job_id} {at} {'e' * 20_000}"], stream=Stream.STDERR)
        writer.metadata({"loss": at, "pad": "m" * 10_000})
        writer.heartbeat()
    writer.counters((1, 1))
    writer.end(ledger=make_ledger({"stored": 1, "bytes": 1}))
    writer.close()
    return lines


def sizes(requests: Any) -> int:  # Any: requests of a model
    return sum(len(entry.line) for _, entries in requests for entry in entries)


def rounds_until_shipped(node: ShippingNode, max_rounds: int) -> None:
    node.learn()
    for _ in range(max_rounds):
        wait_until(lambda: "ann" not in node.delivery.waiting_tenants(), "its time comes")
        node.round()
        if not any(capture.sinks[0].waits for capture in node.captures.values()):
            return
    raise AssertionError(f"{max_rounds} rounds don't do")


@pytest.mark.parametrize("parity", [0, 1])
def test_a_tenant_that_takes_every_second_push_gets_all_without_much_again(
    node: ShippingNode, parity: int
) -> None:
    lines = [*much(node, "a"), *much(node, "b")]
    node.loki.takes = lambda number: number % 2 == parity
    node.loki.excess = unreachable  # a 429 would slow the agent down
    rounds_until_shipped(node, 200)
    assert sorted(node.loki.lines('kind="log"', 'stream="stdout"')) == sorted(lines)
    assert node.loki.doubles() == []
    assert [event["event"] for event in node.events("a")][-2:] == ["ended", "closed"]
    payload = sum(len(entry.line) for entry in set(node.loki.stored))
    assert payload > 4 << 20
    assert sizes(node.loki.requests) <= 3 * payload
    assert sizes([("", node.loki.stored)]) <= 1.2 * payload, "what counts against the user's limits"
    assert node.shipper._acknowledged._digests == {}
    assert node.quarantined() == []


@pytest.mark.parametrize("parity", [0, 1])
def test_a_chunk_of_several_batches_comes_through_as_well(tmp_path: Path, parity: int) -> None:
    node = ShippingNode(tmp_path, tenant_by="user", batch_max_bytes=10_000)
    try:
        captured(node, "a", "ann", [f"{number} {'x' * 1000}" for number in range(100)])
        node.loki.takes = lambda number: number % 2 == parity
        node.loki.excess = unreachable  # a 429 would slow the agent down
        rounds_until_shipped(node, 100)
        assert len(node.loki.lines('kind="log"')) == 100
        assert sizes(node.loki.requests) <= 3 * sizes([("", set(node.loki.stored))])
    finally:
        node.close()


def test_a_tenant_that_failed_is_tried_with_a_batch_of_one_capture(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # at the normal pace, the 429 would slow it down for minutes
    monkeypatch.setattr("logshipper_ingest.shipping.pace.START_BYTES_PER_SEC", 64 << 20)
    much(node, "a")
    much(node, "b")
    captured(node, "c", "ben", ["one"])
    node.learn()
    node.loki.refusing = {"ann": throttled()}
    node.round()
    assert node.loki.lines(OF_BEN, 'kind="log"') == ["one"]
    wait_until(lambda: "ann" not in node.delivery.waiting_tenants(), "its time comes")
    node.loki.refusing = {}
    node.loki.requests.clear()
    node.round()
    assert (
        len(
            {dict(entry.metadata)["job_id"] for entry in node.loki.stored if OF_ANN in entry.labels}
        )
        == 1
    )
    assert 0 < sizes(node.loki.requests) <= node.config.loki.batch_max_bytes
    node.ship()
    assert len(node.loki.lines(OF_ANN, 'stream="stdout"', 'kind="log"')) == 3000


def test_nothing_more_is_sent_to_a_tenant_that_failed_in_this_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_stream_at_a_time(monkeypatch)
    node = ShippingNode(tmp_path, tenant_by="user")
    try:
        much(node, "a")
        node.learn()
        node.loki.takes = lambda number: number > 1
        node.round()
        assert len(node.loki.requests) == 1
    finally:
        node.close()


def test_trouble_ends_with_the_capture_that_had_it(node: ShippingNode) -> None:
    captured(node, "a", "ann", ["one"])
    node.learn()
    node.loki.refusing = {"ann": rejection(403)}
    node.round()
    assert node.delivery.state.status == 403
    node.shipper.round([])
    assert node.delivery.state.since_ns == 0
    assert node.delivery.failing() == set()


def _plain(body: bytes) -> bytes:
    from tests.tools.fakes.push_decoder import decode, decompress

    return b"".join(entry.line for entry in decode(decompress(body))[1])


def test_one_user_s_newest_line_makes_no_other_s_late(node: ShippingNode) -> None:
    """Loki's limit for old entries applies to each tenant's streams separately."""
    captured(node, "new", "ann", ["now"])
    node.ship()
    captured(node, "old", "ben", ["two hours ago"], time.time_ns() - 2 * HOUR_NS)
    captured(node, "own", "ann", ["late"], time.time_ns() - 2 * HOUR_NS)
    node.ship()
    (ben,) = node.loki.find(OF_BEN, 'kind="log"')
    late = next(entry for entry in node.loki.find(OF_ANN, 'kind="log"') if entry.line == b"late")
    assert 'replay="' not in ben.labels
    assert 'replay="' in late.labels
    assert node.quarantined() == []


def test_what_is_remembered_of_streams_is_by_tenant(node: ShippingNode) -> None:
    captured(node, "a", "ann", ["one"])
    node.ship()
    node.restart()
    stored = Checkpoints.streams(node.checkpoints)
    assert {StreamKey.from_text(text).tenant for text in stored} == {"ann"}


# ---- Slurm's controller


def test_how_slurm_ended_a_job_goes_to_its_user_s_tenant(site: Site, tmp_path: Path) -> None:
    """The controller's agent asks each user's tenant for the captured job, and writes the job's end
    there."""
    ended = tmp_path / "ended"
    ended.mkdir(mode=0o700)
    certificates = site.gateway.certificates
    controller = tenant_agent(
        tmp_path / "ctl",
        site.gateway,
        "ctl",
        cert_file=str(certificates.controller.cert),
        key_file=str(certificates.controller.key),
    )
    controller.config.write_text(
        controller.config.read_text() + f'[slurm]\nended_dir = "{ended}"\n'
    )
    begin = int(time.time())
    job = replace(new_job("erin", "n5", 0), job_id="471100")
    with tenant_agent(tmp_path / "n5", site.gateway, "n5") as agent:
        capture(agent, job)
        agent.wait_shipped()
    for job_id in (job.job_id, "471101"):  # the second job has no capture
        record(ended, job_id, job, begin)
    with controller:
        wait_until(
            lambda: _has_end(site, job.user, job), f"the end is told: {controller.log.read_text()}"
        )
    for user in (ANN, "ben"):
        assert not _has_end(site, user, job)
    assert b"471101" not in site.gateway.as_grafana(job.user, _all_lines(site)).body


def record(folder: Path, job_id: str, job: Job, begin: int) -> None:
    """Write the record of the hook."""
    end = int(time.time()) + 1
    fields = {"by": "jobcomp", "job_id": job_id, "state": "TIMEOUT", "exit": "0:15", "start": begin, "end": end,
            "restarts": "", "user": job.user, "nodes": job.host}  # fmt: skip
    place = folder / f"{job_id}.{end}.jobcomp.17"
    place.write_text(
        "logshipper-ended 1\n"
        + "".join(f"{name}={value}\n" for name, value in fields.items())
        + ".\n"
    )
    place.chmod(0o600)


def _all_lines(site: Site) -> str:
    return question("query_range", query='{service_name="logshipper"}', limit="1000", **site.span)


def _has_end(site: Site, user: str, job: Job) -> bool:
    body = site.gateway.as_grafana(user, _all_lines(site)).body
    return b"job_ended" in body and b"TIMEOUT" in body and job.job_id.encode() in body


def test_a_user_whom_the_controller_doesn_t_know_has_no_uid() -> None:
    assert uid_of("root") == 0
    assert uid_of("no such user") == uid_of("nul\0l") == uid_of("\u0661") == -1
    assert uid_of("4711") == 4711


def test_another_word_for_it_is_refused(tmp_path: Path) -> None:
    agent = NodeAgent(tmp_path, "http://127.0.0.1:9", cluster="c", loki={"tenant_by": "project"})
    validation = agent.call("validate")
    assert (
        validation.returncode,
        "[loki] tenant_by: must be" in validation.stdout + validation.stderr,
    ) == (1, True)
