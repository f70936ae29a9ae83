"""The node agent's load: delay from print to query, catch-up, and the cost of many tasks and of
none."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.shipping import WAIT_SECS, spool_capture
from logshipper.render.renderer import FIRST_SECS
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.running import LokiServer
from tests.tools.stores.node_agents import NodeAgent

RATES = (1, 100, 10_000)  # lines a second
DELAY_SECS = 60
CATCH_UP_JOBS = 10  # ten last digits make ten streams in Loki
CATCH_UP_LINES = 500_000  # of each job
LOKI_LIMIT = 4 << 20  # bytes a second: Loki's default limit of a tenant
LINE = b"epoch 12 step %07d: loss 0.123456 acc 0.98765 lr 1.0e-04 grad 0.5432 time 0.123 s/it ok\n"
LIVE_TASKS, FINISHED_TASKS = 100, 1000
IDLE_SECS = 60


def delay(folder: Path) -> None:
    """Print the delay from print to query in a real Loki, with the agent's default settings.

    During a stream's first second, the renderer waits for redraws of a row.
    """
    print(
        "\n### From print to queryable in Loki, s\n\n"
        "| lines a second | p50 | p99 | longest | longest of the first second |\n|---|---|---|---|---|"
    )
    for rate in RATES:
        waits = _delays(folder / f"delay-{rate}", rate)
        first = math.ceil(FIRST_SECS * min(rate, 10))
        later = sorted(waits[first:])
        p99 = later[int(len(later) * 0.99)]
        print(
            f"| {rate:,} | {statistics.median(later):.2f} | {p99:.2f} | {later[-1]:.2f} | {max(waits[:first]):.2f} |"
        )


def _delays(folder: Path, rate: int) -> list[float]:
    """Return the delays of a job's lines in seconds, one per tenth of a second. Each line contains
    the time of its print. An earlier job warms up the agent and Loki."""
    steps = min(rate, 10)
    program = (
        "import time\nbegin = time.monotonic()\n"
        f"for step in range({DELAY_SECS * steps}):\n"
        f"    print(*[f'{{time.time_ns()}} {{n}}' for n in range({rate // steps})], sep='\\n', flush=True)\n"
        f"    time.sleep(max(0, begin + (step + 1) / {steps} - time.monotonic()))\n"
    )
    waits: list[float] = []
    with ExitStack() as stack:
        loki = stack.enter_context(LokiServer())
        client = stack.enter_context(LokiClient(loki.url))
        agent = stack.enter_context(default_agent(folder, loki.url))
        with _job(agent, "print('first')") as earlier:
            earlier.wait()
        while not client.query_range(
            '{cluster="bench",kind="log"}', time.time_ns() - 10**12, time.time_ns(), limit=1
        ):
            time.sleep(0.02)
        job = stack.enter_context(_job(agent, program))
        newest = time.time_ns()
        ended = 0.0
        while not ended or time.monotonic() - ended < 3:
            # Only the first line of each step counts. The other lines make up the rate.
            result = client.query_range(
                '{cluster="bench",kind="log"} |~ " 0$"',
                newest + 1,
                newest + 3600 * 10**9,
                limit=5000,
            )
            now_ns = time.time_ns()
            for entry in (entry for result in result for entry in result.entries):
                waits.append((now_ns - int(entry.line.split()[0])) / 1e9)
                newest = max(newest, entry.time_ns)
            if not ended and job.poll() is not None:
                ended = time.monotonic()
            time.sleep(0.02)
    if len(waits) != DELAY_SECS * steps:
        raise SystemExit(f"{len(waits)} of {DELAY_SECS * steps} lines were found")
    return waits


def catch_up(folder: Path) -> None:
    """Print the time to ship a backlog into a real Loki with its default limits."""
    with (
        tempfile.NamedTemporaryFile(dir=folder) as file,
        LokiServer() as loki,
        _patient(loki) as client,
    ):
        file.write(b"".join(LINE % number for number in range(CATCH_UP_LINES)))
        file.flush()
        agent = default_agent(folder / "catch-up", loki.url)
        for job in range(CATCH_UP_JOBS):
            spool_capture(agent, Path(file.name), f"47{job}")
        lines, size = CATCH_UP_JOBS * CATCH_UP_LINES, CATCH_UP_JOBS * file.tell()
        begin = time.perf_counter()
        with agent:
            agent.wait_shipped(WAIT_SECS * 4)
            seconds = time.perf_counter() - begin
            answers = json.dumps(samples(agent, "logshipper_agent_pushes_total"))
        line_count = sum(
            result.samples[0].value
            for result in client.query('sum(count_over_time({cluster="bench",kind="log"}[2h]))')
        )
    print(
        f"\n### Catching up with {lines:,} lines of {CATCH_UP_JOBS} jobs, Loki at its default limits\n"
    )
    rate = size / seconds
    print(
        f"{seconds:.0f} s, {rate / 1e6:.2f} MB/s of lines; Loki takes {LOKI_LIMIT / 1e6:.2f} with structured metadata"
    )
    print(f"in Loki {line_count:,.0f} of {lines:,}; answers: {answers}")


def _patient(loki: LokiServer) -> LokiClient:
    return LokiClient(ServerAccess(loki.url, timeout_secs=WAIT_SECS))


def _count(client: LokiClient, shard: int) -> float:
    """Return the number of log lines from jobs whose ids end in `shard`."""
    question = f'sum(count_over_time({{cluster="bench",kind="log",job_shard="{shard}"}}[2h]))'
    return sum(result.samples[0].value for result in client.query(question))


def tasks(folder: Path) -> None:
    """Print memory and CPU of the idle agent, with live captures, and with shipped ones."""
    print(
        "\n### Memory and CPU of the agent\n\n| | resident, MiB | CPU, % of a core |\n|---|---|---|"
    )
    with LokiServer() as loki, default_agent(folder / "tasks", loki.url) as agent:
        assert agent.process is not None
        pid = agent.process.pid
        time.sleep(2)
        print(f"| idle, no captures | {resident(pid):.0f} | {_cpu_share(pid, IDLE_SECS):.2f} |")
        with ExitStack() as stack:
            for task in range(LIVE_TASKS):
                program = (
                    "import time\nwhile True: print('step', time.time(), flush=True); time.sleep(1)"
                )
                job = stack.enter_context(_job(agent, program, "--job-id", f"live-{task}"))
                stack.callback(job.terminate)
            time.sleep(20)
            share = _cpu_share(pid, IDLE_SECS)
            print(
                f"| {LIVE_TASKS} live tasks, a line a second each | {resident(pid):.0f} | {share:.2f} |"
            )
        agent.wait_shipped(WAIT_SECS)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(LINE % 1)
            file.flush()
            for task in range(FINISHED_TASKS):
                spool_capture(agent, Path(file.name), f"done-{task}")
        agent.wait_shipped(WAIT_SECS)
        share = _cpu_share(pid, IDLE_SECS)
        print(
            f"| idle, {FINISHED_TASKS:,} finished tasks shipped | {resident(pid):.0f} | {share:.2f} |"
        )


def samples(agent: NodeAgent, name: str) -> dict[str, float]:
    """Return the values of a metric by their labels, in the format of /metrics."""
    lines = [line for line in agent.metrics().splitlines() if line.startswith(name + "{")]
    return {line[len(name) : line.rindex(" ")]: float(line.rpartition(" ")[2]) for line in lines}


def resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return (
        int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
    )


def _cpu_share(pid: int, seconds: float) -> float:
    """Return the CPU that a process uses during `seconds`, in percent of a core."""
    begin, before = time.monotonic(), cpu_secs(pid)
    time.sleep(seconds)
    return (cpu_secs(pid) - before) / (time.monotonic() - begin) * 100


def cpu_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def default_agent(folder: Path, url: str) -> NodeAgent:
    """Return an agent with the settings of an unconfigured installation."""
    agent = {"poll_secs": 0.25}
    sending = {"batch_wait_secs": 0.8, "retry_min_secs": 0.5, "retry_max_secs": 30.0}
    return NodeAgent(folder, url, cluster="bench", agent=agent, loki=sending)


def _job(agent: NodeAgent, program: str, *options: str) -> "subprocess.Popen[bytes]":
    words = [
        sys.executable,
        "-m",
        "logshipper",
        "run",
        *options,
        "--",
        sys.executable,
        "-c",
        program,
    ]
    environment = {**agent.environment, "HOME": str(agent.folder)}
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
