"""Tasks of a job that went on without capture, as their relays did not start in time."""

from typing import TYPE_CHECKING, NamedTuple

from logshipper.spool.captures import NOT_CAPTURED

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader


class MissedTasks(NamedTuple):
    """number: tasks without capture. total: all tasks of their steps."""

    number: int
    total: int

    def words(self) -> str:
        """`2 of 8 tasks: node too busy`; empty for none."""
        return f"{self.number:,} of {self.total:,} tasks: node too busy" if self.number else ""


def missed_tasks(reader: "Reader") -> MissedTasks:
    """Count the captures of the job that consist of that event alone."""
    missed = {event.capture for event in reader.events(names=(NOT_CAPTURED,))}
    steps = [(capture.attempt, capture.step) for capture in reader.captures]
    of = {
        step
        for step, capture in zip(steps, reader.captures, strict=True)
        if capture.capture in missed
    }
    return MissedTasks(len(missed), sum(step in of for step in steps))
