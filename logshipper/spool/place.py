"""A run's job, step and task. Light imports only."""


class Place:
    """A run's place.

    launcher: its name; attempt: from 1, None if unknown (then they are counted); step: "" or the
    scheduler's; task: the rank, None without one; apart: a separate job, even inside a scheduler's
    job.
    """

    __slots__ = ("apart", "attempt", "job_id", "launcher", "step", "task")

    def __init__(
        self,
        launcher: str,
        job_id: str,
        attempt: int | None = 1,
        step: str = "",
        task: int | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self.launcher = launcher
        self.job_id = job_id
        self.attempt = attempt
        self.step = step
        self.task = task
        self.apart = apart
