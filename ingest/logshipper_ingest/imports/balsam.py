"""Imports Balsam 0.7: exports of its API (events, jobs, batch jobs), and the folders of its jobs.

Exports are JSON (arrays, or a server's pages), JSON lines or CSV, from `display_dict()` or the REST
API; an entry's fields show its kind. A site's `data/` has a folder for each job, with its output in
`job.out`. `logs/` has the launchers' logs, whose names begin with the mode, and the site agent's
`service*.log`. Memory does not grow with the entries: a job finds its log by its `workdir`, and
folders without a job become jobs.
"""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from logshipper.errors import LogshipperError
from logshipper.masks.masking import masked_json
from logshipper_ingest.imports import values
from logshipper_ingest.imports.entries import ImportEntry, read_any
from logshipper_ingest.imports.faults import Faults, display_text
from logshipper_ingest.imports.source_file import SourceFile, Unreadable, is_plain_file
from logshipper_ingest.imports.staging import StagedEntry, Staging
from logshipper_ingest.model.imported import ImportedChange, ImportedJob, LogPiece, PositionLookup
from logshipper_ingest.model.imported_states import is_known
from logshipper_ingest.model.job import QUEUED, RUNNING, UNKNOWN, Allocation, Json

ORIGIN = "balsam"
JOB_OUT = "job.out"
EXPORT_ENDINGS = (".json", ".jsonl", ".ndjson", ".csv")
MAX_ALLOCATIONS = 100_000  # of one import
_LEAST_SHARE = 1e-6  # of a node
_LAUNCHER_LOG = re.compile(r"(mpi(?=_mode)|serial(?=_mode)|service).*\.log.*")
_JOB, _FOLDER, _LAUNCHER = "job", "folder", "launcher"  # kinds of places, before the place itself
_OUT_STATES = {
    "pending_submission": QUEUED, "queued": QUEUED, "running": RUNNING, "finished": "COMPLETED",
    "submit_failed": "FAILED", "pending_deletion": RUNNING,
}  # fmt: skip
_DETAILS = (
    "app_id", "site_id", "parameters", "data", "parent_ids", "transfers", "ranks_per_node", "threads_per_rank",
    "threads_per_core", "gpus_per_rank", "launch_params", "wall_time_min", "batch_job_id",
)  # fmt: skip
_COMMAND = ("parameters", "launch_params")  # Balsam builds the command line from these
_OF_ALLOCATION = (
    "site_id", "project", "queue", "wall_time_min", "job_mode", "filter_tags", "partitions", "optional_params",
    "status_info",
)  # fmt: skip


class BalsamSource:
    """Exports and folders. paths: files of exports, `job.out` files, and folders that are searched
    for these; zone: of times without one; name: the site, told apart from others. Raises
    LogshipperError."""

    def __init__(
        self, paths: Sequence[str], faults: Faults, *, zone: tzinfo, name: str = ""
    ) -> None:
        self._paths = paths
        self._faults = faults
        self._zone = zone
        self._name = name
        self._folders = [os.path.realpath(path) for path in paths if os.path.isdir(path)]
        self._sizes: dict[str, tuple[int, int]] = {}  # bytes read, and time of the last change
        self._allocations: dict[str, Allocation] = {}
        self._now: SourceFile | None = None
        self._before = 0
        self._size = 0  # of exports, at their discovery
        if next(self._find(), None) is None:
            raise LogshipperError(
                f"{display_text(paths[0])}: nothing of Balsam: no {JOB_OUT}, no export (JSON, CSV)"
            )

    def size(self) -> int:
        return self._size

    def done(self) -> int:
        return self._before + (self._now.offset if self._now is not None else 0)

    def is_over(self) -> bool:
        return False  # a site has no end

    def allocations(self) -> list[Allocation]:
        allocations = list(self._allocations.values())
        self._allocations.clear()
        return allocations

    # ---- reading

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        """Reads exports that are new or changed, as a whole, and looks for logs; yields now and
        then."""
        self._before = 0
        self._size = sum(
            os.path.getsize(path) for _, path in self._find_exports() if os.path.isfile(path)
        )
        for kind, path in self._find():
            if not self._is_new(path):
                continue
            if kind == "export":
                yield from self._stage_export(staging, path)
            else:
                self._stage_log(staging, kind, path)
                yield

    def _is_new(self, path: str) -> bool:
        try:
            status = os.stat(path)
        except OSError:
            return True  # opening it says why
        signature = (status.st_size, status.st_mtime_ns)
        is_new = self._sizes.get(path) != signature
        self._sizes[path] = signature
        return is_new

    def _stage_export(self, staging: Staging, path: str) -> Iterator[None]:
        is_argument = path in self._paths
        try:
            file = self._now = SourceFile(path, self._faults, follow_link=is_argument)
            for number, entry in enumerate(read_any(file, self._faults)):
                try:
                    self._stage_entry(staging, path, entry)
                except values.BadValue as error:
                    self._faults.leave_out(path, entry.line, str(error))
                if not number % 1000:
                    yield
        except Unreadable as error:
            if is_argument:
                raise
            self._faults.leave_out_file(path, error.words)
        finally:
            if self._now is not None:
                self._before += self._now.offset
                self._now.close()
            self._now = None

    def _stage_entry(self, staging: Staging, path: str, entry: ImportEntry) -> None:
        value = entry.value
        if "from_state" in value and "to_state" in value:
            staging.add(self._job_place(value.get("job_id")), "event", path, entry.line, value)
        elif "workdir" in value:
            place = self._job_place(value.get("id"))
            staging.add(place, "job", path, entry.line, value)
            workdir = _workdir(value)
            if workdir:
                staging.add(f"{_FOLDER}\n{workdir}", "owner", path, 0, {})
        elif "wall_time_min" in value and "num_nodes" in value:
            self._take_allocation(value)
        else:
            raise values.BadValue("is no event, job or batch job of Balsam 0.7")

    def _job_place(self, number: object) -> str:
        job_number = values.whole_of(number)
        if job_number is None:
            raise values.BadValue("the job's id is missing, or no number")
        return f"{_JOB}\n{job_number}"

    def _stage_log(self, staging: Staging, kind: str, path: str) -> None:
        if kind == _LAUNCHER:
            staging.add(f"{_LAUNCHER}\n{os.path.basename(path)}", "log", path, 0, {})
            return
        folder = os.path.dirname(os.path.realpath(path))
        above = (root for root in self._folders if os.path.commonpath([root, folder]) == root)
        workdir = os.path.relpath(folder, next(above, folder))
        if workdir == ".":
            workdir = os.path.basename(folder)
        staging.add(f"{_FOLDER}\n{_after_data(workdir)}", "log", path, 0, {})

    # ---- jobs

    def jobs(self, staging: Staging, position_of: PositionLookup) -> Iterator[ImportedJob]:
        """All that was staged, job by job."""
        for place in staging.jobs():
            kind, _, name = place.partition("\n")
            site = f"{self._name}-" if self._name else ""
            if kind == _JOB:
                job_ids = [values.job_id_of(ORIGIN, [site + name])]
                job = ImportedJob(f"{ORIGIN}:{self._name}#{name}", job_ids, "", ORIGIN)
                job.is_small = True
                for staged in staging.entries(place, 0):
                    try:
                        self._take(job, staged, staging)
                    except values.BadValue as error:
                        self._faults.leave_out(staged.path, staged.line, str(error))
                yield job
                continue
            logs = list(staging.entries(place, 0))
            if any(staged.kind == "owner" for staged in logs):
                continue  # the job that ran there takes them
            name = values.text_of(name, max_chars=values.MAX_NAME_CHARS)
            job_ids = [values.job_id_of(ORIGIN, [site + name])]
            job = ImportedJob(f"{ORIGIN}:{self._name}@{kind}/{name}", job_ids, name, ORIGIN)
            if kind == _LAUNCHER:
                log_name = _LAUNCHER_LOG.fullmatch(name)
                job.details["mode"] = log_name[1] if log_name else ""
            else:
                job.details["work_dir"] = name
            self._take_log(job, logs[-1].path)
            # its system reports no course: it ran until the file's end
            job.changes += [
                ImportedChange(job.log_ns, state, inexact=True) for state in (RUNNING, UNKNOWN)
            ]
            yield job

    def _take(self, job: ImportedJob, staged: StagedEntry, staging: Staging) -> None:
        value = staged.value
        if staged.kind == "event":
            self._take_event(job, value)
            return
        workdir = _workdir(value)
        job.name = values.text_of(value.get("workdir"), "workdir", values.MAX_NAME_CHARS)
        job.nodes = values.whole_of(value.get("num_nodes")) or 1
        job.packing = values.whole_of(value.get("node_packing_count")) or 1
        ranks = values.whole_of(value.get("ranks_per_node")) or 1
        threads = values.whole_of(value.get("threads_per_rank")) or 1
        threads_per_core = values.whole_of(value.get("threads_per_core")) or 1
        job.cores = job.nodes * ranks * max(1, threads // threads_per_core)
        if value.get("return_code") not in (None, ""):
            job.exit_code, job.signal = values.exit_of(value["return_code"])
        batch = values.whole_of(value.get("batch_job_id"))
        job.allocation = job.allocation if batch is None else self._allocation_id(batch)
        tags = values.object_of(value.get("tags"))
        job.tags |= {values.text_of(name): values.text_of(tag) for name, tag in tags.items()}
        job.details |= _nonempty(value, _DETAILS)
        job.details |= masked_json(_nonempty(job.details, _COMMAND))
        job.details["work_dir"] = job.name
        if value.get("last_update") and value.get("state"):
            state = _state_of(value["state"])
            time_ns = values.time_of(value["last_update"], "last_update", self._zone)
            job.changes.append(ImportedChange(time_ns, state, inexact=True))
        staged_there = list(staging.entries(f"{_FOLDER}\n{workdir}", 0)) if workdir else []
        logs = [entry for entry in staged_there if entry.kind == "log"]
        if logs:
            self._take_log(job, logs[-1].path)
            job.is_small = False

    def _take_event(self, job: ImportedJob, value: Json) -> None:
        before, after = _state_of(value["from_state"]), _state_of(value["to_state"])
        if before == after:
            return  # an update of the job, no change of its state
        data = values.object_of(value.get("data"))
        time_ns = values.time_of(value.get("timestamp"), "timestamp", self._zone)
        number = values.whole_of(value.get("id"))
        event_id = "" if number is None else str(number)
        job.changes.append(ImportedChange(time_ns, after, before, data=data or None, id=event_id))
        weight = data.get("num_nodes")  # nodes, as a share of one where jobs are packed
        if not job.nodes and isinstance(weight, int | float) and _LEAST_SHARE <= weight < 1 << 32:
            job.nodes = max(1, round(weight))
            job.packing = max(1, round(1 / weight)) if weight < 1 else 1
        if "returncode" in data:
            job.exit_code, job.signal = values.exit_of(data["returncode"])

    def _take_log(self, job: ImportedJob, path: str) -> None:
        try:
            file = SourceFile(path, self._faults, follow_link=path in self._paths)
        except Unreadable as error:
            self._faults.leave_out_file(path, error.words)
            return
        job.log_ns = file.changed_ns
        job.log = map(LogPiece, file.pieces())
        job.log_ended = False  # another run of the job may go on in it

    def _take_allocation(self, value: Json) -> None:
        number = values.whole_of(value.get("id"))
        if number is None:
            raise values.BadValue("the batch job's id is missing, or no number")
        state = values.text_of(value.get("state"), "the state", 40)
        if state not in _OUT_STATES:
            raise values.BadValue(f"{state!r} is no state of a batch job of Balsam 0.7")
        started, ended = (
            values.time_of(value[name], name, self._zone) if value.get(name) else None
            for name in ("start_time", "end_time")
        )
        if len(self._allocations) >= MAX_ALLOCATIONS:
            raise values.BadValue(f"only {MAX_ALLOCATIONS:,} batch jobs are taken at a time")
        allocation_id = self._allocation_id(number)
        scheduler_id = values.whole_of(value.get("scheduler_id"))
        self._allocations[allocation_id] = Allocation(
            id=allocation_id,
            origin=ORIGIN,
            scheduler_id="" if scheduler_id is None else str(scheduler_id),
            state=_OUT_STATES[state],
            nodes=values.whole_of(value.get("num_nodes")) or 1,
            started_ns=started,
            ended_ns=ended,
            details=_nonempty(value, _OF_ALLOCATION),
        )

    def _allocation_id(self, number: int) -> str:
        return f"{ORIGIN}-{self._name}-batch-{number}" if self._name else f"{ORIGIN}-batch-{number}"

    # ---- files

    def _find(self) -> Iterator[tuple[str, str]]:
        """(kind, path): exports first, then logs."""
        yield from self._find_exports()
        for path in self._paths:
            if os.path.isdir(path):
                for folder, folders, names in os.walk(path):
                    folders.sort()
                    for name in sorted(names):
                        file_path = os.path.join(folder, name)
                        if _log_kind(name) and is_plain_file(file_path, self._faults):
                            yield _log_kind(name), file_path
            elif _log_kind(path):
                yield _log_kind(path), path

    def _find_exports(self) -> Iterator[tuple[str, str]]:
        for path in self._paths:
            if os.path.isdir(path):
                names = sorted(name for name in os.listdir(path) if name.endswith(EXPORT_ENDINGS))
                paths = filter(os.path.isfile, (os.path.join(path, name) for name in names))
                yield from (("export", file_path) for file_path in paths)
            elif not _log_kind(path):
                yield "export", path


def _nonempty(value: Json, names: Sequence[str]) -> Json:
    """Return these fields, where they have content."""
    return {name: value[name] for name in names if value.get(name) not in (None, "", [], {})}


def _log_kind(path: str) -> str:
    """Return the kind of a log; "" for other files."""
    name = os.path.basename(path)
    if name == JOB_OUT:
        return _FOLDER
    return _LAUNCHER if _LAUNCHER_LOG.fullmatch(name) else ""


def _workdir(value: Json) -> str:
    """Return a job's folder relative to its site's data; "" for other values."""
    workdir = value.get("workdir")
    if not isinstance(workdir, str) or not workdir or os.path.isabs(workdir) or "\0" in workdir:
        return ""
    clean = os.path.normpath(workdir)
    return "" if clean == ".." or clean.startswith("../") else clean


def _after_data(workdir: str) -> str:
    """Return a site's folder in the form of a job's `workdir`: the part after `data/`."""
    return workdir.removeprefix("data/") if workdir != "data" else workdir


def _state_of(state: object) -> str:
    text = values.text_of(state, "a state", 40)
    if not is_known(ORIGIN, text):
        raise values.BadValue(f"{text!r} is no state of Balsam 0.7")
    return text
