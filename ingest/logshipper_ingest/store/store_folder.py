"""A store's folder: finds or creates it, and makes its files private.

Files of an earlier version may follow an open umask. Only files with the store's own names that
belong to its user change, because the folder may hold other files.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from logshipper.errors import SpoolError, SpoolFull, StoreError, os_words
from logshipper.private_folder import claim_folder
from logshipper.spool.captures import OWN_NAMES
from logshipper_ingest.sqlite_file import UnwritableError

_OF_OTHERS = 0o077
_FILE_RIGHTS = 0o177
_IN_ROOT = re.compile(
    r"(?:(?:catalogue|values|overlay|allocations)\.db.*|importing\.marks|(?:intake|agent)\.lock|agent\.log(?:\.old)?"
    r"|import-.*\.tmp.*)"
)
_IN_JOBS = re.compile(r"[^/]+\.db(?:[-.].*)?")
_IN_SPOOL = re.compile(r"\.[a-z]+|[^/]+@[^/]+")


def find_store(root: str, spool: str, *, create: bool) -> None:
    """Raise StoreError unless the folder is a store, or may become one. create: creates it."""
    if not os.path.lexists(root):
        if not create:
            raise StoreError(
                root, "there is no store here yet; `logshipper run -- COMMAND` makes one"
            )
        claim(root, OWN_NAMES)
    if not os.path.isdir(root):
        raise StoreError(root, "is no folder, so it cannot be a store")
    if not os.access(root, os.R_OK | os.X_OK):
        raise StoreError(root, "cannot be read: check its permissions")
    parts = (os.path.join(root, "catalogue.db"), os.path.join(root, "jobs"), spool)
    if not create and not any(map(os.path.exists, parts)):
        raise StoreError(root, "isn't a logshipper store: it has neither a catalogue nor a spool")


def claim(path: str, names: tuple[str, ...] = ()) -> None:
    """Create a folder, or make it private, as `claim_folder`. Raises StoreError."""
    try:
        claim_folder(path, names)
    except SpoolFull as error:
        raise UnwritableError(error.path, error.reason) from None
    except SpoolError as error:
        raise StoreError(error.path, error.reason) from None


def private_opener(path: str, flags: int) -> int:
    """Open a file as `open` does; a new one is private."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def is_empty(spool: str) -> bool:
    """Return whether a spool has nothing at all."""
    try:
        with os.scandir(spool) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return False  # the intake reports it


def is_private(root: str, catalogue: str) -> bool:
    """Return whether make_files_private has run, which changes the catalogue last, and the folder
    is unchanged."""
    try:
        return (
            not os.lstat(root).st_mode & _OF_OTHERS
            and not os.lstat(catalogue).st_mode & _FILE_RIGHTS
        )
    except OSError:
        return False


def make_files_private(root: str, jobs: str, spool: str, catalogue: str) -> list[str]:
    """Remove all rights of group and others from the store's files; return the faults.

    The caller handles the store's own folder.
    """
    importing = os.path.join(root, "importing")
    problems = []
    try:
        for folder, names in ((jobs, _IN_JOBS), (importing, _IN_JOBS), (spool, _IN_SPOOL)):
            _close(folder)
            for path in _matching_paths(folder, names):
                _close(path)
        for path in _matching_paths(root, _IN_ROOT):
            if path != catalogue:
                _close(path)
        for path in _matching_paths(spool, _IN_SPOOL):
            for folder, folders, files in os.walk(path):  # which follows no links
                for name in folders + files:
                    _close(os.path.join(folder, name))
        _close(catalogue)
    except OSError as error:
        problems.append(f"{error.filename}: others may be able to read it: {os_words(error)}")
    return problems


def _matching_paths(folder: str, names: re.Pattern[str]) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder):
            if names.fullmatch(name):
                yield os.path.join(folder, name)


def _close(path: str) -> None:
    with suppress(FileNotFoundError):  # another program has removed it
        status = os.lstat(path)
        is_folder = stat.S_ISDIR(status.st_mode)
        if status.st_uid == os.geteuid() and (is_folder or stat.S_ISREG(status.st_mode)):
            rights = stat.S_IMODE(status.st_mode)
            less = rights & ~(_OF_OTHERS if is_folder else _FILE_RIGHTS)
            if less != rights:
                os.chmod(path, less)
