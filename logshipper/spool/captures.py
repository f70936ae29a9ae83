"""Places of captures in the spool, and the creation of a capture's folder (layout:
docs/segment-format.md).

Every `logshipper run` imports it: light imports only.
"""

import fcntl
import mmap
import os
import struct
import time

from logshipper.errors import ConfigError, SpoolError, os_words
from logshipper.filesystem import network_type
from logshipper.named_tuple import NamedTuple
from logshipper.private_folder import claim_folder, spool_error

# magic, version, relay's pid, then bytes and line feeds of stdout and of stderr
COUNTERS = struct.Struct("<8sIIQQQQ")
COUNTERS_MAGIC = b"LOGCNT\r\n"
COUNTERS_BYTES = 72
# behind the counters: 1 after CMD's end, its wait status, time (ns)
_END = struct.Struct("<IiQ")
_BYTES = struct.Struct("<Q")
_PID = struct.Struct("<I")
_PID_OFFSET = 12
_STARTED = struct.Struct("<Q")  # when the relay started: with its number, which process it is
_STARTED_OFFSET = COUNTERS.size + _END.size
OWN_NAMES = ("spool", "jobs", "catalogue.db", "overlay.db")  # one of them is in each store's folder
TELEGRAF_MARK = ".telegraf"  # in a node's spool: its agent forwards measurements for jobs
NOT_CAPTURED = "not_captured"  # the event of a task that went on without its relay
PORT_FILE = "telegraf"  # in `segments/`: the port for them
JOB_ID_MAX_CHARS = 64
NAME_MAX_CHARS = 256  # of a job, a user, a host
# of a job's time limit: Slurm reports a year for jobs without one
LIMIT_MAX_SECS = 365 * 86400 - 1
NAME_CHARS = 8  # random ones of a capture's name: of a job's thousands, shipped ones too, no two draw the same
MAX_NUMBERS = 10_000  # job ids and steps with remembered attempts and runs
_CANCELLING = (1, 2, 9, 15)  # HUP, INT, KILL, TERM: a person or the scheduler ended the job
_MAX_COUNT = (1 << 62) - 1
_LETTERS = b"abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing that looks alike, no words
_DIGITS = b"23456789"
_INTERPRETERS = tuple("python bash sh zsh Rscript julia node perl ruby torchrun accelerate".split())

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from logshipper.spool.place import Place


class CaptureDirectory(NamedTuple):
    """A capture's own folder, ready for writing."""

    path: str
    job_id: str
    attempt: int
    name: str
    counters: mmap.mmap  # 72 bytes shared with whoever outlives the relay
    in_user_spool: bool = False  # the folder lies in the user's own spool, not in a node's


def store_root(explicit: str | None = None) -> str:
    """Return the store's folder: --store, then $LOGSHIPPER_STORE, then the user's data folder.

    If the data folder lies on a network file system, or without a home: `/var/tmp/logshipper-UID`,
    on this host.
    """
    folder = explicit or os.environ.get("LOGSHIPPER_STORE")
    if folder:
        return os.path.abspath(os.path.expanduser(folder))
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(
        os.environ.get("HOME") or "/nonexistent", ".local/share"
    )
    if data.startswith("/nonexistent/") or not os.path.isabs(data) or network_type(data):
        return host_local_root()
    return os.path.join(data, "logshipper")


def host_local_root() -> str:
    return f"/var/tmp/logshipper-{os.getuid()}"  # noqa: S108  owner and mode are checked by claim_folder


def spool_root(root: str, network: str | None = None) -> str:
    """Return the folder of a store's captures: inside it, or host-local for a store on a network.

    network: the result of `network_type(root)`, if known.
    """
    if (network or network_type(root)) is None:
        return os.path.join(root, "spool")
    import hashlib  # late: only for stores on a network

    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return os.path.join(host_local_root(), f"spool-{digest}")


def is_job_id(text: str) -> bool:
    """Return whether it has 1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter or
    digit."""
    rest = text.replace(".", "a").replace("_", "a").replace("-", "a")
    is_clean = rest.isascii() and rest.isalnum() and text[0].isalnum()
    return is_clean and len(text) <= JOB_ID_MAX_CHARS


def check_job_id(job_id: str) -> None:
    """Raise ConfigError for a wrong one."""
    if not is_job_id(job_id):
        problem = f"{job_id!r} isn't a job id: letters, digits, `.`, `_`, `-`, at most {JOB_ID_MAX_CHARS}, no `.` first"
        raise ConfigError("--job-id", [problem])


def default_name(argv: list[str]) -> str:
    """Return a job's default name: CMD's file name, or the script's behind an interpreter.

    It never contains other parts of the command line, which may be secret, or looks like an
    assignment.
    """
    variable, equals, _ = argv[0].partition("=")
    if equals and "/" not in variable:
        return f"{variable}=***"
    base = os.path.basename(argv[0].rstrip("/")) or argv[0]
    if base.startswith(_INTERPRETERS):
        for word in argv[1:]:
            if not word.startswith("-"):
                return os.path.basename(word) if os.path.isfile(word) else base
            if word in ("-c", "-e", "-m"):
                break
    return base


def create_capture(
    root: str, name: str, job_id: str | None = None, place: "Place | None" = None
) -> CaptureDirectory:
    """Create the folder of a new capture in the store's spool.

    job_id: the user's own; a used one starts the job's next attempt; None takes that of place, or a
    new short one. place: the launcher's attempt, step and rank; with a user's own job_id, only for
    ranks. Raises SpoolError (SpoolFull without room); the job then runs without capture.
    """
    if place is not None and job_id is None:
        job_id = place.job_id
    elif place is not None and place.task is None:
        place = None
    if job_id is not None:
        check_job_id(job_id)
    network = network_type(root)
    if network is None:
        claim_folder(root, OWN_NAMES)
    else:
        claim_folder(host_local_root())
    spool = spool_root(root, network)
    claim_folder(spool)
    try:
        step, task = ("", 0) if place is None else (place.step, place.task or 0)
        if job_id is None:
            job_id, attempt = _new_job_id(root, spool), 1
        elif place is None or place.attempt is None:
            attempt = _next_number(spool, job_id)
        else:
            # after removed ones
            attempt = place.attempt + _number_of(os.path.join(spool, ".attempts", job_id))
            step = run_step(step, _next_number(spool, f"{job_id}@{attempt}.{step}.{task}"))
        path = os.path.join(spool, f"{job_id}@{attempt}.{short_id(NAME_CHARS)}")
        os.mkdir(path, 0o700)
        segments = os.path.join(path, "segments")
        os.mkdir(segments, 0o700)
        counters = _make_counters(os.path.join(segments, "counters"))
        capture = CaptureDirectory(path, job_id, attempt, name, counters, in_user_spool=True)
        _write_identity(capture, step, task)
        return capture
    except OSError as error:
        raise spool_error(spool, error) from None


def open_capture(path: str, job_id: str, attempt: int, name: str) -> CaptureDirectory:
    """Open a capture in a folder of the node's agent, and create the counters. Raises SpoolError,
    also for a folder that others can write to."""
    segments = os.path.join(path, "segments")
    try:
        fd = os.open(segments, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            folder_stat = os.fstat(fd)
        finally:
            os.close(fd)
        if folder_stat.st_uid != os.geteuid() or folder_stat.st_mode & 0o777 != 0o700:
            raise SpoolError(segments, "isn't this user's own, with mode 0700")
        if os.lstat(path).st_mode & 0o022:
            raise SpoolError(path, "may be written by others")
        counters = _make_counters(os.path.join(segments, "counters"))
        return CaptureDirectory(path, job_id, attempt, name, counters)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise SpoolError(segments, os_words(error)) from None


def run_step(step: str, runs: int) -> str:
    """Return the step of a task's runs-th capture: readers tell several captures apart by it."""
    return step if runs == 1 else f"{step}.run{runs}".lstrip(".")


def _write_identity(capture: CaptureDirectory, step: str, task: int) -> None:
    """Write the capture's identity before anything else, so that it counts even if the sidecar dies
    at once."""
    uid = os.getuid()
    identity: dict[str, str | int] = {
        "version": 1,
        "attempt": capture.attempt,
        "task": task,
        "uid": uid,
        "cluster": "local",
        "job_id": capture.job_id,
        "step": step,
        "name": capture.name,
        "user": os.environ.get("LOGNAME") or os.environ.get("USER") or _name_of(uid),
        "host": os.uname().nodename,
    }
    # file names and the environment may hold texts of any length: readers refuse long ones
    for key, value in identity.items():
        if isinstance(value, str):
            identity[key] = value[:NAME_MAX_CHARS]
    path = os.path.join(capture.path, "identity.json")
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, encode_flat(identity) + b"\n")
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def encode_flat(fields: "Mapping[str, str | int | None]") -> bytes:
    """Encode a JSON object; bytes in texts that are no UTF-8 become `?`."""
    # `json` itself takes longer to import than a capture's folder to make
    from _json import encode_basestring_ascii as quoted

    words = []
    for key, value in fields.items():
        if isinstance(value, str):
            word = quoted(value.encode("utf-8", "replace").decode())
        else:
            word = "null" if value is None else str(value).lower()
        words.append(f"{quoted(key)}: {word}")
    return f"{{{', '.join(words)}}}".encode()


def _name_of(uid: int) -> str:
    import pwd  # late: it may ask a directory service, if the environment has no name

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _make_counters(path: str) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # written, not only sized: a hole on a full disk would be a SIGBUS later, in the midst of
        # the relay
        os.write(fd, COUNTERS.pack(COUNTERS_MAGIC, 1, 0, 0, 0, 0, 0).ljust(COUNTERS_BYTES, b"\0"))
        counters = mmap.mmap(fd, COUNTERS_BYTES)
    finally:
        os.close(fd)
    note_relay(counters)
    return counters


def note_relay(counters: mmap.mmap) -> None:
    """Says that this process is the relay."""
    _STARTED.pack_into(counters, _STARTED_OFFSET, process_started(os.getpid()))
    _PID.pack_into(counters, _PID_OFFSET, os.getpid())


def process_started(pid: int) -> int:
    """Return a process' start in clock ticks since boot (field 22 of proc_pid_stat(5)); 0 for a
    missing one or a zombie. Changes of the wall clock do not affect it."""
    try:
        return started_of(pid)
    except OSError:
        return 0


def started_of(pid: int) -> int:
    """Return the same; raises OSError for a missing or invisible process."""
    fields = stat_fields(pid)
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def stat_fields(pid: int) -> list[bytes]:
    """Return the kernel's data of a process from field 3 on, its state (proc_pid_stat(5)). Raises
    OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()  # the name before may hold blanks


class Counters(NamedTuple):
    """The relay's counts, by stream name (`stdout`, `stderr`), and CMD's end."""

    pid: int  # the relay's
    started: int  # the relay's start, 0 if not noted
    printed: dict[str, int]  # bytes
    feeds: dict[str, int]  # line feeds
    end: tuple[int, int] | None  # wait status and time (ns), None while CMD runs


def read_counters(data: bytes) -> Counters | None:
    """Parse a counters file; None for other data. Untrusted input: caps counts and never raises."""
    if len(data) < COUNTERS.size:
        return None
    data = data.ljust(COUNTERS_BYTES, b"\0")  # an earlier release's file is shorter
    magic, version, pid, *counts = COUNTERS.unpack_from(data)
    if magic != COUNTERS_MAGIC or version != 1:
        return None
    ended, wait_status, ended_ns = _END.unpack_from(data, COUNTERS.size)
    end = (wait_status, min(ended_ns, _MAX_COUNT)) if ended == 1 else None
    started = _STARTED.unpack_from(data, _STARTED_OFFSET)[0]
    out_bytes, out_feeds, err_bytes, err_feeds = (min(count, _MAX_COUNT) for count in counts)
    printed = {"stdout": out_bytes, "stderr": err_bytes}
    return Counters(pid, started, printed, {"stdout": out_feeds, "stderr": err_feeds}, end)


def counted_bytes(counters: mmap.mmap, stream: int) -> int:
    """Return the relay's count of a stream's bytes (1, 2)."""
    return int(_BYTES.unpack_from(counters, 16 * stream)[0])


def note_end(counters: mmap.mmap, wait_status: int, ended_ns: int) -> None:
    """Note CMD's end, in case a dead sidecar cannot write the end record."""
    _END.pack_into(counters, COUNTERS.size, 1, wait_status, ended_ns)


def give_up(capture: CaptureDirectory, exit_code: int) -> None:
    """End a capture whose CMD could not run. In a node's spool, which we cannot clear, the job ends
    with that exit code."""
    if not capture.in_user_spool:
        note_end(capture.counters, exit_code << 8, time.time_ns())
        return
    segments = os.path.join(capture.path, "segments")
    try:
        # first: without it, nothing is ever ingested
        os.unlink(os.path.join(capture.path, "identity.json"))
        os.unlink(os.path.join(segments, "counters"))
        os.rmdir(segments)
        os.rmdir(capture.path)
    except OSError:
        note_end(capture.counters, exit_code << 8, time.time_ns())


def outcome(wait_status: int) -> tuple[str, int | None, int]:
    """Return a job's state, exit code (None after a signal) and signal (0: none), by CMD's wait
    status.

    Raises ValueError for the status of a running process.
    """
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return ("FAILED" if code else "COMPLETED"), code, 0
    return ("CANCELLED" if -code in _CANCELLING else "FAILED"), None, -code


def boot_id() -> str:
    """Return the id of this machine's boot; "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def short_id(chars: int) -> str:
    """A random id: a letter, then letters and digits."""
    first, *more = os.urandom(chars)
    alphabet = _LETTERS + _DIGITS
    return bytes(
        [_LETTERS[first % len(_LETTERS)], *(alphabet[byte % len(alphabet)] for byte in more)]
    ).decode()


def _new_job_id(root: str, spool: str) -> str:
    job_ids = {entry.split("@")[0] for entry in os.listdir(spool)}
    while True:
        job_id = short_id(6)
        if job_id not in job_ids and not os.path.exists(os.path.join(root, "jobs", job_id + ".db")):
            return job_id


def _next_number(spool: str, key: str) -> int:
    """Counts attempts of a job, runs of a step, in a small file under a lock: it outlives spool and
    store of those before. The oldest are forgotten when there are MAX_NUMBERS."""
    folder = os.path.join(spool, ".attempts")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, key)
    if not os.path.exists(path):
        _forget_oldest(folder)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = _number_of(path) + 1
        os.pwrite(fd, b"%d\n" % number, 0)
        return number
    finally:
        os.close(fd)


def _number_of(path: str) -> int:
    """Return the stored number; 0 without one."""
    try:
        with open(path, "rb") as file:
            text = file.read(32).strip()
    except FileNotFoundError:
        return 0
    return int(text) if text.isdigit() else 0


def keep_attempts(spool: str, job_id: str, attempts: int) -> None:
    """Remember the attempts of a removed job, so that new ones are later. Raises OSError."""
    path = os.path.join(spool, ".attempts", job_id)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # no run here ever had a number
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, b"%d\n" % max(attempts, _number_of(path)), 0)
    finally:
        os.close(fd)


def _forget_oldest(folder: str) -> None:
    with os.scandir(folder) as entries:
        paths = [entry.path for entry in entries]
    if len(paths) < MAX_NUMBERS:
        return
    ages = []
    for path in paths:
        try:
            ages.append((os.stat(path).st_mtime_ns, path))
        except FileNotFoundError:
            pass  # another run forgets them, too
    for _, path in sorted(ages)[: MAX_NUMBERS // 10]:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
