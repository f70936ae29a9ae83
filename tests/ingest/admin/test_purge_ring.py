"""What is purged is gone from Loki as clusters run it: three processes take lines, one answers and
has the compactor."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.loki_ring import TENANT, LokiRing
from tests.servers.places import ServerMissing
from tests.tools.captured_runs import wait_until
from tests.tools.node_agents import NodeAgent, cluster, entries_of
from tests.tools.ring_load import reader

__all__ = ["cluster"]  # a fixture
SECRET = "hunter2"  # noqa: S105  nobody's
PRINTS = """
for n in range(200):
    print(f"line {n}" + (" password=hunter2" if n % 10 == 7 else ""))
"""
# what takes hours by default is done at once; what is in a chunk can be read in its file
QUICK = {
    "compactor": {
        "compaction_interval": "2s",
        "retention_delete_delay": "1s",
        "delete_request_cancel_period": "1s",
        "retention_enabled": True,
        "delete_request_store": "filesystem",
    },
    "ingester": {"chunk_encoding": "none"},
    "storage_config": {"tsdb_shipper": {"resync_interval": "2s"}},
}


def ring_or_skip(*, apart: bool) -> LokiRing:
    try:
        return LokiRing(parts=QUICK, apart=apart)
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def ring(servers: None) -> Iterator[LokiRing]:
    with ring_or_skip(apart=True) as ring:
        yield ring


def purge(agent: NodeAgent, job_id: str, wait: str) -> tuple[int, str]:
    words = ("--job", job_id, "--fixed", SECRET, "--yes", "--since", "1h", "--wait", wait)
    done = agent.call("purge", *words)
    return done.returncode, done.stderr


def files_with(ring: LokiRing, word: str) -> list[Path]:
    return [path for path in ring.objects() if word.encode() in path.read_bytes()]


def test_a_purged_secret_is_gone_from_answers_and_objects(
    ring: LokiRing, cluster: str, tmp_path: Path
) -> None:
    with NodeAgent(tmp_path, ring.url, cluster=cluster, loki={"tenant": TENANT}) as agent:
        for _ in range(2):
            agent.run(sys.executable, "-c", PRINTS)
        agent.wait_shipped()
        first_id, second_id = [job["job_id"] for job in agent.status()["jobs"]]
        code, words = purge(agent, first_id, "1s")
        assert (code, "still shows 20 lines" in words) == (3, True), words
        ring.flush()
        wait_until(lambda: files_with(ring, first_id), "chunks are objects")
        assert purge(agent, first_id, "60s") == (0, "")
    with reader(ring.url) as client:
        lines = {
            job_id: [
                entry.line
                for entry in entries_of(client, cluster, "log", selector=f'| job_id="{job_id}"')
            ]
            for job_id in (first_id, second_id)
        }
    assert len(lines[first_id]) == 180
    assert not any(SECRET in line for line in lines[first_id])
    assert len(lines[second_id]) == 200
    assert sum(SECRET in line for line in lines[second_id]) == 20


def test_each_of_several_must_show_nothing(servers: None, cluster: str, tmp_path: Path) -> None:
    """Three processes each of which has a compactor: only the one that was asked knows of the
    request, and one answer of three has none of it."""
    with ring_or_skip(apart=False) as ring:
        with NodeAgent(tmp_path, ring.url, cluster=cluster, loki={"tenant": TENANT}) as agent:
            agent.run(sys.executable, "-c", PRINTS)
            agent.wait_shipped()
            (job_id,) = [job["job_id"] for job in agent.status()["jobs"]]
            assert purge(agent, job_id, "1s")[0] == 3
            ring.members[0].stop()
            ring.members[0].start()
            ring.wait_whole()
            code, words = purge(agent, job_id, "5s")
        assert (code, "still shows 20 lines" in words) == (3, True), words
