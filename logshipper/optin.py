"""Looks at `~/.logoptin`: its existence and its content (R1-R4, R6, R12, R13).

It precedes every job of a cluster. So it imports next to nothing, reads the file in a separate
process (a hanging home must not hang the job), and answers within LOOK_SECS. Root never calls it.
"""

import os
import select
from time import monotonic

LOOK_SECS = 2.0
BUSY_SECS = 10.0  # on a busy machine: waiting for a processor does not count as the home's time
_GLANCE_SECS = 0.1
MAX_BYTES = 64 << 10

ABSENT = "absent"  # no such file: no opt-in
UNKNOWN = "unknown"  # no answer in time: no opt-in
PRESENT = "present"  # content is the file's bytes
REFUSED = "refused"  # exists, but is unusable: fails closed; content is the reason, as UTF-8
_KINDS = {0o040000: "a folder", 0o010000: "a FIFO", 0o020000: "a device", 0o060000: "a device"}


def path() -> str:
    """The user's own file, `~/.logoptin`."""
    return os.path.join(os.path.expanduser("~"), ".logoptin")


def look(file: str, timeout_secs: float = LOOK_SECS) -> tuple[str, bytes]:
    """Return the file's state (ABSENT, UNKNOWN, PRESENT, REFUSED), and its content or the reason."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        # forked twice: CMD, executed in this process' place, must not have an unknown child
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
            return REFUSED, f"is {_KINDS.get(kind, 'not a file')}, not a file".encode()
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
    """Print a line on stderr before CMD runs.

    If stderr is closed, full or gone, it prints nothing: `print` might write into stdout, and CMD
    must run.
    """
    try:
        if os.get_inheritable(2):  # else the caller had closed it, and the number is another file's
            # late: it imports re, and this is each job's start
            from logshipper.safe_text import safe_lines

            os.write(2, safe_lines(f"{text}\n").encode("utf-8", "backslashreplace"))
    except OSError:
        pass


def run_untouched(command: list[str]) -> int:
    """Execute CMD in this process' place; return 125, 126 or 127, as `env` does, if this fails."""
    import _signal  # type: ignore[import-not-found]  # not `signal`, which imports enum: no stubs

    if not command:
        say("logshipper run: no command after `--`; try `logshipper run -- CMD ARG...`")
        return 125
    # Python ignores these two, and exec would hand that on
    for name in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(name, _signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        say(f"logshipper: {command[0]}: {getattr(error, 'strerror', None) or error}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _why_not(file: str, error: OSError) -> tuple[str, bytes]:
    """Explain a failed read. An existing name has opted in, even if unreadable; a failed lookup has
    not."""
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
    """Return whether the process runs or waits for a processor."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except OSError:
        return False
