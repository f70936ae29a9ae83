"""Traces of a job in a store's folder besides spool and catalogue: its database, its marks, and
files of interrupted or repairing processes.

The caller holds the store's lock.
"""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from logshipper.errors import os_words
from logshipper_ingest.sqlite_file import SUFFIXES, DamagedError, UnwritableError, remove_database
from logshipper_ingest.store import catalogue, due_marks, marks_file, new_databases

_MOVED_ASIDE = ("*.db.damaged*", "jobs/*.db.damaged*")
_READ_BYTES = 1 << 20


class JobPlace(NamedTuple):
    """root: the store's folder; wal: see sqlite_file."""

    root: str
    job_id: str
    wal: bool

    @property
    def database(self) -> str:
        return os.path.join(self.root, "jobs", f"{self.job_id}.db")


def remove_traces(place: JobPlace) -> list[str]:
    """Returns files that were moved aside and have other jobs, too: these are the user's to remove.
    Raises StoreError."""
    with _removing(place.database):
        remove_database(place.database)
        for aside in glob.glob(f"{glob.escape(place.database)}.damaged*"):
            os.unlink(aside)
    remove_unfinished(place)
    due_marks.forget(place.root, place.job_id)
    damaged_paths: list[str] = []
    try:
        marks_file.forget_marks(place.root, place.job_id, wal=place.wal)
    except DamagedError:
        path = os.path.join(place.root, marks_file.FILE)
        damaged_paths = [
            path + suffix for suffix in SUFFIXES if _names(path + suffix, place.job_id)
        ]
    return [*damaged_paths, *moved_aside(place)]


def remove_unfinished(place: JobPlace) -> None:
    """Remove unfinished files of an import or a rebuild, which start again. Raises StoreError."""
    unfinished = os.path.join(place.root, new_databases.FOLDER, f"{place.job_id}.db")
    with _removing(unfinished):
        remove_database(unfinished)
        remove_database(os.path.join(place.root, f"{catalogue.FILE}{catalogue.UNFINISHED}"))


@contextmanager
def _removing(path: str) -> Iterator[None]:
    """Turn a failure into UnwritableError. path: named if the error names none."""
    try:
        yield
    except OSError as error:
        words = f"can't be removed: {os_words(error)}"
        raise UnwritableError(error.filename or path, words) from None


def moved_aside(place: JobPlace) -> list[str]:
    """Files that were moved aside as damaged, and name the job, or are named after it. Raises
    StoreError."""
    paths = [
        path
        for pattern in _MOVED_ASIDE
        for path in glob.glob(os.path.join(glob.escape(place.root), pattern))
    ]
    prefix = f"{place.database}."
    return sorted(path for path in paths if path.startswith(prefix) or _names(path, place.job_id))


def _names(path: str, job_id: str) -> bool:
    """Return whether a file contains the job's id."""
    id_bytes, before = job_id.encode(), b""
    try:
        with open(path, "rb") as file:
            while part := file.read(_READ_BYTES):
                if id_bytes in before + part:
                    return True
                before = part[-len(id_bytes) :]
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnwritableError(path, f"can't be read: {os_words(error)}") from None
    return False
