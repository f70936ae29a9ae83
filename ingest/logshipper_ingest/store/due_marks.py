"""Tags and notes of imported jobs on their way to the reader's own.

The file records them before the job's database marks them as delivered, so the next import
completes an interrupted one.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from logshipper.errors import os_words
from logshipper_ingest.sqlite_file import UnwritableError
from logshipper_ingest.store.store_folder import private_opener

if TYPE_CHECKING:
    from logshipper_ingest.spool.purge_pattern import LinePattern

FILE = "importing.marks"


class DueMarks(NamedTuple):
    """Changes of a job's marks in its system since the last import. note: None if unchanged."""

    job_id: str
    tags: dict[str, str]
    note: str | None


Mark: TypeAlias = Callable[[Sequence[DueMarks]], None]


class MarksOnTheirWay:
    """Marks to deliver.

    root: the store's folder; mark: delivers them, and tolerates repeats. Raises StoreError.
    """

    def __init__(self, root: str, mark: Mark) -> None:
        self._path = os.path.join(root, FILE)
        self._mark = mark
        self._due = self._read_due()
        self._has_file = bool(self._due)
        self.deliver()

    def _read_due(self) -> list[DueMarks]:
        """Return marks that an interrupted import left; an incomplete last line belongs to an
        incomplete job."""
        try:
            with open(self._path, encoding="ascii") as file:
                return [DueMarks(*json.loads(line)) for line in file if line.endswith("\n")]
        except (OSError, ValueError, TypeError):
            return []  # missing; or ours alone and beyond repair: delivery removes it

    def add(self, marks: DueMarks, *, note: bool) -> None:
        """Add marks. note: the job may reach the store before their delivery."""
        self._due.append(marks)
        if note:
            self._has_file = True
            try:
                with open(self._path, "a", encoding="ascii", opener=private_opener) as file:
                    file.write(json.dumps(marks) + "\n")
            except OSError as error:
                raise UnwritableError(self._path, os_words(error)) from None

    def deliver(self) -> None:
        if self._due:
            self._mark(self._due)
            self._due.clear()
        if self._has_file:
            os.unlink(self._path)
            self._has_file = False


def forget(root: str, job_id: str) -> None:
    """Those of a job that goes. The caller holds the store's lock. Raises UnwritableError."""
    path = os.path.join(root, FILE)
    with _written_marks(path):
        with open(path, encoding="ascii") as file:
            lines = [line for line in file if line.endswith("\n") and not _is_of(line, job_id)]
        with open(f"{path}.new", "w", encoding="ascii", opener=private_opener) as file:
            file.writelines(lines)
        os.replace(f"{path}.new", path)


def purge(root: str, job_id: str, pattern: "LinePattern", *, dry_run: bool) -> int:
    """Forgets a job's where any of them has the pattern; how many have. Likewise. Raises
    UnwritableError."""
    count = 0
    path = os.path.join(root, FILE)
    with _written_marks(path), open(path, encoding="ascii") as file:
        lines = [line for line in file if line.endswith("\n")]
        count = sum(_is_of(line, job_id) and pattern.has(line) for line in lines)
    if count and not dry_run:
        forget(root, job_id)
    return count


@contextmanager
def _written_marks(path: str) -> Iterator[None]:
    """Pass over a missing file; turn other faults into UnwritableError."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UnwritableError(path, os_words(error)) from None
    except ValueError as error:
        raise UnwritableError(path, f"isn't what was written: {error}") from None


def _is_of(line: str, job_id: str) -> bool:
    entry = json.loads(line)
    return isinstance(entry, list) and entry[:1] == [job_id]
