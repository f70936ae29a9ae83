"""A job's options, for comparing jobs: names and JSON texts about its run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logshipper_observe.base.output import to_json
from logshipper_observe.model.constants import first_values
from logshipper_observe.model.job_context import context_options
from logshipper_observe.model.overlay import Marks

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

FIRST = "first."
_OF_JOB = ("name", "user", "host", "cluster", "account", "partition", "mode")


def options_of(reader: "Reader", marks: Marks) -> dict[str, str]:
    """Return options in alphabetical order: of the job, scheduler and terminal (`job.`), constants
    of the first records (their keys), first values of changing keys (`first.`), tags (`tags.`), and
    the recorded start."""
    job = reader.summary
    options = {f"job.{name}": to_json(value) for name in _OF_JOB if (value := getattr(job, name))}
    newest = [
        capture
        for capture in reader.captures
        if capture.attempt == max(sibling.attempt for sibling in reader.captures)
    ]
    if newest and not job.origin:
        options["job.tasks"] = str(len({(capture.step, capture.task) for capture in newest}))
        options["job.nodes"] = str(len({capture.host for capture in newest}))
        options["job.terminal"] = to_json(
            f"{newest[0].columns}x{newest[0].rows}" if newest[0].tty else "none"
        )
    first = first_values(reader)
    options |= {f"{FIRST}{name}": value for name, value in first.changing.items()}
    options |= first.constants
    options |= context_options(reader)
    options |= {f"tags.{name}": to_json(value) for name, value in marks.tags.items()}
    return dict(sorted(options.items()))


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, bool]:
    """All options of both, in alphabetical order, and whether they differ."""
    return {name: first.get(name) != second.get(name) for name in sorted({*first, *second})}
