"""Tags and notes of imported jobs on their way to the reader's own: noted before their job's database says that they
were given, so that whoever is stopped in between leaves them to the next import."""

import json
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ingest.sqlite_file import UnwritableError
from logshipper.errors import os_words

FILE = "importing.marks"


class DueMarks(NamedTuple):
    """What a job's system changed since it was last imported. note: None where it didn't change."""

    job_id: str
    tags: dict[str, str]
    note: str | None


Mark: TypeAlias = Callable[[Sequence[DueMarks]], None]


class MarksOnTheirWay:
    """root: the store's folder; mark: brings them there, the same ones twice as well as once. Raises StoreError."""

    def __init__(self, root: str, mark: Mark) -> None:
        self._path = os.path.join(root, FILE)
        self._mark = mark
        self._due = self._left()
        self._noted = bool(self._due)
        self.deliver()

    def _left(self) -> list[DueMarks]:
        """By an import that was stopped; a last line that isn't whole is of a job that isn't, either."""
        try:
            with open(self._path, encoding="ascii") as file:
                return [DueMarks(*json.loads(line)) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError):
            return []  # nobody's but ours, so this can't be mended: it goes when it is delivered

    def add(self, marks: DueMarks, *, note: bool) -> None:
        """note: its job may be stored before they are delivered."""
        self._due.append(marks)
        if note:
            self._noted = True
            try:
                with open(self._path, "a", encoding="ascii", opener=_private) as file:
                    file.write(json.dumps(marks) + "\n")
            except OSError as error:
                raise UnwritableError(self._path, os_words(error)) from None

    def deliver(self) -> None:
        if self._due:
            self._mark(self._due)
            self._due.clear()
        if self._noted:
            os.unlink(self._path)
            self._noted = False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
