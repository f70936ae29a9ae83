"""`logshipper run` from end to end: the log, unchanged output, and faults (R1-R31)."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper_ingest.agent.job_socket import JobSocket
from logshipper_ingest.config.agent_config import AgentSection
from tests.tools.captures.captured_runs import Home, kill, sidecar_of, wait_until
from tests.tools.waiting import scaled


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# ---- the plain case


def test_a_run_and_its_reading(home: Home) -> None:
    """R8, R10: every byte reaches the output and the log. All output is readable right after `run`
    has returned."""
    done = home.run(
        "sh",
        "-c",
        'printf \'a\\n\\033[31mred\\033[0m\\n{"epoch": 1, "loss": 0.5}\\n\'; echo e >&2; exit 3',
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        b'a\n\x1b[31mred\x1b[0m\n{"epoch": 1, "loss": 0.5}\n',
        b"e\n",
    )
    job = home.show()
    assert (job["state"], job["exit_code"], job["signal"]) == ("FAILED", 3, 0)
    assert job["x_axis"]["key"] == "epoch"
    assert home.logs("last", "--stream", "stdout") == ["a", "red", '{"epoch": 1, "loss": 0.5}']
    assert home.logs("last", "--stream", "stderr") == ["e"]
    assert job["ledger"]["stdout"]["read"] == 3
    assert home.captures() == []  # ingested, and removed from the spool


def test_names_ids_and_attempts(home: Home) -> None:
    """A reused --job-id is a new attempt."""
    for attempt in (1, 2):
        assert (
            home.run(
                "sh", "-c", f"echo try {attempt}", options=["--job-id", "night", "--name", "sweep"]
            ).returncode
            == 0
        )
    job = home.show("night")
    assert (job["job_id"], job["name"], job["attempts"]) == ("night", "sweep", 2)
    assert home.show("sweep")["job_id"] == "night"
    bad = home.run("true", options=["--job-id", "a/b"])
    assert bad.returncode == 125
    assert b"--job-id: 'a/b' isn't a job id" in bad.stderr


def test_the_token_of_the_environment_tells_the_job(home: Home) -> None:
    done = home.run("sh", "-c", "echo $LOGSHIPPER_JOB_ID", options=["--job-id", "x1"])
    assert done.stdout == b"x1\n"


@pytest.mark.parametrize("mode", ["metadata", "disabled"])
def test_mode_option(home: Home, mode: str) -> None:
    """R9, R10: spool and store contain nothing else."""
    done = home.run(
        "sh",
        "-c",
        "echo hush-hush; echo '{\"a\": 1}'; echo hush-hush >&2",
        options=["--mode", mode],
    )
    assert done.stdout == b'hush-hush\n{"a": 1}\n'
    assert home.logs() == (['{"a": 1}'] if mode == "metadata" else [])
    assert b"hush" not in home.stored_bytes()


def test_a_token_between_commands_is_never_kept(home: Home) -> None:
    """R11, R16, R17, in a real run, in the middle of a bar."""
    script = (
        "printf '\\r 10%%|#   |'; printf '\\n/LOGCOMMAND {\"mode\":\"disabled\"}\\n'; "
        "printf 'token-4711\\ntoken-4711\\n'; printf 'half token-4711'; "
        'printf \'\\r/LOGCOMMAND {"mode":"enabled"}\\n\'; echo after'
    )
    done = home.run("sh", "-c", script)
    assert b"token-4711" in done.stdout
    assert b"token-4711" not in home.stored_bytes()
    assert home.logs()[-1] == "after"


# ---- ~/.logoptin

MALFORMED = {
    "not YAML": b"mode: [",
    "a list": b"- enabled\n",
    "unknown key": b"verbosity: 9\n",
    "mode: off": b"mode: off\n",
    "alias bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nmode: enabled\n",
    "65 KiB": b"# " + b"x" * (65 << 10) + b"\n",
    "not UTF-8": b"mode: \xff\xfe\n",
}


def _check_fails_closed(home: Home) -> None:
    done = home.run("sh", "-c", "echo hush-hush; echo '{\"hush\": 1}'; exit 4")
    assert (done.returncode, done.stdout) == (4, b'hush-hush\n{"hush": 1}\n')
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"logshipper: ~/.logoptin: ")
    assert b"logshipper check" in done.stderr
    job = home.show()
    assert [event["event"] for event in job["events"]] == ["config_refused"]
    assert job["mode"] == "disabled"
    assert b"hush" not in home.stored_bytes()
    checked = home.call("check")
    assert checked.returncode == 1
    assert b"is refused" in checked.stdout


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_fails_closed(home: Home, name: str) -> None:
    """R13: the job runs untouched, capture starts as disabled, and one event gives the reason."""
    home.opt_in(MALFORMED[name])
    _check_fails_closed(home)


@pytest.mark.parametrize("kind", ["folder", "FIFO", "dangling link", "looping link", "unreadable"])
def test_what_is_no_file_fails_closed(home: Home, kind: str) -> None:
    """R13."""
    path = home.folder / ".logoptin"
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "unreadable":
        if os.getuid() == 0:
            pytest.skip("root may read anything; runs as an ordinary user")
        path.touch(0)
    else:
        path.symlink_to(path if kind == "looping link" else home.folder / "nowhere")
    _check_fails_closed(home)


def test_enabling_after_a_refused_file(home: Home) -> None:
    """R13: mode disabled still listens for commands."""
    home.opt_in(b"mode: off\n")
    home.run("sh", "-c", 'echo hush; echo \'/LOGCOMMAND {"mode":"enabled"}\'; echo public')
    assert home.logs() == ['/LOGCOMMAND {"mode":"enabled"}', "public"]


def test_the_file_is_the_configuration(home: Home) -> None:
    """R6. The command line takes precedence."""
    home.opt_in(b"mode: metadata\ntty: off\n")
    script = "import sys; print(sys.stdout.isatty()); print('{\"a\": 1}')"
    assert home.run(sys.executable, "-c", script).stdout.startswith(b"False")
    assert home.logs() == ['{"a": 1}']
    home.run(sys.executable, "-c", script, options=["--mode", "enabled"])
    assert home.logs() == ["False", '{"a": 1}']


def test_if_opted_in_without_the_file_is_no_capture(home: Home) -> None:
    """R1, R2: CMD replaces logshipper by exec, and logshipper writes nothing anywhere."""
    process = home.start("run", "--if-opted-in", "--", "sh", "-c", "echo $$; exit 5")
    out, err = process.communicate(timeout=scaled(60))
    assert (process.returncode, int(out), err) == (5, process.pid, b"")
    assert not home.store.exists()
    assert home.call("run", "--if-opted-in", "--", "no-such-command").returncode == 127
    assert home.call("run", "--if-opted-in", "--", "/etc/passwd").returncode == 126
    assert home.call("run", "--if-opted-in", "--").returncode == 125


def test_if_opted_in_with_the_file(home: Home) -> None:
    home.opt_in()
    assert home.run("echo", "hi", options=["--if-opted-in"]).stdout == b"hi\n"
    assert home.logs() == ["hi"]


def test_check(home: Home) -> None:
    """R4: every instruction for opting in warns."""
    for content in (None, b"", b"mode: metadata\n"):
        if content is not None:
            home.opt_in(content)
        checked = home.call("check")
        assert checked.returncode == 0
        assert b"print no passwords" in checked.stdout
    assert b"only metadata is logged" in checked.stdout
    document = home.call("check", "--json").stdout
    assert b'"mode": "metadata"' in document


def test_check_explains_corrections(home: Home) -> None:
    home.opt_in(b"metadata: [json]\nignore: ['time*']\nrename: {lm loss: loss, loss avg: loss}\n")
    explained = home.call("check").stdout.decode()
    assert "ignore: series have no key `time*`" in explained
    assert "rename: series rename `lm loss` to `loss`, `loss avg` to `loss`" in explained
    assert "several keys become `loss`: in one record the first key gets it" in explained
    assert "without effect: `metadata` lacks `auto`" in explained
    document = json.loads(home.call("check", "--json").stdout)
    assert document["config"]["rename"] == {"lm loss": "loss", "loss avg": "loss"}
    home.opt_in(b"ignore: ['time*']\n")
    assert "without effect" not in home.call("check").stdout.decode()
    home.opt_in(b"ignore: time\n")
    done = home.run("sh", "-c", "echo runs on")
    assert (done.returncode, done.stdout.split()) == (0, [b"runs", b"on"])
    assert b".logoptin: ignore: `time` is no list; write" in done.stderr


def test_a_run_corrects_its_series(home: Home) -> None:
    home.opt_in(b"metadata: [json, auto]\nignore: ['time*']\nrename: {lm loss: loss}\n")
    home.run("sh", "-c", "for n in 1 2 3 4; do echo step $n lm loss: 0.$n time: 1.$n; done")
    home.await_known()
    table = home.call("metadata", "last", "--format", "jsonl").stdout
    assert [json.loads(line) for line in table.splitlines()] == [
        {"step": n, "loss": n / 10} for n in range(1, 5)
    ]


# ---- CMD that can't run or prints oddly


@pytest.mark.parametrize(
    ("command", "code"),
    [(["no-such-command"], 127), (["/etc/passwd"], 126), (["/etc"], 126), (["/no/such/file"], 127)],
)
def test_no_command(home: Home, command: list[str], code: int) -> None:
    """Exit codes are those of `env`, and nothing remains in the store."""
    done = home.run(*command)
    assert done.returncode == code
    assert done.stderr.startswith(f"logshipper: {command[0]}: ".encode())
    assert home.call("ls", "--json").stdout.count(b"job_id") == 0
    assert not [
        name for name in os.listdir(home.store / "spool") if not name.startswith(".")
    ]  # and none appears later


@pytest.mark.parametrize(
    "words",
    [["logshipper", "-h"], ["logshipper"], ["logshipper", "ls", "--help"], ["logshipper", "run", "--help"],
     ["logshipper_ingest", "--help"], ["logshipper_ingest", "run", "--help"],
     ["logshipper_grafana", "apply", "--help"]],
)  # fmt: skip
def test_help_that_nobody_reads_ends_without_a_word(words: list[str]) -> None:
    """`logshipper --help | head -1`, after head has ended."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", *words], stdout=write, stderr=subprocess.PIPE, timeout=scaled(60)
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_what_stands_in_the_wrong_place(home: Home) -> None:
    process = home.call("--store", "x", "ls")
    assert (process.returncode, b"as in `logshipper ls --store ...`" in process.stderr) == (2, True)
    process = home.call("check", "nosuch.yaml")
    assert (process.returncode, b"nosuch.yaml: there is no such file" in process.stderr) == (
        1,
        True,
    )


def test_wrong_options(home: Home) -> None:
    for words in (["--mode", "loud", "--", "true"], ["--nosuch", "--", "true"], [], ["--name"]):
        done = home.call("run", *words)
        assert done.returncode == 125, words
        assert b"try `logshipper run --help`" in done.stderr
    assert b"did you mean `show`" in home.call("shwo").stderr
    assert home.call("shwo").returncode == 2


def test_prints_nothing(home: Home) -> None:
    home.run("true")
    job = home.show()
    assert (job["state"], job["lines"], home.logs()) == ("COMPLETED", 0, [])


def test_closes_its_output(home: Home) -> None:
    done = home.run("sh", "-c", "echo a; exec >&-; exec 2>&-; exit 6")
    assert (done.returncode, done.stdout) == (6, b"a\n")
    assert home.logs() == ["a"]


def test_a_line_of_many_parts(home: Home) -> None:
    """R29: the line is split into parts marked part=i/n, and nothing is lost."""
    size = 30_000_000
    with (home.folder / "out").open("wb") as out:
        script = f"head -c {size} /dev/zero | tr '\\0' x; echo; echo after"
        assert home.run("sh", "-c", script, stdout=out).returncode == 0
    assert (home.folder / "out").stat().st_size == size + 7
    job = home.show()
    assert job["ledger"]["stdout"]["read"] == 2
    assert job["ledger"]["parts"] == (size - 1) // (4 << 20)
    logged = home.call("logs", "last").stdout
    assert logged.count(b"x") == size
    assert logged.endswith(b"after\n")


def test_ten_million_lines(home: Home) -> None:
    """R28: the job is slowed, not truncated."""
    with (home.folder / "out").open("wb") as out:
        assert home.run("seq", "10000000", stdout=out).returncode == 0
    job = home.show()
    assert job["ledger"]["stdout"]["stored"] == 10_000_000
    assert home.logs("last", "--tail", "2") == ["9999999", "10000000"]


def test_binary_noise(home: Home) -> None:
    """R29: the log replaces invalid bytes and never fails; the job's output stays unchanged."""
    noise = home.folder / "noise"
    noise.write_bytes(bytes(range(256)) * 200 + os.urandom(200_000))
    done = home.run("cat", str(noise))
    assert done.stdout == noise.read_bytes()
    assert home.show()["state"] == "COMPLETED"


def test_metadata_of_one_megabyte(home: Home) -> None:
    script = "import json; print(json.dumps({'a': 'x' * 1_000_000, 'b': 1}))"
    home.run(sys.executable, "-c", script)
    assert home.show()["records"] == 1


# ---- deaths


def test_the_sidecar_is_killed(home: Home) -> None:
    """CMD runs on with its own exit code, and one line on stderr reports the missing output. Lines
    never synced count as lost."""
    go = home.folder / "go"
    process = home.start(
        "run",
        "--",
        "sh",
        "-c",
        f"seq 1000; while [ ! -e {go} ]; do sleep 0.02; done; seq 1000; exit 7",
    )
    kill(sidecar_of(process.pid))
    go.touch()
    out, err = process.communicate(timeout=scaled(60))
    numbers = b"".join(b"%d\n" % number for number in range(1, 1001))
    assert (process.returncode, out) == (7, numbers * 2)
    assert err.count(b"\n") == 1
    assert err.startswith(b"logshipper: ")
    job = home.show()
    ledger = job["ledger"]["stdout"]
    assert ledger["read"] == ledger["stored"] + ledger["lost"] == 2000
    assert ledger["lost"] >= 1000
    assert (job["state"], job["exit_code"]) == ("FAILED", 7)
    assert "lines are missing" in job["captures"][0]["reason"]


def test_the_relay_is_killed(home: Home) -> None:
    """The death doesn't hurt the job, and the log goes on."""
    go, end = home.folder / "go", home.folder / "end"
    script = f"seq 1000; while [ ! -e {go} ]; do sleep 0.02; done; seq 1001 2000 && touch {end}"
    with (home.folder / "out").open("wb") as out:
        process = home.start("run", "--", "sh", "-c", script, stdout=out, stderr=subprocess.DEVNULL)
        sidecar_of(process.pid)
        wait_until(lambda: (home.folder / "out").stat().st_size == 3893, "the first half")
        kill(process.pid)
        process.wait()
        go.touch()
    wait_until(end.exists, "the job's own end: no write of it failed")
    home.await_known()
    wait_until(lambda: len(home.logs()) == 2000, "all lines in the log")
    assert (home.folder / "out").read_text().split() == [str(number) for number in range(1, 2001)]
    wait_until(lambda: home.show()["state"] == "FAILED", "the end of the capture")
    assert "killed" in home.show()["captures"][0]["reason"]


def test_a_child_left_behind_is_logged_on(home: Home) -> None:
    """`run` returns with CMD. The child keeps a working stdout, and its lines are logged."""
    go = home.folder / "go"
    script = f"(while [ ! -e {go} ]; do sleep 0.02; done; echo late) & echo early"
    with (home.folder / "out").open("wb") as out:
        assert home.run("sh", "-c", script, stdout=out, stderr=subprocess.DEVNULL).returncode == 0
    assert home.logs() == ["early"]
    assert home.show()["state"] == "COMPLETED"
    go.touch()
    wait_until(
        lambda: (home.folder / "out").read_bytes() == b"early\nlate\n",
        "the child's line in the output",
    )
    wait_until(lambda: home.logs() == ["early", "late"], "the child's line in the log")


@pytest.mark.parametrize(
    ("signo", "state"),
    [(signal.SIGTERM, "CANCELLED"), (signal.SIGKILL, "KILLED"), (signal.SIGSEGV, "FAILED")],
)
def test_cmd_dies_of_a_signal(home: Home, signo: int, state: str) -> None:
    done = home.run("sh", "-c", f"echo a; kill -{signo} $$")
    assert done.returncode == -signo
    job = home.show()
    assert job["signal"] == signo
    assert job["state"] == state
    assert ("perhaps out of memory: " in job["reason"]) == (state == "KILLED")


def test_a_shell_whose_program_was_killed(home: Home) -> None:
    done = home.run("sh", "-c", "sh -c 'kill -9 $$'; exit $?")
    assert done.returncode == 137
    job = home.show()
    assert (job["state"], job["exit_code"]) == ("FAILED", 137)
    assert job["reason"].startswith("perhaps out of memory: ")


def test_sigkill_after_sigterm_is_a_cancellation(home: Home) -> None:
    """Schedulers and people end unresponsive jobs this way."""
    script = "trap 'kill -9 $$' TERM; echo ready; while :; do sleep 0.05; done"
    with home.start("run", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        process.terminate()
        assert process.wait() == -signal.SIGKILL
    job = home.show()
    assert (job["state"], job["signal"], job["reason"]) == ("CANCELLED", 9, "")


# ---- broken stores


def _check_runs_without_a_log(home: Home, message: bytes) -> None:
    done = home.run("sh", "-c", "seq 2000; exit 9")
    assert done.returncode == 9
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 2001))
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert message in done.stderr


def test_a_store_that_is_a_file(home: Home) -> None:
    home.store.write_text("")
    _check_runs_without_a_log(home, b"isn't a folder")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere; runs as an ordinary user")
def test_a_read_only_store(home: Home) -> None:
    home.store.mkdir(mode=0o500)
    _check_runs_without_a_log(home, b"permission denied")


@pytest.fixture
def small_tmpfs(root_user: None, home: Home) -> Path:
    home.store.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "none", str(home.store)]
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    return home.store


def test_a_full_disk(home: Home, small_tmpfs: Path) -> None:
    """CMD runs on, and one line on stderr reports it. The log has the number of missing lines and
    the end."""
    try:
        done = home.run("seq", "200000")
        assert done.returncode == 0
        assert len(done.stdout.split()) == 200_000
        assert done.stderr.count(b"\n") == 1
        assert b"lines are missing from the log" in done.stderr
        assert b"no room left there" in done.stderr
        copy = home.folder / "copy"
        shutil.copytree(small_tmpfs, copy)
    finally:
        subprocess.run(["umount", str(small_tmpfs)], check=True)
    home.environment["LOGSHIPPER_STORE"] = str(copy)
    job = home.show()
    ledger = job["ledger"]["stdout"]
    assert job["state"] == "COMPLETED"
    assert ledger["lost"] > 0
    assert ledger["read"] == 200_000 == ledger["stored"] + ledger["lost"]
    assert "lines_lost" in [event["event"] for event in job["events"]]
    lines = home.logs()
    assert lines[:3] == ["1", "2", "3"]
    assert any("lines lost here" in line for line in lines)


def test_a_disk_that_is_full_from_the_start(home: Home, small_tmpfs: Path) -> None:
    try:
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={small_tmpfs / 'filler'}", "bs=4096"],
            stderr=subprocess.DEVNULL,
        )
        _check_runs_without_a_log(home, b"no room left")
    finally:
        subprocess.run(["umount", str(small_tmpfs)], check=True)


# ---- with the node's agent


class NodeAgent:
    """The socket of a node's agent, and a home without an explicit store whose runs find the
    socket."""

    def __init__(self, folder: Path) -> None:
        self.agent = AgentSection(spool_dir=str(folder / "node"), socket=str(folder / "agent.sock"))
        self.socket = JobSocket(self.agent, print)
        self.socket.start()
        self.home = Home(folder, agent=True)
        self.data = folder / "data"
        del self.home.environment["LOGSHIPPER_STORE"]
        self.home.environment |= {
            "LOGSHIPPER_AGENT_SOCKET": self.agent.socket,
            "XDG_DATA_HOME": str(self.data),
        }

    def segments(self) -> bytes:
        """Return the segments of the one capture in the node's spool."""
        (path,) = Path(self.agent.spool_dir).glob("[!.]*")
        return b"".join(file.read_bytes() for file in sorted((path / "segments").glob("*.seg")))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeAgent]:
    agent = NodeAgent(tmp_path)
    yield agent
    agent.socket.close()


def test_the_nodes_spool(node: NodeAgent) -> None:
    """The run is the same as without it. The node's agent ships the log, and no agent of the user
    starts."""
    script = "printf 'a\\n\\033[31mred\\033[0m\\n%s\\n' $LOGSHIPPER_JOB_ID; exit 3"  # one write, so one frame
    done = node.home.run("sh", "-c", script, options=["--job-id", "night"])
    job_id = b"night.u%d" % os.getuid()
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        b"a\n\x1b[31mred\x1b[0m\n" + job_id + b"\n",
        b"",
    )
    assert b"a\nred\n" + job_id in node.segments()
    assert b'"state":"FAILED"' in node.segments().replace(b'": ', b'":')
    assert not node.data.exists()
    assert node.home.run("true", options=["--job-id", "a/b"]).returncode == 125
    assert node.socket.capture_count == 1


def test_the_sidecar_of_the_nodes_spool_is_killed(node: NodeAgent) -> None:
    go = node.home.folder / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; seq 1000; exit 7"
    process = node.home.start("run", "--", "sh", "-c", script)
    kill(sidecar_of(process.pid))
    go.touch()
    out, err = process.communicate(timeout=scaled(60))
    assert (process.returncode, len(out.split()), err.count(b"\n")) == (7, 1000, 1)
    assert not node.data.exists()


def test_who_names_a_store_has_it_there(node: NodeAgent) -> None:
    node.home.environment["LOGSHIPPER_AGENT"] = "off"
    store = str(node.home.store)
    node.home.run("echo", "a", options=["--store", store])
    node.home.run("echo", "b", env={"LOGSHIPPER_STORE": store})
    assert (node.socket.capture_count, len(node.home.captures())) == (0, 2)


def _check_falls_back(node: NodeAgent, message: bytes) -> None:
    """Assert one line on stderr, the user's own store, and a running CMD."""
    node.home.environment["LOGSHIPPER_AGENT"] = "off"
    done = node.home.run("sh", "-c", "echo a; exit 9")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (
        9,
        b"a\n",
        1 if message else 0,
    ), done.stderr
    assert message in done.stderr
    assert node.socket.capture_count == 0
    assert node.home.logs() == ["a"]


def test_no_agent_on_the_node(node: NodeAgent) -> None:
    """No message appears, because most machines have no agent."""
    node.home.environment["LOGSHIPPER_AGENT_SOCKET"] = ""
    _check_falls_back(node, b"")
    node.home.environment["LOGSHIPPER_AGENT_SOCKET"] = str(node.home.folder / "none")
    _check_falls_back(node, b"")


def test_an_agent_that_is_dead(node: NodeAgent) -> None:
    path = str(node.home.folder / "dead")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(path)
    node.home.environment["LOGSHIPPER_AGENT_SOCKET"] = path
    _check_falls_back(
        node, b"connection refused; this run is kept in " + os.fsencode(node.data) + b"/logshipper"
    )


def test_an_agent_that_is_silent(node: NodeAgent) -> None:
    path = str(node.home.folder / "silent")
    node.home.environment["LOGSHIPPER_AGENT_SOCKET"] = path
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(path)
        silent.listen()
        begin = time.monotonic()
        _check_falls_back(node, b"didn't answer within 2 s; this run is kept in ")
        assert time.monotonic() - begin >= 2  # the agent had its full time to answer


def test_an_agent_that_refuses(node: NodeAgent) -> None:
    Path(node.agent.spool_dir).mkdir(mode=0o700)
    _check_falls_back(node, b"the node's agent refuses: ")


# ---- with the user's agent


def test_the_agent_takes_in(tmp_path: Path) -> None:
    """The agent runs by itself and holds nothing of the job, so `x=$(logshipper run ...)` doesn't
    hang."""
    home = Home(tmp_path, agent=True)
    assert home.run("sh", "-c", "echo a").stdout == b"a\n"
    wait_until(lambda: not home.captures(), "the agent has ingested and removed the capture")
    assert home.logs() == ["a"]


# ---- metadata that isn't JSON


PRINTS_PAIRS = "print('loss: 0.5'); print({'a': 1, 'who': 'ann'}); print('loss: 0.5', end='')"


def test_metadata_that_is_no_json(home: Home) -> None:
    """R18, R21: only on request of the file. The log has the lines in their printed form."""
    home.run(sys.executable, "-c", PRINTS_PAIRS)
    assert home.call("metadata", "last", "--json").stdout == b""
    home.opt_in(b"metadata: [json, dict, pairs]\n")
    home.run(sys.executable, "-c", PRINTS_PAIRS)
    assert home.logs() == ["loss: 0.5", "{'a': 1, 'who': 'ann'}", "loss: 0.5"]
    assert _records(home) == [
        ("pairs", {"loss": 0.5}),
        ("dict", {"a": 1}),
        ("pairs", {"loss": 0.5}),
    ]
    table = home.call("metadata", "last").stdout.decode().splitlines()
    assert table[0].split() == ["_time", "_attempt", "_origin", "loss", "a"]
    assert [line.split()[2] for line in table[1:]] == ["pairs", "dict", "pairs"]
    shown = home.show()
    assert (shown["records"], shown["lines"], shown["ledger"]["stdout"]["stored"]) == (3, 3, 3)


def test_metadata_that_is_no_json_in_mode_metadata(home: Home) -> None:
    """R9: only keys and numbers remain."""
    home.opt_in(b"mode: metadata\nmetadata: [json, dict, pairs]\n")
    home.run(sys.executable, "-c", PRINTS_PAIRS)
    assert home.logs() == ['{"loss": 0.5}', '{"a": 1}', '{"loss": 0.5}']
    assert [origin for origin, _ in _records(home)] == ["pairs", "dict", "pairs"]
    stored = b"".join(path.read_bytes() for path in home.store.rglob("*") if path.is_file())
    assert b"ann" not in stored


def test_a_pattern_that_stalls_is_switched_off(home: Home) -> None:
    """The job and the rest of its log go on."""
    home.opt_in(
        b"metadata: [json, {pattern: '(?P<a>[0-9]*)[0-9]*[0-9]*[0-9]*[0-9]*x', name: slow}]\n"
    )
    script = "print('12x'); print('1' * 2000); print('12x'); print('{\"b\": 1}')"
    assert home.run(sys.executable, "-c", script).returncode == 0
    assert _records(home) == [("slow", {"a": 12}), ("json", {"b": 1})]
    assert home.events() == ["metadata_pattern_off"]
    assert len(home.logs()) == 4


def test_a_refused_pattern_fails_closed(home: Home) -> None:
    """R13."""
    home.opt_in(b"metadata: [json, {pattern: '(?P<a>(a+)+)'}]\n")
    done = home.run("echo", "loss: 0.5")
    assert done.stdout == b"loss: 0.5\n"
    assert b"repeats what is itself repeated" in done.stderr
    assert home.logs() == []
    assert home.events() == ["config_refused"]
    assert home.call("check").returncode == 1


def _records(home: Home) -> list[tuple[str, object]]:
    """Return the origins and values of all records."""
    lines = home.call("metadata", "last", "--json").stdout.splitlines()
    return [(record["origin"], record["record"]) for record in map(json.loads, lines)]
