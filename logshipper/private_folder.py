"""Folders that are their user's alone: the store's, and the node agent's. Light imports only."""

import errno
import os

from logshipper.errors import SpoolError, SpoolFull, os_words

OTHERS = 0o077
_KIND, _FOLDER, _STICKY = 0o170000, 0o040000, 0o1000

BEGUN_MODE = 0o500  # of an unfinished folder: no other program uses this mode


def make_private_folder(path: str) -> None:
    """Create a private folder of the user, with its parents. Raises SpoolError for somebody else's."""
    if _make(path).st_mode & 0o022:
        raise SpoolError(
            path, "may be written by others; run `chmod go-w` on it, or choose another with --store"
        )


def claim_folder(path: str, own_names: "tuple[str, ...]" = ()) -> None:
    """Create it like make_private_folder, and remove all rights of group and others.

    own_names: names that identify such a folder; none for folders inside it. Raises SpoolError for
    somebody else's, or a shared one.
    """
    folder_stat = _make(path)
    if not folder_stat.st_mode & OTHERS:
        return
    try:
        shared = _sharers(path, folder_stat, own_names)
        if not shared:
            os.chmod(path, folder_stat.st_mode & 0o7777 & ~OTHERS)
    except OSError as error:
        raise spool_error(path, error) from None
    if shared:
        raise SpoolError(
            path, f"{shared}; name a folder of its own in it with --store or LOGSHIPPER_STORE"
        )


def _make(path: str) -> os.stat_result:
    try:
        _make_above(path)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        folder_stat = os.lstat(path)
    except OSError as error:
        raise spool_error(path, error) from None
    if folder_stat.st_mode & _KIND != _FOLDER:
        raise SpoolError(path, "isn't a folder")
    if folder_stat.st_uid != os.getuid():
        raise SpoolError(
            path, "belongs to another user; choose one of your own with --store or LOGSHIPPER_STORE"
        )
    return folder_stat


def _make_above(path: str) -> None:
    """Create parents that no other user can write to, because writers could replace their content."""
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        _make_above(above)
        try:
            os.mkdir(above, 0o755)
        except FileExistsError:
            pass


def _sharers(path: str, folder_stat: os.stat_result, own_names: "tuple[str, ...]") -> str:
    """Return the reason to keep a folder open to other users; "" without one."""
    if folder_stat.st_mode & _STICKY:
        return "is shared by several users (it is sticky)"
    if os.path.realpath(path) in ("/", os.path.realpath(os.path.expanduser("~"))):
        return "is shared: it is a home, or the root, and others may enter it"
    names = []
    with os.scandir(path) as entries:
        for entry in entries:
            names.append(entry.name)
            if entry.stat(follow_symlinks=False).st_uid != folder_stat.st_uid:
                return f"is shared: {entry.name!r} in it belongs to another user"
    if (
        names
        and folder_stat.st_uid == 0
        and own_names
        and not any(name in own_names for name in names)
    ):
        return "is shared: root's folders that others may enter are the system's, and this one isn't empty"
    return ""


def spool_error(path: str, error: OSError) -> SpoolError:
    where = error.filename if isinstance(error.filename, str) else path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SpoolFull(
            where, "no room left there; free some, or choose another place with --store"
        )
    return SpoolError(where, f"{os_words(error)}; choose another place with --store")


def make_folder(path: str, mode: int) -> None:
    """Create a missing folder, regardless of the umask; its parents get 0755. Raises OSError."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_folder(above, 0o755)
    try:
        os.mkdir(path, BEGUN_MODE)
    except FileExistsError:
        return
    os.chmod(path, mode)
