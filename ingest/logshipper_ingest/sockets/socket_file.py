"""A Unix socket's file: made where nobody else can put one in its place; that of a dead agent is
replaced.

Descriptors that somebody passes on are refused where the kernel can (Linux 6.16): else the last one
who has them closes them, which takes as long as their maker likes, as with a connection that
lingers.
"""

import os
import socket
import stat

from logshipper.errors import SpoolError
from logshipper.private_folder import make_folder

BACKLOG = 1024
_SO_PASSRIGHTS = 83  # `socket` doesn't name it yet


def bind(listener: socket.socket, path: str, option: str) -> tuple[int, int]:
    """Binds under another name and renames, so that who finds the socket may connect to it; returns
    its device and inode. A dead agent's socket is replaced. option: that names path. Raises
    OSError, SpoolError."""
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
        reached = f"/proc/self/fd/{folder}"  # short, whatever the path: a socket's name has 107 bytes at most
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
    """Whether there is nothing, or only a socket at which nobody listens any more."""
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
    """Removes our socket; one that somebody has put in its place stays. identity: its device and
    inode."""
    try:
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == identity:
            os.unlink(path)
    except OSError:
        pass
