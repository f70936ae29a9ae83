"""A run's job, step and task. Light imports only."""

from logshipper.named_tuple import NamedTuple


class Place(NamedTuple):
    """A run's place."""

    launcher: str  # its name
    job_id: str
    attempt: int | None = 1  # from 1, None if unknown (then they are counted)
    step: str = ""  # the scheduler's, if any
    task: int | None = None  # the rank, None without one
    apart: bool = False  # a separate job, even inside a scheduler's job
