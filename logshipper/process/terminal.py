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
_LFLAG, _CC = 3, 6  # their places in the result of tcgetattr
_NO_KEY = b"\0"  # marks a signal without a key
_SIGNAL_KEYS = (
    (termios.VINTR, signal.SIGINT),
    (termios.VQUIT, signal.SIGQUIT),
    (termios.VSUSP, signal.SIGTSTP),
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.relay.handover import Attributes


def fill_standard_fds() -> None:
    """Open /dev/null for closed descriptors 0 to 2, so that no other file gets their numbers.

    Call this before opening anything. It is close-on-exec, so CMD does not get it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def is_inherited(fd: int) -> bool:
    """Return whether the caller passed a descriptor 0 to 2: no close-on-exec descriptor survives an
    exec."""
    return os.get_inheritable(fd)


def is_interactive() -> bool:
    """Return whether fds 0, 1 and 2 are one terminal, and this process is in its foreground."""
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
    """Return (columns, rows) of a terminal; None for other files, and unknown sizes."""
    try:
        rows, columns = termios.tcgetwinsize(fd)
    except (OSError, termios.error):
        return None
    return (columns, rows) if columns and rows else None


def batch_size() -> tuple[int, int]:
    """Return (columns, rows) of the ptys, unless CMD has the real terminal for all three
    descriptors."""
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
    """Open a pty that is nobody's controlling terminal: (master, slave). like: its attributes;
    None: raw."""
    master, slave = os.openpty()
    termios.tcsetattr(
        slave, termios.TCSANOW, like if like is not None else raw(termios.tcgetattr(slave))
    )
    set_size(master, size)
    return master, slave


def raw(attributes: "Attributes") -> "Attributes":
    """Return the attributes without any processing of input, output or signals (cfmakeraw)."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = attributes
    iflag &= ~(termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR)
    iflag &= ~(termios.IGNCR | termios.ICRNL | termios.IXON)
    oflag &= ~termios.OPOST
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    cflag = cflag & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    cc = list(cc)
    cc[termios.VMIN], cc[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]


def _attributes(fd: int) -> "Attributes":
    """Return a pty's attributes by its master; [] once it is hung up."""
    try:
        return termios.tcgetattr(fd)
    except (OSError, termios.error):
        return []


def is_canonical(fd: int) -> bool:
    """Return whether a pty (by its master) delivers input by the line."""
    attributes = _attributes(fd)
    return not attributes or bool(attributes[_LFLAG] & termios.ICANON)


def typed_signals(fd: int, typed: bytes) -> list[int]:
    """Return the signals that a pty (by its master) makes of typed keys, such as Ctrl-C, for a
    foreground group."""
    attributes = _attributes(fd)
    if not attributes or not attributes[_LFLAG] & termios.ISIG:
        return []
    keys = attributes[_CC]
    return [
        signo for place, signo in _SIGNAL_KEYS if keys[place] != _NO_KEY and keys[place] in typed
    ]


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
            # set first, to explain a raw terminal to observers
            self.raw_now[0] = 1
            termios.tcsetattr(0, termios.TCSADRAIN, raw(self.saved_attributes))
        except (OSError, termios.error):
            pass  # gone: reading it will tell

    def leave(self) -> None:
        """Restore the terminal if we made it raw."""
        if self.is_raw:
            try:
                termios.tcsetattr(0, termios.TCSADRAIN, self.saved_attributes)
            except (OSError, termios.error):
                pass  # gone
            self.raw_now[0] = 0


def is_pty(file_stat: os.stat_result) -> bool:
    """Return whether a file is the slave of a pty."""
    return stat.S_ISCHR(file_stat.st_mode) and os.major(file_stat.st_rdev) in _PTS_MAJORS


def own_description(fd: int) -> int:
    """Return a close-on-exec descriptor (3 or more) for the same file.

    Pipes and ptys get their own description, which never blocks (inheritors share O_NONBLOCK of the
    other one). The rest share the offset, as they must.
    """
    file_stat = os.fstat(fd)
    if stat.S_ISFIFO(file_stat.st_mode) or is_pty(file_stat):
        try:
            new_fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            pass  # its reader has gone, or another user owns it: treat it as the others
        else:
            if os.path.samestat(os.fstat(new_fd), file_stat):
                return new_fd
            os.close(new_fd)
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
