"""The file of a Unix socket: created where nobody else can replace it; replaces a dead agent's.

The kernel refuses passed descriptors if it can (Linux 6.16). Otherwise the last holder closes them,
which can take arbitrarily long, as with a lingering connection.
"""

import os
import socket
import stat
from contextlib import suppress

from logshipper.errors import SpoolError
from logshipper.private_folder import make_folder
from logshipper_ingest.open_files import opened

BACKLOG = 1024
_SO_PASSRIGHTS = 83  # missing in `socket`


def bind(listener: socket.socket, path: str, option: str) -> tuple[int, int]:
    """Bind under another name and rename, so that clients find a listening socket only.

    option: the option with the path. Returns device and inode. Replaces a dead agent's socket.
    Raises OSError, SpoolError.
    """
    above, name = os.path.split(path)
    make_folder(above, 0o755)
    with opened(above, os.O_RDONLY | os.O_DIRECTORY) as folder:
        status = os.fstat(folder)
        is_open = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if is_open or status.st_uid not in (0, os.geteuid()):
            raise SpoolError(
                above, "others may write there: they could put a socket in place of the agent's"
            )
        # short for any path: a socket's name has at most 107 bytes
        reached = f"/proc/self/fd/{folder}"
        if not _is_free(f"{reached}/{name}"):
            raise SpoolError(
                path,
                f"another agent listens there, or it isn't a socket; end or remove it, or name another ({option})",
            )
        temporary_name = f".{os.getpid()}.sock"
        _unlink(temporary_name, folder)
        with suppress(OSError):  # an older kernel
            listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        listener.bind(f"{reached}/{temporary_name}")
        try:
            # every user of the node may ask
            os.chmod(temporary_name, 0o666, dir_fd=folder)  # noqa: S103
            if listener.type != socket.SOCK_DGRAM:
                listener.listen(BACKLOG)
            os.rename(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            _unlink(temporary_name, folder)
            raise
        socket_status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return socket_status.st_dev, socket_status.st_ino


def _is_free(path: str) -> bool:
    """Return whether the path is free, or holds a socket without a listener."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except FileNotFoundError:
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except OSError as error:  # others: a full queue, or a socket of another kind
            return isinstance(error, (ConnectionRefusedError, FileNotFoundError))
    return False


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def unlink_own(path: str, identity: tuple[int, int] | None) -> None:
    """Remove our socket, but not a replacement by somebody else.

    identity: its device and inode.
    """
    with suppress(OSError):
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == identity:
            os.unlink(path)
