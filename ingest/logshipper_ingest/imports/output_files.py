"""Imports output files of jobs: each file becomes a job, and a stderr file joins its job by name.

A job's times come from timestamps in the text, otherwise from the file's last change; its end from
the last lines (output_end.py) or from Slurm's accounting. A later import compares size and time of
each file, and reads changed files again. A file that is shorter than before, or has another text,
is a new job.
"""

import hashlib
import os
import pwd
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import tzinfo

from logshipper.config import Config
from logshipper.errors import os_words
from logshipper.spool.segment import Stream
from logshipper_ingest.imports import sacct
from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.file_jobs import FileJobs
from logshipper_ingest.imports.output_end import output_end
from logshipper_ingest.imports.output_names import (
    OutputName,
    as_id,
    is_stderr,
    output_name,
    stdout_beside,
    stem_of,
)
from logshipper_ingest.imports.output_text import OutputFile, OutputText, bytes_read, times_in
from logshipper_ingest.imports.source_file import SourceFile, Unreadable
from logshipper_ingest.imports.staging import Staging
from logshipper_ingest.imports.values import MAX_NAME_CHARS, NS, BadValue, time_of
from logshipper_ingest.model.imported import ImportedChange, ImportedJob, PositionLookup
from logshipper_ingest.model.imported_states import is_over
from logshipper_ingest.model.job import RUNNING, UNKNOWN, Json

QUIET_SECS = 60.0  # a followed file that did not grow for so long has ended
_END_BYTES = 64 << 10  # at begin and end of a file: times, and the state
_MARK_BYTES = 256  # before the end: identify a file again
_UNPACK = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ\0": "unxz", b"(\xb5/\xfd": "unzstd"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class FilesSource(FileJobs):
    """config: of the lines' classes; pattern: of the files' names; asks_slurm: uses sacct; follows:
    files may still grow."""

    ORIGIN = "files"
    FILES = "*"

    def __init__(
        self,
        paths: Sequence[str],
        faults: Faults,
        *,
        config: Config,
        zone: tzinfo | None = None,
        name: str = "",
        pattern: "re.Pattern[str] | None" = None,
        asks_slurm: bool = False,
        follows: bool = False,
    ) -> None:
        super().__init__(paths, faults, zone=zone, name=name)
        self._config = config
        self._pattern = pattern
        self._asks_slurm = asks_slurm
        self._follows = follows
        self._slurm: dict[str, sacct.SlurmJob] = {}

    def done(self) -> int:
        return int(bytes_read.value)

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        bytes_read.value = 0
        return super().stage(staging, last=last)

    def jobs_since(self, position_of: PositionLookup) -> Iterator[ImportedJob]:
        if self._asks_slurm:
            self._slurm = sacct.slurm_jobs([self._name_of(main).job_id for main in self._jobs])
        return super().jobs_since(position_of)

    def _main_of(self, path: str) -> str:
        return (is_stderr(path) and stdout_beside(path)) or path

    def _name_of(self, main: str) -> OutputName:
        name = output_name(main, self._pattern)
        return OutputName(self._name, as_id(f"{self._name}-{name.job_id}")) if self._name else name

    # ---- jobs

    def _jobs_of(
        self, main: str, files: list[SourceFile], position_of: PositionLookup
    ) -> Iterator[ImportedJob]:
        files.sort(key=lambda file: is_stderr(file.path))
        job, position = self._known_job(main, files, position_of)
        slurm = self._slurm.get(self._name_of(main).job_id)
        known = position.get("files", {})
        states = {file.path: [file.size, file.changed_ns] for file in files}
        is_known = all(known.get(path, [])[:2] == state for path, state in states.items())
        quiet_ns = time.time_ns() - max(file.changed_ns for file in files)
        job.log_ended = not self._follows or self._is_last or quiet_ns > QUIET_SECS * NS
        if is_known and slurm is None and position["ended"] >= job.log_ended:
            job.is_unchanged = True
            with bytes_read.get_lock():
                bytes_read.value += sum(file.size for file in files)
        else:
            self._describe(job, main, files, slurm)
            marks = {path: [*state, _mark(path, state[0])] for path, state in states.items()}
            job.position = {"files": {**known, **marks}, "ended": job.log_ended}
        yield job

    def _known_job(
        self, main: str, files: list[SourceFile], position_of: PositionLookup
    ) -> tuple[ImportedJob, Json]:
        """Return the newest job of these files, without content, and its position."""
        job, position = self._empty_job(main, 1), Json()
        newest, number = job, 1
        while later := position_of(job):
            newest, position, number = job, later, number + 1
            job = self._empty_job(main, number)
        for file in files:
            size, _, mark = position.get("files", {}).get(file.path, (0, 0, ""))
            if file.size < size or (size and _mark(file.path, size) != mark):
                words = "became shorter" if file.size < size else "has another text"
                self._faults.remark(file.path, 0, f"{words}: the new job {job.ids[0]} has it")
                return job, {}
        return newest, position

    def _empty_job(self, main: str, number: int) -> ImportedJob:
        """number: of the jobs whose output was in these files, one after the other."""
        name, job_id = self._name_of(main)
        suffix = [str(number)] if number > 1 else []
        folder_id = as_id(f"{os.path.basename(os.path.dirname(main))}-{job_id}")
        ids = ["-".join([text, *suffix]) for text in (job_id, folder_id)]
        job = ImportedJob("\n".join([f"{self.ORIGIN}:{main}", *suffix]), ids, name, self.ORIGIN)
        job.name = name or stem_of(main)
        job.config, job.is_whole_history = self._config, True
        return job

    def _describe(
        self, job: ImportedJob, main: str, files: list[SourceFile], slurm: sacct.SlurmJob | None
    ) -> None:
        tails, firsts, lasts = [], [], []
        for file in files:
            head, tail = _read(file.path, 0), _read(file.path, max(0, file.size - _END_BYTES))
            if program := next((_UNPACK[begin] for begin in _UNPACK if head.startswith(begin)), ""):
                raise Unreadable(file.path, f"is compressed: unpack it by `{program}` first")
            if b"\0" in head and not head.startswith(_UTF_16):
                raise Unreadable(file.path, "is binary")
            tails.append(tail.decode("utf-8", "replace"))
            firsts.append(next((time_ns for _, time_ns in times_in(head, self._zone)), 0))
            lasts += [time_ns for _, time_ns in times_in(tail, self._zone)]
        end = output_end(tails)
        end_ns = max(lasts, default=0) or max(file.changed_ns for file in files)
        with suppress(BadValue):  # Slurm printed no time
            end_ns = time_of(end.time, "", self._zone)
        begin_ns = min(filter(None, firsts), default=end_ns)
        state, is_exact = end.state, end.state != UNKNOWN
        job.user = _user_of(files[0].owner)
        job.reason, job.exit_code, job.signal = end.reason, end.exit_code, end.signal
        if slurm is not None:
            _take_slurm(job, slurm, keeps_name=bool(self._name))
            begin_ns = sacct.time_ns(slurm.Start) or begin_ns
            end_ns = sacct.time_ns(slurm.End) or end_ns
            job.reason = job.reason if slurm.state == state else ""
            state, is_exact = slurm.state, True
        if state == UNKNOWN and not job.log_ended:
            state = RUNNING
        job.begun_ns = min(begin_ns, end_ns)
        job.changes = [ImportedChange(job.begun_ns, RUNNING)]
        if is_over(state):
            job.changes.append(ImportedChange(end_ns, state, inexact=not is_exact))
        job.details = {"path": main}
        outputs = []
        for file, first_ns in zip(files, firsts, strict=True):
            stream = Stream.STDERR if is_stderr(file.path) else Stream.STDOUT
            without_ns = end_ns if stream is Stream.STDERR else job.begun_ns
            outputs.append(OutputFile(file.path, stream, first_ns or without_ns))
        job.log = OutputText(outputs, self._zone, end_ns - job.begun_ns)


def _take_slurm(job: ImportedJob, slurm: sacct.SlurmJob, *, keeps_name: bool) -> None:
    job.name = job.name if keeps_name else slurm.JobName
    job.user, job.host = slurm.User or job.user, slurm.NodeList[:MAX_NAME_CHARS]
    job.nodes, job.cores = sacct.whole(slurm.NNodes), sacct.whole(slurm.AllocCPUS)
    job.partition = slurm.Partition
    code, _, signo = slurm.ExitCode.partition(":")
    job.exit_code = sacct.whole(code) if is_over(slurm.state) else None
    job.signal = sacct.whole(signo)


def _mark(path: str, size: int) -> str:
    """A hash of the text before an offset; not the text, which may be secret."""
    begin = max(0, size - _MARK_BYTES)
    return hashlib.sha256(_read(path, begin, size - begin)).hexdigest()[:16]


def _read(path: str, offset: int, size: int = _END_BYTES) -> bytes:
    try:
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size, offset)
    except OSError as error:
        raise Unreadable(path, os_words(error)) from None


def _user_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
