"""The job's own stdout or stderr: receives every byte, unchanged, and never blocks the other one.

Kinds of files: WHOLE (regular files and the like: a write takes all), FREE (our own description
with O_NONBLOCK), CAREFUL (inherited, shared with others, so without O_NONBLOCK: writes of PIPE_BUF
bytes after POLLOUT).
"""

import errno
import os
import select
import stat

PIPE_BUF = 4096
_WHOLE, _FREE, _CAREFUL = range(3)


class OutputGone(Exception):
    """The reader has gone. errno: EPIPE (a pipe's), EIO (a terminal's)."""

    def __init__(self, reason: int) -> None:
        self.errno = reason
        super().__init__(os.strerror(reason))


class JobOutput:
    """fd: to write to, closed by close(). fault: errno of the first write that failed, 0 while all
    is well."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.fault = 0
        mode = os.fstat(fd).st_mode
        is_tty = os.isatty(fd)
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or is_tty):
            self._kind = _WHOLE
        else:
            self._kind = _CAREFUL if os.get_blocking(fd) else _FREE
        # lines of several writers stay whole in a pipe, up to PIPE_BUF
        self._splits_at_lines = not is_tty
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def is_file(self) -> bool:
        """Nobody waits at its other end, as behind a pipe or terminal."""
        return self._kind == _WHOLE

    def write(self, data: bytes) -> bytes:
        """Write as much as possible now; return the rest, for the next POLLOUT. Raises OutputGone.

        A full disk: without the relay CMD would get the error, but its write has already succeeded.
        So the relay drops these bytes, sets `fault`, and tries the next ones: the job and its log
        continue.
        """
        try:
            if self._kind == _WHOLE:
                while data:
                    data = data[os.write(self.fd, data) :]
                return b""
            return self._write_pieces(data)
        except BlockingIOError:
            return data  # a regular file never says so
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):
                raise OutputGone(error.errno) from None
            self.fault = self.fault or error.errno or errno.EIO
            return b""

    def _write_pieces(self, data: bytes) -> bytes:
        at = 0
        size = len(data)
        while at < size:
            end = at + PIPE_BUF
            if end >= size:
                end = size
            elif self._splits_at_lines:
                end = data.rfind(b"\n", at, end) + 1 or end
            if self._kind == _CAREFUL and not self._poll.poll(0):
                break
            try:
                at += os.write(self.fd, data[at:end])
            except BlockingIOError:
                break
        return data[at:] if at else data

    def close(self) -> None:
        os.close(self.fd)


def same_file(fd: int, other_fd: int) -> bool:
    """Return whether two descriptors lead to one file, pipe or terminal, so that their lines must
    not tear each other."""
    first, second = os.fstat(fd), os.fstat(other_fd)
    if stat.S_ISCHR(first.st_mode) and stat.S_ISCHR(second.st_mode):
        return first.st_rdev == second.st_rdev
    return os.path.samestat(first, second)
