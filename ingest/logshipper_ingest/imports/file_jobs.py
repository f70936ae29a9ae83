"""The base of sources whose files are jobs: files, folders that are searched for them, and patterns
of names."""

import fnmatch
import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from itertools import islice

from logshipper.errors import LogshipperError
from logshipper_ingest.imports.faults import Faults, display_text
from logshipper_ingest.imports.source_file import SourceFile, Unreadable, is_plain_file
from logshipper_ingest.imports.staging import Staging
from logshipper_ingest.model.imported import ImportedJob, PositionLookup
from logshipper_ingest.model.job import Allocation

MAX_FILES = 100_000  # of an argument


class FileJobs(ABC):
    """zone: of times without one, None for this machine's; name: of the jobs, otherwise from the
    files. Raises LogshipperError."""

    ORIGIN: str
    FILES: str  # pattern of files in a folder

    def __init__(
        self, paths: Sequence[str], faults: Faults, *, zone: tzinfo | None = None, name: str = ""
    ) -> None:
        self._paths = paths
        self._faults = faults
        self._zone = zone
        self._name = name
        self._is_last = True
        self._jobs = self._find()

    def size(self) -> int:
        return sum(file.size for files in self._jobs.values() for file in files)

    def done(self) -> int:
        """Bytes read; 0 if unknown."""
        return 0

    def is_over(self) -> bool:
        return False

    def allocations(self) -> list[Allocation]:
        return []  # its files have none

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        """Look for files. last: none of them counts as growing."""
        self._is_last = last
        self._jobs = self._find()
        yield

    def jobs(self, staging: Staging, position_of: PositionLookup) -> Iterator[ImportedJob]:
        yield from self.jobs_since(position_of)

    def jobs_since(self, position_of: PositionLookup) -> Iterator[ImportedJob]:
        """Jobs of the files; unchanged ones have this mark only."""
        for main, files in self._jobs.items():
            try:
                yield from self._jobs_of(main, files, position_of)
            except Unreadable as error:
                self._faults.leave_out_file(error.path, error.words)

    @abstractmethod
    def _jobs_of(
        self, main: str, files: list[SourceFile], position_of: PositionLookup
    ) -> Iterator[ImportedJob]:
        """A job, perhaps in pieces. Raises Unreadable."""

    @abstractmethod
    def _main_of(self, path: str) -> str:
        """The path that identifies a file's job."""

    def _find(self) -> dict[str, list[SourceFile]]:
        """Files with text, by their job."""
        jobs: dict[str, dict[str, SourceFile]] = {}
        for path in map(os.path.realpath, self._find_paths()):
            files = jobs.setdefault(self._main_of(path), {})
            try:
                if path not in files and (file := SourceFile(path, self._faults)).size:
                    files[path] = file
            except Unreadable as error:
                self._faults.leave_out_file(error.path, error.words)
        return {main: list(files.values()) for main, files in jobs.items() if files}

    def _find_paths(self) -> Iterator[str]:
        for argument in self._paths:
            has_none = True
            for path in [argument] if os.path.lexists(argument) else sorted(glob.glob(argument)):
                files = self._files_in(path) if os.path.isdir(path) else iter((path,))
                for file in islice(files, MAX_FILES):
                    has_none = False
                    yield file
            if has_none:
                raise LogshipperError(f"{display_text(argument)}: there is no {self.FILES} there")

    def _files_in(self, folder: str) -> Iterator[str]:
        for path, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(fnmatch.filter(names, self.FILES)):
                file = os.path.join(path, name)
                if not name.startswith(".") and is_plain_file(file, self._faults):
                    yield file
