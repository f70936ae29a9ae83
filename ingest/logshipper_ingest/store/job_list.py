"""A store's jobs, newest first, read on demand: of 100,000 jobs, a list shows ten."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from logshipper_ingest.model.job import JobSummary

_STAGES = (64, 1_024)  # jobs of the first and second page; a third page has the rest

# reads jobs after a given one, None for the first; at most so many, -1 for all
Fetch = Callable[[JobSummary | None, int], list[JobSummary]]


class JobList(Sequence[JobSummary]):
    """total: how many there are; fetch: see Fetch; count_states: how many there are in each
    state."""

    def __init__(self, total: int, fetch: Fetch, count_states: Callable[[], Counter[str]]) -> None:
        self._total = total
        self._fetch = fetch
        self._count_states = count_states
        self._jobs: list[JobSummary] = []
        self._stages = [*_STAGES, -1]

    def states(self) -> Counter[str]:
        return self._count_states()

    def __len__(self) -> int:
        """The number at the list's creation; exact once all are read."""
        return self._total if self._stages else len(self._jobs)

    def __eq__(self, other: object) -> bool:
        """Compare as a list."""
        return isinstance(other, Sequence) and self[:] == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    def __iter__(self) -> Iterator[JobSummary]:
        at = 0
        while at < len(self._jobs) or self._read_to(at + 1):
            jobs = self._jobs[at:]
            yield from jobs
            at += len(jobs)

    @overload
    def __getitem__(self, at: int) -> JobSummary: ...
    @overload
    def __getitem__(self, at: slice) -> list[JobSummary]: ...
    def __getitem__(self, at: int | slice) -> JobSummary | list[JobSummary]:
        if isinstance(at, slice):
            is_beginning = at.stop is not None and min(at.start or 0, at.stop, at.step or 1) >= 0
            self._read_to(at.stop if is_beginning else None)
        else:
            self._read_to(at + 1 if at >= 0 else None)
        return self._jobs[at]

    def _read_to(self, count: int | None) -> bool:
        """Return whether there are so many. count: None for all."""
        while self._stages and (count is None or len(self._jobs) < count):
            size = self._stages.pop(0)
            jobs = self._fetch(self._jobs[-1] if self._jobs else None, size)
            self._jobs += jobs
            if len(jobs) < size:
                self._stages.clear()
        return count is None or len(self._jobs) >= count


def states_of(jobs: Sequence[JobSummary]) -> Counter[str]:
    """Count the jobs in each state."""
    return jobs.states() if isinstance(jobs, JobList) else Counter(job.state for job in jobs)
