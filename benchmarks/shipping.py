"""What the node agent costs, beside Promtail; how long a line takes until a query finds it; whether it keeps up."""

import http.server
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import requests

from ingest.agent_config import AgentSection
from ingest.loki import Client
from ingest.node_spool import NodeIdentity, prepare_capture
from ingest.segment_reader import segment_name
from logshipper import segment
from logshipper.segment import Kind, Stream
from tests.node_agents import NodeAgent
from tests.servers.build import PROMTAIL
from tests.servers.running import LokiServer, free_port

WAIT_SECS = 300.0
FRAME_LINES = 700  # what a sidecar makes of a full pipe
PROMTAIL_CONFIG = """\
server: {{http_listen_address: 127.0.0.1, http_listen_port: {port}, grpc_listen_port: 0, log_level: warn}}
positions: {{filename: {folder}/positions.yaml}}
clients: [{{url: {url}/loki/api/v1/push}}]
scrape_configs:
  - job_name: bench
    static_configs:
      - targets: [localhost]
        labels: {{cluster: bench, host: n1, stream: stdout, kind: log, __path__: {folder}/*.log}}
    pipeline_stages:
      - structured_metadata: {{job_id: filename, user: filename, task: filename, attempt: filename}}
"""


UNLIMITED = {"stream_max_bytes_per_sec": 0, "tenant_max_bytes_per_sec": 0}


class Sink:
    """Answers every push with 204 at once. In a process of its own, so that its CPU isn't anybody's."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shipping"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class _Taken(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""


def cost(folder: Path, data: Path, lines: int, medians: Callable[..., dict[str, tuple[float, float]]]) -> None:
    """CPU seconds from spooled segments, or a log file, to a sink that answers at once."""
    PROMTAIL.build()
    sink = Sink()
    try:
        found = medians(
            agent=lambda: _agent(folder, data, sink.url),
            idle=lambda: _agent(folder, None, sink.url),
            promtail=lambda: _promtail(folder, data, lines, sink.url),
        )
    finally:
        sink.close()
    million = lines / 1e6
    print(f"\n### Shipping {lines:,} lines to a sink that answers at once\n")
    print("| | s | CPU s per million lines | of Promtail's |\n|---|---|---|---|")
    peer = found["promtail"][1]
    names = {"agent": "`logshipper-agent`, start and end included", "promtail": f"Promtail {PROMTAIL.version}"}
    for name, title in names.items():
        wall, cpu = found[name]
        print(f"| {title} | {wall:.2f} | {cpu / million:.2f} | {cpu / peer:.2f} |")
    print(f"\nThe agent's start and end alone: {found['idle'][1]:.2f} CPU s.")


def _agent(folder: Path, data: Path | None, url: str) -> tuple[float, float]:
    place = folder / f"agent-{time.monotonic_ns()}"
    agent = NodeAgent(place, url, cluster="bench", loki=UNLIMITED, metrics={"listen": ""})
    if data is not None:
        _spool(agent, data)
    begin = time.perf_counter()
    agent.start()
    agent.wait_shipped(WAIT_SECS)
    seconds = time.perf_counter() - begin
    return seconds, _end(agent.process)


def _spool(agent: NodeAgent, data: Path) -> None:
    """A capture of all lines, as a sidecar leaves it."""
    section = AgentSection(cluster="bench", host="n1", spool_dir=str(agent.spool))
    made = prepare_capture(section, NodeIdentity("4711", 1, "0", 0, "bench", os.getuid(), "me"))
    texts = data.read_bytes().splitlines(keepends=True)
    now_ns = time.time_ns() - 60 * 10**9
    with (Path(made) / "segments" / segment_name(1)).open("wb") as file:
        file.write(segment.encode_file_header(1, now_ns))
        for at in range(0, len(texts), FRAME_LINES):
            part = texts[at : at + FRAME_LINES]
            now_ns += 1_000_000
            file.write(segment.encode_lines(Stream.STDOUT, now_ns, b"".join(part), [(Kind.LOG, len(part))]))
        file.write(segment.encode_end(now_ns + 1_000_000, closed=True))


def _promtail(folder: Path, data: Path, lines: int, url: str) -> tuple[float, float]:
    place = folder / f"promtail-{time.monotonic_ns()}"
    place.mkdir()
    os.link(data, place / "lines.log")
    port = free_port()
    config = place / "promtail.yaml"
    config.write_text(PROMTAIL_CONFIG.format(port=port, folder=place, url=url))
    begin = time.perf_counter()
    process = subprocess.Popen([str(PROMTAIL.path()), f"-config.file={config}"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + WAIT_SECS
    while _sent(port) < lines:
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit("Promtail didn't send all lines in time")
        time.sleep(0.05)
    seconds = time.perf_counter() - begin
    return seconds, _end(process)


def _sent(port: int) -> float:
    try:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    except requests.RequestException:
        return 0.0
    found = [line for line in text.splitlines() if line.startswith("promtail_sent_entries_total")]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def _end(process: "subprocess.Popen[bytes] | None") -> float:
    """Stops a process; returns its CPU seconds."""
    assert process is not None
    process.send_signal(signal.SIGTERM)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def delay(folder: Path, seconds: int = 60) -> None:
    """From print to queryable in a real Loki, with the agent's default settings."""
    stamps = f"import time\nfor _ in range({seconds * 5}): print(time.time_ns(), flush=True); time.sleep(0.2)"
    waits: list[float] = []
    with ExitStack() as stack:
        loki = stack.enter_context(LokiServer())
        client = stack.enter_context(Client(loki.url))
        job = stack.enter_context(_job(stack.enter_context(_default_agent(folder / "delay", loki)), stamps))
        newest = begin_ns = time.time_ns()
        while job.poll() is None or time.time_ns() - begin_ns < 10**9:
            found = client.query_range('{cluster="bench",kind="log"}', newest + 1, newest + 3600 * 10**9)
            now_ns = time.time_ns()
            for entry in (entry for result in found for entry in result.entries):
                waits.append((now_ns - int(entry.line)) / 1e9)
                newest = max(newest, entry.time_ns)
            time.sleep(0.02)
    waits.sort()
    p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99)]
    print(f"\n### From print to queryable in Loki, {len(waits)} lines, one each 0.2 s\n")
    print(f"p50 {p50:.2f} s, p99 {p99:.2f} s, longest {waits[-1]:.2f} s")


def steady(folder: Path, seconds: int = 60, rate: int = 10_000) -> None:
    """Whether the agent keeps up with a job that prints on and on, with a real Loki at its default limits."""
    program = (
        "import time\nbegin = time.monotonic()\n"
        f"for tenth in range({seconds * 10}):\n"
        f"    steps = range(tenth * {rate // 10}, (tenth + 1) * {rate // 10})\n"
        "    print('\\n'.join(f'step {step:07d} loss 0.123456 acc 0.98765' for step in steps), flush=True)\n"
        "    time.sleep(max(0, begin + (tenth + 1) / 10 - time.monotonic()))\n"
    )
    lags: list[float] = []
    with LokiServer() as loki, Client(loki.url) as client, _default_agent(folder / "steady", loki) as agent:
        with _job(agent, program) as job:
            while job.poll() is None:
                lags += [float(line.split()[1]) for line in agent.metrics().splitlines() if " " in line
                         and line.startswith("logshipper_agent_lag_seconds")]  # fmt: skip
                time.sleep(1)
        begin = time.perf_counter()
        agent.wait_shipped(WAIT_SECS)
        rest = time.perf_counter() - begin
        question = 'sum(count_over_time({cluster="bench",kind="log"}[1h]))'
        counted = sum(result.samples[0].value for result in client.query(question))
        waiting = json.dumps(agent.status()["jobs"][0]["refused"])
    third = max(len(lags) // 3, 1)
    early, late = statistics.median(lags[:third]), statistics.median(lags[-third:])
    print(f"\n### {rate:,} lines a second for {seconds} s\n")
    print(f"lag, median of the first third {early:.1f} s, of the last third {late:.1f} s, longest {max(lags):.1f} s")
    print(f"all shipped {rest:.1f} s after the end; in Loki {counted:,.0f} of {seconds * rate:,}; refused: {waiting}")


def _default_agent(folder: Path, loki: LokiServer) -> NodeAgent:
    """With the settings that an admin gets who sets nothing."""
    agent = {"poll_secs": 0.25}
    sending = {"batch_wait_secs": 1.0, "retry_min_secs": 0.5, "retry_max_secs": 30.0}
    return NodeAgent(folder, loki.url, cluster="bench", agent=agent, loki=sending)


def _job(agent: NodeAgent, program: str) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "logshipper", "run", "--", sys.executable, "-c", program]
    environment = {**agent.environment, "HOME": str(agent.folder)}
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Taken)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
