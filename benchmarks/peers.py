"""The node agent beside the shippers of other clusters: Fluent Bit, rsyslog with omhttp, the
OpenTelemetry collector, Grafana Alloy and Vector.

python -m benchmarks.peers [--rounds 3] [--fluent-bit PATH] [--rsyslog PATH] ... [PART ...]

Every shipper sends the same lines to the same receiver. Missing programs have no row. The peers
read a file to which a program writes. The agent ships a capture: the same program runs under
`logshipper run`. Parts:

- flood: CPU seconds and peak memory for a million lines that already exist
- steady: delay from write to receiver, and CPU time, at 100 lines a second
- losses: lines lost and repeated in a real Loki after kill -9 and after outages
"""

import argparse
import functools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.agent_load import cpu_secs, default_agent
from benchmarks.job_cost import LOGSHIPPER, adopt_orphans, children
from benchmarks.receiver import LINE, Receiver
from benchmarks.shipping import UNLIMITED, spool_capture
from logshipper_ingest.loki.client import LokiClient
from tests.servers.loki import find_loki
from tests.servers.places import ServerMissing
from tests.servers.running import LokiServer, free_port
from tests.tools.stores.node_agents import NodeAgent

RATE, WARM_UP_SECS = 100, 3.0
LOSS_RATE, LOSS_SECS = 300, 40.0
OUTAGE, KILLED_AT, RESTART_SECS = (8.0, 28.0), 18.0, 1.0
DRAIN_SECS, SETTLE_SECS = 75.0, 8.0
STOP_SECS = 60.0
HOUR_NS = 3600 * 10**9
_Run = TypeVar("_Run")
WRITER = """
import sys, time
rate, secs, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
line = sys.argv[4]
out = open(path, "a") if path else sys.stdout
ticks = min(rate, 100)
begin = time.monotonic()
for tick in range(int(secs * ticks)):
    for step in range(rate // ticks):
        print(line % (tick * (rate // ticks) + step, time.time_ns()), file=out)
    out.flush()
    time.sleep(max(0.0, begin + (tick + 1) / ticks - time.monotonic()))
"""
FLUENT_BIT = """\
[SERVICE]
    flush 1
    log_level warn
    storage.path {place}/storage
    storage.sync normal
    storage.backlog.mem_limit 5M
[INPUT]
    name tail
    path {place}/lines.log
    db {place}/positions.db
    read_from_head true
    storage.type filesystem
[OUTPUT]
    name loki
    match *
    host 127.0.0.1
    port {port}
    labels peer=fluent-bit
    drop_single_key raw
    line_format json
    retry_limit no_limits
"""
# Failed messages return to the retry ruleset, as rsyslog's page of omhttp recommends. Without
# ratelimit.interval="0", it drops retries beyond 20,000 in ten minutes.
_OMHTTP = """\
    action(type="omhttp" server="127.0.0.1" serverport="{{port}}" restpath="loki/api/v1/push" usehttps="off"
        template="{template}" batch="on" batch.format="lokirest" batch.maxsize="1000" retry="on" retry.ruleset="retry"
        ratelimit.interval="0" action.resumeRetryCount="-1" action.resumeInterval="1"
        queue.type="LinkedList" queue.filename="{queue}" queue.maxDiskSpace="1g" queue.saveOnShutdown="on"
        queue.dequeueBatchSize="1000")
"""
RSYSLOG = (
    """\
global(workDirectory="{place}")
module(load="imfile")
module(load="omhttp")
template(name="loki" type="list") {{
    constant(value="{{\\"stream\\":{{\\"peer\\":\\"rsyslog\\"}},\\"values\\":[[\\"")
    property(name="timegenerated" dateFormat="unixtimestamp")
    property(name="timegenerated" dateFormat="subseconds")
    constant(value="000\\",\\"")
    property(name="msg" format="json")
    constant(value="\\"]]}}")
}}
template(name="again" type="string" string="%msg%")
ruleset(name="retry") {{
"""
    + _OMHTTP.format(template="again", queue="retry")
    + """\
}}
ruleset(name="out") {{
"""
    + _OMHTTP.format(template="loki", queue="lines")
    + """\
}}
input(type="imfile" File="{place}/lines.log" Tag="bench" Ruleset="out" PersistStateInterval="1000")
"""
)
OTELCOL = """\
extensions:
  file_storage:
    directory: {place}/storage
    create_directory: true
receivers:
  filelog:
    include: ["{place}/lines.log"]
    start_at: beginning
    storage: file_storage
    retry_on_failure: {{enabled: true, max_elapsed_time: 0}}
    resource: {{service.name: otelcol}}
processors:
  memory_limiter: {{check_interval: 1s, limit_mib: 512}}
exporters:
  otlphttp:
    endpoint: "{url}/otlp"
    retry_on_failure: {{enabled: true, max_elapsed_time: 0}}
    sending_queue:
      enabled: true
      storage: file_storage
      block_on_overflow: true
      batch: {{flush_timeout: 1s, min_size: 8192}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    logs: {{receivers: [filelog], processors: [memory_limiter], exporters: [otlphttp]}}
"""
ALLOY = """\
loki.source.file "lines" {{
  targets    = [{{__path__ = "{place}/lines.log"}}]
  forward_to = [loki.write.out.receiver]
}}
loki.write "out" {{
  endpoint {{
    url                 = "{url}/loki/api/v1/push"
    max_backoff_retries = 0
  }}
  external_labels = {{peer = "alloy"}}
}}
"""
VECTOR = """\
data_dir: {place}/data
sources:
  lines:
    type: file
    include: ["{place}/lines.log"]
    read_from: beginning
sinks:
  out:
    type: loki
    inputs: [lines]
    endpoint: {url}
    encoding: {{codec: text}}
    labels: {{peer: vector}}
    acknowledgements: {{enabled: true}}
    buffer: {{type: disk, max_size: 268435488, when_full: block}}
"""


class Shipper(ABC):
    """A shipper in a folder of its own. url: of the receiver.

    Subclasses: title, for the table; selector: its lines in Loki.
    """

    title: str
    selector: str

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.url = url
        self.log = place / "log"
        place.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> None:
        """Start it, or start it again after a kill."""

    @abstractmethod
    def take(self, data: Path) -> None:
        """Give it a file of lines, before its start."""

    @abstractmethod
    def writer(self, rate: int, secs: float) -> "subprocess.Popen[bytes]":
        """Start a program that writes `rate` lines a second for it."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """Stop it. Return its CPU seconds since its start."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        timer = threading.Timer(STOP_SECS, self.process.kill)
        timer.start()
        _, status, usage = os.wait4(self.process.pid, 0)
        timer.cancel()
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime

    def peak_mib(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


class Agent(Shipper):
    title = "logshipper-agent"
    selector = '{cluster="bench",kind="log"}'

    def __init__(self, place: Path, url: str, **loki: Any) -> None:
        super().__init__(place, url)
        self.agent = (
            NodeAgent(place, url, cluster="bench", loki=loki, metrics={"listen": ""})
            if loki
            else default_agent(place, url)
        )
        self.log = self.agent.log

    def start(self) -> None:
        self.agent.start()
        self.process = self.agent.process

    def take(self, data: Path) -> None:
        spool_capture(self.agent, data)

    def writer(self, rate: int, secs: float) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [LOGSHIPPER, "run", "--", *_writer(rate, secs, "")],
            env={**self.agent.environment, "HOME": str(self.place)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


class Peer(Shipper):
    """A shipper of a file. words: its command, in which {program}, {config}, {place} and
    {free_port} are replaced; config: the text of its file."""

    program: str
    words: Sequence[str]
    version: Sequence[str] = ("--version",)
    config: str
    suffix: str

    def __init__(self, place: Path, url: str, program: str) -> None:
        super().__init__(place, url)
        self.program = program
        self.file = place / "lines.log"
        self.file.touch()
        text = self.config.format(place=place, url=url, port=url.rpartition(":")[2])
        self.config_file = place / f"config.{self.suffix}"
        self.config_file.write_text(text)

    def start(self) -> None:
        names = {
            "program": self.program,
            "config": self.config_file,
            "place": self.place,
            "free_port": free_port(),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [word.format(**names) for word in self.words],
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def take(self, data: Path) -> None:
        shutil.copy(data, self.file)

    def writer(self, rate: int, secs: float) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(_writer(rate, secs, str(self.file)), stdin=subprocess.DEVNULL)


class FluentBit(Peer):
    title, selector, config, suffix = "Fluent Bit", '{peer="fluent-bit"}', FLUENT_BIT, "conf"
    words = ("{program}", "-c", "{config}")


class Rsyslog(Peer):
    title, selector, config, suffix = "rsyslog, omhttp", '{peer="rsyslog"}', RSYSLOG, "conf"
    words = ("{program}", "-n", "-f", "{config}", "-i", "{place}/pid")
    version = ("-v",)

    def start(self) -> None:
        (self.place / "pid").unlink(missing_ok=True)
        super().start()


class Otelcol(Peer):
    title, selector, config, suffix = "otelcol", '{service_name="otelcol"}', OTELCOL, "yaml"
    words = ("{program}", "--config", "file:{config}")


class Alloy(Peer):
    title, selector, config, suffix = "Grafana Alloy", '{peer="alloy"}', ALLOY, "alloy"
    words = (
        *("{program}", "run", "--disable-reporting", "--storage.path={place}/storage"),
        *("--server.http.listen-addr=127.0.0.1:{free_port}", "{config}"),
    )


class Vector(Peer):
    title, selector, config, suffix = "Vector", '{peer="vector"}', VECTOR, "yaml"
    words = ("{program}", "--config", "{config}", "--log-format", "text")

    def start(self) -> None:
        (self.place / "data").mkdir(exist_ok=True)  # it makes none
        super().start()


PEERS = {
    "fluent-bit": FluentBit,
    "rsyslogd": Rsyslog,
    "otelcol": Otelcol,
    "alloy": Alloy,
    "vector": Vector,
}
Maker = Callable[[Path, str], Shipper]


def _writer(rate: int, secs: float, path: str) -> list[str]:
    return [sys.executable, "-c", WRITER, str(rate), str(secs), path, LINE]


# ---- flood


class Flood(NamedTuple):
    seconds: float
    cpu_secs: float
    peak_mib: float


def flood(folder: Path, makers: dict[str, Maker], rounds: int, lines: int) -> None:
    """Print the cost of a file of lines, start and end included."""
    data = folder / "data"
    now_ns = time.time_ns()
    with data.open("w") as file:
        file.writelines(LINE % (number, now_ns) + "\n" for number in range(lines))

    def run(maker: Maker, place: Path) -> Flood:
        with Receiver() as receiver, _removed(place):
            shipper = maker(place, receiver.url)
            shipper.take(data)
            begin = time.perf_counter()
            shipper.start()
            _wait(lambda: receiver.result().distinct >= lines, DRAIN_SECS * 2, shipper)
            seconds = time.perf_counter() - begin
            peak = shipper.peak_mib()
            return Flood(seconds, shipper.stop(), peak)

    runs_of = _rounds(folder, makers, rounds, run)
    print(
        f"\n### {lines:,} lines of {len(LINE % (0, now_ns))} bytes, to a receiver that answers at once\n"
    )
    print(
        "| | CPU s per million lines | of the agent's | s | peak memory, MiB |\n|---|---|---|---|---|"
    )
    first = 0.0
    for title, runs in runs_of.items():
        cpu = statistics.median(run.cpu_secs for run in runs) * 1e6 / lines
        first = first or cpu
        seconds = statistics.median(run.seconds for run in runs)
        peak = statistics.median(run.peak_mib for run in runs)
        print(f"| {title} | {cpu:.2f} | {cpu / first:.2f} | {seconds:.1f} | {peak:.0f} |")


# ---- steady output


class Steady(NamedTuple):
    """p50, p99: seconds; cpu: of the shipper, ms a second; capture: likewise, of relay and sidecar,
    or of the plain writer; peak: MiB."""

    p50: float
    p99: float
    cpu: float
    capture: float
    peak: float


def steady(folder: Path, makers: dict[str, Maker], rounds: int, secs: float) -> None:
    """Print delay and CPU time at RATE lines a second."""

    def run(maker: Maker, place: Path) -> Steady:
        with Receiver() as receiver, _removed(place):
            shipper = maker(place, receiver.url)
            shipper.start()
            time.sleep(WARM_UP_SECS)
            before = cpu_secs(shipper.pid)
            writer = shipper.writer(RATE, secs)
            _, status, usage = os.wait4(writer.pid, 0)
            writer.returncode = os.waitstatus_to_exitcode(status)
            capture = usage.ru_utime + usage.ru_stime
            _wait(lambda: receiver.result().distinct >= RATE * secs, DRAIN_SECS, shipper)
            cpu = cpu_secs(shipper.pid) - before
            result = receiver.result(delays=True)
            peak = shipper.peak_mib()
            shipper.stop()
            # the first seconds include opening the file
            capture += _orphans_cpu_secs()
            delays = sorted(result.delays[int(WARM_UP_SECS * RATE) :])
            for_ms = 1e3 / secs
            return Steady(
                statistics.median(delays),
                delays[int(len(delays) * 0.99)],
                cpu * for_ms,
                capture * for_ms,
                peak,
            )

    runs_of = _rounds(folder, makers, rounds, run)
    print(f"\n### {RATE} lines a second for {secs:g} s\n")
    print(
        "| | p50, s | p99, s | shipper, CPU ms a second | of the agent's | program and its capture, CPU ms a second "
        "| peak memory, MiB |\n|---|---|---|---|---|---|---|"
    )
    first = 0.0
    for title, runs in runs_of.items():
        p50, p99, cpu, capture, peak = (
            statistics.median(run[field] for run in runs) for field in range(5)
        )
        first = first or cpu
        print(
            f"| {title} | {p50:.3f} | {p99:.3f} | {cpu:.1f} | {cpu / first:.2f} | {capture:.1f} | {peak:.0f} |"
        )


def _orphans_cpu_secs() -> float:
    """Return the CPU seconds of orphans that have ended."""
    cpu = 0.0
    deadline = time.monotonic() + STOP_SECS
    while time.monotonic() < deadline:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            time.sleep(0.05)
            if all("receiver" in _command_of(child) for child in children()):
                break
        else:
            cpu += usage.ru_utime + usage.ru_stime
    return cpu


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return "receiver"  # it has just ended


# ---- losses

SCENARIOS = {
    "kill": "kill -9, restart after 1 s",
    "503": "20 s of 503",
    "refuse": "20 s of refused connections",
    "refuse+kill": "20 s of refused connections, kill -9 amid them",
}


class Loss(NamedTuple):
    """lost: lines; sent_again: deliveries of lines that the receiver had; repeated: entries that
    a reader of Loki sees beyond one a line; 0 without a Loki."""

    lost: int
    sent_again: int
    repeated: int


def losses(folder: Path, makers: dict[str, Maker], rounds: int, scenarios: Sequence[str]) -> None:
    """Print losses and repeats. All shippers and scenarios run at the same time."""
    try:
        find_loki()
        has_loki = True
    except ServerMissing as missing:
        print(missing, file=sys.stderr)
        has_loki = False
    runs_of: dict[tuple[str, str], list[Loss]] = {}
    for round_ in range(rounds):
        place = folder / f"losses-{round_}"
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(makers) * len(scenarios)))
            futures = {}
            for scenario in scenarios:
                url = stack.enter_context(LokiServer()).url if has_loki else ""
                for number, (title, maker) in enumerate(makers.items()):
                    shipper = place / f"{scenario}-{number}"
                    futures[title, scenario] = pool.submit(_loss, maker, shipper, url, scenario)
            for key, future in futures.items():
                runs_of.setdefault(key, []).append(future.result())
                print(f"round {round_ + 1}: {key}: {runs_of[key][-1]}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
    print(
        f"\n### {LOSS_RATE:,} lines a second for {LOSS_SECS:g} s, into Loki: lost; sent again; repeated in Loki\n"
    )
    print(f"| | {' | '.join(SCENARIOS[name] for name in scenarios)} |")
    print(f"|---|{'---|' * len(scenarios)}")
    for title in makers:
        cells = []
        for scenario in scenarios:
            runs = runs_of[title, scenario]
            cells.append("; ".join(_range([run[field] for run in runs]) for field in range(3)))
        print(f"| {title} | {' | '.join(cells)} |")


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _loss(maker: Maker, place: Path, loki_url: str, scenario: str) -> Loss:
    with Receiver(loki_url) as receiver:
        shipper = maker(place, receiver.url)
        shipper.start()
        time.sleep(WARM_UP_SECS)
        begin = time.monotonic()
        writer = shipper.writer(LOSS_RATE, LOSS_SECS)
        for at, action in _actions(scenario, receiver, shipper):
            time.sleep(max(0.0, begin + at - time.monotonic()))
            action()
        writer.wait()
        total = int(LOSS_RATE * LOSS_SECS)
        count, changed = 0, time.monotonic()
        while count < total and time.monotonic() - changed < DRAIN_SECS:
            time.sleep(0.5)
            newest = receiver.result().distinct
            if newest != count:
                count, changed = newest, time.monotonic()
        time.sleep(SETTLE_SECS)  # later repeats
        result = receiver.result()
        shipper.stop()
        entries = result.distinct
        if loki_url:
            # Readers see an entry once that Loki has twice. count_over_time may count it twice.
            now_ns = time.time_ns()
            with LokiClient(loki_url) as client:
                found = client.entries(shipper.selector, now_ns - HOUR_NS, now_ns + HOUR_NS)
                entries = sum(1 for _ in found)
    return Loss(total - result.distinct, result.total - result.distinct, entries - result.distinct)


def _actions(
    scenario: str, receiver: Receiver, shipper: Shipper
) -> list[tuple[float, Callable[[], object]]]:
    """Return a scenario's actions and their seconds since the first line."""
    actions: list[tuple[float, Callable[[], object]]] = []
    outage = scenario.partition("+")[0]
    if outage != "kill":
        begin, end = OUTAGE
        actions += [(begin, lambda: receiver.order(outage)), (end, lambda: receiver.order("pass"))]
    if scenario.endswith("kill"):
        actions += [(KILLED_AT, shipper.kill), (KILLED_AT + RESTART_SECS, shipper.start)]
    return sorted(actions, key=lambda action: action[0])


# ---- all


def _rounds(
    folder: Path, makers: dict[str, Maker], rounds: int, run: Callable[[Maker, Path], _Run]
) -> dict[str, list[_Run]]:
    runs_of: dict[str, list[_Run]] = {title: [] for title in makers}
    for round_ in range(rounds):
        for number, (title, maker) in enumerate(makers.items()):
            runs_of[title].append(run(maker, folder / f"{round_}-{number}"))
            print(f"round {round_ + 1}: {title}: {runs_of[title][-1]}", file=sys.stderr)
    return runs_of


@contextmanager
def _removed(place: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _wait(is_done: Callable[[], bool], secs: float, shipper: Shipper) -> None:
    deadline = time.monotonic() + secs
    while not is_done():
        assert shipper.process is not None
        if shipper.process.poll() is not None:
            log = shipper.log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"{shipper.title} ended too soon:\n{log}")
        if time.monotonic() > deadline:
            shipper.kill()
            raise SystemExit(f"{shipper.title} didn't ship all lines within {secs:g} s")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the flood")
    parser.add_argument("--secs", type=float, default=30.0, help="of steady output")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("parts", nargs="*", default=["flood", "steady", "losses"])
    for name in PEERS:
        parser.add_argument(f"--{name}", metavar="PATH", default=shutil.which(name) or "")
    options = parser.parse_args()
    adopt_orphans()
    programs = {name: getattr(options, name.replace("-", "_")) for name in PEERS}
    peers: dict[str, Maker] = {}
    for name, peer in PEERS.items():
        if program := programs[name]:
            version = subprocess.run(
                [program, *peer.version], capture_output=True, text=True, check=False
            )
            print(f"{peer.title}: {(version.stdout + version.stderr).partition(chr(10))[0]}")
            peers[peer.title] = functools.partial(peer, program=program)
    print(f"load: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as name:
        folder = Path(name)
        unlimited: dict[str, Maker] = {
            Agent.title: lambda place, url: Agent(place, url, **UNLIMITED)
        }
        default: dict[str, Maker] = {Agent.title: Agent}
        if "flood" in options.parts:
            flood(folder, unlimited | peers, options.rounds, options.lines)
        if "steady" in options.parts:
            steady(folder, default | peers, options.rounds, options.secs)
        if "losses" in options.parts:
            losses(folder, default | peers, options.rounds, options.scenarios.split(","))
    print(f"\nload: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
