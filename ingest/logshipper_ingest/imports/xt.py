"""Imports XT (xtlib 1.0): a run's `run.log`, JSON lines `{"time", "event", "data"}`, with its
console beside it; and files of many runs.

Files of many runs are `all_runs.jsonl`, a line `{"run_name", "log"}` for each, and runs' documents
with `log_records`. A run becomes a job. Its metrics and hyperparameters become metadata records,
its tags and notes those of the reader, its status the state, and all else events. Runs of a search,
such as `run3.1`, have the parent `run3`.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from logshipper.masks.masking import masked_json
from logshipper_ingest.imports import values
from logshipper_ingest.imports.entries import ImportEntry
from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.line_source import LineSource
from logshipper_ingest.imports.source_file import SourceFile, is_plain_file, open_source
from logshipper_ingest.imports.staging import StagedEntry, Staging
from logshipper_ingest.model import imported
from logshipper_ingest.model.capture_account import RESERVED_EVENTS
from logshipper_ingest.model.imported_states import is_known, is_over, state_of
from logshipper_ingest.model.job import Json

ORIGIN = "xt"
RUN_LOG, ALL_RUNS = "run.log", "all_runs.jsonl"
# next to a run.log
CONSOLES = ("output/console.txt", "after/output/console.txt", "after/console.txt", "console.txt")
MAX_FILES = 100_000  # of a folder
MAX_PIECE = 10_000  # records and events of a run that are ingested at once
STEP_NAME = "__step_name__"  # XT adds it to metrics: the name of the step
_CREATED = ("exper_name", "job_id", "node_index", "box_name", "path", "script", "compute", "service_type", "sku",
            "search_type", "search_style", "app_name", "run_guid", "xt_build", "run_index")  # fmt: skip
# lists filter by these
_TAGS = {"experiment": "exper_name", "job": "job_id", "node_index": "node_index"}
_CHILD = re.compile(r"(.+)\.([0-9]{1,9})")
_STATE_EVENTS = ("created", "queued", "started", "restarted", "cancelled")


class XtSource(LineSource):
    """Runs. name: the workspace, if the records do not name it."""

    NOTHING = f"no runs of XT: there is no {RUN_LOG} and no {ALL_RUNS} in it"

    def __init__(
        self, paths: Sequence[str], faults: Faults, *, zone: tzinfo | None = None, name: str = ""
    ) -> None:
        super().__init__(paths, faults, zone=zone, name=name)
        self._runs: dict[str, str] = {}  # by file: the owner of its records, once known
        self._consoles: dict[str, int] = {}  # sizes that were imported
        self._over: dict[str, bool] = {}

    def is_over(self) -> bool:
        return bool(self._over) and all(self._over.values())

    # ---- reading

    def _stage(self, staging: Staging, file: SourceFile, entry: ImportEntry) -> None:
        value = entry.value
        records = value.get("log", value.get("log_records"))
        if isinstance(records, list):
            run = values.text_of(
                value.get("run_name", value.get("_id")), "the run's name", values.MAX_NAME_CHARS
            )
            workspace = values.text_of(value.get("ws"), max_chars=values.MAX_NAME_CHARS)
            name = f"{workspace}/{run}" if workspace else run
            place = self._place(name, values.object_of(records[0]) if records else {})
            marks = {"tags": value.get("tags"), "note": value.get("note")}
            if any(marks.values()):
                staging.add(place, "marks", file.path, 0, marks)
            for number, record in enumerate(records, start=1):
                if isinstance(record, dict):
                    staging.add(place, "record", file.path, number, record)
            return
        if "event" not in value or "time" not in value:
            raise values.BadValue('is no record of XT\'s, {"time", "event", "data"}')
        if file.path not in self._runs:
            folder = os.path.basename(os.path.dirname(os.path.realpath(file.path)))
            self._runs[file.path] = self._place(folder, value)
        staging.add(self._runs[file.path], "record", file.path, entry.line, value)

    def _place(self, name: str, first: Json) -> str:
        """Return workspace and run from the first record, `created`, or else from the file's names."""
        data = values.object_of(first.get("data")) if first.get("event") == "created" else {}
        workspace, _, run = name.rpartition("/")
        names = data.get("ws"), data.get("run_name")
        run = names[1] if isinstance(names[1], str) and names[1] else run
        workspace = self._name or (names[0] if isinstance(names[0], str) else workspace)
        return "\n".join(
            values.text_of(part, max_chars=values.MAX_NAME_CHARS) for part in (workspace, run)
        )

    def _stage_more(self, staging: Staging, file: SourceFile) -> None:
        """Stage the console beside a run.log."""
        path = file.path
        if path not in self._runs:
            return
        for name in CONSOLES:
            console = os.path.join(os.path.dirname(path), name)
            if os.path.islink(console):
                self._faults.leave_out_file(console, "is a link, which the import does not follow")
            elif os.path.isfile(console):
                size = os.path.getsize(console)
                if size != self._consoles.get(console):
                    self._consoles[console] = size
                    staging.add(self._runs[path], "console", console, 0, {})
                return

    # ---- jobs

    def jobs(
        self, staging: Staging, position_of: imported.PositionLookup
    ) -> Iterator[imported.ImportedJob]:
        """All that was staged, run by run; a long one in pieces, each going on where the last one
        ended."""
        for place in staging.jobs():
            job = _job_of(place)
            before = position_of(job)
            line, mark = int(before.get("line", 0)), before.get("mark", "")
            for staged in staging.entries(place, 0):
                if staged.kind != "record":
                    self._take_other(job, staged)
                    continue
                record_mark = hashlib.sha256(json.dumps(staged.value).encode()).hexdigest()[:16]
                if staged.line == line and record_mark != mark:
                    words = "another run of this name was imported before (`--as NAME`: another workspace)"
                    self._faults.leave_out(staged.path, staged.line, words)
                    break
                is_repeat = staged.line <= line
                if not is_repeat:  # once, because a run may lie in several files
                    line, mark = staged.line, record_mark
                try:
                    self._take(job, staged.value, is_repeat=is_repeat)
                except values.BadValue as error:
                    self._faults.leave_out(staged.path, staged.line, str(error))
                job.position = {"line": line, "mark": mark}
                if len(job.events) + len(job.records) >= MAX_PIECE:
                    yield self._note_end(place, job)
                    job = _job_of(place)
            yield self._note_end(place, job)

    def _note_end(self, place: str, job: imported.ImportedJob) -> imported.ImportedJob:
        """Notes whether the job is over; returns it."""
        if job.changes:
            # the last one of equal times
            last = max(reversed(job.changes), key=lambda change: change.time_ns)
            self._over[place] = is_over(state_of(ORIGIN, last.to))
        return job

    def _take_other(self, job: imported.ImportedJob, staged: StagedEntry) -> None:
        if staged.kind == "console":
            self._take_console(job, staged.path)
            return
        _take_tags(job, values.object_of(staged.value.get("tags")))
        note = staged.value.get("note")
        job.note = values.text_of(note) if isinstance(note, str) else job.note

    def _take_console(self, job: imported.ImportedJob, path: str) -> None:
        file = open_source(path, self._faults, is_argument=False)
        if file is not None:
            job.log, job.log_ns = map(imported.LogPiece, file.pieces()), file.changed_ns
            job.log_ended = False

    def _take(self, job: imported.ImportedJob, value: Json, *, is_repeat: bool) -> None:
        """Apply an entry.

        is_repeat: the entry was imported before, so only facts about the whole job count.
        """
        name = values.text_of(value.get("event"), "the event's name", 100)
        time_ns = values.time_of(value.get("time"), "the time", self._zone)
        data = values.object_of(value.get("data"))
        if name == "cmd":
            data = masked_json(data)
        self._take_facts(job, name, data)
        state = _state_of(name, data)
        if state:
            if not is_known(ORIGIN, state):
                raise values.BadValue(f"{state!r} is no status of XT 1.0")
            state_data = None if name in ("created", "ended") else data or None
            job.changes.append(imported.ImportedChange(time_ns, state, data=state_data))
        elif name in ("metrics", "hparams"):
            metrics = {key: metric for key, metric in data.items() if key != STEP_NAME}
            if metrics and not is_repeat:
                job.records.append(imported.ImportedRecord(time_ns, json.dumps(metrics).encode()))
        elif not is_repeat:
            name = f"xt_{name}" if name in RESERVED_EVENTS else name
            job.events.append(imported.ImportedEvent(time_ns, {"event": name, "data": data}))

    def _files_in(self, folder: str) -> list[str]:
        files: list[str] = []
        for path, folders, names in os.walk(folder):
            folders.sort()
            inner = [os.path.join(path, name) for name in sorted({RUN_LOG, ALL_RUNS} & set(names))]
            files += [file for file in inner if is_plain_file(file, self._faults)]
        return files[:MAX_FILES]

    def _take_facts(self, job: imported.ImportedJob, name: str, data: Json) -> None:
        if name == "created":
            job.user = values.text_of(data.get("username"), max_chars=values.MAX_NAME_CHARS)
            job.host = values.text_of(data.get("box_name"), max_chars=values.MAX_NAME_CHARS)
            job.details |= {key: data[key] for key in _CREATED if data.get(key) not in (None, "")}
            job.note = values.text_of(data.get("description")) or job.note
            for tag, field in _TAGS.items():
                if data.get(field) not in (None, ""):
                    # one that was set by hand counts more
                    job.tags.setdefault(tag, values.text_of(str(data[field])))
        elif name == "hparams":
            job.details["hparams"] = {**job.details.get("hparams", {}), **data}
        elif name == "cmd":
            command = data.get("cmd")
            job.details["command"] = list(map(str, values.list_of(command))) or command
        elif name == "ended":
            job.exit_code, job.signal = values.exit_of(data.get("exit_code"))
            job.details["metrics_rollup"] = values.object_of(data.get("metrics_rollup"))
        elif name in ("tag", "tags"):
            _take_tags(job, data)
        elif name in ("note", "notes"):
            job.note = values.text_of(data.get("notes", data.get("note")))


def _job_of(place: str) -> imported.ImportedJob:
    """Return a run's job with its place only."""
    workspace, _, run = place.partition("\n")
    above = [workspace] if workspace else []
    job_ids = [values.job_id_of(ORIGIN, [*above, run])]
    job = imported.ImportedJob(f"{ORIGIN}:{workspace}/{run}", job_ids, run, ORIGIN)
    child = _CHILD.fullmatch(run)
    if child is not None:
        job.parent = values.job_id_of(ORIGIN, [*above, child[1]])
        job.iteration = int(child[2])
    return job


def _state_of(name: str, data: Json) -> str:
    if name in _STATE_EVENTS:
        return name
    if name in ("ended", "status-change", "status"):
        return values.text_of(data.get("status"), "the status", 40).lower()
    return ""


def _take_tags(job: imported.ImportedJob, tags: Json) -> None:
    job.tags |= {
        values.text_of(name): values.text_of(str(value)) if value is not None else ""
        for name, value in tags.items()
    }
