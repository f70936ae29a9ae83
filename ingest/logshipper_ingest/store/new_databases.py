"""Databases of newly imported jobs, many at a time.

The importer writes each into a folder beside `jobs/` without waiting for the disk. Then it flushes
all of them and renames them into `jobs/`, so that named files are always complete. It removes the
files of an interrupted import, which repeats them. The caller holds the store's lock.
"""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

from logshipper.errors import SpoolError, os_words
from logshipper.fault_points import fault_point
from logshipper.private_folder import claim_folder
from logshipper_ingest.sqlite_file import UnwritableError, open_writer, remove_database
from logshipper_ingest.store.job_db import SCHEMA, VERSION
from logshipper_ingest.store.store_folder import private_opener

FOLDER = "importing"
MAX_WAITING = 2000
_SYNCERS = 16  # files: a disk, or a server, syncs many in the time of one
_SMALL_PAGE_BYTES, _PAGE_BYTES = 1024, 4096  # a job of a few rows has 14 KB instead of 40


class NewDatabases:
    """root: of the store; jobs: their destination. Raises UnwritableError."""

    def __init__(self, root: str, jobs: str) -> None:
        self._folder = os.path.join(root, FOLDER)
        self._jobs = jobs
        self._keys: dict[str, str] = {}
        self._empty: dict[int, bytes] = {}
        self.close()

    def key_of(self, job_id: str) -> str | None:
        """Return the key of a waiting job; None for others."""
        return self._keys.get(job_id)

    def path_of(self, job_id: str) -> str:
        return os.path.join(self._folder, f"{job_id}.db")

    @property
    def is_full(self) -> bool:
        return len(self._keys) >= MAX_WAITING

    def make(self, job_id: str, key: str, *, small: bool) -> str:
        """An empty one, for a job of that key; its path. small: for a few rows."""
        path = self.path_of(job_id)
        try:
            if not self._keys:
                claim_folder(self._folder)
            empty = self._empty_database(_SMALL_PAGE_BYTES if small else _PAGE_BYTES)
            with open(path, "xb", opener=private_opener) as file:
                file.write(empty)
        except SpoolError as error:
            raise UnwritableError(error.path, error.reason) from None
        except OSError as error:
            raise UnwritableError(path, os_words(error)) from None
        self._keys[job_id] = key
        return path

    def _empty_database(self, page_bytes: int) -> bytes:
        """Copied for each job: ten times as quick as making its tables."""
        if page_bytes not in self._empty:
            path = os.path.join(self._folder, "empty")
            open_writer(
                path, SCHEMA, VERSION, wal=False, synced=False, page_bytes=page_bytes
            ).close()
            with open(path, "rb") as file:
                self._empty[page_bytes] = file.read()
            remove_database(path)
        return self._empty[page_bytes]

    def drop(self, job_id: str) -> None:
        """Removes one that couldn't be written."""
        self._keys.pop(job_id, None)
        remove_database(self.path_of(job_id))

    def publish(self) -> None:
        """Brings all onto the disk, and into `jobs/`."""
        if not self._keys:
            return
        paths = [self.path_of(job_id) for job_id in self._keys]
        with ThreadPoolExecutor(min(_SYNCERS, len(paths)), "sync") as syncers:
            list(syncers.map(_sync, paths))  # raises the first failure
        fault_point("imports_synced")
        try:
            for path in paths:
                os.rename(path, os.path.join(self._jobs, os.path.basename(path)))
                fault_point("import_named")
        except OSError as error:
            raise UnwritableError(path, os_words(error)) from None
        _sync(self._jobs)
        fault_point("imports_named")
        self._keys.clear()

    def close(self) -> None:
        """Remove unpublished databases."""
        self._keys.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _sync(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise UnwritableError(path, os_words(error)) from None
