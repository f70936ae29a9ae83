"""`run`, batch case: CMD and its caller notice no difference from a run without logshipper."""

import contextlib
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.spool.captures import read_counters
from tests.tools.captures.relay_tools import WAIT_SECS, Driver, nothing_left, python, wait_for
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

FLOOD_LINES = 1_000_000


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with contextlib.closing(Driver(tmp_path)) as driver:
        yield driver


@pytest.fixture(params=["tty", "pipe"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--no-tty",) if request.param == "pipe" else ()


# ---- output


def test_streams_stay_apart_and_unchanged(driver: Driver, options: tuple[str, ...]) -> None:
    done = driver.run("sh", "-c", "printf 'one\\ntwo'; printf 'err\\r\\n' >&2", options=options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\ntwo", b"err\r\n")
    assert driver.captured(1) == b"one\ntwo"
    assert driver.captured(2) == b"err\r\n"
    assert {event["stream"] for event in driver.events_of("closed")} == {1, 2}
    assert [event["status"] for event in driver.events_of("exit")] == [0]


def test_prints_nothing(driver: Driver, options: tuple[str, ...]) -> None:
    done = driver.run("true", options=options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert driver.captured() == b""


def test_every_byte_value(driver: Driver, options: tuple[str, ...]) -> None:
    noise = bytes(range(256)) * 300 + os.urandom(100_000)
    done = driver.run("cat", stdin=noise, options=options)
    assert done.stdout == noise
    assert driver.captured() == noise


def test_a_million_lines(driver: Driver, options: tuple[str, ...]) -> None:
    """Both streams are byte-identical in the output and in the log, and the counters agree."""
    code = (
        "import sys; out = [sys.stdout, sys.stderr]\nfor n in range(%d): print(n, file=out[n & 1])"
    )
    done = driver.run(
        *python(code % FLOOD_LINES), serve="digest", options=options, env={"PYTHONUNBUFFERED": ""}
    )
    texts = ["".join(f"{n}\n" for n in range(odd, FLOOD_LINES, 2)).encode() for odd in (0, 1)]
    assert [done.stdout == texts[0], done.stderr == texts[1]] == [True, True]
    digests = driver.events_of("digest")[0]
    assert [digests["1"], digests["2"]] == [hashlib.sha256(text).hexdigest() for text in texts]
    assert driver.printed_counts() == (
        len(texts[0]),
        FLOOD_LINES // 2,
        len(texts[1]),
        FLOOD_LINES // 2,
    )


def test_a_line_of_100_megabytes(driver: Driver, tmp_path: Path, options: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    code = "import sys\nfor _ in range(100): sys.stdout.write('x' * 1_000_000)\nprint()"
    with out.open("wb") as file:
        done = driver.run(
            *python(code), serve="digest", options=options, stdout=file, stderr=subprocess.PIPE
        )
    assert (done.returncode, done.stderr) == (0, b"")
    with out.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert (
        digest
        == hashlib.sha256(b"x" * 100_000_000 + b"\n").hexdigest()
        == driver.events_of("digest")[0]["1"]
    )


def test_in_order_where_both_streams_are_one_file(
    driver: Driver, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The order within a stream is exact, and neither stream tears the other's lines."""
    code = """
import os, threading
def write(fd, letter):
    for n in range(20000):
        os.write(fd, b'%c%05d %s\\n' % (letter, n, bytes([letter]) * (n % 200)))
threads = [threading.Thread(target=write, args=of) for of in ((1, 97), (2, 98))]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
"""
    out = tmp_path / "out"
    with out.open("wb") as file:
        assert (
            driver.run(
                *python(code), serve="digest", options=options, stdout=file, stderr=file
            ).returncode
            == 0
        )
    lines = out.read_bytes().splitlines()
    for letter in b"ab":
        mine = [line for line in lines if line[0] == letter]
        assert mine == [
            b"%c%05d %s" % (letter, n, bytes([letter]) * (n % 200)) for n in range(20000)
        ]
    assert len(lines) == 40000


def test_appending_file_is_appended_to(driver: Driver, tmp_path: Path) -> None:
    """The offset stays shared with the caller's: `{ echo; logshipper run ...; echo; } > file`."""
    out = tmp_path / "out"
    with out.open("wb", buffering=0) as file:
        file.write(b"before\n")
        driver.run("echo", "job", stdout=file, stderr=subprocess.PIPE)
        file.write(b"after\n")
    assert out.read_bytes() == b"before\njob\nafter\n"


def test_nothing_changes_for_who_shares_the_output(driver: Driver) -> None:
    """Never set O_NONBLOCK on inherited fds: other holders of the pipe would see EAGAIN."""
    read, write = os.pipe()
    driver.run("echo", "job", stdout=write, stderr=subprocess.PIPE)
    assert os.get_blocking(write)
    os.close(write)
    assert os.read(read, 100) == b"job\n"
    os.close(read)


def test_socket_as_output(driver: Driver) -> None:
    """A socket can't be reopened, so the relay must not block on it. 300 kB exceed its buffer."""
    import socket

    ours, theirs = socket.socketpair()
    process = driver.start(
        "sh", "-c", "seq 50000", serve="drain", stdout=theirs.fileno(), stderr=subprocess.DEVNULL
    )
    theirs.close()
    received = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    ours.close()
    assert process.wait(60) == 0
    assert received == "".join(f"{n}\n" for n in range(1, 50001)).encode()


# ---- the job's surroundings


def test_terminals_of_a_batch_job(driver: Driver) -> None:
    """At least 160 columns, raw from the start: no CR before LF. stdin is the caller's own."""
    code = (
        "import os, sys; print([os.isatty(fd) for fd in range(3)], "
        "*os.get_terminal_size(1), *os.get_terminal_size(2))"
    )
    done = driver.run(*python(code))
    assert done.stdout == b"[False, True, True] 160 50 160 50\n"
    plan = driver.plan()
    assert (plan["columns"], plan["rows"], plan["tty"], plan["interactive"]) == (
        160,
        50,
        True,
        False,
    )


def test_no_tty_gives_pipes(driver: Driver) -> None:
    done = driver.run(
        "sh", "-c", "for fd in 0 1 2; do [ -t $fd ] || echo $fd; done", options=("--no-tty",)
    )
    assert done.stdout == b"0\n1\n2\n"
    assert driver.plan()["tty"] is False


def test_job_knows_its_id(driver: Driver) -> None:
    assert driver.run("sh", "-c", "echo $LOGSHIPPER_JOB_ID").stdout == b"test1\n"
    assert (
        driver.run("sh", "-c", "echo $LOGSHIPPER_JOB_ID", options=("--no-capture",)).stdout == b"\n"
    )


def test_stdin_file_pipe_and_here_document(driver: Driver, tmp_path: Path) -> None:
    input_file = tmp_path / "given"
    input_file.write_bytes(b"from a file\n")
    with input_file.open("rb") as file:
        assert driver.run("cat", stdin=file).stdout == b"from a file\n"
    assert driver.run("cat", stdin=b"from a pipe").stdout == b"from a pipe"
    script = '"$@" <<END\nfrom a here-document\nEND\n'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *driver.argv("cat")],
        env=driver.environment(),
        capture_output=True,
        timeout=scaled(60),
    )
    assert done.stdout == b"from a here-document\n"


def test_rest_of_stdin_is_left_to_others(driver: Driver, tmp_path: Path) -> None:
    """`{ logshipper run -- head -c 6; cat; } < file`: logshipper does not read stdin."""
    input_file = tmp_path / "given"
    input_file.write_bytes(b"first\nsecond\n")
    script = '{ "$@"; cat; } < ' + str(input_file)
    job = driver.argv(*python("import os; os.write(1, os.read(0, 6))"))
    done = subprocess.run(
        ["sh", "-c", script, "sh", *job],
        env=driver.environment(),
        capture_output=True,
        timeout=scaled(60),
    )
    assert done.stdout == b"first\nsecond\n"


def test_who_feeds_stdin_learns_that_it_was_closed(driver: Driver) -> None:
    code = "import os, signal; os.close(0); print('closed', flush=True); signal.pause()"
    read, write = os.pipe()
    process = driver.start(*python(code), stdin=read, stdout=subprocess.DEVNULL)
    os.close(read)
    driver.wait_captured(b"closed")
    for _ in range(
        16
    ):  # 64 KiB, as much as the pipe holds: with a reader left the write would block, not fail
        with pytest.raises(BrokenPipeError):
            os.write(write, b"x" * 4096)
    os.close(write)
    process.terminate()
    assert process.wait(WAIT_SECS) == -signal.SIGTERM


def test_no_fd_leaks_into_cmd(driver: Driver) -> None:
    done = driver.run(*python("import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"))
    assert done.stdout == b"['0', '1', '2', '3']\n"  # fd 3 belongs to the listing itself


def test_fd_of_the_caller_reaches_cmd_and_is_let_go(driver: Driver) -> None:
    """A reader of such a pipe sees its end as soon as CMD closes it: a job server, a lock, `exec 3>
    >(tee)`."""
    read, write = os.pipe()
    code = f"import os; os.write({write}, b'x'); os.close({write}); os.read(0, 1)"
    process = driver.start(*python(code), stdin=subprocess.PIPE, pass_fds=(write,))
    os.close(write)
    assert os.read(read, 10) == b"x"
    assert os.read(read, 10) == b""  # CMD closed it, and runs on
    assert process.poll() is None
    os.close(read)
    process.communicate(b"x", timeout=WAIT_SECS)
    assert process.returncode == 0


def test_cmd_has_no_children(driver: Driver) -> None:
    """A job that loops on os.wait() must not find an unknown child."""
    code = "import os\ntry: os.wait()\nexcept ChildProcessError: print('none')"
    assert driver.run(*python(code)).stdout == b"none\n"


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_fds_that_the_caller_closed_stay_closed(
    driver: Driver, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    report = tmp_path / "report"
    code = f"""
import os
found = []
for fd in range(3):
    try: os.fstat(fd); found.append(fd)
    except OSError: pass
open({str(report)!r}, 'w').write(repr(found))
for fd in found[1:] if found[:1] == [0] else found: os.write(fd, b'%d' % fd)
"""
    script = '"$@"' + "".join(f" {fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
    done = subprocess.run(
        ["sh", "-c", script, "sh", *driver.argv(*python(code))],
        env=driver.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=scaled(60),
    )
    open_fds = [fd for fd in range(3) if fd not in closed]
    assert report.read_text() == repr(open_fds)
    assert [done.stdout, done.stderr] == [b"%d" % fd if fd in open_fds else b"" for fd in (1, 2)]
    assert {event["stream"] for event in driver.events_of("closed")} == {1, 2}
    assert done.returncode == 0


def test_signals_are_inherited_as_they_were(driver: Driver) -> None:
    """CMD gets the caller's mask and ignored signals (nohup), but not Python's ignored SIGPIPE and
    SIGXFSZ."""
    code = """
import signal
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
import re; status = open('/proc/self/status').read()
ignored = int(re.search('SigIgn:\\t(.*)', status)[1], 16)
print([n for n in range(1, 32) if ignored >> (n - 1) & 1])  # 32 and 33 are the C library's own
"""

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR2])
        for signo in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU):
            signal.signal(signo, signal.SIG_IGN)

    done = driver.run(*python(code), preexec_fn=prepare)
    ignored = sorted(
        {signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ}
    )
    # this CMD is a Python program, which ignores PIPE and XFSZ itself
    assert done.stdout.decode().splitlines() == [
        f"[{signal.SIGUSR2!r}]",
        str([int(number) for number in ignored]),
    ]
    assert done.returncode == 0
    command = [shutil.which("grep") or "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"]
    assert (
        driver.run(*command).stdout
        == subprocess.run(command, capture_output=True, timeout=scaled(60)).stdout
    )


def test_job_is_not_started_later_for_the_sidecars_sake(driver: Driver) -> None:
    """CMD starts before the sidecar. The sidecar is not even a sibling that delays its start."""
    done = driver.run("sh", "-c", "ps -o comm= --ppid $PPID 2>/dev/null | grep -c logshipper-side; true", serve="hang",
                      options=("--stall-secs", "0.5"))  # fmt: skip
    assert done.returncode == 0


# ---- exit codes


@pytest.mark.parametrize("code", [0, 1, 77, 125, 126, 127, 128, 255])
def test_exit_code(driver: Driver, code: int) -> None:
    assert driver.run("sh", "-c", f"exit {code}").returncode == code
    assert driver.events_of("exit")[0]["status"] == code << 8
    counters = read_counters(driver.counters_file.read_bytes())
    assert counters is not None
    assert counters.end is not None
    assert counters.end[0] == code << 8


@pytest.mark.parametrize(
    "name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGHUP", "SIGUSR1", "SIGPIPE", "SIGALRM", "SIGRTMIN"]
)
def test_dies_of_the_signal_that_cmd_died_of(driver: Driver, name: str) -> None:
    signo = signal.Signals[name]
    assert driver.run("sh", "-c", f"kill -{int(signo)} $$").returncode == -signo
    assert driver.events_of("exit")[0]["status"] == signo


def test_dies_of_an_ignored_signal_as_well(driver: Driver) -> None:
    """`nohup logshipper run -- CMD`, with a CMD that restored SIGHUP and died of it."""
    code = "import os, signal; signal.signal(1, signal.SIG_DFL); os.kill(os.getpid(), 1)"
    argv = driver.argv(*python(code))
    done = subprocess.run(
        ["nohup", *argv], env=driver.environment(), capture_output=True, timeout=scaled(60)
    )
    assert done.returncode == -signal.SIGHUP


def test_core_file_is_cmds(driver: Driver, tmp_path: Path) -> None:
    """The relay's core file, full of the job's output, once replaced the core file of CMD."""

    def allow() -> None:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("core files are forbidden here (ulimit -Hc)")
    process = driver.start(
        "sh", "-c", "kill -SEGV $$", cwd=tmp_path, preexec_fn=allow, stdout=subprocess.DEVNULL
    )
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0  # reaped above: subprocess doesn't report core files
    assert os.WTERMSIG(status) == signal.SIGSEGV
    assert not os.WCOREDUMP(status)
    assert os.WCOREDUMP(driver.events_of("exit")[0]["status"])
    for core in tmp_path.glob("core*"):
        assert b"relay_driver" not in core.read_bytes()


def test_cmd_that_is_not_there(driver: Driver) -> None:
    for name in ("no-such-command", "./no-such-file", "/no/such/path", ""):
        # only readable folders: an unreadable one would make it 126
        done = driver.run(name, env={"PATH": os.defpath})
        assert (done.returncode, done.stdout) == (127, b"")
        assert done.stderr == f"logshipper: {name}: No such file or directory\n".encode()
    assert driver.events() == []  # the sidecar never began


def test_cmd_that_cannot_be_run(driver: Driver, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    for path in (script, tmp_path):
        done = driver.run(str(path))
        assert done.returncode == 126
        assert done.stderr.startswith(f"logshipper: {path}: Permission denied (".encode())
    assert b"chmod +x" in driver.run(str(script)).stderr
    assert b"it is a folder" in driver.run(str(tmp_path)).stderr
    no_interpreter = tmp_path / "missing"
    no_interpreter.write_text("#!/no/such/interpreter\n")
    no_interpreter.chmod(0o755)
    done = driver.run(str(no_interpreter))
    assert (done.returncode, b"what its first line names isn't" in done.stderr) == (127, True)
    # the hints name a file of the working folder, and quotes around the whole command
    assert b"`./LICENSE`" in driver.run("LICENSE", env={"PATH": os.defpath}).stderr
    assert b"no quotes" in driver.run("python train.py", env={"PATH": os.defpath}).stderr


def test_script_without_an_interpreter_line(driver: Driver, tmp_path: Path) -> None:
    """logshipper runs it as `env` and every shell do."""
    script = tmp_path / "script"
    script.write_text('echo "$0 $1"\n')
    script.chmod(0o755)
    done = driver.run("script", "word", env={"PATH": f"/no/such:{tmp_path}:{os.environ['PATH']}"})
    assert done.stdout == f"{script} word\n".encode()


def test_first_in_path_that_can_be_run(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "echo").write_text("not executable")
    assert (
        driver.run("echo", "found", env={"PATH": f"{tmp_path}/a:{os.environ['PATH']}"}).stdout
        == b"found\n"
    )


@pytest.mark.parametrize("fds", [6, 8, 10, 12, 14, 16, 18, 20])
def test_job_runs_with_few_fds(driver: Driver, fds: int) -> None:
    """CMD runs once at every limit, and a line on stderr explains missing logs."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (fds, fds))

    done = driver.run("sh", "-c", "echo works; exit 3", preexec_fn=limit)
    assert (done.returncode, done.stdout) == (3, b"works\n")
    if driver.captured() != b"works\n":
        assert b"Too many open files" in done.stderr


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_job_runs_with_few_processes(driver: Driver, processes: int) -> None:
    """`ulimit -u` also counts threads: CMD, the sidecar or the signals' thread can't start."""
    if os.getuid() == 0:
        pytest.skip("root has as many processes as it likes")
    mine = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                mine += len(list((entry / "task").iterdir()))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (mine + processes, mine + processes))

    done = driver.run("sh", "-c", "echo works; exit 3", preexec_fn=limit)
    assert (done.returncode, done.stdout) == (3, b"works\n")


# ---- other processes


def test_command_substitution_ends(driver: Driver) -> None:
    """Every process next to the job closes all inherited fds, or `x=$(logshipper run ...)`
    hangs."""
    script = 'x=$("$@"); echo "<$x>"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *driver.argv("sh", "-c", "echo hi")],
        env=driver.environment(),
        capture_output=True,
        timeout=WAIT_SECS,
    )
    assert done.stdout == b"<hi>\n"


def test_head_ends_a_flood(driver: Driver, options: tuple[str, ...]) -> None:
    """`logshipper run -- yes | head -1` ends at once, with head's output. yes dies of SIGPIPE, not
    of EIO."""
    process = driver.start(
        "yes", serve="digest", options=options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    head = subprocess.run(
        ["head", "-1"], stdin=process.stdout, capture_output=True, timeout=WAIT_SECS
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert head.stdout == b"y\n"
    assert process.wait(WAIT_SECS) == -signal.SIGPIPE
    assert process.stderr.read() == b""
    process.stderr.close()
    assert {event["stream"] for event in driver.events_of("closed")} == {1, 2}


def test_output_gone_while_cmd_ignores_sigpipe(driver: Driver) -> None:
    """A documented difference: EIO instead of EPIPE, for a CMD that ignores SIGPIPE."""
    read, write = os.pipe()
    code = """
import os
try:
    while True: os.write(1, b'x' * 4096)
except OSError as error: os.write(2, b'%d' % error.errno)
"""
    process = driver.start(*python(code), stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    os.close(read)
    assert process.communicate(timeout=WAIT_SECS)[1] == b"5"
    assert process.returncode == 0


def test_cmd_closes_its_stdout(driver: Driver, options: tuple[str, ...]) -> None:
    """The reader of stdout sees its end, as without logshipper, though CMD runs on."""
    process = driver.start(
        "sh", "-c", "echo last; exec >&-; read x; echo on >&2; exit 5",
        options=options, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read() == b"last\n"
    assert process.poll() is None
    assert process.communicate(b"\n", timeout=WAIT_SECS)[1] == b"on\n"
    assert process.returncode == 5


def test_blocked_stdout_does_not_block_stderr(driver: Driver, options: tuple[str, ...]) -> None:
    code = """
import os, threading
threading.Thread(target=lambda: [os.write(1, b'x' * 4096) for _ in range(500)], daemon=False).start()
for n in range(1000): os.write(2, b'%d\\n' % n)
"""
    process = driver.start(
        *python(code),
        serve="digest",
        options=options,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    errors = b""
    while b"999\n" not in errors:  # with nobody reading stdout
        errors += os.read(process.stderr.fileno(), 1 << 16)
    assert process.stdout.read() == b"x" * 4096 * 500  # and nothing was lost
    process.communicate(timeout=WAIT_SECS)
    assert process.returncode == 0


def test_slow_reader_gets_all(driver: Driver) -> None:
    """Long after CMD's end, its terminal still delivers the output to the last byte."""
    process = driver.start("seq", "20000", stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = "".join(f"{n}\n" for n in range(1, 20001)).encode()
    output = b""
    while chunk := os.read(process.stdout.fileno(), 500):
        output += chunk
    assert output == lines
    assert process.wait(WAIT_SECS) == 0
    process.stdout.close()


def test_full_disk_of_the_users_own(driver: Driver) -> None:
    """Without logshipper CMD would see the error. With it CMD can't: one line on stderr reports it,
    and CMD and its log go on."""
    with Path("/dev/full").open("wb") as full:
        done = driver.run(
            "sh",
            "-c",
            "seq 1000; seq 1000; echo on >&2; exit 3",
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 3
    assert done.stderr.count(b"logshipper: ") == 1
    assert b"standard output can't be written" in done.stderr
    assert b"No space left on device" in done.stderr
    assert driver.captured().count(b"\n") == 2000


# ---- processes left behind


def test_left_behind_child_keeps_a_working_stdout(
    driver: Driver, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """R28: `run` returns with CMD. A child's output still reaches its destination and the log."""
    go, out = tmp_path / "go", tmp_path / "out"
    os.mkfifo(go)
    script = f"(trap '' HUP; read x < {go}; echo late; echo later >&2) & echo early"
    with out.open("wb") as file:
        assert (
            driver.run("sh", "-c", script, options=options, stdout=file, stderr=file).returncode
            == 0
        )
    assert out.read_bytes() == b"early\n"
    go.write_text("\n")
    wait_for(lambda: driver.events_of("over"), "the child's output ends")
    assert sorted(out.read_bytes().splitlines()) == [b"early", b"late", b"later"]
    assert (driver.captured(1), driver.captured(2)) == (b"early\nlate\n", b"later\n")


def test_left_behind_child_that_never_stops_printing(driver: Driver, tmp_path: Path) -> None:
    """The drain is bounded: `run` returns, and the sidecar goes on."""
    out, pid = tmp_path / "out", tmp_path / "pid"
    with out.open("wb") as file:
        done = driver.run(
            "sh", "-c", f"yes & echo $! >{pid}", serve="digest", stdout=file, stderr=file
        )
    assert done.returncode == 0
    size = out.stat().st_size
    wait_for(lambda: out.stat().st_size > size, "the child prints on")
    os.kill(int(pid.read_text()), signal.SIGTERM)
    wait_for(lambda: driver.events_of("over"), "the child's output ends")


def test_left_behind_child_without_a_sidecar(
    driver: Driver, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A helper process relays until the last holder has closed the output."""
    go, out = tmp_path / "go", tmp_path / "out"
    os.mkfifo(go)
    with out.open("wb") as file:
        done = driver.run(
            "sh", "-c", f"(read x < {go}; echo late) & echo early",
            options=("--no-capture", *options), stdout=file, stderr=file,
        )  # fmt: skip
    assert done.returncode == 0
    assert out.read_bytes() == b"early\n"
    go.write_text("\n")
    wait_for(lambda: out.read_bytes() == b"early\nlate\n", "the child's output arrives")


def test_daemon_in_a_session_of_its_own(driver: Driver, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    script = (
        f"setsid sh -c 'echo $$ > {pids}; exec sleep 600' >/dev/null 2>&1 </dev/null & echo started"
    )
    assert driver.run("sh", "-c", script).stdout == b"started\n"
    wait_for(lambda: pids.exists() and pids.read_text(), "the daemon starts")
    pid = int(pids.read_text())
    os.kill(pid, 0)  # the daemon is still alive
    os.kill(pid, signal.SIGKILL)


# ---- start


def test_imports_are_light(driver: Driver) -> None:
    """The relay's imports delay every job's start (see CONTRIBUTING)."""
    code = "import sys; old = set(sys.modules); import logshipper.process.run; print(*sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    loaded = set(done.stdout.split())
    heavy = {
        "subprocess",
        "ctypes",
        "json",
        "logging",
        "pathlib",
        "tempfile",
        "socket",
        "threading",
        "typing",
        "re",
    }
    assert not loaded & (
        heavy | {"dataclasses", "inspect", "resource", "hashlib", "contextlib", "random", "asyncio"}
    )
