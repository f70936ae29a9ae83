"""The fixture jobs, captured once for all tests here."""

from collections.abc import Iterator, Mapping

import pytest

from logshipper_grafana.parts import links
from tests.grafana.tools.captured import CLUSTER, SCRAPE_MS, Fixture, captured_jobs
from tests.grafana.tools.interpolation import Text
from tests.grafana.tools.pages import Page
from tests.grafana.tools.sources import PrometheusSource, Range
from tests.servers.running import PrometheusServer


@pytest.fixture(scope="package")
def jobs(
    lokis: None, prometheuses: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fixture]:
    with captured_jobs(tmp_path_factory.mktemp("grafana")) as fixture:
        yield fixture


class Pages:
    """Pages of the fixture's jobs, each opened once."""

    def __init__(self, fixture: Fixture) -> None:
        self.fixture = fixture
        self._pages: dict[tuple[str, str], Page] = {}

    def job(self, name: str, **selections: Text) -> Page:
        """Return the page of one job, at the job's time. selections: further variables of its
        address."""
        key = (name, repr(sorted(selections.items())))
        if key not in self._pages:
            job = self.fixture.jobs[name]
            self._pages[key] = Page(
                links.JOB,
                self.fixture.sources,
                job.when,
                cluster=CLUSTER,
                job=job.job_id,
                **selections,
            )
        return self._pages[key]

    def page(self, uid: str, selections: Mapping[str, Text], when: Range | None = None) -> Page:
        return Page(
            uid, self.fixture.sources, when or self.fixture.today, cluster=CLUSTER, **selections
        )


@pytest.fixture(scope="package")
def pages(jobs: Fixture) -> Pages:
    return Pages(jobs)


@pytest.fixture(scope="package")
def empty(jobs: Fixture) -> Iterator[Fixture]:
    """The same Loki with a Prometheus without targets."""
    with PrometheusServer() as prometheus:
        yield Fixture(
            jobs.jobs, jobs.loki, PrometheusSource(prometheus.url, scrape_ms=SCRAPE_MS), 0.0
        )


@pytest.fixture(scope="package")
def forgotten(empty: Fixture) -> Pages:
    return Pages(empty)


@pytest.fixture(params=["prometheus", "loki"])
def asked(request: pytest.FixtureRequest, jobs: Fixture, pages: Pages, empty: Fixture) -> Pages:
    """Pages from a Prometheus with the jobs, and from Loki alone."""
    return pages if request.param == "prometheus" else Pages(empty)
