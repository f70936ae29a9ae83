"""The Slurm plugin's keeper and relay in C, without Slurm: a program plays slurmstepd
(tests/tools/fakes/slurm_player.py).

A task's output reaches its own destination byte for byte, and the log line for line, even if
processes die or hang.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.captures import NAME_CHARS
from logshipper.spool.segment import Stream
from tests.slurm.tools import gate
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import BEN, as_user, error_names, needs_root
from tests.tools.fakes.slurm_player import (
    KEEPER,
    RELAY,
    Node,
    fill,
    hung_folder,
    late_python,
    node,
    python,
    small_disk,
)

__all__ = ["node"]  # a fixture

# Both streams, no last newline, a progress bar, bytes that are not text, and more output than a
# pipe or pty holds.
BOTH = r"""
import os, sys
for n in range(3000):
    print('out', n)
    if n % 3 == 0: print('err', n, file=sys.stderr)
for n in range(20): print(f'\r{n * 5} %', end='', flush=True)
print()
sys.stdout.flush()
os.write(1, b'\xff\xfe not text\n' + b'x' * 200000 + b'\n')
print('the end', end='')
"""


# ---- output and log


@pytest.mark.parametrize("content", [b"", b"tty: false\n"])
def test_output_is_byte_identical_and_logged(node: Node, content: bytes) -> None:
    node.opt_in(content)
    plain = subprocess.run(python(BOTH), capture_output=True, check=True)
    played = node.run(*python(BOTH))
    assert (played.code, played.captured()) == (0, [True])
    assert (played.out, played.err) == (plain.stdout, plain.stderr)
    [logged] = node.logged()
    lines = [b"out %d" % n for n in range(3000)] + [b"95 %"]
    assert logged.lines()[: len(lines)] == lines
    assert logged.lines()[-2:] == [b"x" * 200000, b"the end"]
    assert logged.lines(Stream.STDERR) == [b"err %d" % n for n in range(0, 3000, 3)]
    ledger = logged.ledger()
    assert [ledger[name]["bytes"] for name in ("stdout", "stderr")] == [
        len(plain.stdout),
        len(plain.stderr),
    ]
    assert [ledger[name]["lost"] for name in ("stdout", "stderr")] == [0, 0]
    assert logged.counters is not None
    assert logged.counters.printed == {"stdout": len(plain.stdout), "stderr": len(plain.stderr)}
    assert logged.counters.feeds == {
        "stdout": plain.stdout.count(b"\n"),
        "stderr": plain.stderr.count(b"\n"),
    }
    assert logged.counters.end is not None
    assert logged.counters.end[0] == 0
    assert (logged.damages, logged.events(), played.messages()) == ([], [], "")


def test_terminal_is_as_under_logshipper_run(node: Node) -> None:
    """The task gets a pty of 160 columns, or a pipe with `tty: false`."""
    asks = python(
        "import os; print(os.isatty(1), os.isatty(2), os.isatty(0)); print(tuple(os.get_terminal_size(2)))"
    )
    assert node.run(*asks).out == b"True True False\n(160, 50)\n"
    assert (
        node.run(*asks, settings=("columns=200", "rows=60")).out == b"True True False\n(200, 60)\n"
    )
    node.opt_in(b"mode: enabled\ntty: off # please\n")
    assert (
        node.run(*asks[:-1], "import os; print(os.isatty(1))", words=("job=5",)).out == b"False\n"
    )


def test_colours_are_kept_for_who_asks_for_it(node: Node) -> None:
    """The relay reads only two keys, the sidecar reads all of them."""
    node.opt_in(b"colors: keep\nsnapshots: 30s\n")
    node.run("printf", "%b", r"\033[1;31mred\033[0m\n")
    [logged] = node.logged()
    assert (logged.lines(), logged.events()) == ([b"\x1b[1;31mred\x1b[0m"], [])


def test_streams_that_are_one_file_are_not_torn(node: Node, tmp_path: Path) -> None:
    """sbatch sends stdout and stderr to one file. The file has all lines complete, in each stream's
    order."""
    code = """
import os, sys
for n in range(3000):
    os.write(1, b'out %d ' % n); os.write(1, b'...\\n')
    os.write(2, b'err %d ' % n); os.write(2, b'...\\n')
"""
    with (tmp_path / "slurm.out").open("wb") as file:
        node.run(*python(code), stdout=file, stderr=file)
    lines = (tmp_path / "slurm.out").read_bytes().splitlines()
    for name in (b"out", b"err"):
        assert [line for line in lines if line.startswith(name)] == [
            b"%s %d ..." % (name, n) for n in range(3000)
        ]
    assert len(lines) == 6000


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_codes(node: Node, code: int) -> None:
    played = node.run("sh", "-c", f"echo out; exit {code}")
    assert (played.code, played.out) == (code, b"out\n")
    [end] = node.logged()[0].records("end")
    assert (end["state"], end["exit_code"], end["signal"]) == (
        "FAILED" if code else "COMPLETED",
        code,
        0,
    )


@pytest.mark.parametrize("signo", [9, 11, 15])
def test_signals(node: Node, signo: int) -> None:
    played = node.run(
        *python(f"import os; print('out', flush=True); os.kill(os.getpid(), {signo})")
    )
    assert (played.code, played.out) == (-signo, b"out\n")
    [end] = node.logged()[0].records("end")
    assert (end["exit_code"], end["signal"]) == (None, signo)


def test_task_finds_no_child_and_no_fd(node: Node) -> None:
    """A loop on os.wait() ends, and the task has only 0, 1 and 2 open."""
    code = """
import os
try:
    while True: os.wait()
except ChildProcessError: print('no child')
print(sorted(os.listdir('/proc/self/fd'), key=int)[:-1])
"""
    lines = node.run(*python(code)).out.splitlines()
    assert lines == [b"no child", b"['0', '1', '2']"]


def test_blocked_output_blocks_only_itself(node: Node) -> None:
    """While stdout has no reader, stderr continues. Afterwards every byte of stdout arrives."""
    code = """
import os, threading
def flood():
    for n in range(20000): os.write(1, b'%06d %s\\n' % (n, b'x' * 60))
thread = threading.Thread(target=flood); thread.start()
for n in range(1000): os.write(2, b'err %d\\n' % n)
os.write(2, b'END\\n')
thread.join()
"""
    played = node.start(*python(code))
    assert played.process.stderr is not None
    assert list(iter(played.process.stderr.readline, b"END\n")) == [
        b"err %d\n" % n for n in range(1000)
    ]
    played.finish()
    assert played.out == b"".join(b"%06d %s\n" % (n, b"x" * 60) for n in range(20000))
    assert len(node.logged()[0].lines()) == 20000


def test_reader_that_leaves_brings_sigpipe(node: Node) -> None:
    played = node.start("yes")
    assert played.process.stdout is not None
    played.process.stdout.close()
    assert played.process.wait(30) == -signal.SIGPIPE


# ---- the end


def test_end_is_not_late(node: Node) -> None:
    """The end waits neither for Python's start nor for the log. Readers of a short task's output
    see it at once."""
    setting, go = late_python(node)
    played = node.run("echo", "out", settings=(setting, "drain_secs=60"))
    assert (played.out, len(played.reports("drained"))) == (b"out\n", 1)
    go.touch()
    assert node.logged()[0].lines() == [b"out"]


def test_background_process_keeps_its_output(node: Node) -> None:
    """A remaining background process holds the pty. The end does not wait for it, and its later
    output reaches the log."""
    code = "echo now; (while [ ! -e $0 ]; do sleep 0.05; done; echo later; echo later >&2) &"
    go = node.folder / "go"
    played = node.start("sh", "-c", code, str(go), settings=("drain_secs=60",))
    wait_until(lambda: played.reports("drained"), "the task ended")
    wait_until(lambda: not node.processes(RELAY), "the relay has handed over")
    go.touch()
    played.finish()
    assert (played.out, played.err) == (b"now\nlater\n", b"later\n")
    [logged] = node.logged()
    assert (logged.lines(), logged.lines(Stream.STDERR)) == ([b"now", b"later"], [b"later"])


def test_stuck_output_is_waited_for_no_longer_than_said(node: Node) -> None:
    """The reader pauses with a full pipe. The task's last output is still in the pty or the relay
    at its end."""
    out, into = os.pipe()
    with open(out, "rb") as pipe:
        before = full(into)
        played = node.start(
            "head", "-c", "2000", "/dev/zero", settings=("drain_secs=1",), stdout=into
        )
        os.close(into)
        wait_until(lambda: played.reports("drained"), "the end is given up waiting for")
        assert int(played.reports("drained")[0][1]) > 900_000
        assert pipe.read() == before + bytes(2000)
        played.finish()


def full(pipe: int) -> bytes:
    """Fill a pipe and return its content. It writes whole pages because a partial page takes no
    part of a larger write."""
    os.set_blocking(pipe, False)
    content = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            content += b"x" * os.write(pipe, b"x" * os.sysconf("SC_PAGE_SIZE"))
    os.set_blocking(pipe, True)
    return content


# ---- the spool


def test_directory_is_as_the_node_agent_makes_it(node: Node) -> None:
    name = 'a "quoted" \\ name\n\x1b[31m \xff'.encode("latin-1")
    played = node.start(
        "true",
        words=("array_job=77", "array_task=3", "restarts=2", "step=5"),
        stdin=subprocess.DEVNULL,
    )
    played.finish()
    [logged] = node.logged()
    assert logged.name.startswith("4711@3.")
    assert (logged.identity["array_job_id"], logged.identity["array_task_id"]) == ("77", "3")
    assert (logged.identity["step"], logged.identity["attempt"], logged.identity["host"]) == (
        "5",
        3,
        "n1",
    )
    assert [
        path.stat().st_mode & 0o777 for path in (logged.path, logged.path / "identity.json")
    ] == [0o711, 0o600]
    segments = (logged.path / "segments").stat()
    assert (segments.st_mode & 0o777, segments.st_uid) == (0o700, node.uid)
    node.run("true", words=(b"name=" + name,))
    hostile = next(capture for capture in node.logged(2) if capture.name.startswith("4711@1."))
    assert hostile.identity["name"] == 'a "quoted" \\ name\ufffd\ufffd[31m \ufffd'


def test_same_fields_as_the_node_agent(node: Node) -> None:
    from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
    from logshipper_ingest.config.agent_config import AgentSection

    node.run("true")
    [logged] = node.logged()
    agent_spool = node.folder / "other"
    uid = os.getuid()
    folder = prepare_capture(
        AgentSection(spool_dir=str(agent_spool)),
        NodeIdentity("1", 1, "0", 0, "n", uid, "me", gid=os.getgid()),
    )
    assert set(json.loads((Path(folder) / "identity.json").read_text())) == set(logged.identity)


@pytest.mark.parametrize(
    ("start", "end", "limit"),
    [
        ("1700000000", "1700007200", 7200),
        ("1700000000", "1731535999", 365 * 86400 - 1),
        ("1700000000", "1731536000", None),  # a year means no limit
        ("", "", None),  # Slurm before 23.02
        ("", "1700007200", None),
        ("1700000000", "", None),
        ("1700000000", "1699999999", None),
        ("0", "7200", None),
        ("-1700000000", "7200", None),
        ("1700000000", "1700007200x", None),
        ("1700000000", "9" * 30, None),
    ],
)
def test_the_jobs_time_limit(node: Node, start: str, end: str, limit: int | None) -> None:
    """slurmstepd puts the limit into a task's environment."""
    node.run("true", words=(f"start={start}", f"end={end}"))
    [logged] = node.logged()
    assert logged.identity.get("limit_secs") == limit


@pytest.mark.parametrize("fault", ["missing", "mode", "link"])
def test_spool_that_is_not_as_it_must_be(node: Node, fault: str) -> None:
    if fault == "mode":
        node.spool.chmod(0o777)
    else:
        node.spool.rename(node.folder / "elsewhere")
        if fault == "link":
            node.spool.symlink_to(node.folder / "elsewhere")
    played = node.run("echo", "out")
    assert (played.code, played.out, played.captured()) == (0, b"out\n", [False])
    assert "the spool" in played.messages()
    assert list(node.folder.glob("*/*@*")) == []


@needs_root
def test_full_spool(node: Node) -> None:
    """Without room for the directory, the task stays untouched. Without room for lines, its output
    is complete and the log reports the loss."""
    with small_disk(node.spool, 256):
        filler = node.spool / ".filler"
        fill(filler)
        played = node.run("echo", "out")
        assert (played.out, played.captured(), node.names()) == (b"out\n", [False], [])
        assert "No space left on device" in played.messages()
        filler.unlink()
        flood = python("import random\nfor n in range(20000): print(n, random.random())")
        played = node.run(*flood, words=("job=2",))
        assert (played.code, played.out.count(b"\n"), played.captured()) == (0, 20000, [True])
        assert (
            "lines are missing from the log" in played.messages()
            or node.logged()[0].ledger()["stdout"]["lost"]
        )
        node.logged()


def test_too_many_captures_of_a_user(node: Node) -> None:
    node.run("true", settings=("max_captures=1",))
    played = node.run("true", settings=("max_captures=1",))
    assert played.captured() == [False]
    assert "one user may have 1 (max_captures=)" in played.messages()


@needs_root
def test_other_users_get_nowhere(node: Node) -> None:
    node.run("true")
    [logged] = node.logged()
    acts = [
        lambda: os.listdir(node.spool),
        lambda: os.listdir(logged.path / "segments"),
        lambda: os.listdir(node.spool / ".jobs"),
        lambda: (logged.path / "identity.json").write_text("mine"),
        (node.spool / "4711@1.mine").mkdir,
    ]
    assert as_user(BEN, lambda: error_names(acts)) == ["PermissionError"] * 5
    user_acts = [
        lambda: (logged.path / "identity.json").write_text("mine"),
        lambda: (logged.path / "segments").rename(logged.path / "other"),
        (node.spool / ".jobs" / f"4711.{node.uid}.0").read_text,
    ]
    assert as_user(node.uid, lambda: error_names(user_acts)) == ["PermissionError"] * 3


# ---- opt-in


def test_nobody_opted_in(node: Node) -> None:
    node.optin.unlink()
    played = node.run(*python("import os; print(os.isatty(1))"))
    assert (played.out, played.captured(), node.names()) == (b"False\n", [False], [])
    wait_until(lambda: not node.processes(KEEPER), "the keeper ends")
    assert [path.name for path in (node.spool / ".jobs").glob("[!.]*")] == [f"4711.{node.uid}.0"]


def test_decision_stands(node: Node) -> None:
    """The first step decides per job and restart. Later steps follow it, regardless of changes to
    the file."""
    assert node.run("true", words=("step=0",)).captured() == [True]
    node.optin.unlink()
    assert node.run("true", words=("step=1",)).captured() == [True]
    assert node.run("true", words=("step=0", "restarts=1")).captured() == [False]
    node.opt_in()
    assert node.run("true", words=("step=1", "restarts=1")).captured() == [False]
    assert node.run("true", words=("step=0", "restarts=2")).captured() == [True]


def test_restarts_that_only_the_task_knows(node: Node) -> None:
    """Under Slurm 22.05, slurmstepd does not know the restarts of a batch script. Each run of the
    job decides by itself."""
    assert node.run("true").captured() == [True]
    node.optin.unlink()
    assert node.run("true", words=("late_restarts=1",)).captured() == [False]
    node.opt_in()
    assert node.run("true", words=("late_restarts=2",)).captured() == [True]
    decisions = sorted((node.spool / ".jobs").glob(f"4711.{node.uid}.[0-9]"))
    assert [path.name.rpartition(".")[2] for path in decisions] == ["0", "1", "2"]
    wait_until(lambda: len(node.names()) == 2, "two captures")
    assert sorted(name.split(".")[0] for name in node.names()) == ["4711@1", "4711@3"]
    assert all(
        re.fullmatch(rf"4711@[13]\.[a-z][a-z2-9]{{{NAME_CHARS - 1}}}", name)
        for name in node.names()
    )


def test_first_decision_counts_for_all_tasks(node: Node) -> None:
    assert node.run("true", words=("tasks=8",)).captured() == [True] * 8
    assert [capture.identity["task"] for capture in node.logged(8)] == list(range(8))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"mode: everything\n", "is no mode"),
        (b"- a list\n", "a list"),
        (b"\xff\n", "UTF-8"),
        (b"mode: enabled\n" * 2, "stands twice"),
        (b"x" * (65 << 10), "over 64 KiB"),
    ],
)
def test_malformed_file_starts_disabled(node: Node, content: bytes, problem: str) -> None:
    node.opt_in(content)
    played = node.run("echo", "a secret")
    assert (played.out, played.captured()) == (b"a secret\n", [True])
    [logged] = node.logged()
    assert (logged.lines(), logged.events()) == ([], ["config_refused"])
    assert problem in logged.records("event")[0]["message"]
    assert b"a secret" not in b"".join(
        path.read_bytes() for path in (logged.path / "segments").iterdir()
    )


def test_whole_64_kib_are_taken(node: Node) -> None:
    node.opt_in(b"# " + b"x" * ((64 << 10) - 3) + b"\n")
    node.run("echo", "out")
    assert node.logged()[0].lines() == [b"out"]


@pytest.mark.parametrize("kind", ["FIFO", "folder", "link"])
def test_file_that_is_none_starts_disabled(node: Node, kind: str) -> None:
    node.optin.unlink()
    if kind == "FIFO":
        os.mkfifo(node.optin)
    elif kind == "folder":
        node.optin.mkdir()
    else:
        node.optin.symlink_to("/proc/nonexistent")
    node.run("echo", "a secret")
    [logged] = node.logged()
    assert (logged.lines(), logged.events()) == ([], ["config_refused"])
    assert kind in logged.records("event")[0]["message"]


@needs_root
def test_file_of_another_user_is_not_read_by_root(node: Node) -> None:
    if node.uid == 0:
        pytest.skip("ordinary users can't run Python here")
    node.opt_in(b"mode: enabled\n")
    node.optin.chmod(0o600)
    node.run("echo", "a secret")
    assert node.logged()[0].lines() == []


@needs_root
def test_hung_home(node: Node) -> None:
    """The job runs without capture, and the task starts after 2 s. The hanging process holds
    nothing of the job, and later steps don't look again."""
    node.optin.unlink()
    with hung_folder(node.home):
        played = node.run("echo", "out")
        assert (played.code, played.out, played.captured()) == (0, b"out\n", [False])
        assert "~/.logoptin couldn't be looked at within 2 s" in played.messages()
        later = node.run("echo", "out")
        assert (later.captured(), later.messages()) == ([False], "")


def test_home_that_is_not_there(node: Node) -> None:
    assert node.run("true", words=("home=/nonexistent",)).captured() == [False]


def test_nested_and_interactive_steps_are_left_alone(node: Node) -> None:
    assert node.run("true", words=("nested=1", "job=1")).captured() == [False]
    assert node.run("true", words=("leave=1", "job=2")).captured() == [False]
    wait_until(lambda: not node.processes(KEEPER), "keepers end")
    node.opt_in(b"per_task: true\n")
    assert node.run("true", words=("nested=1", "job=3", "tasks=2")).captured() == [True, True]


@needs_root  # without user namespaces, an ordinary user's sidecar may see them
def test_how_a_task_was_started_is_known_where_that_is_asked_for(node: Node) -> None:
    """`context: true` reports the task's own program, not the daemon that forked it. The sidecar
    has its own user namespace, so it cannot read the task's folder and environment."""
    node.opt_in(b"context: true\n")
    go = node.folder / "go"
    words = python(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    played = node.start(*words, "--token=hunter2")

    def events() -> list[dict[str, Any]]:  # Any: JSON
        return [event for logged in node.readable() for event in logged.records("event")]

    wait_until(events, "the capture tells how its task was started")
    go.touch()
    assert played.finish().code == 0
    (event,) = events()
    assert event["command"] == [*words, "--token=***"]
    assert (event["cwd"], event["environment"]) == ("", {})
    assert event["cores"] == sorted(os.sched_getaffinity(0))


def test_terminal_is_left_alone(node: Node) -> None:
    """A task with a terminal, as by srun --pty."""
    master, slave = os.openpty()
    try:
        played = node.start(
            *python("import os; print(os.ttyname(1))"), stdin=slave, stdout=slave, stderr=slave
        )
        name = os.ttyname(slave)
        played.process.wait(20)
        assert played.captured() == [False]
        assert os.read(master, 100).strip() == name.encode()
    finally:
        os.close(master)
        os.close(slave)


# ---- modes of a job's captures


def test_later_capture_starts_no_wider_than_the_job(node: Node) -> None:
    node.run(
        "sh",
        "-c",
        """echo first; echo '/LOGCOMMAND {"mode":"disabled"}'; echo secret""",
        words=("step=0",),
    )
    node.logged(1)
    node.run("echo", "secret", words=("step=1",))
    later = next(capture for capture in node.logged(2) if capture.identity["step"] == "1")
    assert (later.lines(), later.events()) == ([], ["mode_inherited"])
    node.run("echo", "open", words=("job=5",))
    assert next(
        capture for capture in node.logged(3) if capture.identity["job_id"] == "5"
    ).lines() == [b"open"]


def test_wider_again_is_wider_for_later_ones(node: Node) -> None:
    code = """echo '/LOGCOMMAND {"mode":"disabled"}'; echo '/LOGCOMMAND {"mode":"enabled"}'"""
    node.run("sh", "-c", code, words=("step=0",))
    node.logged(1)
    node.run("echo", "open", words=("step=1",))
    assert next(
        capture for capture in node.logged(2) if capture.identity["step"] == "1"
    ).lines() == [b"open"]


# ---- memory


def test_valgrind_finds_nothing(node: Node, binaries: Path) -> None:
    """Valgrind checks memory and descriptors of keeper and relay from start to end, with two
    tasks."""
    if not shutil.which("valgrind"):
        gate.lacking("valgrind isn't installed")
    log = node.folder / "valgrind"
    log.mkdir()
    log.chmod(0o1777)
    options = f"-q --trace-children=no --error-exitcode=99 --leak-check=full --log-file={log}/%p"
    node.keeper = node.script(
        "keeper", f'exec valgrind {options} {binaries / "logshipper-keeper"} "$@"'
    )
    played = node.start(*python(BOTH), words=("tasks=2",))
    played.finish()
    assert played.captured() == [True, True]
    logged = node.logged(2)
    assert [len(capture.lines(Stream.STDERR)) for capture in logged] == [1000, 1000]
    # lines with a leading `--` report system calls that this valgrind does not know
    findings = [
        line
        for path in log.iterdir()
        for line in path.read_text().splitlines()
        if not line.startswith("--")
    ]
    assert findings == []
