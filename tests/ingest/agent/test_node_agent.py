"""From the job's pipe to Loki, with a real agent and a real Loki: faults on the way lose and repeat
no line."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path

import pytest

from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.prometheus import PrometheusClient
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.store.local_store import LocalStore
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import ANN, BEN, needs_root, ordinary_python
from tests.tools.captures.segment_factory import CaptureWriter
from tests.tools.fakes.faulty_server import Said
from tests.tools.sources import SOURCES
from tests.tools.stores.job_views import rule_in
from tests.tools.stores.node_agents import NodeAgent, Proxy, client, cluster, entries_of
from tests.tools.waiting import scaled

JOB = r"""
import json, sys, time
print("Übung macht den Meister: \N{PARTY POPPER} \N{WOMAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER}")
print("null\0byte, \x1b[31mred\x1b[0m, tab\there")
for epoch in range(1, 21):
    for step in range(5):
        sys.stderr.write(f"\rbar {epoch} {step}/5")
    sys.stderr.write(f"\rbar {epoch} 5/5\n")
    print(json.dumps({"epoch": epoch, "loss": 7.25 / epoch, "opt": {"beta": 0.9}, "val/acc": epoch / 20}))
    print("the same line")
    print("the same line")
print(json.dumps({"step": 123456789012345678901234567890, "text": "x" * 65000}))
print("x" * 300_000 + "ü" * 1000)
print('/LOGCOMMAND {"mode":"metadata"}')
print("not logged")
print('{"epoch": 21, "loss": 0.1}')
print('/LOGCOMMAND {"mode":"enabled"}')
print("the end", flush=True)
"""
NUMBERED = r"""
import sys, time
for number in range(int(sys.argv[1])):
    print("line", number, flush=number % 50 == 0)
    if number % 200 == 0:
        time.sleep(float(sys.argv[2]))
"""
__all__ = ["client", "cluster"]  # fixtures
KINDS = {"log": Kind.LOG, "metadata": Kind.METADATA, "command": Kind.COMMAND}
STREAMS = {"stdout": Stream.STDOUT, "stderr": Stream.STDERR}


def refusing(status: int, **headers: str) -> "tuple[int, dict[str, str], bytes]":
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, b"not now"


def join_pieces(entries: list[Entry]) -> list[tuple[int, Stream, Kind, str, dict[str, str]]]:
    """Join the pieces of long lines, so that lines are those of the capture."""
    lines: list[tuple[int, Stream, Kind, str, dict[str, str]]] = []
    by_place = sorted(
        entries,
        key=lambda entry: (entry.time_ns, int(entry.metadata.get("part", "0/1").split("/")[0])),
    )
    for entry in by_place:
        attrs = {name: entry.metadata[name] for name in ("n", "repeat") if name in entry.metadata}
        kind = Kind.NOTE if "note" in entry.metadata else KINDS[entry.labels["kind"]]
        if lines and lines[-1][0] == entry.time_ns:
            lines[-1] = (*lines[-1][:3], lines[-1][3] + entry.line, attrs)
        else:
            lines.append((entry.time_ns, STREAMS[entry.labels["stream"]], kind, entry.line, attrs))
    return lines


def test_segments_local_store_and_loki_hold_the_same(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Compare content, times, order and counts. Loki is away while the job runs, so that the test
    can copy its spool."""
    with Proxy(loki.url) as proxy:
        proxy.answer = lambda _: refusing(503)
        with NodeAgent(tmp_path / "node", proxy.url, cluster=cluster) as agent:
            ran = agent.run(sys.executable, "-c", JOB)
            assert ran.returncode == 0
            assert ran.stdout.endswith(b"the end\n")
            (capture,) = agent.captures()
            copy = tmp_path / "store" / "spool" / capture.name
            shutil.copytree(capture, copy)
            proxy.answer = lambda _: None
            agent.wait_shipped()
            status = agent.status()
    with LocalStore(str(tmp_path / "store"), create=True) as store:
        assert store.ingest().problems == []
        job = store.jobs()[0]
        with store.open(job.job_id) as reader:
            local = [(line.time_ns, line.stream, line.kind, line.text, {k: str(v) for k, v in line.attrs.items()})
                     for line in reader.lines(streams=list(STREAMS.values()))]  # fmt: skip
            records = [record.line for record in reader.records()]
            events = [event.event for event in reader.events()]
            choice = reader.x_axis()
    entries = entries_of(client, cluster, "log|metadata|command")
    assert join_pieces(entries) == local
    assert max(len(entry.line.encode()) for entry in entries) <= 256_000
    assert [entry.metadata["part"] for entry in entries if "part" in entry.metadata] == [
        "1/2",
        "2/2",
    ]
    assert [entry.line for entry in entries_of(client, cluster, "metadata")] == records
    assert len(records) == 22
    in_loki = [json.loads(entry.line) for entry in entries_of(client, cluster, "event")]
    assert [event for event in in_loki if event["event"] == "mode_changed"] == events
    closed = in_loki[-1]
    assert (closed["event"], closed["state"], closed["exit_code"]) == ("closed", "COMPLETED", 0)
    assert closed["x_axis"] == {"key": "epoch", "rule": 2, "words": choice.words, "path": ["epoch"]}
    assert closed["ledger"]["stdout"]["dropped"] == 1
    assert closed["lines"] == job.lines
    assert {entry.metadata["job_id"] for entry in entries} == {job.job_id}
    (of_job,) = status["jobs"]
    kinds = Counter(entry.labels["kind"] for entry in entries_of(client, cluster))
    assert of_job["entries"] == dict(kinds)
    assert (of_job["state"], of_job["spooled_bytes"], of_job["refused"], of_job["lost"]) == (
        "COMPLETED",
        0,
        {},
        0,
    )


def test_reading_commands_tell_the_same_of_both_stores(
    loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    """`--from loki` and the local store's reader print the same for a capture, except the store's
    name."""
    with Proxy(loki.url) as proxy:
        proxy.answer = lambda _: refusing(503)
        with NodeAgent(tmp_path / "node", proxy.url, cluster=cluster) as agent:
            assert agent.run(sys.executable, "-c", JOB, options=("--name", "both")).returncode == 0
            (capture,) = agent.captures()
            shutil.copytree(capture, tmp_path / "store" / "spool" / capture.name)
            proxy.answer = lambda _: None
            agent.wait_shipped()
    local = ["--store", str(tmp_path / "store")]
    remote = ["--from", "loki", "--loki-url", loki.url, "--cluster", cluster]
    commands = [("show", "both"), ("logs", "both"), ("metadata", "both"), ("plot", "both")]
    for words in commands:
        in_loki = read(*words, "--json", *remote).replace(
            f'"cluster": "{cluster}"', '"cluster": ""'
        )
        assert in_loki == read(*words, "--json", *local), words
    assert read("logs", "both", "--tail", "3", *remote) == read(
        "logs", "both", "--tail", "3", *local
    )
    assert read("metadata", "both", "--format", "csv", *remote) == read(
        "metadata", "both", "--format", "csv", *local
    )


def read(*words: str) -> str:
    """Return a reading command's output without its differences: the place, and the time since
    then."""
    command = [sys.executable, "-m", "logshipper", *words]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r'^  "(store|cluster)": .*\n', "", done.stdout, flags=re.MULTILINE)


def test_labels_are_few(loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path) -> None:
    with NodeAgent(tmp_path, loki.url, cluster=cluster) as agent:
        agent.run("sh", "-c", "echo out; echo err >&2; echo '{\"a\": 1}'")
        agent.wait_shipped()
    names = {name for entry in entries_of(client, cluster) for name in entry.labels}
    assert names == {"cluster", "host", "service_name", "stream", "kind", "job_shard"}
    first = entries_of(client, cluster, "log")[0].metadata
    assert {*first} - {"detected_level"} == {"job_id", "user", "task", "attempt"}


def test_a_second_run_sends_nothing(loki: LokiServer, cluster: str, tmp_path: Path) -> None:
    with Proxy(loki.url) as proxy:
        agent = NodeAgent(tmp_path, proxy.url, cluster=cluster)
        with agent:
            agent.run("echo", "once")
            agent.wait_shipped()
            assert agent.stop() == 0
        before = proxy.pushes
        assert before > 0
        with agent:
            status = agent.status()  # ready means that it has read the spool
            assert agent.stop() == 0
        assert proxy.pushes == before
        assert status["jobs"][0]["over"] == 1


@pytest.mark.parametrize(("point", "times"), [("sent", 2), ("committed", 2)])
def test_killed_between_two_steps(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path, point: str, times: int
) -> None:
    """Kill the agent after Loki has stored a round, before or after the checkpoint."""
    agent = NodeAgent(tmp_path, loki.url, cluster=cluster)
    with agent.start(crash_at=point, times=times):
        ran = agent.run(sys.executable, "-c", NUMBERED, "2000", "0.15")
        assert ran.returncode == 0
        wait_until(agent.has_ended, "it kills itself")
    with agent:
        agent.wait_shipped()
    numbers = [entry.line for entry in entries_of(client, cluster, "log")]
    assert numbers == [f"line {number}" for number in range(2000)]
    events = Counter(
        json.loads(entry.line)["event"] for entry in entries_of(client, cluster, "event")
    )
    assert (events["started"], events["ended"], events["closed"]) == (1, 1, 1)


def test_killed_again_and_again(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Send kill -9 at any point while the job prints."""
    agent = NodeAgent(tmp_path, loki.url, cluster=cluster)
    with agent:
        started = time.monotonic()
        words = [
            sys.executable,
            "-m",
            "logshipper",
            "run",
            "--",
            sys.executable,
            "-c",
            NUMBERED,
            "6000",
            "0.1",
        ]
        with subprocess.Popen(
            words, env={**agent.environment, "HOME": str(tmp_path)}, stdout=subprocess.DEVNULL
        ) as job:
            for _ in range(4):
                wait_until(
                    lambda: "line" in str(entries_of(client, cluster, "log")[-1:]),
                    "something has arrived",
                )
                agent.stop(signal.SIGKILL)
                agent.start()
            assert job.wait(60) == 0
        agent.wait_shipped()
    assert time.monotonic() - started < scaled(60)
    numbers = [entry.line for entry in entries_of(client, cluster, "log")]
    assert numbers == [f"line {number}" for number in range(6000)]


def test_loki_is_away(client: LokiClient, cluster: str, tmp_path: Path) -> None:
    """The job runs on, /metrics works and `status` shows Loki's error. Then all lines arrive in
    order."""
    with LokiServer() as loki_server:
        with NodeAgent(tmp_path, loki_server.url, cluster=cluster) as agent:
            agent.run("echo", "before")
            agent.wait_shipped()
            loki_server.stop()
            ran = agent.run(
                sys.executable, "-c", "for n in range(1, 501): print('{\"epoch\": %d}' % n)"
            )
            assert ran.returncode == 0
            wait_until(lambda: agent.status()["loki"]["waiting"], "status tells")
            status = agent.status()
            assert (
                "refused" in status["loki"]["trouble"]["words"].lower()
                or status["loki"]["trouble"]["status"] == 0
            )
            assert max(job["spooled_bytes"] for job in status["jobs"]) > 0
            wait_until(lambda: 'key="epoch"} 500' in agent.metrics(), "/metrics has the last value")
            loki_server.start()
            agent.wait_shipped()
            wait_until(
                lambda: not agent.status()["loki"]["waiting"], "status tells that all is well"
            )
        with LokiClient(loki_server.url) as restarted:
            records = [entry.line for entry in entries_of(restarted, cluster, "metadata")]
    assert records == [f'{{"epoch": {n}}}' for n in range(1, 501)]


@pytest.mark.parametrize("status", [400, 404])
def test_nothing_is_dropped_whatever_loki_answers(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path, status: int
) -> None:
    """Such an answer needs an admin, like a 400 with a text that isn't Loki's; `status` reports it.
    tests/ingest/shipping/test_loki_side_faults.py covers all answers."""
    with Proxy(loki.url) as proxy:
        proxy.answer = lambda _: refusing(status)
        with NodeAgent(tmp_path, proxy.url, cluster=cluster) as agent:
            agent.run("seq", "1", "100")
            wait_until(lambda: agent.status()["loki"]["waiting"], "status tells")
            trouble = agent.status()["loki"]["trouble"]
            assert trouble["status"] == status
            assert "everything waits" in agent.log.read_text()
            proxy.answer = lambda _: None
            agent.wait_shipped()
            assert agent.status()["jobs"][0]["refused"] == {}
    assert [entry.line for entry in entries_of(client, cluster, "log")] == [
        str(n) for n in range(1, 101)
    ]


def test_an_answer_that_gets_lost_doubles_nothing(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Loki stores each push, but the agent only gets every third answer."""
    with Proxy(loki.url) as proxy:
        proxy.after = True
        proxy.answer = lambda number: refusing(502) if number % 3 else None
        with NodeAgent(tmp_path, proxy.url, cluster=cluster) as agent:
            agent.run("seq", "1", "500")
            agent.wait_shipped()
    assert [entry.line for entry in entries_of(client, cluster, "log")] == [
        str(n) for n in range(1, 501)
    ]


def test_an_answer_that_gets_lost_after_an_outage_of_hours_doubles_nothing(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Loki has stored a quiet job's old lines and its new one. Repeated, the old lines are too far
    behind the new one."""
    # no older lines: Loki flushes them after two hours, and for a while no query finds them
    minutes = (110, 80, 30, 1)
    begin_ns = time.time_ns() - 111 * 60 * 10**9
    with Proxy(loki.url) as proxy:
        proxy.after = True
        proxy.answer = lambda number: refusing(502) if number % 3 else None
        agent = NodeAgent(tmp_path, proxy.url, cluster=cluster)
        prepared = agent.call("prepare", "--job-id", "quiet", "--user", str(os.geteuid()))
        capture = CaptureWriter.in_node_spool(Path(prepared.stdout.strip()), start_ns=begin_ns)
        for ago in minutes:
            capture.lines([f"{ago} minutes ago"], time_ns=time.time_ns() - ago * 60 * 10**9)
        capture.close()
        with agent:
            agent.wait_shipped()
            assert agent.status()["jobs"][0]["refused"] == {}
    entries = client.entries(f'{{cluster="{cluster}", kind="log"}}', begin_ns, time.time_ns())
    assert sorted(entry.line for entry in entries) == sorted(
        f"{ago} minutes ago" for ago in minutes
    )


def test_retry_after_is_kept_to(loki: LokiServer, cluster: str, tmp_path: Path) -> None:
    """Events and heartbeat are two streams, which the agent pushes at the same time. The second
    push is under way when Loki refuses the first."""
    times: dict[bytes, list[float]] = {}  # of each push
    numbers = count(1)

    def refuse_first(body: bytes) -> Said | None:
        times.setdefault(body, []).append(time.monotonic())
        return Said(429, b"not now", {"Retry-After": "2"}) if next(numbers) == 1 else None

    with Proxy(loki.url) as proxy:
        proxy.fault = refuse_first
        with NodeAgent(tmp_path, proxy.url, cluster=cluster) as agent:
            agent.run("true")
            agent.wait_shipped()
    ((first, again),) = (at for at in times.values() if len(at) > 1)
    assert again - first >= 2.0
    assert sorted(chain(*times.values()))[2] - first >= 2.0, "nor anything else"


def test_what_loki_refuses_for_good_is_put_aside(lokis: None, cluster: str, tmp_path: Path) -> None:
    """After a 400, Loki has stored the valid entries of the push. The others go to the quarantine
    with Loki's text."""
    with LokiServer(limits={"max_line_size": "1KB"}) as strict, LokiClient(strict.url) as client:
        with NodeAgent(tmp_path, strict.url, cluster=cluster) as agent:
            program = "for n in range(200): print('x' * (3000 + n) if n in (7, 8, 150) else n)"
            agent.run(sys.executable, "-c", program)
            agent.wait_shipped()
            (job,) = agent.status()["jobs"]
            assert job["refused"] == {"line_too_long": 3}
            assert "quarantine" in agent.log.read_text()
        lines = [entry.line for entry in entries_of(client, cluster, "log")]
    assert lines == [str(n) for n in range(200) if n not in (7, 8, 150)]
    (file,) = (tmp_path / "state" / "quarantine").iterdir()
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(record["line"], record["status"]) for record in records] == [
        ("x" * (3000 + n), 400) for n in (7, 8, 150)
    ]
    assert all(
        "Max entry size" in record["words"] or "max" in record["words"].lower()
        for record in records
    )


def test_a_loki_that_takes_nothing_as_it_is_set_up(
    lokis: None, cluster: str, tmp_path: Path
) -> None:
    """Loki's configuration is the cause, not the entries: all entries wait, and none goes to the
    quarantine."""
    with (
        LokiServer(limits={"allow_structured_metadata": False}) as closed,
        NodeAgent(tmp_path, closed.url, cluster=cluster) as agent,
    ):
        agent.run("echo", "kept")
        wait_until(lambda: agent.status()["loki"]["waiting"], "status tells")
        status = agent.status()
        assert "structured metadata" in status["loki"]["trouble"]["words"]
        assert "logshipper-agent check" in agent.log.read_text()
        (job,) = status["jobs"]
        assert (job["state"], job["lines"], job["refused"]) == ("COMPLETED", 1, {})
        assert job["lag_secs"] > 0
    assert list((tmp_path / "state" / "quarantine").iterdir()) == []


def test_loki_at_its_default_limits(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """A line of 3 MB and a record of 300 KB go to Loki in marked pieces, and are whole when
    read."""
    with NodeAgent(tmp_path, loki.url, cluster=cluster) as agent:
        agent.run(
            sys.executable,
            "-c",
            "import json; print('é' * 1_500_000); print(json.dumps({'a': 'y' * 300_000}))",
        )
        agent.wait_shipped()
        assert agent.status()["jobs"][0]["refused"] == {}
    lines = join_pieces(entries_of(client, cluster, "log|metadata"))
    assert [(kind, text) for _, _, kind, text, _ in lines] == [
        (Kind.LOG, "é" * 1_500_000),
        (Kind.METADATA, json.dumps({"a": "y" * 300_000})),
    ]


@needs_root
def test_jobs_of_two_users(
    loki: LokiServer, client: LokiClient, cluster: str, open_folder: Path
) -> None:
    """The agent determines a job's owner. Two users run jobs at once, each with its own id."""
    interpreter = ordinary_python()
    if interpreter is None:
        pytest.skip("ordinary users can't run any Python with our packages here")
    python, path = interpreter
    with NodeAgent(open_folder / "node", loki.url, cluster=cluster) as agent:
        jobs = {}
        for uid in (ANN, BEN):
            home = open_folder / str(uid)
            home.mkdir(mode=0o700)
            os.chown(home, uid, uid)
            environment = {"PYTHONPATH": path, "HOME": str(home), "LOGSHIPPER_AGENT_SOCKET": str(agent.socket),
                           "USER": "root", "LOGNAME": "root", "PATH": "/usr/bin:/bin"}  # fmt: skip
            words = [
                python,
                "-m",
                "logshipper",
                "run",
                "--job-id",
                "mine",
                "--",
                "sh",
                "-c",
                f"echo of {uid}; sleep 1",
            ]
            jobs[uid] = subprocess.Popen(
                words,
                env=environment,
                cwd="/",
                user=uid,
                group=uid,
                extra_groups=[],
                stderr=subprocess.PIPE,
            )
        for job in jobs.values():
            _, stderr = job.communicate(timeout=scaled(60))
            assert (job.returncode, stderr) == (0, b"")
        agent.wait_shipped()
    lines = entries_of(client, cluster, "log")
    assert {(entry.metadata["job_id"], entry.line) for entry in lines} == {
        (f"mine.u{uid}", f"of {uid}") for uid in (ANN, BEN)
    }
    assert {entry.metadata["user"] for entry in lines} == {"nobody", str(BEN)}
    events = [json.loads(entry.line) for entry in entries_of(client, cluster, "event")]
    assert {event["uid"] for event in events if event["event"] == "started"} == {ANN, BEN}


def test_one_x_for_a_job_on_two_nodes(
    prometheus: PrometheusServer, loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """R25, merged by the worst rule. Each agent knows only its own ranks' records, and a requeued
    attempt that begins at epoch 1 again keeps `epoch`."""
    job = f"j{cluster}"
    with (
        NodeAgent(tmp_path / "n1", loki.url, cluster=cluster) as first,
        NodeAgent(tmp_path / "n2", loki.url, cluster=cluster, host="n2") as second,
    ):
        tasks: list[tuple[NodeAgent, int, int, Sequence[Mapping[str, float]]]] = [
            (first, 1, 0, [{"step": n, "beta": 0.5 * n, "loss": 1 / n} for n in range(1, 6)]),
            (first, 1, 1, [{"zeta": n, "step": n} for n in range(1, 6)]),
            (
                second,
                1,
                2,
                [{"alpha": n} for n in (3, 1, 2)]
                + [{"step": n, "zeta": 7 - n} for n in range(1, 6)],
            ),
            (second, 2, 2, [{"step": n, "loss": 2 / n} for n in range(1, 4)]),
        ]
        for agent, attempt, task, records in tasks:
            print_records(agent, job, attempt, task, records)
        first.wait_shipped()
        second.wait_shipped()
        scrape(prometheus, first, second)
        assert wait_for_x(prometheus, job) == ("step", 3)
        for agent in (first, second):
            print_records(agent, job, 3, 0, [{"epoch": n, "step": n} for n in (1, 2)])
        assert wait_for_x(prometheus, job, rule=2) == ("epoch", 2)
        first.wait_shipped()
        second.wait_shipped()
    choices = {
        json.loads(entry.line)["x_axis"]["key"]
        for entry in entries_of(
            client, cluster, "event", selector=f'| job_id="{job}" | attempt="3"'
        )
        if json.loads(entry.line)["event"] == "closed"
    }
    assert choices == {"epoch"}


def print_records(
    agent: NodeAgent, job: str, attempt: int, task: int, records: Sequence[Mapping[str, float]]
) -> None:
    """Print records as a job's task does if a scheduler's hook has prepared its directory."""
    user = str(os.getuid())
    result = agent.call("prepare", "--job-id", job, "--user", user, "--attempt", str(attempt), "--task", str(task),
                      "--uid", user, "--gid", str(os.getgid()))  # fmt: skip
    assert result.returncode == 0, result.stderr
    with CaptureWriter.in_node_spool(
        Path(result.stdout.strip()), start_ns=time.time_ns() - 60 * 10**9
    ) as capture:
        capture.start()
        capture.metadata(*records)
        capture.end()
        capture.close()


def scrape(prometheus: PrometheusServer, *agents: NodeAgent) -> None:
    targets = [
        agent.metrics_url.removeprefix("http://").removesuffix("/metrics") for agent in agents
    ]
    prometheus.set_targets(targets)
    for target in targets:
        prometheus.wait_for_target(target)


def wait_for_x(prometheus: PrometheusServer, job: str, *, rule: int = 0) -> tuple[str, int]:
    """Return the key of the job's X and its rule, by the dashboard's query."""
    question = (
        "bottomk(1, max by (key, path) "
        f'(max_over_time(logshipper_x_rank{{job_id="{job}", choice="auto"}}[10m])))'
    )
    choices: list[tuple[str, int]] = []

    def look() -> bool:
        answer = PrometheusClient(prometheus.url).query(question)
        choices[:] = [
            (series.labels["key"], rule_in(series.samples[-1].value)) for series in answer
        ]
        return bool(choices) and (not rule or choices[0][1] == rule)

    wait_until(look, "an X of the job in Prometheus")
    return choices[0]


def test_another_agent_is_refused(loki: LokiServer, cluster: str, tmp_path: Path) -> None:
    with NodeAgent(tmp_path, loki.url, cluster=cluster) as agent:
        second = agent.call("run")
        assert second.returncode == 1
        assert "another agent uses this" in second.stderr
        assert agent.stop() == 0
