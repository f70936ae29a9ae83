"""Imports QCG-PilotJob 0.14: `track.reqs` (submissions), `track.states` (ends, without times) and
`jobs.report` (histories of ended jobs, written in groups of about a hundred), all as JSON lines.

They lie in a manager's folder, `.qcgpjm-service-NAME`. An entry of a report without `execution`
belongs to an iteration, `name:i`, of the job `name`. The iterations are the job's children, in any
state.
"""

import os
import pwd
import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from logshipper.errors import LogshipperError
from logshipper.masks.masking import masked_json
from logshipper_ingest.imports.entries import read_lines
from logshipper_ingest.imports.faults import Faults, display_text
from logshipper_ingest.imports.source_file import SourceFile, SourceFiles
from logshipper_ingest.imports.staging import StagedEntry, Staging
from logshipper_ingest.imports.values import (
    MAX_NAME_CHARS,
    BadValue,
    exit_of,
    job_id_of,
    list_of,
    object_of,
    secs_of,
    text_of,
    time_of,
    whole_of,
)
from logshipper_ingest.model.imported import (
    ImportedChange,
    ImportedChild,
    ImportedJob,
    PositionLookup,
)
from logshipper_ingest.model.imported_states import is_known
from logshipper_ingest.model.job import Allocation, Json

ORIGIN = "qcg"
# in this order: later files are more exact
FILES = ("track.reqs", "track.states", "jobs.report")
FINAL = "final_status.json"  # written when the manager ends
_FOLDER = re.compile(r"\.qcgpjm-service-.+")
_JOB, _CHILD = 0, 1  # parts of a job's entries
_DETAILS = ("pid", "pname")


class QcgSource:
    """Files of managers.

    paths: their folders, parents of these, or files; zone: of their times, None for this machine's;
    name: replaces the folder in the jobs' identity, so that a copy is the same run. Raises
    LogshipperError.
    """

    def __init__(
        self, paths: Sequence[str], faults: Faults, *, zone: tzinfo | None = None, name: str = ""
    ) -> None:
        self._faults = faults
        self._zone = zone
        self._name = name
        self._runs: dict[str, str] = {}  # by file: its folder, under any name
        self._files = SourceFiles(lambda: _find(paths, faults), faults)

    def size(self) -> int:
        return self._files.size()

    def done(self) -> int:
        return self._files.done()

    def allocations(self) -> list[Allocation]:
        return []  # its files have none

    def is_over(self) -> bool:
        """Return whether all managers have ended."""
        return all(os.path.exists(os.path.join(self._run_of(file), FINAL)) for file in self._files)

    def _run_of(self, file: SourceFile) -> str:
        return self._runs.setdefault(file.path, os.path.dirname(os.path.realpath(file.path)))

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        """Read the entries since the last call; yields now and then."""
        self._files.look()
        for file in self._files:
            run = self._run_of(file)
            for number, entry in enumerate(read_lines(file, self._faults, last=last)):
                try:
                    self._stage(staging, run, file, entry.line, entry.value)
                except BadValue as error:
                    self._faults.leave_out(file.path, entry.line, str(error))
                if not number % 1000:
                    yield

    def _stage(self, staging: Staging, run: str, file: SourceFile, line: int, value: Json) -> None:
        kind = _kind_of(value)
        name = text_of(
            value.get("task" if kind == "states" else "name"), "the job's name", MAX_NAME_CHARS
        )
        if kind == "states":
            value["seen_ns"] = file.changed_ns
        value["owner"] = file.owner
        is_child = ":" in name and "execution" not in value
        job = name.rpartition(":")[0] if is_child else name
        staging.add(
            f"{run}\n{job}", kind, file.path, line, value, part=_CHILD if is_child else _JOB
        )

    def jobs(self, staging: Staging, position_of: PositionLookup) -> Iterator[ImportedJob]:
        """All that was staged, job by job."""
        for place in staging.jobs():
            run, _, name = place.partition("\n")
            key = f"{ORIGIN}:{self._name or run}#{name}"
            job = ImportedJob(key, [job_id_of(ORIGIN, [name], key)], name, ORIGIN)
            for staged in staging.entries(place, _JOB):
                try:
                    self._take(job, staged)
                except BadValue as error:
                    self._faults.leave_out(staged.path, staged.line, str(error))
            job.children = self._children(staging, place)
            yield job

    def _take(self, job: ImportedJob, staged: StagedEntry) -> None:
        value = staged.value
        job.user = job.user or _user_name(value.get("owner"))
        if staged.kind == "states":
            state = _state_of(value)
            job.changes.append(ImportedChange(int(value["seen_ns"]), state, inexact=True))
            return
        resources = object_of(value.get("resources"))
        nodes = whole_of(object_of(resources.get("numNodes")).get("exact"))
        cores = whole_of(object_of(resources.get("numCores")).get("exact"))
        job.nodes, job.cores = nodes or job.nodes or 1, (nodes or 1) * (cores or 1)
        job.details |= {
            name: value[name] for name in ("resources", "dependencies") if name in value
        }
        if "execution" in value:
            job.details["execution"] = masked_json(value["execution"])
        if staged.kind == "reqs":
            job.children_total = (
                _iterations(object_of(value.get("iteration"))) or job.children_total
            )
            return
        job.changes += self._history(value)
        runtime = object_of(value.get("runtime"))
        job.exit_code, job.signal = exit_of(runtime.get("exit_code"))
        job.details |= _details(value, runtime)
        cores_by_node = parse_allocation(str(runtime.get("allocation") or ""))
        if cores_by_node:
            job.nodes, job.cores = len(cores_by_node), sum(map(len, cores_by_node.values()))
            job.host = text_of(next(iter(cores_by_node)), max_chars=MAX_NAME_CHARS)
        job.reason = text_of(str(value.get("messages") or ""), max_chars=1000)

    def _children(self, staging: Staging, place: str) -> Iterator[ImportedChild]:
        for staged in staging.entries(place, _CHILD):
            try:
                yield self._child(staged)
            except BadValue as error:
                self._faults.leave_out(staged.path, staged.line, str(error))

    def _child(self, staged: StagedEntry) -> ImportedChild:
        value = staged.value
        name = text_of(value.get("task", value.get("name")), "the job's name", MAX_NAME_CHARS)
        iteration = whole_of(name.rpartition(":")[2])
        state = _state_of(value)
        if staged.kind == "states":
            return ImportedChild(
                name, iteration, state, [ImportedChange(int(value["seen_ns"]), state, inexact=True)]
            )
        runtime = object_of(value.get("runtime"))
        cores_by_node = parse_allocation(str(runtime.get("allocation") or ""))
        code, signal = exit_of(runtime.get("exit_code"))
        cores = sum(map(len, cores_by_node.values()))
        return ImportedChild(
            name,
            iteration,
            state,
            self._history(value),
            code,
            signal,
            len(cores_by_node),
            cores,
            _details(value, runtime),
        )

    def _history(self, value: Json) -> list[ImportedChange]:
        changes = [
            ImportedChange(
                time_of(change.get("date"), "a date of the history", self._zone), _state_of(change)
            )
            for change in map(object_of, list_of(value.get("history")))
        ]
        state = _state_of(value)
        if not changes or changes[-1].to != state:
            raise BadValue(f"its history does not end with its state {state}")
        return changes


def parse_allocation(text: str) -> dict[str, list[str]]:
    """Parse `node1[0:1],node2[3]` to cores by node; empty for other texts."""
    cores_by_node: dict[str, list[str]] = {}
    for item in text.split(",") if text else ():
        node, bracket, cores = item.partition("[")
        if not node or not bracket or not cores.endswith("]"):
            return {}
        cores_by_node[node] = cores[:-1].split(":") if cores != "]" else []
    return cores_by_node


def _kind_of(value: Json) -> str:
    if "task" in value and "state" in value:
        return "states"
    if "history" in value and "state" in value:
        return "report"
    if "execution" in value and "name" in value:
        return "reqs"
    raise BadValue("is no entry of QCG-PilotJob 0.14: neither of jobs.report nor of track.states")


def _state_of(value: Json) -> str:
    state = text_of(value.get("state"), "a state", 40)
    if not is_known(ORIGIN, state):
        raise BadValue(f"{state!r} is no state of QCG-PilotJob 0.14")
    return state


def _iterations(iteration: Json) -> int:
    values = iteration.get("values")
    if isinstance(values, list):
        return len(values)
    start, stop = whole_of(iteration.get("start", 0)) or 0, whole_of(iteration.get("stop")) or 0
    return max(stop - start, 0)


def _details(value: Json, runtime: Json) -> Json:
    details = {
        name: text_of(runtime[name]) for name in _DETAILS if isinstance(runtime.get(name), str)
    }
    for name, key in (("work_dir", "wd"), ("allocation", "allocation")):
        if isinstance(runtime.get(key), str):
            details[name] = text_of(runtime[key])
    secs = secs_of(runtime.get("rtime"))
    more: Json = {} if secs is None else {"run_secs": secs}
    if value.get("messages"):
        more["messages"] = text_of(str(value["messages"]))
    return {**details, **more}


def _user_name(uid: object) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if isinstance(uid, int) else ""
    except KeyError:
        return str(uid)


# ---- files


def _find(paths: Sequence[str], faults: Faults) -> list[tuple[str, bool]]:
    """Files, and whether they are arguments. Raises LogshipperError."""
    sources: list[tuple[str, bool]] = []
    for path in paths:
        if not os.path.isdir(path):
            sources.append((path, True))
            continue
        files = _files_in(path, faults)
        if not files:
            try:
                inner = sorted(
                    entry.path for entry in os.scandir(path) if _FOLDER.fullmatch(entry.name)
                )
            except OSError as error:
                raise LogshipperError(f"{display_text(path)}: {error.strerror}") from None
            files = [
                file
                for folder in inner
                if os.path.isdir(folder)
                for file in _files_in(folder, faults)
            ]
        if not files:
            names = ", ".join(FILES)
            raise LogshipperError(
                f"{display_text(path)}: no run of QCG-PilotJob: there is none of {names} in it, nor"
                " a folder .qcgpjm-service-…"
            )
        sources += files
    return sources


def _files_in(folder: str, faults: Faults) -> list[tuple[str, bool]]:
    files = []
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.islink(path) or (os.path.lexists(path) and not os.path.isfile(path)):
            faults.leave_out_file(path, "is a link, or no file")
        elif os.path.isfile(path):
            files.append((path, False))
    return files
