"""The node agent's two folders, each used by one agent at a time."""

import fcntl
import os
import re

from logshipper.errors import SpoolError, StoreError, os_words
from logshipper.private_folder import make_private_folder
from logshipper_ingest.agent.node_spool import open_own_folder


def open_spool_folder(path: str) -> int:
    """Open the spool's folder and create it if missing. Raises SpoolError."""
    try:
        return open_own_folder(path)
    except SpoolError as error:
        option = "" if "[agent] spool_dir" in error.reason else " ([agent] spool_dir)"
        raise SpoolError(error.path, f"{error.reason}{option}") from None
    except OSError as error:
        reason = f"{os_words(error)}; choose another folder in [agent] spool_dir"
        raise SpoolError(error.filename or path, reason) from None


def lock_spool(spool_fd: int, path: str) -> None:
    """Lock the spool until its descriptor is closed. Users cannot open the folder, so they cannot
    lock it. Raises SpoolError."""
    try:
        fcntl.flock(spool_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SpoolError(path, "another agent uses this [agent] spool_dir") from None
    except OSError:
        pass  # a file system without locks


def lock_state_folder(state_dir: str) -> int:
    """Lock the state's folder, with this process's id in the lock file. Raises StoreError."""
    path = os.path.join(state_dir, "agent.lock")
    option = "[agent] state_dir"
    try:
        make_private_folder(state_dir)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except SpoolError as error:
        reason = re.sub("--store( or LOGSHIPPER_STORE)?", option, error.reason)
        reason += "" if option in reason else f"; choose another in {option}"
        raise StoreError(error.path, reason) from None
    except OSError as error:
        raise StoreError(path, f"{os_words(error)}; {option} sets its folder") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreError(path, "another agent uses this [agent] state_dir") from None
    try:
        # Write, then truncate: this order needs no new disk space.
        os.ftruncate(fd, os.pwrite(fd, b"%d\n" % os.getpid(), 0))
    except OSError as error:
        os.close(fd)
        words = f"{os_words(error)}: free some room there; {option} sets its folder"
        raise StoreError(path, words) from None
    return fd
