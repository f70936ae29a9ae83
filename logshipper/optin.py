"""The look at `~/.logoptin`: does it exist, and what is in it? (R1-R4, R6, R12, R13)

It stands before every job of a cluster, so it imports next to nothing, touches the file from a
process of its own (a hung home must not hang the job) and says within LOOK_SECS. Root never calls
this.
"""

import os
import select
from time import monotonic

LOOK_SECS = 2.0
BUSY_SECS = (
    10.0  # where the machine is too busy to look: waiting for a processor isn't the home's time
)
_GLANCE_SECS = 0.1
MAX_BYTES = 64 << 10

ABSENT = "absent"  # no such file: nobody opted in
UNKNOWN = "unknown"  # couldn't be established in time: nobody opted in
PRESENT = "present"  # content is the file's bytes
REFUSED = "refused"  # it is there, but can't be used: fails closed; content is the reason, as UTF-8


def path() -> str:
    """The user's own file, `~/.logoptin`."""
    return os.path.join(os.path.expanduser("~"), ".logoptin")


def look(file: str, timeout_secs: float = LOOK_SECS) -> tuple[str, bytes]:
    """Returns what file is (ABSENT, UNKNOWN, PRESENT, REFUSED) and its content or the reason."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        # forked twice: CMD, exec'ed in this process' place, must not find a child it doesn't know
        try:
            if os.fork() == 0:
                os.close(receive)
                _write_all(send, b"%d\n" % os.getpid())
                child_state, content = read(file)
                _write_all(send, child_state.encode() + b"\n" + content)
        finally:
            os._exit(0)
    os.close(send)
    os.waitpid(child, 0)
    answer = _read_all(receive, timeout_secs)
    os.close(receive)
    if answer is None:
        return UNKNOWN, b""
    _, _, report = answer.partition(b"\n")
    state, _, content = report.partition(b"\n")
    return (state.decode(), content) if state else (UNKNOWN, b"")


def read(file: str) -> tuple[str, bytes]:
    """Reads file as `look` does, without a time-out. A FIFO, folder or device is never waited
    for."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return _why_not(file, error)
    try:
        file_stat = os.fstat(fd)
        kind = file_stat.st_mode & 0o170000
        if kind != 0o100000:
            names = {
                0o040000: "a folder",
                0o010000: "a FIFO",
                0o020000: "a device",
                0o060000: "a device",
            }
            return REFUSED, f"is {names.get(kind, 'not a file')}, not a file".encode()
        content = b""
        while len(content) <= MAX_BYTES and (more := os.read(fd, MAX_BYTES + 1 - len(content))):
            content += more
    except OSError as error:
        return REFUSED, f"can't be read: {error.strerror}".encode()
    finally:
        os.close(fd)
    if len(content) > MAX_BYTES:
        return REFUSED, f"is over {MAX_BYTES >> 10} KiB".encode()
    return PRESENT, content


def say(text: str) -> None:
    """A line of our own on stderr, while CMD doesn't run yet. Where that is closed, full or gone
    nothing can be reported: it mustn't land in stdout, as `print` would have it, and CMD runs all
    the same."""
    try:
        if os.get_inheritable(2):  # else the caller had closed it, and the number is another file's
            from logshipper.safe_text import (
                safe_lines,
            )  # late: it imports re, and this is each job's start

            os.write(2, safe_lines(f"{text}\n").encode("utf-8", "backslashreplace"))
    except OSError:
        pass


def run_untouched(command: list[str]) -> int:
    """Execs CMD in this process' place, untouched; returns 125, 126 or 127, as `env` does, where
    that can't be done."""
    import _signal  # type: ignore[import-not-found]  # not `signal`, which imports enum: no stubs

    if not command:
        say("logshipper run: no command after `--`; try `logshipper run -- CMD ARG...`")
        return 125
    for name in (
        _signal.SIGPIPE,
        _signal.SIGXFSZ,
    ):  # Python ignores these two, and exec would hand that on
        _signal.signal(name, _signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        say(f"logshipper: {command[0]}: {getattr(error, 'strerror', None) or error}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _why_not(file: str, error: OSError) -> tuple[str, bytes]:
    """A name that exists has opted in, though nothing can be read from it; one that can't even be
    looked up hasn't."""
    try:
        file_stat = os.lstat(file)
    except OSError:
        return ABSENT, b""
    if file_stat.st_mode & 0o170000 == 0o120000:
        return REFUSED, f"is a link that leads nowhere: {error.strerror}".encode()
    return REFUSED, f"can't be read: {error.strerror}".encode()


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _read_all(fd: int, timeout_secs: float) -> bytes | None:
    """All that comes until the other end is closed, its process' number first; None when the time
    is up before."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    deadline = monotonic() + BUSY_SECS
    waited_secs = 0.0
    answer = b""
    while waited_secs < timeout_secs and monotonic() < deadline:
        if not poll.poll(int(_GLANCE_SECS * 1000)):
            if answer and not _waits_for_processor(int(answer.partition(b"\n")[0])):
                waited_secs += _GLANCE_SECS
            continue
        piece = os.read(fd, MAX_BYTES + 4096)
        if not piece:
            return answer
        answer += piece
    return None


def _waits_for_processor(pid: int) -> bool:
    """Whether it runs, or would if it were let."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except OSError:
        return False
