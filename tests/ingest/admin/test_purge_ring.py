"""Purging and retention in a Loki cluster: three processes ingest lines, and one answers queries
and runs the compactor."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper_ingest.config import agent_config
from tests.servers.loki_ring import TENANT, LokiRing
from tests.servers.places import ServerMissing
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.node_agents import NodeAgent, cluster, entries_of
from tests.tools.stress.conservation import line_of, spool
from tests.tools.stress.ring_load import reader

__all__ = ["cluster"]  # a fixture
OLD_LINES, NEW_LINES = 300, 100  # lines of each stream; other jobs here print 200
OLD_ID, NEW_ID = "old1", "new2"  # in shards of their own, since Loki removes whole chunks
SECRET = "hunter2"  # noqa: S105  nobody's
PRINTS = """
for n in range(200):
    print(f"line {n}" + (" password=hunter2" if n % 10 == 7 else ""))
"""
TAKEN_SECS = 120.0  # a compactor removes chunks a minute or more after it has marked them
# short intervals for work that takes hours by default; chunks stay uncompressed, so that the test
# can search their files
QUICK = {
    "compactor": {
        "compaction_interval": "2s",
        "retention_delete_delay": "1s",
        "delete_request_cancel_period": "1s",
        "retention_enabled": True,
        "delete_request_store": "filesystem",
    },
    "ingester": {"chunk_encoding": "none", "wal": {"flush_on_shutdown": True}},
    "storage_config": {"tsdb_shipper": {"resync_interval": "2s"}},
}


def ring_or_skip(*, apart: bool) -> LokiRing:
    try:
        return LokiRing(parts=QUICK, apart=apart)
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def ring(lokis: None) -> Iterator[LokiRing]:
    with ring_or_skip(apart=True) as ring:
        yield ring


def purge(agent: NodeAgent, job_id: str, wait: str) -> tuple[int, str]:
    words = ("--job", job_id, "--fixed", SECRET, "--yes", "--since", "1h", "--wait", wait)
    done = agent.call("purge", *words)
    return done.returncode, done.stderr


def files_with(ring: LokiRing, word: str) -> list[Path]:
    def has(path: Path) -> bool:
        try:
            return word.encode() in path.read_bytes()
        except FileNotFoundError:  # the compactor has removed it meanwhile
            return False

    return [path for path in ring.objects() if has(path)]


def test_a_purged_secret_is_gone_from_answers(ring: LokiRing, cluster: str, tmp_path: Path) -> None:
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


@pytest.mark.timeout(360)
def test_what_is_older_than_a_tenant_keeps_goes(
    ring: LokiRing, cluster: str, tmp_path: Path
) -> None:
    options = {"tenant": TENANT}
    with NodeAgent(tmp_path, ring.url, cluster=cluster, loki=options) as agent:
        section = agent_config.load(str(agent.config)).agent
        for job_id, lines, hours in ((OLD_ID, OLD_LINES, 30), (NEW_ID, NEW_LINES, 1)):
            spool(section, job_id, lines, ago_secs=hours * 3600)
            agent.wait_shipped()
            ring.flush()
        last_line = line_of(OLD_LINES - 1)
        wait_until(lambda: files_with(ring, last_line), "chunks are objects")
        ring.set_overrides({TENANT: {"retention_period": "24h"}})
        wait_until(lambda: not files_with(ring, last_line), "chunks are removed", TAKEN_SECS)
    with reader(ring.url) as client:

        def count(job_id: str) -> int:
            selector = f'| job_id="{job_id}"'
            return len(list(entries_of(client, cluster, "log", hours=31, selector=selector)))

        wait_until(lambda: count(OLD_ID) == 0, "nothing of the old job is shown")
        assert count(NEW_ID) == 2 * NEW_LINES


def test_each_of_several_must_show_nothing(lokis: None, cluster: str, tmp_path: Path) -> None:
    """Three processes have a compactor each. Only one of them knows of the delete request, so the
    other answers still hold the secret."""
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
