"""The socket that gives `logshipper run` its directory: answers, and limits for hostile clients.
Tests of the client's side are here as well."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import SpoolError
from logshipper.spool.captures import COUNTERS_BYTES
from logshipper.spool.place import Place
from logshipper.start import node_agent_socket
from logshipper_ingest.agent import job_socket
from logshipper_ingest.agent.job_socket import JobSocket, parse_request
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.sockets.peer import Peer, SchedulerJob, identify
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import ANN, BEN, Forked, as_user, needs_root, ordinary_python
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

ME = os.getuid()
PEER_SECS = 0.3


def section(folder: Path, **options: Any) -> AgentSection:  # Any: its fields
    run = folder / "run" / "agent.sock"
    return AgentSection(
        cluster="c1", host="n1", spool_dir=str(folder / "spool"), **{"socket": str(run), **options}
    )


def captures(agent: AgentSection) -> list[Path]:
    spool = Path(agent.spool_dir)
    return sorted(path for path in spool.glob("[!.]*")) if spool.exists() else []


def identity(path: Path | str) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = json.loads((Path(path) / "identity.json").read_bytes())
    return document


def connect(agent: AgentSection) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(30)
    try:
        connection.connect(agent.socket)
    except OSError:
        connection.close()
        raise
    return connection


def request(**fields: object) -> bytes:
    return json.dumps(
        {"version": 1, "name": "train.py", "job_id": None, "attempt": None, **fields}
    ).encode()


def ask(agent: AgentSection, data: bytes) -> dict[str, Any]:  # Any: JSON
    """Return the answer, or {} without one."""
    with connect(agent) as connection:
        connection.send(data)
        answer: dict[str, Any] = json.loads(connection.recv(65536) or b"{}")
        return answer


_patch = pytest.MonkeyPatch()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drop silent connections soon, and undo the servers' patches after the test."""
    monkeypatch.setattr(job_socket, "PEER_SECS", PEER_SECS)
    yield
    _patch.undo()


class Server:
    """A JobSocket in this process. messages: its lines; job: the scheduler's job of all peers."""

    def __init__(self, agent: AgentSection) -> None:
        self.agent = agent
        self.messages: list[str] = []
        self.job: SchedulerJob | None = None
        self.before: Callable[[], None] = lambda: None
        _patch.setattr(job_socket, "identify", self._identify_peer)
        self.socket = JobSocket(agent, self.messages.append)
        self.socket.start()

    def _identify_peer(self, connection: socket.socket, seen_ns: int) -> Peer:
        self.before()
        return identify(connection, seen_ns)._replace(job=self.job)

    def ask(self, **fields: object) -> dict[str, Any]:  # Any: JSON
        return ask(self.agent, request(**fields))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    agent_server = Server(section(tmp_path))
    yield agent_server
    agent_server.socket.close()


# ---- answers


def test_a_directory(server: Server) -> None:
    answer = server.ask()
    path = Path(answer["path"])
    assert captures(server.agent) == [path]
    assert stat.S_IMODE((path / "segments").stat().st_mode) == 0o700
    fields = identity(path)
    assert (fields["name"], fields["uid"], fields["step"], fields["task"], fields["attempt"]) == (
        "train.py",
        ME,
        "",
        0,
        1,
    )
    assert fields["job_id"] == answer["job_id"]
    assert not answer["job_id"].isdigit()
    assert server.ask()["job_id"] != answer["job_id"]
    wait_until(lambda: server.socket.capture_count == 2, "both are counted")
    assert (sum(server.socket.refusals.values()), server.messages) == (0, [])


def test_an_id_that_is_asked_for(server: Server) -> None:
    """A requested id becomes the user's own, even if it looks like another's or a scheduler's. The
    agent counts attempts."""
    ids = [
        (answer["job_id"], answer["attempt"])
        for answer in (server.ask(job_id="42") for _ in range(2))
    ]
    assert ids == [(f"42.u{ME}", 1), (f"42.u{ME}", 2)]
    assert server.ask(job_id="42", attempt=7)["attempt"] == 3
    assert server.ask(job_id="x.u77777")["job_id"] == f"x.u77777.u{ME}"
    again = server.ask(job_id=f"42.u{ME}")  # the form in `logshipper ls`
    assert (again["job_id"], again["attempt"]) == (f"42.u{ME}", 4)
    assert "at most 64 characters" in server.ask(job_id="x" * 64)["error"]


def test_in_a_schedulers_job(server: Server) -> None:
    """The job has the scheduler's id, even if the client asks for another one. Each run in a step
    becomes a step of its own."""
    server.job = SchedulerJob("4711", "batch", None)
    first, second = server.ask(job_id="1"), server.ask(job_id="4711")
    assert (first["job_id"], first["attempt"], first["step"], first["task"]) == (
        "4711",
        1,
        "batch.run1",
        0,
    )
    assert (second["job_id"], second["step"]) == ("4711", "batch.run2")
    assert server.ask(attempt=2)["step"] == "batch.run1"  # requeued
    server.job = SchedulerJob("4711", "0+1", 2)
    assert [
        (answer["step"], answer["task"])
        for answer in (server.ask(), server.ask(task=5), server.ask())
    ] == [
        ("0+1.run1", 2),
        ("0+1.run1", 5),  # the client's rank, since cgroups only count the node's tasks
        ("0+1.run2", 2),
    ]
    assert identity(first["path"])["job_id"] == "4711"


def test_names_that_forge_nothing(server: Server) -> None:
    fields = identity(server.ask(name='x","uid":0,"a":"\n\x1b[2J' + "é" * 300)["path"])
    assert fields["uid"] == ME
    assert fields["name"].startswith('x","uid":0,"a":"\ufffd\ufffd[2J')
    assert len(fields["name"]) == 256


def test_the_users_cap(tmp_path: Path) -> None:
    server = Server(section(tmp_path, max_captures_per_user=3))
    try:
        answers = [server.ask(job_id="a") for _ in range(5)]
        assert [answer.get("attempt") for answer in answers] == [1, 2, 3, None, None]
        assert "the limit per user is 3" in answers[4]["error"]
        assert len(captures(server.agent)) == 3
        assert server.socket.refusals["too_many_captures"] == 2
    finally:
        server.socket.close()


# ---- refusals

BAD = {
    "blanks": b"  ",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"1",
    "not UTF-8": b'{"version":1,"name":"\xff"}',
    "a lone surrogate": rb'{"version":1,"name":"\ud800"}',
    "no version": b'{"name":"x"}',
    "another version": request(version=2),
    "a version that is true": request(version=True),
    "no name": b'{"version":1}',
    "a name that is a number": request(name=1),
    "a path": request(job_id="../x"),
    "an absolute path": request(job_id="/etc/passwd"),
    "a line feed": request(job_id="a\nb"),
    "a null byte": request(job_id="a\0b"),
    "an empty id": request(job_id=""),
    "a capture's name": request(job_id="42@1.abcd"),
    "an id that is a number": request(job_id=1),
    "attempt 0": request(attempt=0),
    "attempt as text": request(attempt="1"),
    "attempt true": request(attempt=True),
    "a huge attempt": request(attempt=1 << 80),
    "task -1": request(task=-1),
    "too long": request(name="x" * 5000),
    "deep": b"[" * 4000,
    "many keys": b"{" + b",".join(b'"%d":1' % number for number in range(500)) + b"}",
}


@pytest.mark.parametrize("name", BAD)
def test_requests_that_are_none(name: str, server: Server) -> None:
    answer = ask(server.agent, BAD[name])
    assert list(answer) == ["error"]
    assert captures(server.agent) == []
    assert server.socket.refusals["malformed"] == 1
    assert len(server.messages) == 1
    assert f"uid {ME} gets no directory: " in server.messages[0]
    assert "path" in server.ask()


def test_a_request_of_a_megabyte(server: Server) -> None:
    with connect(server.agent) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        try:
            connection.send(request(name="x" * (1 << 20)))
            assert b"at most 4096 bytes" in connection.recv(65536)
        except OSError:
            pass  # the kernel refuses it, which is as good
    assert captures(server.agent) == []
    assert "path" in server.ask()


def test_any_bytes_are_a_request_or_a_sentence() -> None:
    for size in range(200):
        with pytest.raises(ValueError, match="request"):
            parse_request(os.urandom(size) + b"\xff")
    assert parse_request(request(job_id="a", more=[1])).job_id == "a"  # fields of a newer client


def test_silent_askers_keep_nobody_out(server: Server) -> None:
    """The agent drops silent clients in time, and many of them at once."""
    with ExitStack() as crowd:
        silent = [crowd.enter_context(connect(server.agent)) for _ in range(300)]
        start = time.monotonic()
        assert "path" in server.ask()
        assert time.monotonic() - start < scaled(PEER_SECS * 2)
        for connection in silent:
            assert b"error" in connection.recv(65536)
            assert connection.recv(1) == b""
    refusals = server.socket.refusals
    assert refusals["silent"] + refusals["crowded"] == 300
    assert len(server.messages) <= 4


def test_a_silent_crowd_is_dropped_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_socket, "PEER_SECS", 1000.0)
    patient = Server(section(tmp_path))
    try:
        with ExitStack() as crowd:
            for _ in range(300):
                crowd.enter_context(connect(patient.agent))
            assert "path" in patient.ask()
        assert patient.socket.refusals["crowded"] >= 300 - job_socket.MAX_CONNECTIONS
        assert patient.socket.refusals["silent"] == 0
    finally:
        patient.socket.close()


def test_a_crowd_that_asks(server: Server) -> None:
    """A slow agent gets more requests than it serves at once, and some clients stay silent. Each
    client gets its own answer."""
    busy, go = threading.Event(), threading.Event()

    def wait() -> None:
        busy.set()
        assert go.wait(30)

    server.before = wait
    with ExitStack() as crowd:
        asking = []
        for number in range(300):
            asking.append(crowd.enter_context(connect(server.agent)))
            if number <= job_socket.MAX_CONNECTIONS or number % 2:
                asking[-1].send(request())
            if number == 0:
                assert busy.wait(30)  # the others wait for accept()
        # all requests together take longer than a client may stay silent
        server.before = lambda: time.sleep(PEER_SECS / 100)
        go.set()
        answers = [json.loads(connection.recv(65536)) for connection in asking]
    errors = Counter(answer.get("error", "") for answer in answers)
    late = 300 - job_socket.MAX_CONNECTIONS - 1  # they replaced the first silent ones
    assert errors == {
        "": 300 - late - late // 2,
        "too many requests at once; try again": late,
        f"no request came within {PEER_SECS:g} s": late // 2,
    }
    assert len(captures(server.agent)) == errors[""]


def test_the_client_in_a_crowd(tmp_path: Path) -> None:
    """The agent refuses the client before its request, and the client reports the reason."""
    sentence = "too many requests at once; try again"
    with _listen(tmp_path / "s") as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.send(json.dumps({"error": sentence}).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        connect_at_once = node_agent_socket._connect

        def connect_and_wait(
            connection: Any, path: str, deadline: float
        ) -> None:  # Any: as `_socket` has it
            connect_at_once(connection, path, deadline)
            thread.join(30)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_agent_socket, "_connect", connect_and_wait)
            assert _client_says(tmp_path / "s") == f"the node's agent refuses: {sentence}"


def test_who_asks_too_often(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_socket, "BURST", 3)
    monkeypatch.setattr(job_socket, "REQUESTS_PER_SEC", 0.001)
    answers = [server.ask() for _ in range(5)]
    assert ["path" in answer for answer in answers] == [True] * 3 + [False] * 2
    assert "sends too many requests" in answers[4]["error"]
    assert len(captures(server.agent)) == 3


def test_the_allowance_fills_up() -> None:
    allowance = job_socket._Allowance()
    assert sum(allowance.take(5, 0.0) for _ in range(1000)) == job_socket.BURST
    assert allowance.take(6, 0.0)
    assert sum(allowance.take(5, 1.0) for _ in range(1000)) == job_socket.REQUESTS_PER_SEC


def test_lines_are_few(server: Server) -> None:
    for _ in range(50):
        ask(server.agent, b"x")
    assert server.socket.refusals["malformed"] == 50
    assert len(server.messages) == 1


def test_who_leaves_before_the_answer_has_no_directory(server: Server) -> None:
    departure = threading.Event()
    server.before = lambda: assert_true(departure.wait(30))
    with connect(server.agent) as connection:
        connection.send(request())
    departure.set()
    wait_until(lambda: server.socket.refusals["gone"], "the answer that nobody takes")
    wait_until(lambda: captures(server.agent) == [], "its directory is removed")


def assert_true(value: object) -> None:
    assert value


def test_a_fault_of_the_agent_is_one_refusal(server: Server) -> None:
    def fail() -> None:
        raise RuntimeError("by a test")

    server.before = fail
    assert "the agent failed: RuntimeError: by a test" in server.ask()["error"]
    server.before = lambda: None
    assert "path" in server.ask()


def test_a_spool_that_is_odd(server: Server) -> None:
    assert "path" in server.ask()
    Path(server.agent.spool_dir).chmod(0o777)
    assert "chmod 711" in server.ask()["error"]
    Path(server.agent.spool_dir).chmod(0o711)
    wait_until(lambda: not server.socket._unsynced, "nothing is to be done in the spool any more")
    shutil.rmtree(server.agent.spool_dir)
    assert "path" in server.ask()  # the agent has made it again


# ---- the socket's file


def test_modes_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_socket, "PEER_SECS", 1000.0)
    old = os.umask(0o077)
    try:
        server = Server(section(tmp_path))
    finally:
        os.umask(old)
    path = Path(server.agent.socket)
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (
        0o666,
        0o755,
    )
    assert os.listdir(path.parent) == ["agent.sock"]
    with connect(server.agent):
        server.socket.close()  # at once, although a client is silent
    assert os.listdir(path.parent) == []
    server.socket.close()


def test_a_dead_agents_socket_is_replaced(tmp_path: Path) -> None:
    agent = section(tmp_path)
    Path(agent.socket).parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(agent.socket)
    with pytest.raises(ConnectionRefusedError):
        connect(agent)
    server = Server(agent)
    assert "path" in server.ask()
    server.socket.close()


def test_a_live_agents_socket_is_not(server: Server) -> None:
    second = JobSocket(server.agent, print)
    with pytest.raises(SpoolError, match="another agent listens there"):
        second.start()
    second.close()
    assert "path" in server.ask()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    agent = section(tmp_path)
    Path(agent.socket).parent.mkdir()
    Path(agent.socket).write_text("mine")
    with pytest.raises(SpoolError, match="isn't a socket"):
        JobSocket(agent, print).start()
    assert Path(agent.socket).read_text() == "mine"


def test_a_folder_that_others_may_write(tmp_path: Path) -> None:
    agent = section(tmp_path)
    Path(agent.socket).parent.mkdir()
    Path(agent.socket).parent.chmod(0o777)
    with pytest.raises(SpoolError, match="others may write there"):
        JobSocket(agent, print).start()
    Path(agent.socket).parent.chmod(0o1777)
    JobSocket(agent, print).start()


def test_a_socket_of_the_next_agent_stays(server: Server) -> None:
    os.unlink(server.agent.socket)
    following = Server(server.agent)
    server.socket.close()
    assert "path" in following.ask()
    following.socket.close()


# ---- as real users


class RootServer:
    """A JobSocket in a process of root."""

    def __init__(self, agent: AgentSection) -> None:
        self.agent = agent
        code = (
            "import sys; from logshipper_ingest.config.agent_config import AgentSection\n"
            "from logshipper_ingest.agent.job_socket import JobSocket\n"
            f"made = JobSocket({agent!r}, lambda line: print(line, file=sys.stderr, flush=True)); made.start()\n"
            "print('ready', flush=True); sys.stdin.read(); made.close()"
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes)  # type: ignore[call-overload]  # pipes
        assert self.process.stdout.readline() == b"ready\n"

    def end(self) -> None:
        self.process.communicate(timeout=scaled(30))


@pytest.fixture
def root_server(open_folder: Path) -> Iterator[RootServer]:
    agent_server = RootServer(section(open_folder, max_captures_per_user=5))
    yield agent_server
    agent_server.end()


@needs_root
def test_two_users_forge_nothing(root_server: RootServer) -> None:
    agent = root_server.agent

    def act() -> list[str]:
        os.environ["SLURM_JOB_ID"] = "4711"
        wishes: list[object] = [None, "4711", f"4711.u{ANN}", "root", f"x.u{BEN}", *BAD.values()]
        paths = []
        for wish in wishes:
            answer = ask(agent, wish if isinstance(wish, bytes) else request(job_id=wish, task=1))
            paths += [answer["path"]] if "path" in answer else []
        return paths

    for uid in (ANN, BEN):
        paths = [Path(path) for path in as_user(uid, act)]
        assert len(paths) == 5  # the limit
        for path in paths:
            fields = identity(path)
            assert (fields["uid"], fields["task"], fields["step"]) == (uid, 0, "")
            assert (path / "segments").stat().st_uid == uid
            assert fields["job_id"].endswith(f".u{uid}") or fields["job_id"].isalnum()
            assert not fields["job_id"].isdigit()
        assert {identity(path)["job_id"] for path in paths} >= {f"4711.u{uid}", f"root.u{uid}"}
    assert len(captures(agent)) == 10
    users = {identity(path)["job_id"]: identity(path)["uid"] for path in captures(agent)}
    assert len(users) >= 9  # the users share no id


@needs_root
def test_a_job_in_a_real_cgroup(root_server: RootServer) -> None:
    """Slurm's own form of cgroups. Users can neither make such a group nor enter another user's."""
    top = Path("/sys/fs/cgroup/freezer") / f"slurm_test{os.getpid()}"
    groups = [top / f"uid_{uid}" / "job_4711" / "step_batch" / "task_0" for uid in (ANN, BEN)]
    try:
        for group in groups:
            group.mkdir(parents=True)
    except OSError:
        pytest.skip("there is no freezer of cgroup v1 to make groups in")
    agent = root_server.agent

    def told_in(group: Path, uid: int) -> dict[str, Any]:  # Any: JSON
        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        answer: dict[str, Any] = as_user(
            uid, lambda: ask(agent, request(job_id="mine")), before=enter
        )
        return answer

    try:
        for uid, group in zip((ANN, BEN), groups, strict=True):
            answer = told_in(group, uid)
            assert (answer["job_id"], answer["step"], identity(answer["path"])["uid"]) == (
                "4711",
                "batch.run1",
                uid,
            )
        assert told_in(groups[0], BEN)["job_id"] == f"mine.u{BEN}"  # another user's group
    finally:
        for group in groups:
            for path in (group, *list(group.parents)[:3]):
                path.rmdir()
        top.rmdir()


@needs_root
def test_an_agent_of_one_user(open_folder: Path) -> None:
    """An agent without root serves its own user."""
    folder = open_folder / "own"
    folder.mkdir()
    os.chown(folder, ANN, ANN)
    agent = section(folder)

    def act() -> bool:
        server = Server(agent)
        wait_until(lambda: server.socket.refusals["unknown_peer"], "a request of another user")
        served = "path" in server.ask()
        server.socket.close()
        return served

    def ask_it() -> str:
        wait_until(lambda: Path(agent.socket).exists(), "the agent's socket")
        return str(ask(agent, request())["error"])

    asker = Forked(ME, ask_it)
    assert as_user(ANN, act)
    assert asker.result() == f"this agent serves uid {ANN} only"


@needs_root
def test_a_run_of_an_ordinary_user(root_server: RootServer, open_folder: Path) -> None:
    """End to end, with root's agent and a user's job."""
    interpreter = ordinary_python()
    if interpreter is None:
        pytest.skip("no Python here that an ordinary user can run with these packages")
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, BEN, BEN)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": interpreter[1]}
    environment["LOGSHIPPER_AGENT_SOCKET"] = root_server.agent.socket
    command = [interpreter[0], "-m", "logshipper", "run", "--job-id", "night", "--", "sh", "-c"]
    script = "id -u; echo $LOGSHIPPER_JOB_ID; exit 3"
    done = subprocess.run(
        [*command, script],
        env=environment,
        cwd="/",
        user=BEN,
        group=BEN,
        extra_groups=[],
        capture_output=True,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (
        3,
        [b"%d" % BEN, b"night.u%d" % BEN],
        b"",
    )
    (path,) = captures(root_server.agent)
    assert (path / "segments" / "0000000001.seg").read_bytes().count(b"night.u") == 1
    assert identity(path)["uid"] == BEN
    assert list(home.iterdir()) == []  # nothing in the user's own store


# ---- the client


def _listen(path: Path, backlog: int = 8) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(backlog)
    return listener


def _client_says(path: Path) -> str:
    with pytest.raises(SpoolError) as caught:
        node_agent_socket.ask(str(path), "x", None)
    return caught.value.reason


def test_the_client(server: Server) -> None:
    answer = node_agent_socket.ask(server.agent.socket, "tr\udc80ain", "mine")
    assert answer is not None
    assert (answer.job_id, answer.attempt, len(answer.counters)) == (
        f"mine.u{ME}",
        1,
        COUNTERS_BYTES,
    )
    assert identity(answer.path)["name"] == "tr?ain"
    assert os.listdir(f"{answer.path}/segments") == ["counters"]
    assert node_agent_socket.ask("", "x", None) is None
    assert node_agent_socket.ask(server.agent.socket + "x", "x", None) is None


def test_what_the_client_tells_of_its_job(server: Server) -> None:
    """The client sends its attempt and rank. With a job id of the user's choice, the agent counts
    attempts itself, except those of ranks."""
    rank, script = Place("Slurm", "9", 3, "0", 5), Place("Slurm", "9", 3)
    cases = (
        (SchedulerJob("42", "0", 1), rank, "mine", ("42", 3, "0.run1", 5)),
        (SchedulerJob("42", "batch", None), script, "mine", ("42", 3, "batch.run1", 0)),
        (None, script, "mine", (f"mine.u{ME}", 1, "", 0)),
        (None, rank, "mine", (f"mine.u{ME}", 3, "0", 5)),
        (None, rank, None, (f"9.u{ME}", 3, "0", 5)),
        (None, rank, None, (f"9.u{ME}", 3, "0.run2", 5)),
        (None, script, None, (f"9.u{ME}", 3, "", 0)),
        (None, script, None, (f"9.u{ME}", 3, "run2", 0)),
        (None, Place("GNU parallel", "p.3", None), None, (f"p.3.u{ME}", 1, "", 0)),
        (None, Place("GNU parallel", "p.3", None), None, (f"p.3.u{ME}", 2, "", 0)),
        # a QCG task is a job of its own although it runs in a Slurm job, and its id is no
        # scheduler's
        (
            SchedulerJob("42", "batch", None),
            Place("QCG", "f00", apart=True),
            None,
            (f"f00.u{ME}", 1, "", 0),
        ),
    )
    for job, place, wish, values in cases:
        server.job = job
        answer = node_agent_socket.ask(server.agent.socket, "x", wish, place)
        assert answer is not None
        fields = identity(answer.path)
        assert (fields["job_id"], fields["attempt"], fields["step"], fields["task"]) == values
    assert (
        node_agent_socket.ask(server.agent.socket, "x" * 300 + "\U0001f600" * 200, None) is not None
    )


@pytest.mark.parametrize("step", ["a/b", "../x", ".x", "x" * 33, 7, "a b"])
def test_steps_that_are_none(server: Server, step: object) -> None:
    assert server.ask(job_id="1", attempt=1, step=step)["error"].startswith(
        "step must be at most 32 letters"
    )


def test_agents_that_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's wait has a limit with a silent agent, a full queue and a dead agent."""
    monkeypatch.setattr(node_agent_socket, "WAIT_SECS", 0.2)
    with _listen(tmp_path / "silent"), _listen(tmp_path / "full", 0), ExitStack() as stack:
        start = time.monotonic()
        assert _client_says(tmp_path / "silent") == "the node's agent didn't answer within 0.2 s"
        for _ in range(2):
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            client.setblocking(False)
            try:
                client.connect(str(tmp_path / "full"))
            except BlockingIOError:
                break
        assert _client_says(tmp_path / "full") == "the node's agent took nobody within 0.2 s"
        assert time.monotonic() - start < 2
    assert (
        _client_says(tmp_path / "silent") == "the node's agent can't be asked: connection refused"
    )
    (tmp_path / "file").write_text("")
    assert _client_says(tmp_path / "file") == "the node's agent can't be asked: connection refused"


def test_answers_that_are_not_believed(tmp_path: Path) -> None:
    """The client checks every answer: the directory must exist, and only its own user may write
    there."""
    good = tmp_path / "good"
    (good / "segments").mkdir(parents=True, mode=0o700)
    (tmp_path / "wide" / "segments").mkdir(parents=True)
    (tmp_path / "wide" / "segments").chmod(0o755)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "segments").symlink_to(good / "segments")
    (tmp_path / "open" / "segments").mkdir(parents=True, mode=0o700)
    (tmp_path / "open").chmod(0o777)
    good_answer = {"path": str(good), "job_id": "42", "attempt": 1}
    answers: list[tuple[object, str]] = [
        (b"", "didn't answer"),
        (b"\xff{", "isn't the node's agent"),
        (b"[" * 9000, "isn't the node's agent"),
        ([], "isn't the node's agent"),
        ({}, "isn't the node's agent"),
        ({"error": "no\x1b[2J\nroom"}, "the node's agent refuses: no\ufffd[2J\ufffdroom"),
        ({**good_answer, "job_id": "../x"}, "isn't the node's agent"),
        ({**good_answer, "job_id": ""}, "isn't the node's agent"),
        ({**good_answer, "job_id": 1}, "isn't the node's agent"),
        ({**good_answer, "attempt": 0}, "isn't the node's agent"),
        ({**good_answer, "path": "good"}, "isn't the node's agent"),
        ({**good_answer, "path": f"{good}\0"}, "null"),
        ({**good_answer, "path": str(tmp_path / "none")}, "no such file"),
        ({**good_answer, "path": str(tmp_path / "wide")}, "isn't this user's own, with mode 0700"),
        ({**good_answer, "path": str(tmp_path / "link")}, "not a directory"),
        ({**good_answer, "path": str(tmp_path / "open")}, "may be written by others"),
        *(
            [({**good_answer, "path": str(_of_another(tmp_path))}, "isn't this user's own")]
            if ME == 0
            else []
        ),
    ]
    with _listen(tmp_path / "s") as listener:

        def serve() -> None:
            for answer, _ in [*answers, (good_answer, "")]:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.send(
                        answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                    )

        thread = threading.Thread(target=serve)
        thread.start()
        for answer, reason in answers:
            assert reason in _client_says(tmp_path / "s"), answer
        assert node_agent_socket.ask(str(tmp_path / "s"), "x", None) is not None
        thread.join(30)


def _of_another(folder: Path) -> Path:
    path = folder / "theirs"
    (path / "segments").mkdir(parents=True, mode=0o700)
    os.chown(path / "segments", BEN, BEN)
    return path


def test_what_the_client_imports(server: Server) -> None:
    """It imports almost nothing without an agent, and never `socket`, since that import takes
    longer than the request."""
    code = (
        "import sys; from logshipper.start import preparation, node_agent_socket as n\n"
        "assert n.ask('/nowhere', 'x', None) is None\n"
        "assert not {'_socket', 'socket', 'json', 'selectors'} & set(sys.modules), 'without an agent'\n"
        f"assert n.ask({server.agent.socket!r}, 'x', None) is not None\n"
        "assert not {'socket', 'selectors', 'orjson', 'ssl'} & set(sys.modules), 'with one'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
