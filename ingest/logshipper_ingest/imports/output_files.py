"""Imports output files of jobs: each file becomes a job, and a stderr file joins its job by name.

A job's times come from timestamps in the text, otherwise from the file's last change; its end from
the last lines (output_end.py) or from Slurm's accounting. A later import compares size and time of
each file, and reads changed files again. A file that is shorter than before, or has another text,
is a new job.
"""

import glob
import hashlib
import os
import pwd
import re
import time
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from operator import attrgetter
from typing import NamedTuple

from logshipper.config import Config
from logshipper.errors import LogshipperError
from logshipper.spool.segment import Stream
from logshipper_ingest.imports.faults import Faults, display_text
from logshipper_ingest.imports.output_end import TAIL_BYTES, output_end
from logshipper_ingest.imports.output_names import (
    OutputName,
    as_id,
    is_stderr,
    output_name,
    stdout_beside,
    stem_of,
)
from logshipper_ingest.imports.output_text import (
    NS,
    OutputFile,
    OutputText,
    bytes_read,
    times_in,
)
from logshipper_ingest.imports.sacct import SlurmJob, slurm_jobs
from logshipper_ingest.imports.source_file import SourceFile, Unreadable, is_plain_file
from logshipper_ingest.imports.staging import Staging
from logshipper_ingest.imports.values import MAX_NAME_CHARS, BadValue, time_of
from logshipper_ingest.model.imported import ImportedChange, ImportedJob, PositionLookup
from logshipper_ingest.model.imported_states import is_over
from logshipper_ingest.model.job import RUNNING, UNKNOWN, Allocation, Json

ORIGIN = "files"
MAX_FILES = 100_000  # of a folder
QUIET_SECS = 60.0  # a followed file that did not grow for so long has ended
_HEAD_BYTES = 64 << 10
_MARK_BYTES = 256  # before the end: identify a file again
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class _File(NamedTuple):
    """A file, as of its last look."""

    path: str
    stream: Stream
    size: int
    changed_ns: int
    owner: int


class _Output(NamedTuple):
    """Files of one job. main: the path that identifies it."""

    main: str
    name: OutputName
    files: list[_File]


class FilesSource:
    """Files, folders that are searched for them, and patterns of names.

    config: of the lines' classes; zone: of times without one; name: of the jobs, otherwise from the
    files; pattern: of the files' names; asks_slurm: uses sacct; follows: files may still grow.
    Raises LogshipperError.
    """

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
        self._paths = paths
        self._faults = faults
        self._config = config
        self._zone = zone
        self._name = name
        self._pattern = pattern
        self._asks_slurm = asks_slurm
        self._follows = follows
        self._is_last = False
        self._outputs = self._find()

    def size(self) -> int:
        return sum(file.size for output in self._outputs for file in output.files)

    def done(self) -> int:
        return int(bytes_read.value)

    def is_over(self) -> bool:
        return False

    def allocations(self) -> list[Allocation]:
        return []

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        """Look for files. last: no file counts as growing."""
        self._is_last = last
        self._outputs = self._find()
        with bytes_read.get_lock():
            bytes_read.value = 0
        yield

    def jobs(self, staging: Staging, position_of: PositionLookup) -> Iterator[ImportedJob]:
        yield from self.jobs_since(position_of)

    def jobs_since(self, position_of: PositionLookup) -> Iterator[ImportedJob]:
        """Jobs of the files; unchanged ones have this mark only."""
        slurm: dict[str, SlurmJob] = {}
        if self._asks_slurm:
            slurm = slurm_jobs([output.name.job_id for output in self._outputs])
        for output in self._outputs:
            try:
                yield self._job(output, slurm.get(output.name.job_id), position_of)
            except Unreadable as error:
                self._faults.leave_out_file(error.path, error.words)

    # ---- files

    def _find(self) -> list[_Output]:
        by_main: dict[str, _Output] = {}
        for file in filter(None, map(self._look, self._find_paths())):
            path = file.path
            main = (file.stream is Stream.STDERR and stdout_beside(path)) or path
            name = output_name(main, self._pattern)
            if self._name:
                name = OutputName(self._name, as_id(f"{self._name}-{name.job_id}"))
            by_main.setdefault(main, _Output(main, name, [])).files.append(file)
        for output in by_main.values():
            output.files.sort(key=attrgetter("stream"))
        return list(by_main.values())

    def _find_paths(self) -> Iterator[str]:
        """Yield real paths, each once."""
        seen: set[str] = set()
        for argument in self._paths:
            paths = [argument] if os.path.lexists(argument) else sorted(glob.glob(argument))
            if not paths:
                raise LogshipperError(f"{display_text(argument)}: no such file or folder")
            for path in paths:
                files = self._files_in(path) if os.path.isdir(path) else [path]
                for file in map(os.path.realpath, files):
                    if file not in seen:
                        seen.add(file)
                        yield file

    def _files_in(self, folder: str) -> Iterator[str]:
        count = 0
        for path, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                file = os.path.join(path, name)
                if not name.startswith(".") and is_plain_file(file, self._faults):
                    count += 1
                    yield file
                if count == MAX_FILES:
                    return

    def _look(self, path: str) -> _File | None:
        """None for a file that is unreadable or empty."""
        try:
            file = SourceFile(path, self._faults)
        except Unreadable as error:
            self._faults.leave_out_file(error.path, error.words)
            return None
        stream = Stream.STDERR if is_stderr(path) else Stream.STDOUT
        return _File(path, stream, file.size, file.changed_ns, file.owner) if file.size else None

    # ---- jobs

    def _job(
        self, output: _Output, slurm: SlurmJob | None, position_of: PositionLookup
    ) -> ImportedJob:
        job, position = self._known_job(output, position_of)
        known = {path: tuple(state[:2]) for path, state in position.get("files", {}).items()}
        is_known = all(
            known.get(file.path) == (file.size, file.changed_ns) for file in output.files
        )
        changed_ns = max(file.changed_ns for file in output.files)
        job.log_ended = (
            not self._follows or self._is_last or time.time_ns() - changed_ns > QUIET_SECS * NS
        )
        if is_known and slurm is None and position["ended"] >= job.log_ended:
            job.is_unchanged = True
            with bytes_read.get_lock():
                bytes_read.value += sum(file.size for file in output.files)
            return job
        self._describe(job, output, slurm)
        job.position = {
            "files": {
                **position.get("files", {}),
                **{
                    file.path: [file.size, file.changed_ns, _mark(file.path, file.size)]
                    for file in output.files
                },
            },
            "ended": job.log_ended,
        }
        return job

    def _known_job(self, output: _Output, position_of: PositionLookup) -> tuple[ImportedJob, Json]:
        """Return the newest job of these files, without content, and its position."""
        number, position = 1, {}
        job = _empty_job(output, number)
        while later := position_of(job):
            position = later
            job = _empty_job(output, number := number + 1)
        if number == 1:
            return job, position
        for file in output.files:
            size, _, mark = position["files"].get(file.path, (0, 0, ""))
            if file.size < size or (size and _mark(file.path, size) != mark):
                words = "became shorter" if file.size < size else "has another text"
                self._faults.remark(
                    file.path, 0, f"{words}: it is imported as the new job {job.ids[0]}"
                )
                return job, {}
        return _empty_job(output, number - 1), position

    def _describe(self, job: ImportedJob, output: _Output, slurm: SlurmJob | None) -> None:
        ends = _read_ends(output.files, self._zone)
        end = output_end(ends.tails)
        begin_ns, end_ns = ends.first_ns or ends.changed_ns, ends.last_ns or ends.changed_ns
        if end.time:
            try:
                end_ns = time_of(end.time, "", self._zone)
            except BadValue:
                pass  # Slurm reports no time
        job.config = self._config
        job.user = _user_of(output.files[0].owner)
        job.reason, job.exit_code, job.signal = end.reason, end.exit_code, end.signal
        state, is_exact = end.state, end.state != UNKNOWN
        if slurm is not None:
            job.name = slurm.name if not self._name else job.name
            job.user, job.host = slurm.user or job.user, slurm.hosts[:MAX_NAME_CHARS]
            job.nodes, job.cores, job.partition = slurm.nodes, slurm.cores, slurm.partition
            job.exit_code, job.signal = slurm.exit_code, slurm.signal
            job.reason = job.reason if slurm.state == end.state else ""
            begin_ns, end_ns = slurm.started_ns or begin_ns, slurm.ended_ns or end_ns
            state, is_exact = slurm.state, True
        begin_ns = min(begin_ns, end_ns)
        if state == UNKNOWN and not job.log_ended:
            state = RUNNING
        job.changes = [ImportedChange(begin_ns, RUNNING)]
        if is_over(state):
            job.changes.append(ImportedChange(end_ns, state, inexact=not is_exact))
        job.begun_ns = begin_ns
        job.details = {"path": output.main}
        files = []
        for file, first_ns in zip(output.files, ends.firsts_ns, strict=True):
            without = end_ns if file.stream is Stream.STDERR else begin_ns
            files.append(OutputFile(file.path, file.stream, first_ns or without))
        job.log = OutputText(files, self._zone)


def _empty_job(output: _Output, number: int) -> ImportedJob:
    """number: of the jobs whose output was in these files, one after the other."""
    name, job_id = output.name
    suffix = "" if number == 1 else f"-{number}"
    folder = os.path.basename(os.path.dirname(output.main))
    ids = [f"{job_id}{suffix}", f"{as_id(f'{folder}-{job_id}')}{suffix}"]
    key = "\n".join([f"{ORIGIN}:{output.main}", *([str(number)] if number > 1 else [])])
    job = ImportedJob(key, ids, name or stem_of(output.main), ORIGIN)
    job.is_whole_history = True
    return job


class _Ends(NamedTuple):
    """Begins and ends of a job's files. Times in ns, 0 for none; firsts_ns: by file."""

    tails: list[str]
    firsts_ns: list[int]
    first_ns: int
    last_ns: int
    changed_ns: int


def _read_ends(files: Sequence[_File], zone: tzinfo | None) -> _Ends:
    tails, firsts, lasts = [], [], []
    for file in files:
        head = _read(file.path, 0, _HEAD_BYTES)
        if b"\0" in head and not head.startswith(_UTF_16):
            raise Unreadable(file.path, "is binary")
        tail = _read(file.path, max(0, file.size - TAIL_BYTES), TAIL_BYTES)
        tails.append(tail.decode("utf-8", "replace"))
        firsts.append(next((time_ns for _, time_ns in times_in(head, zone)), 0))
        lasts += [time_ns for _, time_ns in times_in(tail, zone)]
    first_ns = min(filter(None, firsts), default=0)
    changed_ns = max(file.changed_ns for file in files)
    return _Ends(tails, firsts, first_ns, max(lasts, default=0), changed_ns)


def _mark(path: str, size: int) -> str:
    """A hash of the text before an offset; not the text, which may be secret."""
    begin = max(0, size - _MARK_BYTES)
    return hashlib.sha256(_read(path, begin, size - begin)).hexdigest()[:16]


def _read(path: str, offset: int, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size, offset)
    except OSError as error:
        raise Unreadable(path, str(error.strerror).lower()) from None


def _user_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
