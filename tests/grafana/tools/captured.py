"""The fixture: jobs captured by logshipper itself, in real Loki and real Prometheus.

Agents run for the nodes n1, n2, n10 and n4 and for Slurm's controller, and Prometheus scrapes them.
The fixture writes the record of the controller's hook. Two jobs need a past time, so the same
programs capture them with a clock that is set back (`SHIFTED`):

- *late*: captured two hours ago, while its agent had no Loki. The agent ships it now, so Prometheus
  gets its series two hours after its end.
- *old*: captured and shipped 20 days ago, by an agent that Prometheus never scraped. This Loki
  accepts entries of any age (`reject_old_samples`), and has written them to disk.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentSection
from tests.grafana.tools import printed
from tests.grafana.tools.frames import Json
from tests.grafana.tools.printed import Job
from tests.grafana.tools.sources import LokiSource, PrometheusSource, Range, loki_metrics
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import SECOND_NS
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent, Proxy
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.waiting import scaled

CLUSTER = "grafana-test"
HOSTS = ("n1", "n2", "n10")
CONTROLLER = "slurmctl"
LATE_SECS, OLD_SECS = 2 * 3600, 20 * 86400
USER, ACCOUNT, PARTITION = "ann.o'x", "physics", "gpu-a"  # of the job on three nodes
AT_ONCE = 4
WAIT_SECS = scaled(60.0)
PAD_BEFORE_MS, PAD_AFTER_MS = 60_000, 120_000  # around a job
SCRAPE_MS = 1000

SHIFTED = """\
import os, time

_shift_ns = int(os.environ["TEST_CLOCK_SHIFT_SECS"]) * 10**9
_time_ns = time.time_ns
time.time_ns = lambda: _time_ns() + _shift_ns
time.time = lambda: (_time_ns() + _shift_ns) / 1e9
"""


@dataclass(frozen=True)
class Captured:
    """A captured job. begin_ms, end_ms: around its run, by this machine's clock or the shifted one."""

    job: Job
    job_id: str
    hosts: tuple[str, ...]
    begin_ms: int
    end_ms: int | None

    @property
    def when(self) -> Range:
        """Time range of the job's page."""
        end_ms = time.time_ns() // 10**6 if self.end_ms is None else self.end_ms + PAD_AFTER_MS
        return Range(self.begin_ms - PAD_BEFORE_MS, end_ms)


@dataclass(frozen=True)
class Fixture:
    """jobs: by name."""

    jobs: dict[str, Captured]
    loki: LokiSource
    prometheus: PrometheusSource
    took_secs: float

    @property
    def sources(self) -> dict[str, LokiSource | PrometheusSource]:
        return {
            "loki": self.loki,
            "prometheus": self.prometheus,
            "values": loki_metrics(self.loki.url),
        }

    @property
    def today(self) -> Range:
        now_ms = time.time_ns() // 10**6
        return Range(now_ms - 86_400_000, now_ms)


class ShiftedAgent(NodeAgent):
    """An agent with a clock shifted by shift_secs, for its jobs, too."""

    def __init__(
        self, folder: Path, loki_url: str, *, host: str, shift_secs: int, **options: Json
    ) -> None:
        super().__init__(folder, loki_url, cluster=CLUSTER, host=host, **options)
        self.shift_secs = shift_secs
        (folder / "clock").mkdir(exist_ok=True)
        (folder / "clock" / "sitecustomize.py").write_text(SHIFTED)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'clock'}{os.pathsep}{ROOT}"
        return {
            **super().environment,
            "PYTHONPATH": path,
            "TEST_CLOCK_SHIFT_SECS": str(self.shift_secs),
        }

    def start(
        self,
        *,
        crash_at: str = "",
        times: int = 1,
        wait: bool = True,
        by: Sequence[str] = (),
        path: Path = ROOT,
    ) -> "NodeAgent":
        ready_count = self.log.read_text().count("ready:") if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "logshipper_ingest", "run", "--config", str(self.config)],
                cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        wait_until(
            lambda: self.log.read_text().count("ready:") > ready_count or self.has_ended(),
            "the agent is ready",
        )
        assert not self.has_ended(), self.log.read_text()
        return self


class TaskSocket:
    """Replaces the agent's socket and hands out the directory of one task, as a scheduler's hook
    makes it. The scheduler supplies job, task and user."""

    def __init__(self, agent: NodeAgent, identity: NodeIdentity) -> None:
        self.path = agent.folder / f"task-{identity.job_id}-{identity.task}.sock"
        section = AgentSection(**_agent_table(agent))
        folder = Path(prepare_capture(section, identity))
        if isinstance(
            agent, ShiftedAgent
        ):  # the agent treats files older than their directory as forged
            mtime = time.time() + agent.shift_secs - 1
            os.utime(folder / "identity.json", (mtime, mtime))
        answer = {
            "path": str(folder),
            **{key: getattr(identity, key) for key in ("job_id", "attempt", "step", "task")},
        }
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen(1)
        self._thread = threading.Thread(
            target=self._serve, args=(json.dumps(answer).encode(),), daemon=True
        )
        self._thread.start()

    def _serve(self, answer: bytes) -> None:
        with self._listener:
            connection, _ = self._listener.accept()
            with connection:
                connection.recv(65536)
                connection.send(answer)


def _agent_table(agent: NodeAgent) -> Json:
    import tomllib

    table: Json = tomllib.loads(agent.config.read_text())["agent"]
    return table


class Maker:
    """Captures jobs with running agents. running: processes of jobs that stay."""

    def __init__(self, folder: Path, agents: dict[str, NodeAgent]) -> None:
        self._folder = folder
        self._agents = agents
        self.running: list[subprocess.Popen[bytes]] = []

    def capture(self, job: Job) -> Captured:
        agent = self._agents[job.host]
        begin_ms = time.time_ns() // 10**6
        for attempt in job.attempts or (job,):
            process = self._start(attempt, agent, f"{job.name}-{len(attempt.lines)}")
            if attempt.stays:
                self.running.append(process)
            else:
                assert process.wait(WAIT_SECS) == attempt.exit_code, job.name
        end_ms = None if job.stays else time.time_ns() // 10**6
        return Captured(job, f"{job.name}.u{os.getuid()}", (agent.host,), begin_ms, end_ms)

    def capture_shifted(self, job: Job, agent: "ShiftedAgent") -> Captured:
        begin_ms = time.time_ns() // 10**6
        identity = NodeIdentity(job.name, 1, "0", 0, job.name, os.getuid(), "root", gid=os.getgid())
        process = self._start(job, agent, job.name, socket=TaskSocket(agent, identity).path)
        assert process.wait(WAIT_SECS) == 0
        shift_ms = agent.shift_secs * 1000
        return Captured(
            job, job.name, (agent.host,), begin_ms + shift_ms, time.time_ns() // 10**6 + shift_ms
        )

    def capture_written(self, job: Job) -> Captured:
        """Write a capture of a job that began some minutes ago."""
        began_ns = time.time_ns() - 200 * SECOND_NS
        store = self._folder / "written"
        with SpooledCapture(
            store,
            job.name,
            name=job.name,
            started_ns=began_ns,
            host=job.host,
            limit_secs=printed.LIMIT_SECS,
        ) as capture:
            capture.lines(job.lines[0])
            capture.metadata(*job.lines[1:3])
            capture.event("user_event", "checkpoint: saved", data={"name": "checkpoint", "step": 2})
            capture.heartbeat()
            capture.sleep(printed.SILENT_SECS)
            capture.metadata(*job.lines[3:])
            capture.event(
                "lines_lost",
                "3 lines lost here: no space",
                lines=3,
                reason="no space",
                stream="stdout",
            )
            capture.event("heartbeat_lost", "forged")
            capture.sleep(5)
            capture.end()
        agent = self._agents[job.host]
        (spooled,) = (store / "spool").iterdir()
        identity = json.loads((spooled / "identity.json").read_text())
        (spooled / "identity.json").write_text(
            json.dumps({**identity, "cluster": CLUSTER, "user": "root"})
        )
        os.utime(spooled / "identity.json", ns=(began_ns, began_ns))
        spooled.rename(agent.spool / spooled.name)
        return Captured(job, job.name, (agent.host,), began_ns // 10**6, time.time_ns() // 10**6)

    def capture_tasks(self, job: Job, job_id: str) -> Captured:
        """Capture a job whose attempts are tasks on separate nodes."""
        begin_ms = time.time_ns() // 10**6
        processes = []
        for rank, task in enumerate(job.attempts):
            agent = self._agents[task.host]
            identity = NodeIdentity(
                job_id, 1, "0", rank, job.name, os.getuid(), USER, ACCOUNT, PARTITION, os.getgid()
            )  # fmt: skip
            path = TaskSocket(agent, identity).path
            processes.append(self._start(task, agent, f"{job.name}-{rank}", socket=path))
        for process, task in zip(processes, job.attempts, strict=True):
            assert process.wait(WAIT_SECS) == task.exit_code
        hosts = tuple(task.host for task in job.attempts)
        return Captured(job, job_id, hosts, begin_ms, time.time_ns() // 10**6)

    def _start(
        self, job: Job, agent: NodeAgent, name: str, *, socket: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        folder = self._folder / "jobs" / name
        folder.mkdir(parents=True)
        (folder / "out").write_text("".join(f"{line}\n" for line in job.lines))
        (folder / "err").write_text("".join(f"{line}\n" for line in job.errors))
        if job.finds_series:
            (folder / ".logoptin").write_text("metadata: [json, auto]\n")
        words = [sys.executable, "-m", "logshipper", "run", "--name", job.name]
        words += ["--job-id", job.name] if socket is None else []
        words += ["--mode", job.mode] if job.mode else []
        environment = {**agent.environment, "HOME": str(folder)}
        environment["LOGSHIPPER_CONTEXT"] = "on" if job.context else "off"
        if socket is not None:
            environment["LOGSHIPPER_AGENT_SOCKET"] = str(socket)
        return subprocess.Popen(
            [*words, "--", "sh", "-c", job.script],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE if job.stays else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> None:
        for process in self.running:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(WAIT_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def captured_jobs(folder: Path) -> Iterator[Fixture]:
    """Yield servers, agents and jobs; stop all of them at the end."""
    begin = time.monotonic()
    with ExitStack() as stack:
        loki = LokiServer(limits={"reject_old_samples": False})
        prometheus = PrometheusServer(scrape_interval=f"{SCRAPE_MS // 1000}s")
        for server in (loki, prometheus):
            stack.callback(server.close)
            server.start(wait=False)
        loki.wait_for_push()
        agents = {host: _agent(folder, loki, host) for host in (*HOSTS, printed.EVENTFUL.host)}
        controller = _agent(folder, loki, CONTROLLER, slurm={"ended_dir": str(_ended_dir(folder))})
        late = ShiftedAgent(
            folder / "late", "http://127.0.0.1:9", host="late1", shift_secs=-LATE_SECS
        )
        # hides the time difference from the agent
        proxy = stack.enter_context(Proxy(loki.url, shift_secs=-OLD_SECS))
        old = ShiftedAgent(folder / "old", proxy.url, host="old1", shift_secs=-OLD_SECS)
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        starts = []
        for agent in (*agents.values(), controller, late, old):
            stack.push(agent)
            starts.append(pool.submit(agent.start))
        for start in starts:
            start.result()
        prometheus.set_targets([_target(agent) for agent in (*agents.values(), controller)])
        maker = Maker(folder, agents)
        stack.callback(maker.end)
        jobs = _capture_jobs(maker, pool, late, old)
        _tell_end(
            _ended_dir(folder), next(job for job in jobs if job.job is printed.TIMED_OUT), "TIMEOUT"
        )
        shipped_late = _agent(folder, loki, "late1", folder / "late").start()
        stack.enter_context(shipped_late)
        _settle(loki, prometheus, [*agents.values(), controller, shipped_late], old, jobs)
        yield Fixture(
            {job.job.name: job for job in jobs},
            LokiSource(loki.url),
            PrometheusSource(prometheus.url, scrape_ms=SCRAPE_MS),
            time.monotonic() - begin,
        )


def _agent(
    folder: Path, loki: LokiServer, host: str, node_folder: Path | None = None, **options: Json
) -> NodeAgent:
    heartbeat = {"heartbeat_secs": 5.0}
    return NodeAgent(
        node_folder or folder / host,
        loki.url,
        cluster=CLUSTER,
        host=host,
        loki=heartbeat,
        **options,
    )


def _ended_dir(folder: Path) -> Path:
    place = folder / "ended"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def _tell_end(place: Path, job: Captured, state: str) -> None:
    """Write the record of the hook job-ended."""
    assert job.end_ms is not None
    fields = {"by": "jobcomp", "job_id": job.job_id, "state": state, "exit": "0:0", "start": job.begin_ms // 1000,
            "end": job.end_ms // 1000, "restarts": "0", "user": USER, "nodes": ",".join(job.hosts)}  # fmt: skip
    path = place / f".new.{job.job_id}.{fields['end']}.jobcomp.1"
    path.write_text(
        "".join(
            [
                "logshipper-ended 1\n",
                *(f"{name}={value}\n" for name, value in fields.items()),
                ".\n",
            ]
        )
    )
    path.chmod(0o600)
    path.rename(place / path.name.removeprefix(".new."))


def _capture_jobs(
    maker: Maker, pool: ThreadPoolExecutor, late: ShiftedAgent, old: ShiftedAgent
) -> list[Captured]:
    """Capture all jobs. The job with a running bar and the five-second job begin first."""
    first = [maker.capture(printed.RUNNING)]
    rest = [job for job in printed.LIVE if job is not printed.RUNNING]
    rest.sort(key=lambda job: -job.pause_secs)
    futures = [pool.submit(maker.capture, job) for job in rest]
    futures += [
        pool.submit(maker.capture_shifted, printed.LATE, late),
        pool.submit(maker.capture_shifted, printed.OLD, old),
    ]
    futures += [pool.submit(maker.capture_tasks, printed.THREE_NODES, "4711")]
    futures += [pool.submit(maker.capture_tasks, printed.TIMED_OUT, "4712")]
    futures += [
        pool.submit(maker.capture, printed.REQUEUED),
        pool.submit(maker.capture_written, printed.EVENTFUL),
    ]
    jobs = first + [future.result() for future in futures]
    assert late.stop() == 0
    return jobs


def _settle(
    loki: LokiServer,
    prometheus: PrometheusServer,
    agents: list[NodeAgent],
    old: NodeAgent,
    jobs: list[Captured],
) -> None:
    """Wait until Loki has all entries and Prometheus has scraped all agents after that."""
    prometheus.wait_ready()
    prometheus.set_targets([_target(agent) for agent in agents])
    old.wait_shipped(WAIT_SECS)
    loki.flush()
    loki.wait_ready()
    open_count = sum(job.job.stays for job in jobs)
    wait_until(
        lambda: sum(len(agent.captures()) for agent in agents) == open_count,
        "all jobs are shipped",
        WAIT_SECS,
    )
    logs = LokiSource(loki.url)
    timeouts = f'count_over_time({{cluster="{CLUSTER}", host="{CONTROLLER}", kind="event"}} |= "TIMEOUT" [1h])'
    wait_until(
        lambda: logs.get("/loki/api/v1/query", {"query": timeouts})["result"],
        "how Slurm ended a job is in Loki",
    )
    ship_time = time.time()
    metrics = PrometheusSource(prometheus.url, scrape_ms=SCRAPE_MS)
    since = f"count(timestamp(logshipper_agent_build_info) > {ship_time:.3f} + 1)"
    wait_until(lambda: _first(metrics, since) == len(agents), "Prometheus has scraped all agents")
    bars = f'count_over_time({{cluster="{CLUSTER}", kind="status"}} | job_id=~"running.*" |= "40%" [1h])'
    wait_until(
        lambda: logs.get("/loki/api/v1/query", {"query": bars})["result"],
        "the bar of the running job is in Loki",
    )
    ends = f'count_over_time({{cluster="{CLUSTER}", host="old1", kind="event"}} |= "closed" [22d])'
    wait_until(
        lambda: logs.get("/loki/api/v1/query", {"query": ends})["result"], "the old job is in Loki"
    )


def _target(agent: NodeAgent) -> str:
    return agent.metrics_url.removeprefix("http://").removesuffix("/metrics")


def _first(prometheus: PrometheusSource, promql: str) -> float:
    result = prometheus.get("/api/v1/query", {"query": promql})["result"]
    return float(result[0]["value"][1]) if result else 0.0
