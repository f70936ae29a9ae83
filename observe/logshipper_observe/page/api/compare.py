"""`api/compare`: jobs side by side, their differences, and the X axis that their graphs share."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from logshipper.errors import UnknownJob
from logshipper_observe.base.words import duration, exit_words
from logshipper_observe.graphs.families import rank_of
from logshipper_observe.graphs.plot_runs import EXPERIMENT, PLACES, differing_options
from logshipper_observe.graphs.series import KEY_PREFIX, TIME, is_drawn, numeric_keys, tags_of
from logshipper_observe.model.command_arguments import arguments_of, bare_name
from logshipper_observe.model.documents import job_document
from logshipper_observe.model.job_context import context_options, option_text
from logshipper_observe.model.options import first_values, options_of
from logshipper_observe.model.overlay import Marks
from logshipper_observe.model.properties import TAGS
from logshipper_observe.model.records import display_text
from logshipper_observe.model.run_differences import run_labels
from logshipper_observe.page.api.request import PageAnswer, Request, tagged_answer
from logshipper_observe.page.data.job_list import facts_of

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import KeyStats, XChoice

MOST_JOBS = 16
MOST_GROUPINGS = 200  # in the menu
_SHOWN_CHARS = 2000
_TAGGED_RECORDS = 64  # searched for tags


class _Job:
    def __init__(self, reader: "Reader", marks: Marks, now_ns: int) -> None:
        summary = reader.summary
        self.document = job_document(summary, now_ns)
        self.keys: dict[str, KeyStats] = numeric_keys(reader)
        self.x: XChoice = reader.x_axis()
        self.found_x = {name: reader.x_for(name) for name in self.keys if self.keys[name].is_auto}
        first = first_values(reader)
        self.constants = _shown(first.constants)
        self.first_values = _shown(first.changing)
        options = context_options(reader).items()
        self.context = {name: option_text(name, value)[:_SHOWN_CHARS] for name, value in options}
        arguments = arguments_of(self.context.get("command", "")).items()
        self.arguments = {name: value[:_SHOWN_CHARS] for name, value in arguments}
        self.options = options_of(reader, marks)
        self.tags = _newest_tags(reader)
        self.summary = facts_of(summary)
        self.facts = {
            "name": summary.name,
            "state": summary.state,
            "outcome": exit_words(summary.exit_code, summary.signal),
            "duration": duration(self.document["duration_secs"]),
            "user": summary.user,
            "host": summary.host,
            "mode": summary.mode,
            "attempts": str(summary.attempts),
            "tasks": str(len({(capture.step, capture.task) for capture in reader.captures})),
        }


def _shown(values: Mapping[str, str]) -> dict[str, str]:
    return {name: display_text(value)[:_SHOWN_CHARS] for name, value in values.items()}


def _newest_tags(reader: "Reader") -> set[str]:
    """Return the names of tags in the newest records: only measurements have tags."""
    if all(key.key != "tags" for key in reader.keys()):  # noqa: SIM118  not a dict's
        return set()
    newest = islice(reader.records(newest_first=True), _TAGGED_RECORDS)
    return {name for record in newest for name, _ in tags_of(record)}


def compare(request: Request) -> PageAnswer:
    """Compare the jobs of `jobs`, a JSON list of ids. The answer's `unknown` names missing jobs."""
    now_ns = time.time_ns()
    job_by_id: dict[str, _Job] = {}
    unknown = {}
    for job_id in job_ids(request):
        try:
            with request.store.job(job_id) as reader:
                job_by_id[job_id] = _Job(reader, request.store.marks(reader), now_ns)
        except UnknownJob as error:
            unknown[job_id] = str(error)
    jobs = list(job_by_id.values())
    stats_by_name: dict[str, list[KeyStats]] = {}
    for job in jobs:
        for name, key in job.keys.items():
            stats_by_name.setdefault(name, []).append(key)
    shared = [name for name, keys in stats_by_name.items() if len(keys) > 1 or len(jobs) == 1]
    drawn = [name for name in shared if any(is_drawn(key) for key in stats_by_name[name])]
    found_x = {x.key for job in jobs for x in job.found_x.values()}
    drawn = [name for name in drawn if name not in found_x]
    changing = sorted(drawn, key=lambda name: (stats_by_name[name][0].is_auto, rank_of(name), name))
    axes = {name: _shared_x(name, jobs) for name in changing}
    x = _most_common(axes)
    document = {
        "jobs": [job.document for job in jobs],
        "labels": _labels(jobs),
        "unknown": unknown,
        "x": x,
        "axes": {name: axis for name, axis in axes.items() if axis != x},
        "keys": {job_id: sorted(job.keys) for job_id, job in job_by_id.items()},
        "shared": sorted(shared),
        "groups": _groups(jobs),
        "changing": changing,
        "found": [name for name in changing if stats_by_name[name][0].is_auto],
        "facts": _rows([job.facts for job in jobs]),
        "constants": _rows([job.constants for job in jobs]),
        "first_values": _rows([job.first_values for job in jobs]),
        "context": _rows([{**job.arguments, **job.context} for job in jobs]),
    }
    facts = {**document, "jobs": [job.summary for job in jobs]}
    return tagged_answer(request, document, facts)


def _groups(jobs: Sequence[_Job]) -> list[str]:
    """Return the choices for grouping: places, differing options, tags of measurements."""
    options = differing_options([job.options for job in jobs])
    tags = sorted({f"{TAGS}{tag}" for job in jobs for tag in job.tags})
    return list(dict.fromkeys([*PLACES, EXPERIMENT, *options, *tags]))[:MOST_GROUPINGS]


def _labels(jobs: Sequence[_Job]) -> list[str]:
    """Name each job's curves. An argument that is also a key of the records counts once."""
    keys = {name for job in jobs for name in job.constants}
    options = [
        job.constants
        | {name: text for name, text in job.arguments.items() if bare_name(name) not in keys}
        for job in jobs
    ]
    names, ids = ([str(job.document[field]) for job in jobs] for field in ("name", "job_id"))
    return run_labels(names, ids, options)


def job_ids(request: Request) -> list[str]:
    """Return the distinct ids in `jobs`."""
    return list(dict.fromkeys(request.texts("jobs", '["k3f9x2"]', most=MOST_JOBS)))


def _rows(columns: Sequence[dict[str, str]]) -> list[dict[str, Any]]:  # Any: JSON
    """Return a row for each name, with each job's value, or null."""
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name) for column in columns]
        rows.append({"name": name, "values": values, "differs": len(set(values)) > 1})
    return rows


def _shared_x(key: str, jobs: Sequence[_Job]) -> dict[str, object]:
    """Return the X of a key's graph: an X of a job with the key that all jobs with the key have.
    The best rule wins, then the alphabet. `x` is the parameter of a job's graph, "" for its own."""
    peers = [job for job in jobs if key in job.keys]
    choices = [job.found_x.get(key, job.x) for job in peers]
    candidates = [
        x for x in choices if x.key not in (None, key) and all(x.key in peer.keys for peer in peers)
    ]
    if candidates:
        best = min(candidates, key=lambda x: (x.rule, x.key or ""))
        name = best.key or ""
        return {
            "key": name,
            "x": KEY_PREFIX + name if name in ("", TIME) else name,
            "words": f"X axis: {best.words} (rule {best.rule} of 7), in every job",
        }
    if all(x.key == key for x in choices):
        return {"key": None, "x": "", "words": f"X axis: record number: {key} itself is the X"}
    return {"key": None, "x": TIME, "words": "X axis: time: no job's X is a key that all have"}


def _most_common(axes: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return the X of most graphs, the first by name at equal counts; time without graphs."""
    if not axes:
        return {"key": None, "x": TIME, "words": "X axis: time: no key changes"}
    counts = Counter(str(axis["words"]) for axis in axes.values() if axis["x"])
    if not counts:
        return next(iter(axes.values()))
    words = max(counts, key=counts.__getitem__)
    return next(axis for axis in axes.values() if axis["words"] == words)
