"""A Loki cluster with faults of one of its three processes: no line is missing, repeated or out of
order, and answers are complete or an error."""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.loki_ring import MEMBERS, LokiRing
from tests.servers.places import ServerMissing
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.small_disk import small_disk
from tests.tools.stores.node_agents import NodeAgent, cluster, entries_of
from tests.tools.stress import ring_load
from tests.tools.stress.conservation import all_problems, balances_in_loki, spool, verdict
from tests.tools.stress.ring_load import (
    FAULTS,
    FULL_DISK,
    PAUSE_SECS,
    Fault,
    Readers,
    RingNode,
    meet,
)
from tests.tools.waiting import wait_until

__all__ = ["cluster"]  # a fixture
READ_LINES = 500  # of the job that readers query meanwhile
DISK_BYTES = 32 << 20
LINES = 150
PAUSES = (PAUSE_SECS, PAUSE_SECS)  # for two jobs
FLOOD_LINES = 8000
# a tenant's limits
SMALL = {"ingestion_rate_mb": 0.3, "ingestion_burst_size_mb": 0.1,
         "per_stream_rate_limit": "100KB", "per_stream_rate_limit_burst": "100KB"}  # fmt: skip


def disk_of_last(until: ExitStack, folder: Path) -> dict[int, Path]:
    """Return a small disk for the last member's write-ahead log, or nothing if none can be
    mounted."""
    if os.geteuid():
        return {}
    try:
        disk = until.enter_context(small_disk(folder, DISK_BYTES, 0o700))
    except pytest.skip.Exception:
        return {}
    return {MEMBERS - 1: disk / "wal"}


@pytest.fixture(scope="module")
def node(lokis: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingNode]:
    """Yield a ring, its gateway and an agent for all tests here. Each test leaves them intact."""
    with ExitStack() as until:
        wals = disk_of_last(until, tmp_path_factory.mktemp("disk"))
        try:
            # the gateway's time-out for a hanging member is longer than the agent's
            ring = until.enter_context(
                LokiRing(overrides={"small": SMALL}, wals=wals, read_secs=60)
            )
        except ServerMissing as missing:
            pytest.skip(str(missing))
        folder = tmp_path_factory.mktemp("node")
        yield until.enter_context(RingNode(ring, folder, f"t{uuid.uuid4().hex[:10]}"))


def check(node: RingNode, fault: Fault, name: str) -> None:
    section = agent_config.load(str(node.agent.config)).agent
    job_id = f"read{uuid.uuid4().hex[:6]}"
    spool(section, job_id, READ_LINES, ago_secs=60)
    node.agent.wait_shipped()
    with Readers(node, job_id) as readers:
        outcome = meet(node, fault, node.ring.members[-1], pauses=PAUSES, lines=LINES)
    counts = verdict(next(iter(node.balances(outcome.line_counts).values())).values())
    print(
        f"\n{name}: {counts.lines} lines, lost {counts.missing + counts.lost}, "
        f"repeated {counts.repeated}, out of order {counts.disordered}; "
        f"{outcome.secs:.1f} s to catch up; read meanwhile {dict(readers.counts)}, "
        f"at most {readers.longest_secs:.1f} s each"
    )
    for member, balances in node.balances(outcome.line_counts).items():
        assert all_problems(balances) == {}, member
        assert verdict(balances.values()).lost == 0
    assert set(readers.counts) <= {2 * READ_LINES, -1}, "an answer was not whole"
    assert not list((node.agent.state / "quarantine").iterdir())


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_one_member(node: RingNode, name: str) -> None:
    check(node, FAULTS[name], name)


@needs_root
def test_a_disk_of_one_member_is_full(node: RingNode) -> None:
    member = node.ring.members[-1]
    if not os.path.ismount(member.wal.parent):
        pytest.skip("no tmpfs can be mounted here")
    check(node, ring_load.fill_disk, FULL_DISK)


def test_a_tenants_limits_hold_up_no_other_tenant(
    node: RingNode, cluster: str, tmp_path: Path
) -> None:
    """The members share the tenant's rate, so each accepts a third of it."""
    options = {**ring_load.AGENT_OPTIONS, "tenant": "small"}
    with NodeAgent(tmp_path, node.ring.url, cluster=cluster, loki=options) as agent:
        section = agent_config.load(str(agent.config)).agent
        line_counts = spool(section, "flood", FLOOD_LINES, ago_secs=60, frames=20)
        wait_until(lambda: throttled(agent) > 0, "the tenant's limits are met")
        job = node.start_job()
        node.wait_more(LINES, "next to a tenant that is at its limits")
        other_counts = job.end()
        agent.wait_shipped()
    node.agent.wait_shipped()
    for url in (node.ring.url, *(member.url for member in node.ring.members)):
        with LokiClient(ServerAccess(url, tenant="small")) as client:
            assert all_problems(balances_in_loki(entries_of(client, cluster), line_counts)) == {}
    for balances in node.balances(other_counts).values():
        assert all_problems(balances) == {}
    assert not list((agent.state / "quarantine").iterdir())


def throttled(agent: NodeAgent) -> int:
    pattern = r"^logshipper_agent_throttled_total\{.*\} ([0-9.]+)$"
    return sum(int(float(count)) for count in re.findall(pattern, agent.metrics(), re.M))
