"""Imports QCG-PilotJob 0.14: `track.reqs` (submissions), `track.states` (ends, without times) and
`jobs.report` (histories of ended jobs, written in groups of about a hundred), all as JSON lines.

They lie in a manager's folder, `.qcgpjm-service-NAME`. An entry of a report without `execution`
belongs to an iteration, `name:i`, of the job `name`. The iterations are the job's children, in any
state.
"""

import os
import pwd
import re
from collections.abc import Iterator
from functools import cache

from logshipper.errors import LogshipperError
from logshipper.masks.masking import masked_json
from logshipper_ingest.imports.entries import ImportEntry
from logshipper_ingest.imports.faults import display_text
from logshipper_ingest.imports.line_source import LineSource
from logshipper_ingest.imports.source_file import SourceFile, is_plain_file
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
from logshipper_ingest.model.job import Json

ORIGIN = "qcg"
# in this order: later files are more exact
FILES = ("track.reqs", "track.states", "jobs.report")
FINAL = "final_status.json"  # written when the manager ends
_FOLDER = re.compile(r"\.qcgpjm-service-.+")
_JOB, _CHILD = 0, 1  # parts of a job's entries
# fields of `runtime`, by the names of details
_DETAILS = {"pid": "pid", "pname": "pname", "work_dir": "wd", "allocation": "allocation"}


class QcgSource(LineSource):
    """Files of managers.

    paths: their folders, parents of these, or files; name: replaces the folder in the jobs'
    identity, so that a copy is the same run. Raises LogshipperError.
    """

    NOTHING = (
        f"no run of QCG-PilotJob: there is none of {', '.join(FILES)} in it, nor a folder"
        " .qcgpjm-service-…"
    )

    def is_over(self) -> bool:
        """Return whether all managers have ended."""
        return all(os.path.exists(os.path.join(_run_of(file.path), FINAL)) for file in self._files)

    def _stage(self, staging: Staging, file: SourceFile, entry: ImportEntry) -> None:
        value = entry.value
        kind = _kind_of(value)
        name_field = "task" if kind == "states" else "name"
        name = text_of(value.get(name_field), "the job's name", MAX_NAME_CHARS)
        if kind == "states":
            value["seen_ns"] = file.changed_ns
        value["owner"] = file.owner
        is_child = ":" in name and "execution" not in value
        job = name.rpartition(":")[0] if is_child else name
        part = _CHILD if is_child else _JOB
        place = f"{_run_of(file.path)}\n{job}"
        staging.add(place, kind, file.path, entry.line, value, part=part)

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
        kept = ("resources", "dependencies")
        job.details |= {name: value[name] for name in kept if name in value}
        if "execution" in value:
            job.details["execution"] = masked_json(value["execution"])
        if staged.kind == "reqs":
            total = _iterations(object_of(value.get("iteration")))
            job.children_total = total or job.children_total
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
            change = ImportedChange(int(value["seen_ns"]), state, inexact=True)
            return ImportedChild(name, iteration, state, [change])
        runtime = object_of(value.get("runtime"))
        cores_by_node = parse_allocation(str(runtime.get("allocation") or ""))
        code, signal = exit_of(runtime.get("exit_code"))
        return ImportedChild(
            name,
            iteration,
            state,
            self._history(value),
            code,
            signal,
            nodes=len(cores_by_node),
            cores=sum(map(len, cores_by_node.values())),
            details=_details(value, runtime),
        )

    def _history(self, value: Json) -> list[ImportedChange]:
        changes = []
        for change in map(object_of, list_of(value.get("history"))):
            time_ns = time_of(change.get("date"), "a date of the history", self._zone)
            changes.append(ImportedChange(time_ns, _state_of(change)))
        state = _state_of(value)
        if not changes or changes[-1].to != state:
            raise BadValue(f"its history does not end with its state {state}")
        return changes

    def _files_in(self, folder: str) -> list[str]:
        files = self._run_files(folder)
        if files:
            return files
        try:
            names = sorted(filter(_FOLDER.fullmatch, os.listdir(folder)))
        except OSError as error:
            raise LogshipperError(f"{display_text(folder)}: {error.strerror}") from None
        inner = filter(os.path.isdir, (os.path.join(folder, name) for name in names))
        return [file for run in inner for file in self._run_files(run)]

    def _run_files(self, folder: str) -> list[str]:
        paths = filter(os.path.lexists, (os.path.join(folder, name) for name in FILES))
        return [path for path in paths if is_plain_file(path, self._faults)]


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
    details: Json = {
        name: text_of(runtime[key])
        for name, key in _DETAILS.items()
        if isinstance(runtime.get(key), str)
    }
    secs = secs_of(runtime.get("rtime"))
    if secs is not None:
        details["run_secs"] = secs
    if value.get("messages"):
        details["messages"] = text_of(str(value["messages"]))
    return details


def _user_name(uid: object) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if isinstance(uid, int) else ""
    except KeyError:
        return str(uid)


@cache
def _run_of(path: str) -> str:
    """Return the folder of a file, under any name."""
    return os.path.dirname(os.path.realpath(path))
