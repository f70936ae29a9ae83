"""Where a run belongs: its job, step and task. Light imports only."""


class Place:
    """Where a run belongs. launcher: its name; attempt: from 1, None where it isn't known (then
    they are counted); step: "" or the scheduler's; task: the rank, None where it is none. apart: a
    job of its own, also where it runs in a scheduler's job."""

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
