"""Another tracker's run, as `logshipper export` writes it."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from logshipper_ingest.model.job import JobSummary
from logshipper_observe.trackers.value_stream import Value

TOOL = "logshipper"
NOT_IN_FILES = re.compile(r"[^\w.=@+-]+")
NOT_IN_NAMES = re.compile(r"[^\w. :/-]+", re.ASCII)  # of MLflow


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """A job to export. config: texts or numbers by name."""

    summary: JobSummary
    config: Mapping[str, str | float]


class TrackerRun(ABC):
    """One job in another tracker."""

    place: str  # for the user: its folder or address

    @abstractmethod
    def add(self, values: Sequence[Value]) -> None:
        """Write values."""

    @abstractmethod
    def finish(self, job: TrackedJob, lines: Iterable[str]) -> None:
        """Write configuration, console and, of a job that is over, its state."""

    def close(self) -> None:  # noqa: B027  not every tracker has something to close
        """Free what the run holds open; keep the values so far."""
