"""An agent whose state_dir's disk is full: /metrics and limits keep working, and no line is
lost."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logshipper.spool.spool_room import LIMITS_FILE
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.captures.segment_factory import SECOND_NS, CaptureWriter, make_ledger
from tests.tools.fakes.small_disk import fill, small_disk
from tests.tools.stores.node_agents import NodeAgent, client, cluster, entries_of
from tests.tools.stress.conservation import all_problems, balances_in_loki, line_of, places

__all__ = ["client", "cluster"]  # fixtures
LINES = 50


@contextmanager
def living(folder: Path) -> Iterator[CaptureWriter]:
    """Yield a capture that looks alive to a running agent from its first segment on."""
    with (folder / "segments" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield CaptureWriter.in_node_spool(folder, start_ns=time.time_ns() - 60 * SECOND_NS)


@needs_root
def test_metrics_and_limits_go_on(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    limits = {"job_spool_soft_max_bytes": 1 << 20, "job_spool_hard_max_bytes": 2 << 20}
    agent = NodeAgent(tmp_path / "node", loki.url, cluster=cluster, agent=limits)
    with small_disk(agent.state, 4 << 20, 0o700) as disk, agent:
        filler = fill(disk, leave=0)
        section = agent_config.load(str(agent.config)).agent
        identity = NodeIdentity("job1", 1, "", 0, "numbered", os.geteuid(), "me", gid=os.getegid())
        folder = Path(prepare_capture(section, identity))
        before = (folder / LIMITS_FILE).read_bytes()
        with living(folder) as capture:
            capture.start()
            capture.lines(map(line_of, range(LINES)))
            wait_until(
                lambda: "no room left on the disk" in agent.log.read_text(), "it has no room"
            )
            wait_until(
                lambda: 'captures{life="live"} 1.0' in agent.metrics(), "the capture is shown"
            )
            second_folder = Path(prepare_capture(section, identity._replace(attempt=2)))
            with living(second_folder) as second:
                second.start()
                second.lines(["x" * 1000] * 1500)
                wait_until(
                    lambda: (folder / LIMITS_FILE).read_bytes() != before,
                    "the first one's limit is less",
                )
                second.end(ledger=make_ledger({"stored": 1500, "bytes": 1_501_500}))
                second.close()
            size = sum(len(line_of(number)) + 1 for number in range(LINES))
            capture.end(ledger=make_ledger({"stored": LINES, "bytes": size}))
            capture.close()
        assert agent.captures(), "they wait"
        filler.unlink()
        agent.wait_shipped()
        agent.stop()
        filler = fill(disk, leave=36 << 10)  # shared memory and a page of SQLite
        agent.start()
        later = Path(prepare_capture(section, identity._replace(job_id="job2")))
        with living(later) as third:
            third.start()
            wait_until(
                lambda: 'captures{life="live"} 1.0' in agent.metrics(),
                "one that starts then goes on, too",
            )
            third.end()
            third.close()
        filler.unlink()
        agent.wait_shipped()
        agent.stop()
    line_counts = {
        place: count for place, count in places("job1", LINES).items() if place.stream == "stdout"
    }
    assert all_problems(balances_in_loki(entries_of(client, cluster), line_counts)) == {}
