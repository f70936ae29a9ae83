"""Cost of the node agent next to syslog-ng and rsyslog, if they are on PATH: from spooled segments
or a log file to a sink."""

import http.server
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import requests

from logshipper.spool import segment
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.spool.segment_reader import segment_name
from tests.tools.stores.node_agents import NodeAgent

WAIT_SECS = 300.0
FRAME_LINES = 700  # the lines of a full pipe
# file output, because Debian's rsyslog has no HTTP output
RSYSLOG_CONFIG = """\
global(workDirectory="{folder}")
module(load="imfile")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="out") {{ action(type="omfile" file="{folder}/out.txt" template="line") }}
input(type="imfile" File="{folder}/lines.log" Tag="bench" Ruleset="out")
"""
SYSLOG_NG_CONFIG = """\
@version: 3.35
options {{ stats-freq(0); }};
source lines {{ file("{folder}/lines.log" follow-freq(1) flags(no-parse)
    log-fetch-limit(10000) log-iw-size(100000)); }};
destination sink {{ http(url("{url}/lines") method("POST") batch-lines(10000) batch-bytes(1048576) batch-timeout(100)
    delimiter("\\n") body('$(format-json --scope none line="$MESSAGE" job_id="4711" user="me")')); }};
log {{ source(lines); destination(sink); flags(flow-control); }};
"""


UNLIMITED = {"stream_max_bytes_per_sec": 0, "tenant_max_bytes_per_sec": 0}


class Sink:
    """Server that answers every push with 204 at once. It runs in its own process, apart from every
    measured CPU time. GET returns the number of lines in uncompressed bodies."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shipping"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    def lines(self) -> int:
        return int(requests.get(self.url, timeout=10).text)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class _Taken(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lines = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/lines":
            _Taken.lines += body.count(b"\n") + 1
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        text = b"%d" % self.lines
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def cost(
    folder: Path, data: Path, lines: int, medians: Callable[..., dict[str, tuple[float, float]]]
) -> None:
    """Print the CPU seconds from spooled segments or a log file to a sink that answers at once."""
    sink = Sink()
    peers: dict[str, Callable[[], tuple[float, float]]] = {}
    names = {"agent": "`logshipper-agent`, start and end included"}
    if shutil.which("syslog-ng"):
        peers["syslog_ng"] = lambda: _syslog_ng(folder, data, lines, sink)
        names["syslog_ng"] = "syslog-ng, JSON by HTTP"
    if shutil.which("rsyslogd"):
        peers["rsyslog"] = lambda: _rsyslog(folder, data)
        names["rsyslog"] = "rsyslog, file to file"
    try:
        medians_of = medians(
            agent=lambda: _agent(folder, data, sink.url),
            idle=lambda: _agent(folder, None, sink.url),
            **peers,
        )
    finally:
        sink.close()
    million = lines / 1e6
    print(f"\n### Shipping {lines:,} lines to a sink that answers at once\n")
    print(
        "| | s | of the agent's | CPU s per million lines | of the agent's |\n|---|---|---|---|---|"
    )
    agent_wall, agent_cpu = medians_of["agent"]
    for name, title in names.items():
        wall, cpu = medians_of[name]
        print(
            f"| {title} | {wall:.2f} | {wall / agent_wall:.2f} | {cpu / million:.2f} | {cpu / agent_cpu:.2f} |"
        )
    print(f"\nThe agent's start and end alone: {medians_of['idle'][1]:.2f} CPU s.")


def _agent(folder: Path, data: Path | None, url: str) -> tuple[float, float]:
    place = folder / f"agent-{time.monotonic_ns()}"
    agent = NodeAgent(place, url, cluster="bench", loki=UNLIMITED, metrics={"listen": ""})
    if data is not None:
        spool_capture(agent, data)
    begin = time.perf_counter()
    agent.start()
    agent.wait_shipped(WAIT_SECS)
    seconds = time.perf_counter() - begin
    return seconds, _end(agent.process)


def spool_capture(agent: NodeAgent, data: Path, job_id: str = "4711") -> None:
    """Spool a finished capture of all of data's lines, as a sidecar does."""
    section = AgentSection(cluster="bench", host="n1", spool_dir=str(agent.spool))
    folder = prepare_capture(section, NodeIdentity(job_id, 1, "0", 0, "bench", os.getuid(), "me"))
    texts = data.read_bytes().splitlines(keepends=True)
    now_ns = time.time_ns() - 60 * 10**9
    with (Path(folder) / "segments" / segment_name(1)).open("wb") as file:
        file.write(segment.encode_file_header(1, now_ns))
        for at in range(0, len(texts), FRAME_LINES):
            part = texts[at : at + FRAME_LINES]
            now_ns += 1_000_000
            file.write(
                segment.encode_lines(Stream.STDOUT, now_ns, b"".join(part), [(Kind.LOG, len(part))])
            )
        file.write(segment.encode_end(now_ns + 1_000_000, closed=True))


def _syslog_ng(folder: Path, data: Path, lines: int, sink: Sink) -> tuple[float, float]:
    place = _log_file(folder, data)
    config = place / "syslog-ng.conf"
    config.write_text(SYSLOG_NG_CONFIG.format(folder=place, url=sink.url))
    files = [f"--{name}={place}/{name}" for name in ("persist-file", "pidfile", "control")]
    before = sink.lines()
    command = ["syslog-ng", "--foreground", "--no-caps", f"--cfgfile={config}", *files]
    return _until(command, lambda: sink.lines() - before >= lines, "syslog-ng")


def _rsyslog(folder: Path, data: Path) -> tuple[float, float]:
    place = _log_file(folder, data)
    config, out = place / "rsyslog.conf", place / "out.txt"
    config.write_text(RSYSLOG_CONFIG.format(folder=place))
    size = data.stat().st_size
    command = ["rsyslogd", "-n", f"-f{config}", f"-i{place}/pid"]
    return _until(command, lambda: out.exists() and out.stat().st_size >= size, "rsyslog")


def _log_file(folder: Path, data: Path) -> Path:
    """Return a new folder for a peer, with data as `lines.log`."""
    place = folder / f"peer-{time.monotonic_ns()}"
    place.mkdir()
    os.link(data, place / "lines.log")
    return place


def _until(command: list[str], is_done: Callable[[], bool], name: str) -> tuple[float, float]:
    """Run a command until `is_done`, then stop it. Return the seconds until then, and its CPU
    seconds."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + WAIT_SECS
    while not is_done():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            raise SystemExit(f"{name} didn't bring all lines there")
        time.sleep(0.05)
    seconds = time.perf_counter() - begin
    return seconds, _end(process)


def _end(process: "subprocess.Popen[bytes] | None") -> float:
    """Stop a process and return its CPU seconds."""
    assert process is not None
    process.send_signal(signal.SIGTERM)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Taken)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
