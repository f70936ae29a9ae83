"""The per-user agent: detached, one per store, with low priority, patient. Also its
`logshipper-agent` commands."""

import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper import background
from logshipper.spool.segment import Stream
from logshipper_ingest.agent import user_agent
from logshipper_ingest.agent.user_agent import AgentLog, ingest_until_idle, serve, take_lock
from logshipper_ingest.agent_start import LOCK_FILE, running_agent, start
from logshipper_ingest.cli import main
from logshipper_ingest.model.job import IngestOutcome
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import CaptureWriter, age, make_capture
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled, wait_until

BOTH = (Stream.STDOUT, Stream.STDERR)
WAIT_SECS = scaled(30.0)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Yield a store's folder, and end any agent that still works on it."""
    root = tmp_path / "store"
    with LocalStore(str(root), create=True):
        pass
    yield root
    agent = running_agent(str(root))
    if agent:
        os.kill(agent, signal.SIGTERM)
        wait_until(lambda: running_agent(str(root)) is None, "the agent's end")


@pytest.fixture
def spool(root: Path) -> Path:
    return root / "spool"


def texts(root: Path, job_id: str = "k3f9x2") -> list[str]:
    with LocalStore(str(root)) as store:
        if not any(job.job_id == job_id for job in store.jobs()):
            return []
        return [line.text for line in store.open(job_id).lines(streams=BOTH)]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


# ---- the daemon


def test_the_daemon_follows_a_job_holding_nothing_of_whoever_started_it(
    root: Path, spool: Path, tmp_path: Path
) -> None:
    with CaptureWriter(spool, start_ns=time.time_ns()) as capture, (tmp_path / "open").open("w"):
        capture.start()
        start(str(root))
        wait_until(lambda: running_agent(str(root)), "the agent's lock")
        pid = running_agent(str(root))
        assert pid
        wait_until(lambda: status_of(pid)["Name"], "its status")
        for number in range(2):
            capture.lines([f"line {number}"])
            wait_until(lambda: len(texts(root)) == number + 1, f"line {number} in the store")  # noqa: B023  called at once
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        assert int(stat[1]) != os.getpid()  # parent
        assert int(stat[3]) != os.getsid(0)  # session
        assert int(stat[16]) >= background.NICE
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        open_files = {
            Path(f"/proc/{pid}/fd/{fd}").readlink()
            for fd in os.listdir(f"/proc/{pid}/fd")
            if fd in ("0", "1", "2")
        }
        assert open_files == {Path("/dev/null"), root / "agent.log"}
        targets = [
            os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd") if entry.is_symlink()
        ]
        assert not [
            name
            for name in targets
            if name.endswith("/open") or name.startswith(("pipe:", "/dev/pts"))
        ]
        capture.lines(["the last line"])
        capture.end()
        capture.close()
    wait_until(lambda: not list(spool.iterdir()), "an empty spool")
    assert texts(root) == ["line 0", "line 1", "the last line"]


def test_whoever_waits_for_the_output_of_the_starter_does_not_wait_for_the_agent(
    root: Path, spool: Path
) -> None:
    code = (
        "import sys; from logshipper_ingest.agent_start import start; "
        "print('started', flush=True); start(sys.argv[1])"
    )
    with CaptureWriter(spool):  # a living capture keeps the agent running
        result = subprocess.run(
            [sys.executable, "-c", code, str(root)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WAIT_SECS,
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, "started\n", "")
        wait_until(lambda: running_agent(str(root)), "the agent's lock")


def test_modules_in_the_caller_s_folder_are_not_taken_for_its_own(
    root: Path, spool: Path, tmp_path: Path
) -> None:
    for name in ("json.py", "select.py", "ingest.py", "sqlite3.py"):
        (tmp_path / name).write_text("raise SystemExit('hijacked')\n")
    with CaptureWriter(spool):
        working_folder = Path.cwd()
        os.chdir(tmp_path)
        try:
            start(str(root))
        finally:
            os.chdir(working_folder)
        wait_until(lambda: running_agent(str(root)), "the agent's lock")


def test_run_as_a_module_it_ends_when_idle_and_a_second_one_at_once(
    root: Path, spool: Path
) -> None:
    command = [sys.executable, "-m", "logshipper_ingest.agent", str(root)]
    with CaptureWriter(spool) as capture:
        first = subprocess.Popen([*command, "0"], cwd=ROOT)
        wait_until(lambda: running_agent(str(root)) == first.pid, "the first agent's lock")
        second = subprocess.run([*command, "3600"], cwd=ROOT, timeout=WAIT_SECS)
        assert second.returncode == 0
        assert running_agent(str(root)) == first.pid
        capture.lines(["one"])
        capture.close()
    assert first.wait(WAIT_SECS) == 0
    assert texts(root) == ["one"]


def test_none_is_started_where_one_is_at_work(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each capture asks for an agent twice: after two seconds, and at its end."""
    lock = take_lock(str(root))
    assert lock is not None
    try:
        monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process is started"))
        start(str(root))
    finally:
        os.close(lock)
        monkeypatch.undo()
    with CaptureWriter(spool):
        start(str(root))
        wait_until(lambda: running_agent(str(root)), "the agent's lock")


def test_who_only_looks_for_an_agent_keeps_none_from_beginning(root: Path) -> None:
    with (root / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(user_agent._RETRY_SECS, file.close).start()
        lock = take_lock(str(root))
    assert lock is not None
    os.close(lock)


def test_killed_at_any_time_it_does_no_harm(root: Path, spool: Path) -> None:
    with CaptureWriter(spool) as capture:
        for number in range(3):
            start(str(root))
            wait_until(lambda: running_agent(str(root)), "the agent's lock")
            capture.lines([f"line {number}"])
            os.kill(running_agent(str(root)) or 0, signal.SIGKILL)
            wait_until(lambda: running_agent(str(root)) is None, "the agent's death")
        capture.close()
    with LocalStore(str(root)) as store:
        assert store.ingest() == IngestOutcome(True, [])
    assert texts(root) == ["line 0", "line 1", "line 2"]


def test_starts_light() -> None:
    code = "import sys, logshipper_ingest.agent.user_agent; print(' '.join(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {
        "requests",
        "urllib3",
        "rich",
        "yaml",
        "click",
        "prometheus_client",
        "plotext",
        "numpy",
        "matplotlib",
        "asyncio",
    }
    assert heavy.isdisjoint(result.stdout.split())


# ---- the loop, with a clock of the test's own


class Clock:
    """Replaces `time` for the agent. Time passes only in pauses; `later` holds the actions of the
    next pauses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.later: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, secs: float) -> None:
        assert len(self.pauses) < 500, "the agent doesn't end"
        self.now += secs
        self.pauses.append(secs)
        if self.later:
            self.later.pop(0)()


def run_agent(root: Path, clock: Clock) -> list[str]:
    messages: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_agent, "time", clock)
        ingest_until_idle(str(root), messages.append, 10.0)
    return messages


def ingestions(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[float]:
    """Return a list that gets the time of each ingestion."""
    times: list[float] = []
    ingest = LocalStore.ingest

    def count(store: LocalStore, **_: object) -> IngestOutcome:
        times.append(clock.now)
        return ingest(store)

    monkeypatch.setattr(LocalStore, "ingest", count)
    return times


def test_ends_when_nothing_has_been_there_for_a_while(root: Path) -> None:
    clock = Clock()
    assert run_agent(root, clock) == []
    assert 10 <= sum(clock.pauses) < 14
    assert set(clock.pauses) == {user_agent.LOOK_SECS}


def test_stays_while_a_capture_lives_and_ingests_small_growth_seldom(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    taken_at = ingestions(monkeypatch, clock)
    capture = CaptureWriter(spool)
    with capture:
        clock.later = [lambda: capture.lines(["x"])] * 30 + [lambda: None] * 100
        clock.later += [capture.close, capture.die]
        run_agent(root, clock)
    assert len(clock.pauses) > 130
    assert len(taken_at) < 40
    pauses = [later - earlier for earlier, later in itertools.pairwise(taken_at)]
    # all but the last ones, at the capture's end
    assert min(pauses[:-2]) >= user_agent.LAZY_SECS
    assert len(taken_at) >= 30 * user_agent.LOOK_SECS / (user_agent.LAZY_SECS + 2)
    assert len(texts(root)) == 30


def test_large_growth_and_ends_are_ingested_at_the_next_look(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    taken_at = ingestions(monkeypatch, clock)
    large = ["x" * 1000] * (user_agent.MUCH_BYTES // 1000 + 1)
    with CaptureWriter(spool) as capture:
        clock.later = [lambda: capture.lines(large), lambda: None, capture.close, capture.die]
        begin = clock.now
        run_agent(root, clock)
    looks = [(at - begin) / user_agent.LOOK_SECS for at in taken_at]
    assert looks[:3] == [0, 1, 4]
    assert len(texts(root)) == len(large)


def test_one_bad_capture_stops_no_other_is_said_once_and_given_up_in_the_end(
    root: Path, spool: Path
) -> None:
    bad = make_capture(spool, "bad111")
    (bad.path / "identity.json").write_text("[]")
    age(bad.path, 3600)
    make_capture(spool, "good1")
    clock = Clock()
    messages = run_agent(root, clock)
    assert len(messages) == 1
    assert "bad111" in messages[0]
    assert texts(root, "good1") == ["one", "two"]
    assert user_agent.STUCK_SECS <= sum(clock.pauses) < user_agent.STUCK_SECS + 10


def test_a_capture_that_begins_as_the_agent_ends_is_not_left_alone(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture's own agent ended at once, since it found the lock still held."""
    runs: list[int] = []

    def run(*_: object) -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            make_capture(spool, "late22").__enter__()
        else:
            os.rename(spool / "late22@1.aaaa", spool / ".gone")

    monkeypatch.setattr(user_agent, "ingest_until_idle", run)
    assert serve(str(root), lambda problem: None)
    assert runs == [0, 1]


# ---- its log


def test_the_log_has_a_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_agent, "MAX_LOG_BYTES", 1000)
    log = AgentLog(str(root))
    for number in range(200):
        log(f"problem {number} \udcff\n")
    assert sum(path.stat().st_size for path in root.glob("agent.log*")) < 2500
    assert "problem 199" in (root / "agent.log").read_text()


def test_a_log_that_cannot_be_written_stops_nothing(root: Path) -> None:
    (root / "agent.log").mkdir()
    AgentLog(str(root))("problem")


# ---- logshipper-agent


def test_status_shows_what_is_spooled_and_ingested(
    root: Path, spool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_capture(spool, "done11", name="eval.py")
    with LocalStore(str(root)) as store:
        store.ingest()
    with CaptureWriter(spool, "runs22") as capture:
        capture.lines(["one"])
        assert main(["status", "--store", str(root), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert main(["status", "--store", str(root)]) == 0
        text = capsys.readouterr().out
        assert capture.segment.exists()  # nothing was ingested
    assert document["schema"] == "logshipper-agent.status/1"
    assert document["agent_pid"] is None
    runs, done = document["jobs"]
    assert (runs["job_id"], runs["state"], runs["captures_alive"]) == ("runs22", "NOT INGESTED", 1)
    assert runs["spooled_bytes"] == capture.segment.stat().st_size
    assert (done["job_id"], done["state"], done["lines"], done["captures_spooled"]) == (
        "done11",
        "COMPLETED",
        2,
        0,
    )
    assert re.search(r"runs22 .*1 \(1 alive\)", text)
    assert "eval.py" in text


def test_run_takes_in_and_ends(root: Path, spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capture(spool)
    assert main(["run", "--store", str(root), "--idle-secs", "0"]) == 0
    assert texts(root) == ["one", "two"]
    lock = take_lock(str(root))
    assert lock is not None
    assert main(["run", "--store", str(root), "--idle-secs", "0"]) == 1
    assert "another agent" in capsys.readouterr().err
    assert main(["status", "--store", str(root)]) == 0
    assert f"at work (process {os.getpid()})" in capsys.readouterr().out
    os.close(lock)


def test_errors_and_help_are_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--store", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith(
        f"logshipper-agent: {tmp_path}/none: there is no store here yet"
    )
    for arguments in (["--help"], ["status", "--help"], ["run", "--help"]):
        with pytest.raises(SystemExit) as done:
            main(arguments)
        assert done.value.code == 0
        assert "examples:" in capsys.readouterr().out
    with pytest.raises(SystemExit) as wrong:
        main(["nonsense"])
    assert wrong.value.code == 2
