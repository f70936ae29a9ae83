"""The demonstration of `make demo-servers`: the same training run, through the node agent into a
real Loki and a real Prometheus.

All servers listen on free loopback ports, with their files in demo-out/servers/. The demonstration
stops them at its end; with KEEP=1 it leaves them up and prints a command to stop them. Exit code 1
if an expected result is missing.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from examples.demo_console import Demo, capture, finish
from logshipper.errors import LogshipperError
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.prometheus import PrometheusClient
from logshipper_ingest.model.ranks import RULE_UNIT
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.places import ServerMissing
from tests.servers.running import LokiServer, PrometheusServer, ServerFailed, free_port

CLUSTER = "demo"
PIDS = "pids"  # file in the folder with the pids left by KEEP=1
WAIT_SECS = 60.0
STOP_SECS = 30.0
CONFIG = """\
# The agent of `make demo-servers`. All options: docs/agent.md
[agent]
cluster = "{cluster}"
spool_dir = "{folder}/spool"
state_dir = "{folder}/state"
socket = "{folder}/agent.sock"

[loki]
url = "{loki}"

[metrics]
listen = "127.0.0.1:{port}"

[prometheus]
url = "{prometheus}"
"""
SITE = """\
# Where `logshipper show --from loki` and the others read
[loki]
url = "{loki}"

[prometheus]
url = "{prometheus}"
"""


class Agent:
    """The node agent's process. stay: it outlives this process."""

    def __init__(self, config: Path, log: Path, *, stay: bool) -> None:
        self.stay = stay
        self.log = log
        command = [sys.executable, "-m", "logshipper_ingest", "run", "--config", str(config)]
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + WAIT_SECS
        while "ready:" not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"the agent didn't start: {self.log.read_text()}")
            time.sleep(0.1)

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.stay and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECS)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Watch(threading.Thread):
    """Polls Prometheus for the job's progress until the first answer. answer: the first answer, or
    ""."""

    def __init__(self, prometheus: PrometheusClient, question: str) -> None:
        super().__init__(daemon=True)
        self._prometheus = prometheus
        self._question = question
        self._over = threading.Event()
        self.answer = ""

    def run(self) -> None:
        while not self._over.wait(0.2) and not self.answer:
            try:
                found = self._prometheus.query(self._question)
            except LogshipperError:
                continue
            if found:
                self.answer = f"epoch {found[0].samples[-1].value:g}"

    def end(self) -> str:
        self._over.set()
        self.join(WAIT_SECS)
        return self.answer


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows a training run in Loki and Prometheus.")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out/servers"), help="folder (default: %(default)s)"
    )
    parser.add_argument("--fast", action="store_true", help="a very short training run")
    parser.add_argument(
        "--keep", action="store_true", help="leave servers and agent up (or: KEEP=1)"
    )
    options = parser.parse_args()
    keep = options.keep or os.environ.get("KEEP", "") not in ("", "0")
    folder = options.out.resolve()
    alive = still_up(folder)
    if alive:
        sys.stderr.write(
            f"demo-servers: still up from before, in {folder}; first: kill {' '.join(map(str, alive))}\n"
        )
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home").mkdir(parents=True)
    settings = {
        "LOGSHIPPER_AGENT_SOCKET": str(folder / "agent.sock"),
        "LOGSHIPPER_SITE": str(folder / "site.toml"),
    }
    demo = Demo(folder, settings, fast=options.fast)
    begin = time.monotonic()
    try:
        with ExitStack() as stack:
            status = show(demo, stack, begin, keep=keep)
    except (ServerMissing, ServerFailed) as error:
        demo.say(str(error), "bold red")
        return 1
    return status


def still_up(folder: Path) -> list[int]:
    """Return the processes left by KEEP=1 that are still alive."""
    try:
        pids = [int(word) for word in (folder / PIDS).read_text().split()]
    except (OSError, ValueError):
        return []
    return [pid for pid in pids if str(folder).encode() in traces_of(pid)]


def traces_of(pid: int) -> bytes:
    """Return a process' working folder and command line. They show whether another program has the
    pid by now."""
    try:
        return (
            os.fsencode(Path(f"/proc/{pid}/cwd").readlink())
            + Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except OSError:
        return b""


def show(demo: Demo, stack: ExitStack, begin: float, *, keep: bool) -> int:
    loki, prometheus, agent = start(demo, stack, keep=keep)
    with LokiClient(loki.url) as logs, PrometheusClient(prometheus.url) as series:
        watch = Watch(series, f'logshipper_metadata_value{{cluster="{CLUSTER}", key="epoch"}}')
        watch.start()
        capture(demo)
        seen = watch.end()
        job_id = find_job(demo, logs)
        wait_closed(demo, logs, job_id)
        show_log(demo, logs, job_id)
        show_metadata(demo, logs, job_id)
        show_x(demo, series, job_id)
        show_progress(demo, logs, series, job_id, seen)
    show_reading(demo, job_id)
    show_end(demo, loki, prometheus, agent, keep=keep)
    return finish(demo, begin)


def start(
    demo: Demo, stack: ExitStack, *, keep: bool
) -> tuple[LokiServer, PrometheusServer, Agent]:
    demo.heading("Loki, Prometheus and the node agent")
    loki = LokiServer(folder=demo.folder / "loki", stay=keep)
    prometheus = PrometheusServer(folder=demo.folder / "prometheus", stay=keep)
    if not keep:
        stack.callback(loki.close)
        stack.callback(prometheus.close)
    demo.say(f"Loki {loki.version}, Prometheus {prometheus.version}: starting, on loopback ...")
    loki.start(wait=False)
    prometheus.start(wait=False)
    loki.wait_ready()
    prometheus.wait_ready()
    port = free_port()
    values = {
        "cluster": CLUSTER,
        "folder": demo.folder,
        "loki": loki.url,
        "prometheus": prometheus.url,
        "port": port,
    }
    config = demo.folder / "agent.toml"
    config.write_text(CONFIG.format(**values))
    (demo.folder / "site.toml").write_text(SITE.format(**values))
    agent = stack.enter_context(Agent(config, demo.folder / "agent.log", stay=keep))
    agent.wait_ready()
    prometheus.set_targets([f"127.0.0.1:{port}"])
    prometheus.wait_for_target(f"127.0.0.1:{port}")
    demo.say(f"  Loki        {loki.url}")
    demo.say(f"  Prometheus  {prometheus.url}")
    demo.say(f"  agent       {os.path.relpath(config)}, /metrics on port {port}")
    return loki, prometheus, agent


# ---- queries and answers


def find_job(demo: Demo, loki: LokiClient) -> str:
    """Return the job's id from its start event."""
    question = f'{{cluster="{CLUSTER}", kind="event"}} |= "started"'
    wait(demo, "the job's start is in Loki", lambda: ask(loki, question))
    return next((entry.metadata["job_id"] for entry in ask(loki, question)), "")


def wait_closed(demo: Demo, loki: LokiClient, job_id: str) -> None:
    question = f'{{cluster="{CLUSTER}", kind="event"}} | job_id="{job_id}" | json event="event" | event="closed"'
    wait(
        demo, "all of the job is in Loki, its last event says so", lambda: bool(ask(loki, question))
    )


def wait(demo: Demo, what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.2)
    demo.check(bool(held), what)


def ask(loki: LokiClient, question: str) -> list[Entry]:
    now_ns = time.time_ns()
    return list(loki.entries(question, now_ns - 3600 * 10**9, now_ns + 60 * 10**9))


def show_log(demo: Demo, loki: LokiClient, job_id: str) -> None:
    demo.heading("The log (LogQL)")
    question = f'{{cluster="{CLUSTER}", kind=~"log|metadata", stream="stdout"}} | job_id="{job_id}"'
    lines = [entry.line for entry in ask(loki, question)]
    answer(demo, question, lines, 12)
    demo.check(
        any("told apart" in line for line in lines), f"{len(lines)} lines of standard output"
    )


def show_metadata(demo: Demo, loki: LokiClient, job_id: str) -> None:
    demo.heading("The metadata (LogQL)")
    question = (
        f'{{cluster="{CLUSTER}", kind="metadata"}} | job_id="{job_id}" '
        '| json epoch=`["epoch"]`, loss=`["loss"]` | loss!="" | line_format "epoch {{.epoch}}: loss {{.loss}}"'
    )
    lines = [entry.line for entry in ask(loki, question)]
    answer(demo, question, lines[-6:][::-1], 6)
    demo.check(
        len(lines) > 1,
        f"{len(lines)} records have a loss, the newest stands first; keys may be nested",
    )


def show_x(demo: Demo, prometheus: PrometheusClient, job_id: str) -> None:
    demo.heading("Which X (PromQL)")
    ranks = f'logshipper_x_rank{{job_id="{job_id}", choice="auto"}}'
    question = f"bottomk(1, max by (key, path) (max_over_time({ranks}[1h])))"
    wait(demo, "Prometheus has ranked the keys", lambda: prometheus.query(question))
    found = [
        f"{series.labels['key']}: rule {int(series.samples[-1].value) // RULE_UNIT}"
        for series in prometheus.query(question)
    ]
    answer(demo, question, found, 3)
    demo.check(
        found[:1] == ["epoch: rule 2"],
        "the X axis is the epoch; a key `progress` would go before it",
    )


def show_progress(
    demo: Demo, loki: LokiClient, prometheus: PrometheusClient, job_id: str, seen: str
) -> None:
    demo.heading("How far is it (PromQL, LogQL)")
    question = f'logshipper_job_state{{job_id="{job_id}"}} == 1'
    wait(
        demo,
        "Prometheus has seen the job's end",
        lambda: "COMPLETED" in states(prometheus, question),
    )
    answer(demo, question, states(prometheus, question), 2)
    question = f'logshipper_metadata_value{{job_id="{job_id}", key="epoch"}}'
    now = [
        f"{series.labels['key']} {series.samples[-1].value:g}"
        for series in prometheus.query(question)
    ]
    answer(
        demo,
        question,
        [f"while it ran: {seen or 'not scraped'}", *(f"now: {value}" for value in now)],
        3,
    )
    if not demo.fast:  # a fast run ends before a scrape
        demo.check(bool(seen), "Prometheus knew while the job ran")
    question = f'{{cluster="{CLUSTER}", kind="status"}} | job_id="{job_id}"'
    bars = [entry.line for entry in ask(loki, question) if entry.line.strip()]
    answer(
        demo, question, bars or ["(what a bar shows now, every 10 s: this job was over before)"], 4
    )


def states(prometheus: PrometheusClient, question: str) -> list[str]:
    return [series.labels["state"] for series in prometheus.query(question)]


def answer(demo: Demo, question: str, lines: Sequence[str], most: int) -> None:
    demo.say(f"  {question}", "bold", exact=True)
    for line in lines[:most]:
        demo.say(f"    {line[:200]}", exact=True)
    if len(lines) > most:
        demo.say(f"    ({len(lines) - most} more)", "dim")
    if not lines:
        demo.say("    (nothing)", "dim")


def show_reading(demo: Demo, job_id: str) -> None:
    demo.heading("The same on the command line")
    demo.say(f"$ {demo.export}", "bold", exact=True)
    demo.call("show", job_id, "--from", "loki", rows=14)
    said = demo.call("show", job_id, "--from", "loki", "--json", quiet=True)
    shown = json.loads(said) if said else {}
    demo.check(shown.get("state") == "COMPLETED", f"the job's state is {shown.get('state')}")


def show_end(
    demo: Demo, loki: LokiServer, prometheus: PrometheusServer, agent: Agent, *, keep: bool
) -> None:
    demo.heading("Where to go on")
    config = os.path.relpath(demo.folder / "agent.toml")
    if not keep:
        demo.say("All is stopped now. `make demo-servers KEEP=1` leaves it up, to look around.")
        return
    demo.say("Loki, Prometheus and the agent stay up.")
    (demo.folder / PIDS).write_text(f"{agent.process.pid} {loki.pid} {prometheus.pid}\n")
    for command, what in (
        (demo.export, "so that these find the agent, and Loki"),
        (f"logshipper-agent status --config {config}", "what is spooled, shipped and refused"),
        (f"logshipper-agent check --config {config}", "does it all fit together?"),
        ("logshipper run -- YOUR COMMAND", "capture something of your own"),
        ("logshipper ls --from loki", "what was captured"),
        (f"kill {agent.process.pid} {loki.pid} {prometheus.pid}", "stops all three"),
    ):
        demo.say(f"  {command}", exact=True)
        demo.say(f"      {what}", "dim")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
