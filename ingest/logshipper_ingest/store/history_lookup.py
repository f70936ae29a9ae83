"""Histories of many jobs, read by the page."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.store.job_history import JobHistory

if TYPE_CHECKING:
    from logshipper_ingest.store.job_reader import JobReader

_PAGE = 500


class HistoryLookup:
    """Looks up jobs' histories.

    jobs: in the order of use; fetch: the histories in the catalogue, by job id; open_reader: opens
    a job without one.
    """

    def __init__(
        self,
        jobs: Sequence[JobSummary],
        fetch: Callable[[Sequence[str]], dict[str, str]],
        open_reader: "Callable[[JobSummary], JobReader]",
    ) -> None:
        self._remaining = iter(jobs)
        self._fetch = fetch
        self._open_reader = open_reader
        self._page: set[str] = set()
        self._texts: dict[str, str] = {}

    def of(self, job: JobSummary) -> "JobReader | JobHistory":
        while job.job_id not in self._page:
            ids = [following.job_id for following in islice(self._remaining, _PAGE)]
            if not ids:
                break
            self._page, self._texts = set(ids), self._fetch(ids)
        text = self._texts.get(job.job_id)
        if text is not None:
            try:
                return JobHistory(job, text)
            except ValueError:
                pass  # the job's database has it all
        return self._open_reader(job)
