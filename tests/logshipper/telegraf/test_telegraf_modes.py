"""Measurements and modes: the narrowest mode between a measurement's arrival and its recording
applies, wherever it waits. For unidentified senders only a count remains."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.telegraf import measurements
from logshipper.telegraf.listener import LOOPBACK
from logshipper.telegraf.measurements import MAX_WAIT_SECS, Collector, Measurements, waited_line
from logshipper_ingest.config.agent_config import parse
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.telegraf.router import TelegrafRouter
from tests.servers.running import free_port
from tests.tools.captures.captured_runs import Home, comm_of, wait_until

OBEYS = """
import os, socket, sys, time
host, port = os.environ['LOGSHIPPER_TELEGRAF'].split(':')
address = host, int(port)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
tcp = socket.create_connection(address)
def by_udp(name):
    udp.sendto(f'{name} value=1i'.encode(), address)
def by_tcp(name):
    tcp.sendall(f'{name} value=1i\\n'.encode())
def say(mode):
    print('/LOGCOMMAND {"mode":"' + mode + '"}', flush=True)
print('begun', flush=True)
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
"""


class Job:
    """A captured job that runs code sent to it, line by line."""

    def __init__(self, home: Home, process: "subprocess.Popen[bytes]") -> None:
        self.home = home
        self._process = process
        self._await(b"begun")
        home.await_known()

    def do(self, code: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(code.encode() + b"\n")
        self._process.stdin.flush()
        self._await(b"done")

    def _await(self, word: bytes) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"it ended before {word!r}")

    def set_mode(self, mode: str, changes: int) -> None:
        """Set the mode and wait until the sidecar has obeyed. changes: their number by then."""
        self.do(f"say({mode!r})")
        wait_until(
            lambda: self.home.events().count("mode_changed") == changes, f"the mode is {mode}"
        )

    def records(self) -> list[dict[str, Any]]:  # Any: JSON
        process = self.home.call("metadata", "last", "--format", "jsonl")
        assert process.returncode == 0, process.stderr
        return [json.loads(line) for line in process.stdout.splitlines()]

    def send_until_recorded(self, send: str, name: str) -> None:
        """Send measurements until one is recorded. The previous mode may still apply to the first
        ones."""
        numbers = iter(range(1000))

        def is_recorded() -> bool:
            self.do(f"time.sleep(0.1); {send}('{name}{next(numbers)}')")
            return any(key.startswith(name) for record in self.records() for key in record)

        wait_until(is_recorded, f"{name} is recorded")

    @contextmanager
    def stopped_collector(self) -> Iterator[None]:
        (pid,) = (
            int(name)
            for name in os.listdir("/proc")
            if name.isdigit() and self._is_collector(int(name))
        )
        os.kill(pid, signal.SIGSTOP)
        try:
            stat = Path(f"/proc/{pid}/stat")
            wait_until(
                lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still"
            )
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _is_collector(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # another process, which has ended
            return False
        return comm_of(pid) == measurements.COMM and os.fsencode(self.home.store) in environment


@contextmanager
def running(home: Home) -> Iterator[Job]:
    with home.start(
        "run",
        "--telegraf",
        "--",
        sys.executable,
        "-c",
        OBEYS,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield Job(home, process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def left_out(home: Home) -> dict[str, int]:
    reasons = [
        event for event in home.show()["events"] if event["event"] == "measurements_left_out"
    ]
    return dict(reasons[-1]["details"]["reasons"]) if reasons else {}


# ---- at every place of waiting


def test_a_mode_holds_for_what_is_sent_as_for_what_is_printed(home: Home) -> None:
    with running(home) as job:
        job.send_until_recorded("by_udp", "before")
        job.set_mode("disabled", 1)
        job.do("by_udp('secret')")
        job.set_mode("metadata", 2)
        job.send_until_recorded("by_udp", "after")
    assert b"secret" not in home.stored_bytes()
    assert left_out(home)["disabled"] >= 1


@pytest.mark.parametrize("send", ["by_udp", "by_tcp"])
def test_what_waited_in_the_kernel_while_disabled_is_never_recorded(home: Home, send: str) -> None:
    with running(home) as job:
        job.set_mode("disabled", 1)
        with job.stopped_collector():
            job.do(f"{send}('secret')")
            job.set_mode("enabled", 2)
        job.send_until_recorded(send, "after")
    assert b"secret" not in home.stored_bytes()
    assert left_out(home)["disabled"] >= 1
    assert home.show()["ledger"]["stdout"]["dropped"] >= 1


def test_who_sends_all_the_time_is_recorded_again(home: Home) -> None:
    """Bytes of TCP have no times. The collector also reads a connection that is never quiet for
    long."""
    code = "say('disabled'); by_tcp('secret'); time.sleep(0.5); say('enabled')"
    sending = "[(by_tcp(f'after{n}'), time.sleep(0.02)) for n in range(150)]"
    with running(home) as job:
        job.do(code)
        job.do(sending)
        job.send_until_recorded("by_udp", "last")
    keys = [key for record in job.records() for key in record]
    assert b"secret" not in home.stored_bytes()
    assert sum(key.startswith("after") for key in keys) > 50


def test_what_is_sent_right_after_a_command_is_under_that_command(home: Home) -> None:
    """A measurement may arrive before the command, which takes longer."""
    turn = "say('disabled'); by_udp('secret'); by_tcp('secret'); time.sleep(0.06); say('enabled'); time.sleep(0.1)"
    with running(home) as job:
        for _ in range(10):
            job.do(turn)
        job.send_until_recorded("by_udp", "after")
    assert b"secret" not in home.stored_bytes()


def test_text_of_a_sender_that_is_gone_is_counted_and_not_kept(home: Home) -> None:
    with running(home) as job, job.stopped_collector():
        job.do(
            "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone: gone.sendto(b'secret value=1i', address)"
        )
    assert b"secret" not in home.stored_bytes()
    assert left_out(home) == {"unidentified": 1}


# ---- in the sidecar


class Feed:
    """Measurements for the sidecar, with the test as their collector."""

    def __init__(self) -> None:
        read, self.write = os.pipe()
        _, control = os.pipe()
        self.sidecar = Measurements(Collector(read, control, 1))

    def put(self, arrived_at: float, *records: bytes) -> None:
        os.write(
            self.write, b"@%.6f\n" % arrived_at + b"".join(record + b"\n" for record in records)
        )


def test_a_record_waits_for_all_that_was_printed_before_it() -> None:
    feed = Feed()
    feed.put(100.0, b'{"a":1}', b'{"b":2}')
    feed.sidecar.read(100.0)
    assert feed.sidecar.ready(100.0, (5, 0), (5, 0)) == [], "the relay needs a moment"
    assert feed.sidecar.ready(feed.sidecar.due, None, (5, 0)) == [], "it hasn't read all"
    assert feed.sidecar.ready(feed.sidecar.due, (9, 3), (5, 3)) == [], "the sidecar hasn't all"
    (batch,) = feed.sidecar.ready(feed.sidecar.due, (12, 4), (9, 3))
    assert (batch.arrived_at, batch.records, batch.undecided) == (
        100.0,
        [b'{"a":1}', b'{"b":2}'],
        False,
    )


@pytest.mark.parametrize("read", [None, (9, 0)])
def test_what_waits_in_vain_is_undecided(read: tuple[int, int] | None) -> None:
    feed = Feed()
    feed.put(100.0, b'{"a":1}')
    feed.sidecar.read(100.0)
    assert feed.sidecar.ready(100.0 + MAX_WAIT_SECS - 0.01, read, (5, 0)) == []
    (batch,) = feed.sidecar.ready(100.0 + 2 * MAX_WAIT_SECS, read, (5, 0))
    assert batch.undecided


def test_no_more_is_read_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MAX_WAITING_BYTES", 1000)
    feed = Feed()
    for _ in range(10):
        feed.put(1.0, b'{"a":"%s"}' % (b"x" * 600))
        feed.sidecar.read(1.0)
    assert feed.sidecar.is_full
    assert len(feed.sidecar.ready(2.0, (0, 0), (0, 0))) == 2
    feed.sidecar.read(2.0)
    assert feed.sidecar.is_full, "the others were left in the pipe"


MODES = ["enabled", "metadata", "disabled"]


@pytest.mark.parametrize("last", MODES)
@pytest.mark.parametrize("between", MODES)
@pytest.mark.parametrize("first", MODES)
def test_the_narrowest_mode_since_the_arrival_counts(first: str, between: str, last: str) -> None:
    """This also holds when the sidecar reads both commands at once."""
    classifier = Classifier(first)
    lines = b"".join(b'/LOGCOMMAND {"mode":"%s"}\r\n' % mode.encode() for mode in (between, last))
    classifier.feed(1, lines, 10.0)  # type: ignore[arg-type]  # as the sidecar gives it
    dropped = classifier.take_measurements([b'{"old":1}'], 9.0)
    classifier.seen_empty(1, 11.0)  # type: ignore[arg-type]
    classifier.seen_empty(2, 11.0)  # type: ignore[arg-type]
    dropped += classifier.take_measurements([b'{"new":1}'], 12.0)
    recorded = [
        item.text
        for item in classifier.take()
        if isinstance(item, LoggedLines) and item.text.startswith(b"{")
    ]
    assert recorded == ([b'{"old":1}\n'] if "disabled" not in (first, between, last) else []) + (
        [b'{"new":1}\n'] if last != "disabled" else []
    )
    assert dropped == 2 - len(recorded) == classifier.ledger()["stdout"]["dropped"]


# ---- in the agent


@pytest.fixture
def route(tmp_path: Path) -> Iterator[Callable[..., "RouterBench"]]:
    benches: list[RouterBench] = []

    def make(**options: Any) -> "RouterBench":  # Any: TOML values
        benches.append(RouterBench(tmp_path, **options))
        return benches[-1]

    yield make
    for bench in benches:
        bench.router.close()
        bench.job.close()


class RouterBench:
    """An agent's router, and the port of a job of this process's user."""

    def __init__(self, folder: Path, **options: Any) -> None:
        agent = {
            "state_dir": str(folder / "state"),
            "spool_dir": str(folder / "spool"),
            "cluster": "c",
        }
        address = f"{LOOPBACK}:{free_port()}"
        telegraf = {"enabled": True, "listen": address, **options}
        config, problems = parse(
            {"agent": agent, "loki": {"url": "http://nowhere"}, "telegraf": telegraf}
        )
        assert problems == []
        self.messages: list[str] = []
        self.router = TelegrafRouter(config, self.messages.append)
        self.job = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.job.bind((LOOPBACK, 0))
        self.job.settimeout(60)
        self.address = config.telegraf.address
        self.router.start()

    def begin(self, *jobs: str) -> None:
        """Tell the router about captures of these jobs."""
        captures: list[Any] = [
            SimpleNamespace(
                life=Life.LIVE,
                folder=SimpleNamespace(key=job, telegraf_port=lambda: self.job.getsockname()[1]),
                identity=SimpleNamespace(uid=os.getuid(), job_id=job, task=0),
            )
            for job in jobs
        ]
        self.router.update(captures)

    def send_as(self, job: str, text: str) -> "subprocess.Popen[bytes]":
        """Send from a process that lives until its input ends."""
        script = (
            "import socket, sys; udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
            f"udp.sendto({text.encode()!r}, {self.address!r}); sys.stdin.read()"
        )
        environment = {**os.environ, "LOGSHIPPER_JOB_ID": job}
        return subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, env=environment
        )


def test_the_agent_says_how_long_it_held_a_measurement(route: Callable[..., RouterBench]) -> None:
    bench = route()
    with bench.send_as("4711", "held value=1i"):
        wait_until(lambda: bench.router._held_batches, "it is held")
        held_at = time.monotonic()
        wait_until(lambda: time.monotonic() - held_at > 0.3, "it waits")
        bench.begin("4711")
        data = bench.job.recv(1 << 16)
    line, _, text = data.partition(b"\n")
    (waited_ns,) = measurements._WAITED_NS.fullmatch(line).groups()  # type: ignore[union-attr]
    assert 0.3e9 < int(waited_ns) < 60e9
    assert text == b"held value=1i"


def test_what_waited_elsewhere_is_as_much_older() -> None:
    data = (
        b"now value=1i\n"
        + waited_line(2.5)
        + b"held value=2i\n"
        + waited_line(-1)
        + b"late value=3i"
    )
    arrivals = list(measurements._by_arrival(data, 100.0))
    assert [(lines.strip(), at) for lines, at in arrivals] == [
        (b"now value=1i", 100.0),
        (b"held value=2i", 97.5),
        (b"late value=3i", 100.0),
    ]
    younger = b"#logshipper waited_ns=-5000000000\nforged value=1i"
    assert list(measurements._by_arrival(younger, 100.0)) == [(younger, 100.0)], (
        "nobody makes it younger"
    )


def test_by_default_the_agent_keeps_counts_and_no_text(
    route: Callable[..., RouterBench], tmp_path: Path
) -> None:
    """Applies to unidentified senders, to users without a job, and to users with a job that may be
    disabled."""
    folder = tmp_path / "state" / "telegraf"
    folder.mkdir(parents=True)
    for name in ("unidentified.jsonl", "unidentified.jsonl.1"):
        (folder / name).write_text('{"lines":"secret"}\n')
    bench = route()
    assert not list(folder.iterdir()), "what an earlier agent kept is removed"
    assert [words for words in bench.messages if "unidentified_max_bytes" in words]
    bench.router._keep_apart("unidentified", "udp", -1, b"secret value=1i")
    bench.router._keep_apart("ambiguous", "udp", os.getuid(), b"secret value=1i\nsecret value=2i")
    with bench.send_as("none", "secret value=1i"):
        wait_until(lambda: bench.router.counts["no_job"] == 1, "it is counted")
    counts = bench.router.counts
    assert (counts["unidentified"], counts["ambiguous"], counts["not_kept"]) == (1, 2, 0)
    assert not [
        path
        for path in (tmp_path / "state").rglob("*")
        if path.is_file() and b"secret" in path.read_bytes()
    ]


def test_an_admin_may_have_text_kept(route: Callable[..., RouterBench], tmp_path: Path) -> None:
    bench = route(unidentified_max_bytes=10_000)
    bench.router._keep_apart("unidentified", "udp", -1, b"whose value=1i")
    assert "whose" in (tmp_path / "state" / "telegraf" / "unidentified.jsonl").read_text()


def test_what_still_waits_at_the_end_is_decided() -> None:
    feed = Feed()
    feed.put(100.0, b'{"a":1}')
    feed.sidecar.read(100.0)
    assert feed.sidecar.ready(feed.sidecar.due, None, (5, 0)) == []
    (batch,) = feed.sidecar.all()
    assert not batch.undecided
