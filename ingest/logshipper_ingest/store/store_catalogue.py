"""A store's catalogue: opened again after another program replaced it, and rebuilt after damage."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from logshipper.errors import StoreError
from logshipper.spool.captures import OWN_NAMES
from logshipper_ingest.sqlite_file import DamagedError, UnwritableError
from logshipper_ingest.store.catalogue import FILE, Catalogue, make_again
from logshipper_ingest.store.store_folder import claim, is_private, make_files_private

T = TypeVar("T")
LOCK_SECS = 10.0  # longest wait for the lock, except in ingest


class StoreCatalogue:
    """The current catalogue of a store.

    root, jobs, spool: the store's folders; wal: see sqlite_file; creates: whether the caller may
    create the store. is_writable: whether this user can write the store; problems: for the next
    report, a sentence each. Raises StoreError.
    """

    def __init__(self, root: str, jobs: str, spool: str, *, wal: bool, creates: bool) -> None:
        self.is_writable = os.stat(root).st_uid == os.geteuid() and os.access(
            root, os.W_OK | os.X_OK
        )
        self.problems: list[str] = []
        self._root = root
        self._jobs = jobs
        self._spool = spool
        self._path = os.path.join(root, FILE)
        self._wal = wal
        self._creates = creates
        self.current = self._open()

    def _open(self) -> Catalogue:
        if self.is_writable:
            try:
                self._make_private()
                try:
                    return Catalogue.open(self._path, wal=self._wal)
                except DamagedError:
                    with self.locked() as is_locked:
                        if is_locked:
                            return self._open_or_make()
                return self._make_in_memory()  # until the others finish
            except UnwritableError as error:
                self.is_writable = False
                self.problems.append(str(error))
        if os.path.exists(self._path):
            try:
                return Catalogue.open_for_reading(self._path)
            except (DamagedError, UnwritableError):
                pass
        return self._make_in_memory()

    def _make_private(self) -> None:
        """Make folder and files, including existing ones, private. Raises StoreError."""
        from_before = not is_private(self._root, self._path)
        try:
            claim(self._root, OWN_NAMES)
        except StoreError as error:
            if self._creates or not os.path.isdir(self._jobs):
                raise
            self.problems.append(str(error))  # the content stays readable
        claim(self._jobs)
        if from_before:
            self.problems += make_files_private(self._root, self._jobs, self._spool, self._path)

    def _make_in_memory(self) -> Catalogue:
        catalogue = Catalogue.in_memory()
        self.problems += catalogue.rebuild(self._jobs)
        return catalogue

    def _open_or_make(self) -> Catalogue:
        """The caller holds the store's lock."""
        try:
            return Catalogue.open(self._path, wal=self._wal)
        except DamagedError:
            return self._make_again()

    def _make_again(self) -> Catalogue:
        """The caller holds the store's lock."""
        catalogue, problems = make_again(self._path, self._jobs, wal=self._wal)
        self.problems += problems
        return catalogue

    def _replace(self, open_catalogue: Callable[[], Catalogue]) -> None:
        self.current.close()
        self.current = open_catalogue()

    def locked(self, deadline: float | None = None) -> AbstractContextManager[bool]:
        """Hold the store's lock; False if others hold it until the deadline.

        deadline: by time.monotonic(), None for LOCK_SECS.
        """
        from logshipper_ingest.store.intake import intake_lock

        if deadline is None:
            deadline = time.monotonic() + LOCK_SECS
        return intake_lock(os.path.join(self._root, "intake.lock"), deadline)

    def follow(self) -> None:
        """Open the catalogue again after another program replaced it, or rebuild a damaged one.

        The caller holds the store's lock.
        """
        is_in_place = self.current.is_in_place()
        if not is_in_place:
            self._replace(self._open_or_make)
        elif self.current.is_damaged:
            self._replace(self._make_again)

    def ask(self, question: Callable[[Catalogue], T]) -> T:
        """Ask the current catalogue. Rebuilds it if its damage appears, on disk or else in
        memory."""
        if not self.current.is_in_place() and (self.is_writable or not self.current.is_in_memory):
            self._replace(self._open)
        try:
            return question(self.current)
        except DamagedError:
            self._fix_damage()
            return question(self.current)

    def _fix_damage(self) -> None:
        if self.is_writable:
            with self.locked() as is_locked:
                if is_locked:
                    self.follow()
                    return
        self._replace(self._make_in_memory)
