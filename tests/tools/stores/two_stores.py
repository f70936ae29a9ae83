"""The same jobs in a local store, and in a real Loki and Prometheus through the node agent."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import logshipper
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.model.stores import Reader
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.stores.node_agents import NodeAgent

HOST = "node1"  # of captures, as in tests/tools/captures/segment_factory.py


class TwoStores:
    """Two stores over the same jobs. A test writes jobs into the spool of `folder`, then calls
    `ship`.

    local, loki: open the stores.
    """

    def __init__(
        self, folder: Path, agent: NodeAgent, loki: LokiServer, prometheus: PrometheusServer
    ) -> None:
        self.folder = folder
        self.agent = agent
        self.loki_url = loki.url
        self._prometheus = prometheus
        self._capture_names: set[str] = set()

    def ship(self) -> None:
        """Copy new captures to the node agent as well, and wait until they are in Loki."""
        for capture in sorted((self.folder / "spool").iterdir()):
            if capture.name in self._capture_names:
                continue
            self._capture_names.add(capture.name)
            folder = self.agent.spool / f".new-{capture.name}"
            shutil.copytree(capture, folder)
            identity = json.loads((folder / "identity.json").read_text())
            (folder / "identity.json").write_text(
                json.dumps({**identity, "cluster": self.agent.cluster})
            )
            shutil.copystat(capture / "identity.json", folder / "identity.json")
            folder.rename(self.agent.spool / capture.name)
        self.agent.wait_shipped()

    def local(self) -> logshipper.Store:
        return logshipper.Store.local(self.folder)

    def loki(self) -> logshipper.Store:
        return logshipper.Store.loki(
            self.loki_url, prometheus_url=self._prometheus.url, cluster=self.agent.cluster
        )

    def options(self, source: str) -> list[str]:
        """Return the options of a command that reads that source."""
        if source == "local":
            return ["--store", str(self.folder)]
        servers = ["--loki-url", self.loki_url, "--prometheus-url", self._prometheus.url]
        return ["--from", "loki", *servers, "--cluster", self.agent.cluster]


def two_stores(
    folder: Path,
    loki: LokiServer,
    prometheus: PrometheusServer,
    cluster: str,
    write: Callable[[Path], object],
) -> Iterator[TwoStores]:
    """Yield both stores with the jobs that `write` puts into a store's folder.

    Prometheus has scraped the agent before that. The agent's host differs from the captures' host
    (tests/tools/captures/segment_factory.py).
    """
    (folder / "store").mkdir(mode=0o700)
    write(folder / "store")
    with NodeAgent(folder / "node", loki.url, cluster=cluster) as agent:
        target = agent.metrics_url.split("/")[2]
        prometheus.set_targets([target])
        stores = TwoStores(folder / "store", agent, loki, prometheus)
        stores.ship()
        prometheus.wait_for_target(target)
        yield stores
        prometheus.set_targets([])


@pytest.fixture(params=["local", "loki"])
def source(request: pytest.FixtureRequest) -> str:
    """Run each test of `store` over both stores."""
    return str(request.param)


@pytest.fixture
def store(stores: TwoStores, source: str) -> Iterator[logshipper.Store]:
    """Yield one of the two stores of the module's own fixture `stores`."""
    with stores.local() if source == "local" else stores.loki() as open_store:
        yield open_store
        assert open_store.problems == []


def note_opened(store: logshipper.Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the ids of jobs, in the order in which their events are
    opened."""
    job_ids: list[str] = []
    in_order = store._store.in_order

    def in_order_with_note(jobs: Sequence[JobSummary]) -> Callable[[JobSummary], Reader]:
        read = in_order(jobs)

        def reader(job: JobSummary) -> Reader:
            job_ids.append(job.job_id)
            return read(job)

        return reader

    monkeypatch.setattr(store._store, "in_order", in_order_with_note)
    return job_ids
