"""Answers on several jobs, each under a heading, as `head` prints several files."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from logshipper.errors import LogshipperError, QueryError, UnknownJob
from logshipper.safe_text import safe
from logshipper_observe.base.output import Output
from logshipper_observe.base.running import say

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_observe.model.documents import Document

EXIT_NOT_ALL = 1


class Headings:
    """Headings between the answers on several jobs; none for a single job."""

    def __init__(self, job_count: int) -> None:
        self.is_several = job_count > 1
        self._is_first = True

    def print(self, job: "JobSummary") -> None:
        """`==> NAME ID <==`, after a blank line unless it is the first."""
        if not self.is_several:
            return
        out = Output()
        if not self._is_first:
            out.line()
        self._is_first = False
        out.note(f"==> {safe(job.name)} {job.job_id} <==", "bold")

    def fields(self, job: "JobSummary") -> "Document":
        """Return the heading as fields of a document."""
        return {"job_id": job.job_id, "name": job.name} if self.is_several else {}


def report_unknown(job_ids: Sequence[str], unknown: Sequence[UnknownJob]) -> None:
    """Report unknown names; raise the first error if no other name is known."""
    for error in unknown if job_ids else unknown[1:]:
        say(str(error))
    if not job_ids:
        raise unknown[0]


def answer_each(
    job_ids: Sequence[str], unknown: Sequence[UnknownJob], answer: Callable[[str, Headings], None]
) -> int:
    """Answer on each job in order; return the exit code.

    Reports unknown names, and jobs without an answer among several. Raises the error of a single
    job.
    """
    report_unknown(job_ids, unknown)
    headings = Headings(len(job_ids))
    is_done = not unknown
    for job_id in job_ids:
        try:
            answer(job_id, headings)
        except LogshipperError as error:
            if not headings.is_several or isinstance(error, QueryError):
                raise
            say(f"{job_id}: {safe(str(error))}")
            is_done = False
    return 0 if is_done else EXIT_NOT_ALL
