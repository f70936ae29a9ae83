"""The list of a store with more jobs than the page lists at once: partial answers equal those over
all jobs."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.grown_store import grow
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.page.api import jobs as jobs_api
from logshipper_observe.page.server import PageServer
from tests.observe.page.conftest import options
from tests.observe.page.test_access import Client

JOBS, LISTED = 60, 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of all jobs, read-only for tests."""
    root = tmp_path_factory.mktemp("many") / "store"
    grow(root, JOBS, 0)
    return root


@pytest.fixture(scope="module")
def jobs(store: Path) -> list[JobSummary]:
    with LocalStore(str(store)) as local:
        return list(local.jobs())


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch, PageServer(options(store)) as server:
        patch.setattr(jobs_api, "MAX_LISTED", LISTED)
        yield Client(server)


def ask(client: Client, query: str) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = json.loads(client.ask(f"api/jobs?{query}").body)
    return document


def ids(document: dict[str, Any]) -> list[str]:
    return [job["job_id"] for job in document["jobs"]]


@pytest.mark.parametrize(
    ("query", "has"),
    [
        ("", lambda job: True),
        ("state=FAILED", lambda job: job.state == "FAILED"),
        ("state=FAILED,TIMEOUT", lambda job: job.state in ("FAILED", "TIMEOUT")),
        ("state=RUNNING", lambda job: False),
        ("q=balsam-", lambda job: "balsam-" in job.job_id),
        ("q=train-5&state=COMPLETED", lambda job: "train-5" in job.name and job.exit_code == 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sort", ["", "&sort=started&ascending=1", "&sort=name&ascending=1", "&sort=took"])  # fmt: skip
@pytest.mark.parametrize("limit", [1, 3, LISTED])
def test_what_is_listed(
    client: Client,
    jobs: list[JobSummary],
    query: str,
    has: Callable[[JobSummary], bool],
    sort: str,
    limit: int,
) -> None:
    document = ask(client, f"{query}{sort}&limit={limit}")
    matches = [job for job in jobs if has(job)]
    name = sort.removeprefix("&sort=").partition("&")[0] or "started"
    ordered = sorted(
        matches, key=lambda job: jobs_api.SORTS[name](job, 0), reverse="ascending" not in sort
    )
    assert ids(document) == [job.job_id for job in ordered[:limit]]
    assert (document["total"], document["matching"]) == (JOBS, len(matches))
    assert document["states"] == Counter(job.state for job in jobs)


def test_last_values_of_jobs_that_are_not_the_newest(
    client: Client, jobs: list[JobSummary]
) -> None:
    asked = [jobs[0].job_id, jobs[-1].job_id]
    assert json.loads(client.ask(f"api/last?jobs={','.join(asked)}").body)["last"].keys() == set(asked)  # fmt: skip
