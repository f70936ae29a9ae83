"""Identities of jobs and captures."""

from typing import NamedTuple


class JobKey(NamedTuple):
    """A job."""

    job_id: str
    cluster: str = ""  # "" in a local store


class Source(NamedTuple):
    """The origin of output within a job."""

    attempt: int
    step: str
    task: int


class CaptureId(NamedTuple):
    """A capture: a task's output on a host."""

    cluster: str
    job_id: str
    attempt: int
    step: str
    task: int
    host: str

    @property
    def job(self) -> JobKey:
        return JobKey(self.job_id, self.cluster)
