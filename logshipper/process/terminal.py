"""Terminals: the ptys that CMD gets, the real terminal that a user sits at, and their sizes."""

import fcntl
import os
import signal
import stat
import termios

BATCH_COLUMNS = 160  # at least: bars and tables of jobs are seldom made for less
BATCH_ROWS = 50
UNKNOWN_SIZE = (80, 24)
_PTS_MAJORS = range(136, 144)
_LFLAG, _CC = 3, 6  # their places in what tcgetattr returns
_NO_KEY = b"\0"  # of a signal that no key stands for
_SIGNAL_KEYS = (
    (termios.VINTR, signal.SIGINT),
    (termios.VQUIT, signal.SIGQUIT),
    (termios.VSUSP, signal.SIGTSTP),
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.relay.handover import Attributes


def fill_standard_fds() -> None:
    """Puts /dev/null (close-on-exec: CMD doesn't get it) where fds 0 to 2 were closed, so that no
    other fd gets there.

    The first thing a program must do before it opens anything.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def is_inherited(fd: int) -> bool:
    """Whether the caller passed on one of the fds 0 to 2: no close-on-exec fd comes through an
    exec."""
    return os.get_inheritable(fd)


def is_interactive() -> bool:
    """Whether fds 0, 1 and 2 are one terminal, and this process is in its foreground."""
    try:
        return (
            all(is_inherited(fd) and os.isatty(fd) for fd in range(3))
            and len({os.fstat(fd).st_rdev for fd in range(3)}) == 1
            and in_foreground()
        )
    except OSError:
        return False  # not this session's terminal


def in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def size_of(fd: int) -> tuple[int, int] | None:
    """(columns, rows) of a terminal; None where fd is none, or its size isn't known."""
    try:
        rows, columns = termios.tcgetwinsize(fd)
    except (OSError, termios.error):
        return None
    return (columns, rows) if columns and rows else None


def batch_size() -> tuple[int, int]:
    """(columns, rows) of the ptys where CMD hasn't the real terminal for all three fds."""
    for fd in (1, 2, 0):
        size = size_of(fd)
        if size is not None:
            return max(BATCH_COLUMNS, size[0]), size[1]
    return BATCH_COLUMNS, BATCH_ROWS


def set_size(fd: int, size: tuple[int, int]) -> None:
    """size: (columns, rows). The kernel sends SIGWINCH before it sets the size: send it once more
    afterwards."""
    try:
        termios.tcsetwinsize(fd, (size[1], size[0]))
    except (OSError, termios.error):
        pass  # hung up meanwhile


def open_pty(size: tuple[int, int], like: "Attributes | None") -> tuple[int, int]:
    """(master, slave) of a new pty, neither anybody's controlling terminal. like: its attributes;
    None: raw."""
    master, slave = os.openpty()
    termios.tcsetattr(
        slave, termios.TCSANOW, like if like is not None else raw(termios.tcgetattr(slave))
    )
    set_size(master, size)
    return master, slave


def raw(attributes: "Attributes") -> "Attributes":
    """The same without any handling of input, output or signals (cfmakeraw)."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = attributes
    iflag &= ~(termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR)
    iflag &= ~(termios.IGNCR | termios.ICRNL | termios.IXON)
    oflag &= ~termios.OPOST
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    cflag = cflag & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    cc = list(cc)
    cc[termios.VMIN], cc[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]


def is_canonical(fd: int) -> bool:
    """Whether a pty (by its master) hands on input by the line."""
    try:
        return bool(termios.tcgetattr(fd)[_LFLAG] & termios.ICANON)
    except (OSError, termios.error):
        return True


def typed_signals(fd: int, typed: bytes) -> list[int]:
    """The signals that a pty (by its master) makes of what is typed, such as Ctrl-C, if it has a
    foreground group."""
    try:
        attributes = termios.tcgetattr(fd)
    except (OSError, termios.error):
        return []
    if not attributes[_LFLAG] & termios.ISIG:
        return []
    keys = attributes[_CC]
    return [
        signo for place, signo in _SIGNAL_KEYS if keys[place] != _NO_KEY and keys[place] in typed
    ]


def set_attributes(fd: int, attributes: "Attributes") -> bool:
    """Once all output is out. False where the terminal is gone."""
    try:
        termios.tcsetattr(fd, termios.TCSADRAIN, attributes)
    except (OSError, termios.error):
        return False
    return True


class RealTerminal:
    """The terminal that the user sits at (fd 0): raw while CMD has it, as it was otherwise.

    raw_now: one byte that the sidecar shares: 1 while it is raw. If this process dies then, the
    sidecar restores it.
    """

    def __init__(self) -> None:
        import mmap  # late: interactive only

        self.raw_now = mmap.mmap(-1, 1)
        self.saved_attributes: Attributes = termios.tcgetattr(0)

    @property
    def is_raw(self) -> bool:
        return self.raw_now[0] == 1

    def enter(self) -> None:
        """Raw, where this process is in the foreground."""
        if not in_foreground():
            return
        try:
            if not self.is_raw:
                self.saved_attributes = termios.tcgetattr(0)
            # first, so that whoever sees the terminal raw knows why
            self.raw_now[0] = 1
            termios.tcsetattr(0, termios.TCSADRAIN, raw(self.saved_attributes))
        except (OSError, termios.error):
            pass  # gone: reading it will tell

    def leave(self) -> None:
        """As it was, if it is raw by our doing."""
        if self.is_raw:
            set_attributes(0, self.saved_attributes)
            self.raw_now[0] = 0


def is_pty(file_stat: os.stat_result) -> bool:
    """Whether it is the slave of a pty."""
    return stat.S_ISCHR(file_stat.st_mode) and os.major(file_stat.st_rdev) in _PTS_MAJORS


def own_description(fd: int) -> int:
    """A close-on-exec fd (3 or more) for the same file. Pipes and ptys get a description of their
    own that never blocks (O_NONBLOCK is shared by all who inherited the other one); the rest share
    the offset and must."""
    file_stat = os.fstat(fd)
    if stat.S_ISFIFO(file_stat.st_mode) or is_pty(file_stat):
        try:
            new_fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            pass  # its reader is gone, or it belongs to another user: as the others
        else:
            if os.path.samestat(os.fstat(new_fd), file_stat):
                return new_fd
            os.close(new_fd)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
