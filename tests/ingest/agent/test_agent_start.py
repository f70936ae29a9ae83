"""Start and end of the node agent under faults: one line names the option, and nothing stays
behind. No signal or lost terminal does harm."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper.errors import LogshipperError
from logshipper_ingest.agent.node_agent import NodeAgent as InProcess
from logshipper_ingest.agent_start import running_agent
from logshipper_ingest.config import agent_config
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.other_users import ANN, needs_root, ordinary_python
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.sources import ROOT, SOURCES
from tests.tools.stores.node_agents import NodeAgent
from tests.tools.waiting import scaled

NOWHERE = "http://127.0.0.1:1"
START_SECS = scaled(5.0)  # usually half a second
A_LITTLE_SECS = scaled(3.0)


def make_folder(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)  # regardless of the umask


def run(agent: NodeAgent) -> "subprocess.CompletedProcess[str]":
    return agent.call("run")


def is_free(agent: NodeAgent) -> bool:
    """Whether no process holds the lock of its state_dir."""
    if not (agent.state / "agent.lock").is_file():
        return True
    with (agent.state / "agent.lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


# ---- faults: each function makes one in the agent's folder, and returns the begin of the agent's
# line


def spool_is_open(agent: NodeAgent) -> str:
    make_folder(agent.spool, 0o777)
    remedy = "run `chmod 711` on it: users may enter, not list or write"
    return f"{agent.spool}: has mode 0777; {remedy} ([agent] spool_dir)"


def spool_is_a_file(agent: NodeAgent) -> str:
    agent.spool.touch()
    return f"{agent.spool}: must be a folder, not a link or file; change [agent] spool_dir"


def spool_cannot_be_made(agent: NodeAgent) -> str:
    agent.config.write_text(
        agent.config.read_text().replace(f"{agent.spool}", "/proc/nothing/spool")
    )
    return "/proc/nothing: no such file or directory; choose another folder in [agent] spool_dir"


def state_is_open(agent: NodeAgent) -> str:
    make_folder(agent.state, 0o777)
    return f"{agent.state}: may be written by others; run `chmod go-w` on it, or choose another with [agent] state_dir"


def state_is_a_file(agent: NodeAgent) -> str:
    agent.state.touch()
    return f"{agent.state}: isn't a folder; choose another in [agent] state_dir"


def state_cannot_be_made(agent: NodeAgent) -> str:
    agent.config.write_text(
        agent.config.read_text().replace(f"{agent.state}", "/proc/nothing/state")
    )
    return "/proc/nothing: no such file or directory; choose another place with [agent] state_dir"


def lock_is_a_folder(agent: NodeAgent) -> str:
    make_folder(agent.state, 0o700)
    (agent.state / "agent.lock").mkdir()
    return f"{agent.state}/agent.lock: is a directory; [agent] state_dir sets its folder"


def state_is_damaged(agent: NodeAgent) -> str:
    make_folder(agent.state, 0o700)
    (agent.state / "state.db").write_bytes(b"no database" * 100)
    return (
        f"{agent.state}/state.db: is damaged or half-written (file is not a database); move it away"
    )


def socket_is_a_file(agent: NodeAgent) -> str:
    agent.socket.touch()
    return (
        f"{agent.socket}: another agent listens there, or it isn't a "
        "socket; end or remove it, or name another ([agent]"
    )


def socket_folder_is_missing(agent: NodeAgent) -> str:
    agent.config.write_text(
        agent.config.read_text().replace(f"{agent.socket}", "/proc/nothing/agent.sock")
    )
    return "/proc/nothing/agent.sock: no such file or directory; change [agent] socket, or set it to none"


def socket_folder_is_a_file(agent: NodeAgent) -> str:
    (agent.folder / "file").touch()
    path = agent.folder / "file" / "agent.sock"
    agent.config.write_text(agent.config.read_text().replace(f"{agent.socket}", f"{path}"))
    return f"{path}: not a directory; change [agent] socket, or set it to none"


def address_is_not_ours(agent: NodeAgent) -> str:
    agent.config.write_text(agent.config.read_text().replace("127.0.0.1:0", "192.0.2.1:9310"))
    return "[metrics] listen: can't listen on 192.0.2.1:9310: cannot assign requested address; choose another address"


FAULTS = [spool_is_open, spool_is_a_file, spool_cannot_be_made, state_is_open, state_is_a_file, state_cannot_be_made,
          lock_is_a_folder, state_is_damaged, socket_is_a_file, socket_folder_is_missing, socket_folder_is_a_file,
          address_is_not_ours]  # fmt: skip


@pytest.fixture
def own_signals() -> Iterator[None]:
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(signo) for signo in signals]
    yield
    for signo, handler in zip(signals, before, strict=True):
        signal.signal(signo, handler)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_in_the_way_is_one_line_and_leaves_nothing(
    fault: Callable[[NodeAgent], str], tmp_path: Path, own_signals: None
) -> None:
    """Run the agent in this process: it leaves no thread, no descriptor and no lock."""
    agent = NodeAgent(tmp_path, NOWHERE, cluster="c")
    words = fault(agent)
    had_socket = agent.socket.exists()
    threads, fds = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    with pytest.raises(LogshipperError) as caught:
        InProcess(agent_config.load(str(agent.config)), lambda _: None).run()
    assert str(caught.value).startswith(words)
    assert len(str(caught.value).splitlines()) == 1
    # threads of other tests' servers may end meanwhile
    assert set(threading.enumerate()) <= threads
    assert set(os.listdir("/proc/self/fd")) <= fds
    assert agent.socket.exists() == had_socket
    assert is_free(agent)


@pytest.mark.parametrize("fault", [spool_cannot_be_made, socket_folder_is_missing])
def test_the_command_says_the_line_and_ends_with_1(
    fault: Callable[[NodeAgent], str], tmp_path: Path
) -> None:
    agent = NodeAgent(tmp_path, NOWHERE, cluster="c")
    words = fault(agent)
    begin = time.monotonic()
    ran = run(agent)
    assert time.monotonic() - begin < START_SECS
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"logshipper-agent: {words}")
    assert len(ran.stderr.splitlines()) == 1
    assert not agent.socket.exists()
    assert is_free(agent)


def test_one_that_nobody_has_set_up(tmp_path: Path) -> None:
    """systemd 239 has no ExecCondition, and would restart the agent every 5 s without this exit
    code."""
    agent = NodeAgent(tmp_path, "", cluster="c")
    unit = (ROOT / "deploy/systemd/logshipper-agent.service").read_text()
    ran = run(agent)
    assert f"RestartPreventExitStatus={ran.returncode}" in unit.splitlines()
    assert ran.stderr == (
        f"logshipper-agent: {agent.config}: [loki] url: is missing: where Loki is, such as http://loki.example.org:3100\n"
    )
    assert agent.call("validate").returncode == 1


def test_a_configuration_that_is_missing_or_wrong(tmp_path: Path) -> None:
    agent = NodeAgent(tmp_path, "", cluster="c", loki={"tennant": "x"})
    ran = run(agent)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines() == [
        f"logshipper-agent: {agent.config}: [loki] tennant: there is no such option; did you mean tenant?",
        f"logshipper-agent: {agent.config}: [loki] url: is missing: where Loki is, such as http://loki.example.org:3100",
    ]
    agent.config.unlink()
    ran = run(agent)
    assert (ran.returncode, ran.stderr) == (
        1,
        f"logshipper-agent: {agent.config}: can't be read: no such file or directory\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_port_of_metrics_that_somebody_else_has_stops_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port_holder:
        listen = f"127.0.0.1:{port_holder.getsockname()[1]}"
        with NodeAgent(tmp_path, NOWHERE, cluster="c", metrics={"listen": listen}) as agent:
            words = f"/metrics isn't served: [metrics] listen: can't listen on {listen}: address already in use"
            assert f"{words}; the agent tries again" in agent.log.read_text()
            assert agent.run("true").returncode == 0
            assert len(agent.captures()) == 1
            wait_until(
                lambda: agent.status()["metrics"] == {"listen": listen, "trouble": words},
                "status tells of it",
            )
            assert f"metrics  {words}\n" in agent.call("status").stdout
            port_holder.close()
            wait_until(lambda: agent.status()["metrics"]["trouble"] == "", "it is free")


def test_a_place_that_another_agent_has(tmp_path: Path) -> None:
    with NodeAgent(tmp_path / "first", NOWHERE, cluster="c") as first:
        again = run(first)
        assert again.returncode == 1
        assert "agent.lock: another agent uses this [agent] state_dir" in again.stderr
        second = run(
            NodeAgent(tmp_path / "other", NOWHERE, cluster="c", agent={"socket": str(first.socket)})
        )
        assert second.returncode == 1
        assert f"{first.socket}: another agent listens there" in second.stderr
        third = run(
            NodeAgent(
                tmp_path / "third", NOWHERE, cluster="c", agent={"spool_dir": str(first.spool)}
            )
        )
        assert third.returncode == 1
        assert f"{first.spool}: another agent uses this [agent] spool_dir" in third.stderr
        assert first.run("true").returncode == 0
        assert len(first.captures()) == 1
        assert first.stop() == 0
        assert not first.socket.exists()


@needs_root
@pytest.mark.parametrize("which", ["spool", "state", "above"])
def test_an_ordinary_user_with_the_folders_of_root(which: str, open_folder: Path) -> None:
    interpreter = ordinary_python()
    if interpreter is None:
        pytest.skip("ordinary users can't run a Python with the packages here")
    python, packages = interpreter
    agent = NodeAgent(open_folder / "node", NOWHERE, cluster="c")
    agent.config.chmod(0o644)
    make_folder(agent.spool, 0o711)
    make_folder(agent.state, 0o700)
    if which == "spool":
        os.chown(agent.state, ANN, ANN)
        words = f"{agent.spool}: permission denied; choose another folder in [agent] spool_dir"
    elif which == "state":
        os.chown(agent.spool, ANN, ANN)
        words = (
            f"{agent.state}: belongs to another user; choose one of your own with [agent] state_dir"
        )
    else:
        os.chown(agent.state, ANN, ANN)
        agent.spool.rmdir()
        words = f"{agent.spool}: permission denied; choose another folder in [agent] spool_dir"
    ran = subprocess.run(
        [python, "-P", "-m", "logshipper_ingest", "run", "--config", str(agent.config)],
        env={"PYTHONPATH": packages, "PATH": "/usr/bin:/bin"}, cwd="/", user=ANN, group=ANN, extra_groups=[],
        capture_output=True, text=True, timeout=TIMEOUT_SECS, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (1, f"logshipper-agent: {words}\n")


@needs_root
def test_root_with_the_folder_of_another_user(tmp_path: Path) -> None:
    agent = NodeAgent(tmp_path, NOWHERE, cluster="c")
    make_folder(agent.spool, 0o711)
    os.chown(agent.spool, ANN, ANN)
    ran = run(agent)
    words = f"{agent.spool}: belongs to uid {ANN}, not to the agent's, 0; choose another ([agent] spool_dir)"
    assert (ran.returncode, ran.stderr) == (1, f"logshipper-agent: {words}\n")


# ---- the end


def test_it_ends_in_time_while_loki_hangs(tmp_path: Path) -> None:
    """Loki accepts the connection and never answers."""
    hanging = FaultyServer(Said(hang=True))
    with (
        hanging as loki,
        NodeAgent(tmp_path, loki.url, cluster="c", loki={"timeout_secs": 1.0}) as agent,
    ):
        agent.run("echo", "a line")
        wait_until(lambda: loki.requests, "a push is under way")
        assert agent.process is not None
        begin = time.monotonic()
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            agent.process.send_signal(signo)
        assert agent.process.wait(TIMEOUT_SECS) == 0
        assert time.monotonic() - begin < 1.0 + A_LITTLE_SECS
        assert not agent.socket.exists()
        assert is_free(agent)
        assert len(agent.captures()) == 1


def test_a_signal_at_any_moment_of_its_end_does_no_harm(tmp_path: Path) -> None:
    with NodeAgent(tmp_path, NOWHERE, cluster="c") as agent:
        process = agent.process
        assert process is not None
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.0005)
        assert process.returncode == 0
        assert not agent.socket.exists()
    assert "Traceback" not in agent.log.read_text()


# ---- ways to start it


def start_by(agent: NodeAgent, shell: str) -> None:
    """Start the agent by a shell's line, where "$@" is its command; return when it is ready."""
    command = [
        "sh",
        "-c",
        shell,
        "sh",
        sys.executable,
        "-m",
        "logshipper_ingest",
        "run",
        "--config",
        str(agent.config),
    ]
    subprocess.run(
        command,
        cwd=agent.folder,
        env={**os.environ, "PYTHONPATH": SOURCES},
        check=True,
        timeout=TIMEOUT_SECS,
    )
    wait_until(agent.socket.exists, "the agent is ready")


@pytest.mark.parametrize(
    ("shell", "hears"),
    [
        ('nohup "$@" >agent.log 2>&1 </dev/null &', True),
        ('"$@" <&- >&- 2>&- &', False),
        ('"$@" </dev/null 2>&1 >&- | true &', False),
    ],
)
def test_whatever_its_descriptors_are(shell: str, hears: bool, tmp_path: Path) -> None:
    """The shell ends before the agent, and maybe nobody reads the agent's output."""
    with FaultyServer(Said(503)) as loki:
        agent = NodeAgent(tmp_path, loki.url, cluster="c")
        agent.log.touch()
        start_by(agent, shell)
        pid = running_agent(str(agent.state))
        assert pid
        try:
            for fd in (0, 1, 2):
                assert not os.readlink(f"/proc/{pid}/fd/{fd}").startswith(str(agent.state))
            os.kill(pid, signal.SIGHUP)  # like the loss of its terminal
            assert agent.run("echo", "a line").returncode == 0
            wait_until(lambda: len(loki.requests) > 3, "it tries again, and says so")
            loki.answer(Said(204))
            wait_until(lambda: agent.status()["jobs"][0]["entries"], "its lines are taken")
        finally:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: is_free(agent) and not agent.socket.exists(), "it has ended")
    if hears:
        assert "HTTP 503" in agent.log.read_text()
        assert "Traceback" not in agent.log.read_text()
