"""Remote write of a real agent into real Prometheus and VictoriaMetrics during kills, hangs and
full disks. Every acknowledged sample is stored once, and the last values of jobs arrive."""

import math
import os
import signal
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

import pytest

from logshipper_ingest.metrics.prometheus import PrometheusClient
from logshipper_ingest.metrics.remote_write import PROBE
from tests.ingest.metrics.test_remote_write import HOUR_MS, RECEIVER, Sender
from tests.servers.running import PrometheusServer
from tests.servers.victoria_metrics import VictoriaMetricsServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.push_decoder import decode_write, decompress
from tests.tools.fakes.small_disk import fill, small_disk
from tests.tools.stores.node_agents import NodeAgent, Proxy
from tests.tools.waiting import scaled

CLUSTER = "long-term"
INSTANCE = f'instance="{CLUSTER}/n1"'
INTERVAL_SECS, EXPIRE_SECS, TIMEOUT_SECS = 1.0, scaled(3.0), scaled(2.0)
DISK_BYTES, LEAST_FREE_BYTES = 64 << 20, 8 << 20
# VictoriaMetrics writes acknowledged samples to its disk each second, in newer releases every 5 s
MEMORY_SECS = 5.0
Sample = tuple[tuple[tuple[str, str], ...], int]  # labels of its series, and its time in ms
Database = PrometheusServer | VictoriaMetricsServer


class Ledger(Proxy):
    """A proxy between an agent and a database. sent: times of rounds; taken: acknowledged samples,
    without NaN; statuses: of answers."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.sent: set[int] = set()
        self._answered: set[int] = set()
        self.taken: dict[Sample, float] = {}
        self.statuses: list[int] = []

    def pass_on(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        samples = {
            (tuple(written.labels), written.time_ms): struct.unpack("<d", written.value)[0]
            for written in decode_write(decompress(body))
            if ("__name__", PROBE) not in written.labels
        }
        self.sent.update(at for _, at in samples)
        status, more, text = super().pass_on(path, headers, body)
        self.statuses.append(status)
        if status // 100 == 2:
            self._answered.update(at for _, at in samples)
            self.taken |= {sample: it for sample, it in samples.items() if not math.isnan(it)}
        return status, more, text

    @property
    def waiting(self) -> set[int]:
        """Times of rounds without any acknowledged sample."""
        return self.sent - self._answered

    def wait_push(self) -> None:
        """Return during a push."""
        before = self.pushes
        wait_until(lambda: self.pushes > before, "a push")


def stored(database: Database) -> dict[Sample, list[float]]:
    """Return the agent's stored samples, each with all its values."""
    samples: dict[Sample, list[float]] = {}
    if isinstance(database, VictoriaMetricsServer):
        rows = [(row.labels, row.samples) for row in database.export(f"{{{INSTANCE}}}")]
    else:
        rows = [
            (dict(series.labels), [(at // 10**6, value) for at, value in series.samples])
            for series in PrometheusClient(database.url).query(f"{{{INSTANCE}}}[1h]")
        ]
    for labels, values in rows:
        for at, value in values:
            if not math.isnan(value):
                samples.setdefault((tuple(sorted(labels.items())), at), []).append(value)
    return samples


class Site:
    """A database, an agent that writes to it through a ledger, and jobs, each with a number as its
    last value."""

    def __init__(self, database: Database, ledger: Ledger, agent: NodeAgent) -> None:
        self.database = database
        self.ledger = ledger
        self.agent = agent

    def run_job(self, number: int) -> None:
        """Run a job; return when the agent exports nothing of it any more."""
        line = f'{{"step": 1, "loss": {number}.5}}'
        done = self.agent.run("sh", "-c", f"echo '{line}'; exit {number}")
        assert done.returncode == number
        self.agent.wait_shipped()
        wait_until(
            lambda: "logshipper_job_info{" not in self.agent.metrics(), "the job is forgotten"
        )

    def wait_last_values(self, number: int) -> None:
        """Wait for the job's last values, however late, and then for the end of its series."""
        client = PrometheusClient(self.database.url)
        for metric, value in (
            ("logshipper_job_exit_code", number),
            ("logshipper_metadata_value", number + 0.5),
        ):
            question = f"last_over_time({metric}{{{INSTANCE}}}[1h]) == {value}"
            wait_until(lambda: client.query(question), f"{metric} is {value}")  # noqa: B023  called at once
        question = f"logshipper_job_exit_code{{{INSTANCE}}}"
        wait_until(lambda: client.query(question) == [], "its series end")

    def check_end(self, under_way: AbstractSet[int] = frozenset()) -> dict[Sample, float]:
        """Check after the agent's end that each round was acknowledged, except those under way at
        its kill. Each sample is stored once, with its value. Return acknowledged samples that are
        missing."""
        nothing = "logshipper_agent_remote_write_queue_bytes 0.0"
        wait_until(lambda: nothing in self.agent.metrics(), "nothing waits")
        assert self.agent.stop() == 0
        assert self.ledger.waiting <= under_way
        there = stored(self.database)
        assert {sample: values for sample, values in there.items() if len(values) > 1} == {}
        values = {sample: values[0] for sample, values in there.items()}
        assert {
            sample: (it, values[sample])
            for sample, it in self.ledger.taken.items()
            if sample in values and not math.isclose(it, values[sample], rel_tol=1e-12)
        } == {}
        assert "are dropped" not in self.agent.log.read_text()
        lost = {sample: it for sample, it in self.ledger.taken.items() if sample not in values}
        print(
            f"{self.database.name}: {len(self.ledger.taken)} samples acknowledged in "
            f"{len(self.ledger.sent)} rounds, {len(lost)} lost, 0 doubled; statuses {sorted(set(self.ledger.statuses))}"
        )
        return lost


@contextmanager
def site(database: Database, folder: Path) -> Iterator[Site]:
    options: dict[str, Mapping[str, object]] = {
        "metrics": {"expire_secs": EXPIRE_SECS},
        "loki": {"heartbeat_secs": 5.0},
    }
    with FaultyServer(Said(204)) as loki, Ledger(database.url) as ledger:
        section = {
            "url": f"{ledger.url}/api/v1/write",
            "interval_secs": INTERVAL_SECS,
            "timeout_secs": TIMEOUT_SECS,
            "retry_min_secs": 0.1,
            "retry_max_secs": 0.5,
        }
        with NodeAgent(
            folder, loki.url, cluster=CLUSTER, host="n1", remote_write=section, **options
        ) as agent:
            yield Site(database, ledger, agent)


@pytest.fixture(params=["prometheus", "victoria-metrics"])
def kind(request: pytest.FixtureRequest, prometheuses: None, victoria_metrics: None) -> str:
    return str(request.param)


def database_of(kind: str, folder: Path | None = None) -> Database:
    if kind == "prometheus":
        return PrometheusServer(flags=RECEIVER, folder=folder)
    return VictoriaMetricsServer(
        [f"-storage.minFreeDiskSpaceBytes={LEAST_FREE_BYTES}"] if folder else (), folder=folder
    )


def test_a_database_that_is_killed_and_hangs_and_an_agent_that_is_killed(
    kind: str, tmp_path: Path
) -> None:
    with database_of(kind) as database, site(database, tmp_path) as here:
        here.ledger.wait_push()
        database.stop(signal.SIGKILL)
        killed_ms = time.time_ns() // 10**6
        here.run_job(1)
        database.start()
        here.wait_last_values(1)
        os.kill(database.pid, signal.SIGSTOP)
        try:
            here.run_job(2)
        finally:
            os.kill(database.pid, signal.SIGCONT)
        here.wait_last_values(2)
        go_on = tmp_path / "go-on"
        job = threading.Thread(
            target=here.agent.run,
            args=(
                "sh",
                "-c",
                f'until [ -e {go_on} ]; do sleep 0.1; done; echo \'{{"step": 1, "loss": 3.5}}\'; exit 3',
            ),
        )
        job.start()
        wait_until(lambda: "logshipper_job_info{" in here.agent.metrics(), "the job is shown")
        here.ledger.wait_push()
        here.agent.stop(signal.SIGKILL)
        under_way = here.ledger.waiting
        go_on.touch()
        job.join()
        here.agent.start()
        here.wait_last_values(3)
        lost = here.check_end(under_way)
        if kind == "prometheus":
            assert lost == {}
        assert all(killed_ms - scaled(MEMORY_SECS) * 1000 < at <= killed_ms for _, at in lost)


@needs_root
def test_a_database_whose_disk_is_full(kind: str, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_BYTES, 0o755) as disk,
        database_of(kind, disk / "data") as database,
        site(database, tmp_path / "agent") as here,
    ):
        wait_until(lambda: here.ledger.taken, "samples are acknowledged")
        # leave some room, since VictoriaMetrics ends without any
        filler = fill(disk, leave=0 if kind == "prometheus" else LEAST_FREE_BYTES // 2)
        full_ms = max(at for _, at in here.ledger.taken)
        wait_until(lambda: here.ledger.statuses[-1] >= 400, "a write is refused")
        here.run_job(1)
        filler.unlink()
        here.wait_last_values(1)
        assert here.check_end() == {}
        database.stop()
        database.start()
        lost = here.ledger.taken.keys() - stored(database).keys()
        print(f"{kind}: {len(lost)} of {len(here.ledger.taken)} lost by its next start")
        # Prometheus 2.42 reads its log only up to the place where the disk was full
        # (docs/metrics.md)
        assert not lost or (kind == "prometheus" and min(at for _, at in lost) > full_ms)


def test_victoria_metrics_takes_what_is_out_of_order_and_says_nothing_of_what_is_too_old(
    victoria_metrics: None,
) -> None:
    with VictoriaMetricsServer() as database:
        sender = Sender(database.write_url)
        sender.series = {"a": 1.0}
        for back_ms in (0, HOUR_MS, 2 * 366 * 24 * HOUR_MS):
            sender.wall_ms -= back_ms
            sender.one_round()
            sender.series = {"a": sender.series["a"] + 1}
        assert (sender.drops(), sender.metric("samples_total")) == ({}, 3)
        (series,) = database.export(f'{{job="{sender.job}"}}')
    assert [value for _, value in series.samples] == [2.0, 1.0]
