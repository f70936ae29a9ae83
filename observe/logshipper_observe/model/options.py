"""A job's options, for comparing jobs: names and JSON texts about its run and of its first records."""

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from logshipper_ingest.model.metadata_keys import names_of
from logshipper_observe.base.output import to_json
from logshipper_observe.model.job_context import context_options
from logshipper_observe.model.overlay import Marks
from logshipper_observe.model.records import Path, flat

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

FIRST_RECORDS = 100
_STEPS = {(name,) for name in ("epoch", "progress", "step", "iteration")}
_OF_JOB = ("name", "user", "host", "cluster", "account", "partition", "mode")


class FirstValues(NamedTuple):
    """JSON texts of the values in a job's first FIRST_RECORDS records, by key, in the order of
    printing.

    constants: the same in all of these, and the same number in all others; changing: the other
    keys; results: constants of a single record, with or after measurements.
    """

    constants: dict[str, str]
    changing: dict[str, str]
    results: frozenset[str]


def first_values(reader: "Reader") -> FirstValues:
    """Read the job's first records."""
    values: dict[Path, str] = {}
    places: dict[Path, list[int]] = {}  # of the records that have the key
    changing = {key.path for key in reader.keys() if key.numbers and key.min != key.max}  # noqa: SIM118  not a dict's
    for at, record in enumerate(islice(reader.records(), FIRST_RECORDS)):
        for path, value in flat(record.keyed_line).items():
            places.setdefault(path, []).append(at)
            if values.setdefault(path, value) != value:
                changing.add(path)
    names = names_of(values)
    constants = {names[path]: value for path, value in values.items() if path not in changing}
    first = {names[path]: value for path, value in values.items() if path in changing}
    measured = min((places[path][0] for path in values if path in changing | _STEPS), default=1)
    results = {names[path] for path, at in places.items() if len(at) == 1 and at[0] >= measured}
    return FirstValues(constants, first, frozenset(results & constants.keys()))


def options_of(reader: "Reader", marks: Marks) -> dict[str, str]:
    """Return options in alphabetical order: of the job, scheduler and terminal (`job.`), constants
    of the first records (their keys), first values of changing keys (`first.`), tags (`tags.`), and
    the recorded start."""
    job = reader.summary
    options = {f"job.{name}": to_json(value) for name in _OF_JOB if (value := getattr(job, name))}
    attempt = max((capture.attempt for capture in reader.captures), default=0)
    newest = [capture for capture in reader.captures if capture.attempt == attempt]
    if newest and not job.origin:
        first = newest[0]
        options["job.tasks"] = str(len({(capture.step, capture.task) for capture in newest}))
        options["job.nodes"] = str(len({capture.host for capture in newest}))
        options["job.terminal"] = to_json(f"{first.columns}x{first.rows}" if first.tty else "none")
    constants, changing, _ = first_values(reader)
    options |= {f"first.{name}": value for name, value in changing.items()}
    options |= constants
    options |= context_options(reader)
    options |= {f"tags.{name}": to_json(value) for name, value in marks.tags.items()}
    return dict(sorted(options.items()))


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, bool]:
    """All options of both, in alphabetical order, and whether they differ."""
    return {name: first.get(name) != second.get(name) for name in sorted({*first, *second})}
