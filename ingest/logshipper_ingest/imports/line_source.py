"""The base of sources whose files are growing JSON lines."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from logshipper.errors import LogshipperError
from logshipper_ingest.imports.entries import ImportEntry, read_lines
from logshipper_ingest.imports.faults import Faults, display_text
from logshipper_ingest.imports.source_file import SourceFile, SourceFiles
from logshipper_ingest.imports.staging import Staging
from logshipper_ingest.imports.values import BadValue
from logshipper_ingest.model.job import Allocation


class LineSource(ABC):
    """Files of another system.

    paths: folders to search, or files; zone: of times without one, None for this machine's; name:
    tells the source from others. Raises LogshipperError.
    """

    NOTHING: str  # describes a folder without files

    def __init__(
        self, paths: Sequence[str], faults: Faults, *, zone: tzinfo | None = None, name: str = ""
    ) -> None:
        self._paths = paths
        self._faults = faults
        self._zone = zone
        self._name = name
        self._files = SourceFiles(self._find, faults)

    def size(self) -> int:
        return self._files.size()

    def done(self) -> int:
        return self._files.done()

    def allocations(self) -> list[Allocation]:
        return []  # its files have none

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        """Read the entries since the last call; yields now and then."""
        self._files.look()
        for file in self._files:
            for number, entry in enumerate(read_lines(file, self._faults, last=last)):
                try:
                    self._stage(staging, file, entry)
                except BadValue as error:
                    self._faults.leave_out(file.path, entry.line, str(error))
                if not number % 1000:
                    yield
            self._stage_more(staging, file)

    @abstractmethod
    def _stage(self, staging: Staging, file: SourceFile, entry: ImportEntry) -> None:
        """Stage an entry. Raises BadValue."""

    def _stage_more(self, staging: Staging, file: SourceFile) -> None:  # noqa: B027  an optional hook
        """Stage what belongs to a file, after its entries."""

    def _find(self) -> list[tuple[str, bool]]:
        """Files, and whether they are arguments. Raises LogshipperError."""
        sources: list[tuple[str, bool]] = []
        for path in self._paths:
            if os.path.isdir(path):
                files = self._files_in(path)
                if not files:
                    raise LogshipperError(f"{display_text(path)}: {self.NOTHING}")
                sources += [(file, False) for file in files]
            else:
                sources.append((path, True))
        return sources

    @abstractmethod
    def _files_in(self, folder: str) -> list[str]: ...
