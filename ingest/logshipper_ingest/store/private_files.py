"""Makes files of an existing store private, after an open umask of an earlier version.

It changes only files with the store's own names that belong to its user, because the folder may
hold other files.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from logshipper.errors import os_words

_OF_OTHERS = 0o077
_FILE_RIGHTS = 0o177
_IN_ROOT = re.compile(
    r"(?:(?:catalogue|values|overlay|allocations)\.db.*|importing\.marks|(?:intake|agent)\.lock|agent\.log(?:\.old)?"
    r"|import-.*\.tmp.*)"
)
_IN_JOBS = re.compile(r"[^/]+\.db(?:[-.].*)?")
_IN_SPOOL = re.compile(r"\.[a-z]+|[^/]+@[^/]+")


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
        for folder, names in (
            (root, _IN_ROOT),
            (jobs, _IN_JOBS),
            (importing, _IN_JOBS),
            (spool, _IN_SPOOL),
        ):
            if folder != root:
                _close(folder)
            for path in _matching_paths(folder, names):
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
        if status.st_uid != os.geteuid() or not (
            stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        ):
            return
        rights = stat.S_IMODE(status.st_mode)
        less = rights & ~(_OF_OTHERS if stat.S_ISDIR(status.st_mode) else _FILE_RIGHTS)
        if less != rights:
            os.chmod(path, less)
