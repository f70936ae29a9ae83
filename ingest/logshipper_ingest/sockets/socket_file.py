"""The file of a Unix socket: created where nobody else can replace it; replaces a dead agent's.

The kernel refuses passed descriptors if it can (Linux 6.16). Otherwise the last holder closes them,
which can take arbitrarily long, as with a lingering connection.
"""

import os
import socket
import stat

from logshipper.errors import SpoolError
from logshipper.private_folder import make_folder

BACKLOG = 1024
_SO_PASSRIGHTS = 83  # missing in `socket`


def bind(listener: socket.socket, path: str, option: str) -> tuple[int, int]:
    """Bind under another name and rename, so that clients find a listening socket only.

    option: the option with the path. Returns device and inode. Replaces a dead agent's socket.
    Raises OSError, SpoolError.
    """
    above, name = os.path.split(path)
    make_folder(above, 0o755)
    folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid not in (0, os.geteuid()) or (
            status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        ):
            raise SpoolError(
                above, "others may write there: they could put a socket in place of the agent's"
            )
        reached = (
            f"/proc/self/fd/{folder}"  # short for any path: a socket's name has at most 107 bytes
        )
        if not _is_free(f"{reached}/{name}"):
            raise SpoolError(
                path,
                f"another agent listens there, or it isn't a socket; end or remove it, or name another ({option})",
            )
        temporary_name = f".{os.getpid()}.sock"
        _unlink(temporary_name, folder)
        _refuse_descriptors(listener)
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
    finally:
        os.close(folder)


def _refuse_descriptors(listener: socket.socket) -> None:
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    except OSError:
        pass  # an older kernel


def _is_free(path: str) -> bool:
    """Return whether the path is free, or holds a socket without a listener."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except FileNotFoundError:
        return True
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        probe.setblocking(False)
        probe.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        return False  # its queue is full, or it is a socket of another kind
    finally:
        probe.close()
    return False


def _unlink(name: str, folder: int | None = None) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def unlink_own(path: str, identity: tuple[int, int] | None) -> None:
    """Remove our socket, but not a replacement by somebody else.

    identity: its device and inode.
    """
    try:
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == identity:
            os.unlink(path)
    except OSError:
        pass
