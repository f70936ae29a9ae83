"""A job's facts from its captures and events: account of lines, masked values, tasks without capture,
near records, metrics."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from logshipper.spool.captures import NOT_CAPTURED
from logshipper_ingest.model.ledger import COLUMNS
from logshipper_observe.base.output import Raw
from logshipper_observe.model.documents import Document
from logshipper_observe.model.records import is_number, valid_json

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Json
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import KeyStats


def ledger_of(reader: "Reader") -> Document:
    """Sum the ledgers of the job's captures."""
    total: Document = {stream: dict.fromkeys(COLUMNS, 0) for stream in ("stdout", "stderr")}
    total |= {"notes": 0, "status": 0, "parts": 0}
    for capture in reader.captures:
        for name in total.keys() & capture.ledger.keys():
            counts = capture.ledger[name]
            if isinstance(counts, dict):
                for column in COLUMNS:
                    total[name][column] += int(counts.get(column, 0))
            else:
                total[name] += int(counts)
    return total


def masked_values(reader: "Reader") -> dict[str, int]:
    """Return the number of masked values by the name of their shape, the most frequent first."""
    sums: Counter[str] = Counter()
    for job_event in reader.events(names=("values_masked",)):
        shapes = job_event.event.get("shapes")
        if isinstance(shapes, dict):
            sums.update({name: number for name, number in shapes.items() if type(number) is int})
    return dict(sums.most_common())


def masked_words(shapes: Mapping[str, int]) -> str:
    """`3 values: GitHub token`, `5 values: 3 GitHub token, 2 JSON web token`; empty for none."""
    total = sum(shapes.values())
    if not total:
        return ""
    names = [f"{number:,} {name}" for name, number in shapes.items()]
    return f"{total:,} value{'s' * (total != 1)}: {', '.join(names if len(names) > 1 else shapes)}"


class MissedTasks(NamedTuple):
    """Tasks that went on without capture, as their relays did not start in time."""

    number: int
    total: int  # all tasks of their steps

    def words(self) -> str:
        """`2 of 8 tasks: node too busy`; empty for none."""
        return f"{self.number:,} of {self.total:,} tasks: node too busy" if self.number else ""


def missed_tasks(reader: "Reader") -> MissedTasks:
    """Count the captures of the job that consist of that event alone."""
    missed = {event.capture for event in reader.events(names=(NOT_CAPTURED,))}
    steps = {capture.capture: (capture.attempt, capture.step) for capture in reader.captures}
    missed_steps = {step for capture, step in steps.items() if capture in missed}
    return MissedTasks(len(missed), sum(step in missed_steps for step in steps.values()))


def record_hints(reader: "Reader") -> list[str]:
    """Return why apparent metadata lines are no records: a sentence or two for each reason, the
    first of all captures, in order of time."""
    messages: dict[str, str] = {}
    for job_event in reader.events(names=("json_hint",)):
        reason, message = (str(job_event.event.get(name, "")) for name in ("reason", "message"))
        if reason != "nan" and message:  # a record with NaN is a record
            messages.setdefault(reason, message)
    return list(messages.values())


def metrics_rollup(details: "Json", keys: "Iterable[KeyStats]") -> "Json":
    """Return XT's metrics of the run's end; of other jobs the last number of each key.

    details: an imported job's data of its own system.
    """
    reported = details.get("metrics_rollup")
    if isinstance(reported, dict) and reported:
        # late: few jobs are imported, and importers take time to load
        from logshipper_ingest.imports.xt import STEP_NAME

        return {key: value for key, value in reported.items() if key != STEP_NAME}
    return {key.key: Raw(valid_json(key.last)) for key in keys if is_number(key.last)}
