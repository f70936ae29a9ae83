"""A lazy list of jobs: it only fetches jobs that the reader looks at."""

from collections import Counter

import pytest

from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.store.job_list import JobList
from tests.observe.query.test_listing import summary

JOBS = [summary(f"j{number:05d}") for number in range(3_000)]


class Fetched:
    """Counts the fetched jobs of each time."""

    def __init__(self, jobs: list[JobSummary]) -> None:
        self.jobs = jobs
        self.counts: list[int] = []

    def job_list(self) -> JobList:
        return JobList(len(self.jobs), self._fetch, Counter)

    def _fetch(self, after: JobSummary | None, count: int) -> list[JobSummary]:
        first = 0 if after is None else self.jobs.index(after) + 1
        jobs = self.jobs[first:] if count < 0 else self.jobs[first : first + count]
        self.counts.append(len(jobs))
        return jobs


@pytest.mark.parametrize(
    ("look", "counts"),
    [
        (len, []),
        (lambda jobs: jobs[0], [64]),
        (lambda jobs: jobs[:64], [64]),
        (lambda jobs: next(iter(jobs)), [64]),
        (lambda jobs: jobs[64], [64, 1_024]),
        (lambda jobs: jobs[10:1_000], [64, 1_024]),
        (lambda jobs: jobs[2_000], [64, 1_024, 1_912]),
        (lambda jobs: jobs[-1], [64, 1_024, 1_912]),
        (lambda jobs: jobs[::-1], [64, 1_024, 1_912]),
        (lambda jobs: jobs[:-1], [64, 1_024, 1_912]),
        (list, [64, 1_024, 1_912]),
        (lambda jobs: (list(jobs), list(jobs)), [64, 1_024, 1_912]),
    ],
)
def test_it_reads_as_far_as_somebody_looks(look: object, counts: list[int]) -> None:
    fetched = Fetched(JOBS)
    assert callable(look)
    assert look(fetched.job_list()) == look(JOBS)
    assert fetched.counts == counts


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1_087, 1_088, 1_089])
def test_it_has_all(count: int) -> None:
    jobs = JOBS[:count]
    job_list = Fetched(jobs).job_list()
    assert job_list == jobs
    assert [*job_list] == jobs
    assert len(job_list) == count
    with pytest.raises(IndexError):
        job_list[count]


def test_a_list_that_has_shrunk_meanwhile_ends() -> None:
    fetched = Fetched(JOBS[:100])
    job_list = fetched.job_list()
    assert job_list[0] == JOBS[0]
    del fetched.jobs[70:]
    assert len(list(job_list)) == len(job_list) == 70
