"""Cost of capture for a job of two busy processes, one of which prints like a training run.
Measures the time per step and the CPU seconds of each of our processes.

`SECS=15 python -m benchmarks.job_cost` is a shorter run. Peers alternate, so a noisy neighbour
affects all of them; the comparison uses medians. With two cores, the job keeps every core busy.
More cores, or other work on them, make the figures less precise.
"""

import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.agent_load import default_agent
from benchmarks.shipping import WAIT_SECS, Sink
from benchmarks.training import WANDB_PYTHON

SECS = 60.0
STEP_SECS = 0.02
LOGSHIPPER = str(Path(sys.executable).parent / "logshipper")
PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
# by the names in ps; a Python that outlives the command is the user's agent
_NAMES = {
    "logshipper": "relay",
    "logshipper-side": "rendering",
    "logshipper-ctx": "how it was started",
    "python": "user's agent",
    "python3": "user's agent",
}
# Two lines a step and a record each fifth step make 100 and 10 a second; tqdm redraws its bar each
# 0.1 s.
PROGRAM = """
import json, os, subprocess, sys, time
import numpy
role, steps, rounds, stamp, console = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
left = numpy.random.default_rng(1).random((96, 96))
product = left.copy()

def compute(rounds):
    for _ in range(rounds):
        numpy.dot(left, left, out=product)

if role == "measure":
    compute(2000)
    begin = time.perf_counter()
    compute(5000)
    print(5000 / (time.perf_counter() - begin))
elif role == "silent":
    begin = time.perf_counter()
    for _ in range(steps):
        compute(rounds)
    with open(stamp, "w") as file:
        file.write(str((time.perf_counter() - begin) / steps))
else:
    import tqdm
    if console != "none":
        import wandb
        run = wandb.init(mode="offline", settings=wandb.Settings(console=console, silent=True))
    other = subprocess.Popen([sys.executable, __file__, "silent", str(steps), str(rounds), stamp + ".other", "none"])
    begin = time.perf_counter()
    for step in tqdm.tqdm(range(steps), mininterval=0.1, miniters=1):
        compute(rounds)
        print(f"step {step}: loss {1 / (step + 1):.6f}, 128 samples", flush=True)
        if step % 5 == 0:
            print(json.dumps({"step": step, "loss": 1 / (step + 1), "lr": 1e-4}), flush=True)
        else:
            print(f"step {step}: grad norm {2 / (step + 1):.6f}", flush=True)
    seconds = (time.perf_counter() - begin) / steps
    other.wait()
    if console != "none":
        run.finish()
    with open(stamp, "w") as file:
        file.write(str(seconds))
"""


class Usage(NamedTuple):
    """Usage of all processes of one kind, threads included."""

    cpu_secs: float
    switches: int  # voluntary context switches, a measure of wake-ups


class JobRun(NamedTuple):
    """step_ms: mean of both processes; usage_of: by kind of process, without the job's own."""

    step_ms: float
    seconds: float
    usage_of: Mapping[str, Usage]


class JobCost:
    """folder: scratch; environment: of the commands; secs: computing time of the job."""

    def __init__(self, folder: Path, environment: Mapping[str, str], secs: float) -> None:
        self._folder = folder
        self._program = folder / "train_steps.py"
        self._program.write_text(PROGRAM)
        # One thread for each process. PYTHONPATH gives wandb's Python tqdm and numpy, too.
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self._environment = {
            **{name: text for name, text in environment.items() if name != "LOGSHIPPER_AGENT"},
            **dict.fromkeys(threads, "1"),
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(folder),
            "LOGSHIPPER_STORE": str(folder / "store"),
        }
        self._steps = round(secs / STEP_SECS)
        self._rounds = self._measure()

    def peers(self, sink_url: str) -> dict[str, Callable[[], JobRun]]:
        """Return functions that run the job once, by the peer's name."""
        bare = self._command(sys.executable, "none")
        script = ["script", "-q", "-e", "-c", " ".join(bare), str(self._folder / "typescript")]
        captured = [LOGSHIPPER, "run", "--", *bare]
        peers: dict[str, Callable[[], JobRun]] = {
            "bare, output to a file": lambda: self._run(bare),
            "`script`": lambda: self._run(script),
            "`logshipper run`, the local store filled meanwhile": lambda: self._run(captured),
            "`logshipper run`, the node agent ships": lambda: self._run_shipped(captured, sink_url),
        }
        if WANDB_PYTHON.exists():
            watched = self._command(str(WANDB_PYTHON), "wrap")
            peers["wandb, offline, `console=wrap`"] = lambda: self._run(watched)
        return peers

    def _command(self, python: str, console: str) -> list[str]:
        words = ["print", str(self._steps), str(self._rounds), str(self._folder / "stamp"), console]
        return [python, str(self._program), *words]

    def _measure(self) -> int:
        """Return the number of matrix products per step. One measurement gives all peers the same
        work."""
        words = ["measure", "0", "0", "", "none"]
        rates = [
            float(
                subprocess.run(
                    [sys.executable, str(self._program), *words],
                    check=True,
                    capture_output=True,
                    env=self._environment,
                ).stdout
            )
            for _ in range(3)
        ]
        return max(1, round(max(rates) * STEP_SECS))

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> JobRun:
        stamp = self._folder / "stamp"
        others = children()
        begin = time.perf_counter()
        with (self._folder / "out.txt").open("wb") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._folder,
                env=environment or self._environment,
            )
        usages: dict[str, list[Usage]] = defaultdict(list)
        seconds = 0.0
        while children() - others:
            exited = _reap()
            if exited.pid == child.pid:
                seconds = time.perf_counter() - begin
                child.returncode = exited.code
            if exited.name in _NAMES and (exited.pid != child.pid or command[0] == LOGSHIPPER):
                usages[_NAMES[exited.name]].append(exited.usage)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
        steps = [float(Path(f"{stamp}{suffix}").read_text()) for suffix in ("", ".other")]
        shutil.rmtree(self._folder / "store", ignore_errors=True)
        usage_of_kind = {name: _sum(values) for name, values in usages.items()}
        return JobRun(statistics.mean(steps) * 1000, seconds, usage_of_kind)

    def _run_shipped(self, command: Sequence[str], sink_url: str) -> JobRun:
        """Run with a node agent with default settings; leave out the agent's own start and end."""
        place = self._folder / f"node-{time.monotonic_ns()}"
        with default_agent(place, sink_url) as agent:
            assert agent.process is not None
            pid = agent.process.pid
            time.sleep(2)
            before = _usage(pid)
            environment = {**self._environment, **agent.environment, "HOME": str(place)}
            del environment["LOGSHIPPER_STORE"]
            run = self._run(command, environment)
            agent.wait_shipped(WAIT_SECS)
            after = _usage(pid)
        shutil.rmtree(place, ignore_errors=True)
        usage = Usage(after.cpu_secs - before.cpu_secs, after.switches - before.switches)
        return run._replace(usage_of={**run.usage_of, "node agent": usage})


class _Exited(NamedTuple):
    """A process that has ended."""

    pid: int
    name: str
    code: int
    usage: Usage


def _reap() -> _Exited:
    """Wait for a child or an orphan, and reap it."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # only WNOHANG returns None
    pid = ended.si_pid
    name, usage = Path(f"/proc/{pid}/comm").read_text().strip(), _usage(pid)
    _, status, total = os.wait4(pid, 0)
    if name != "logshipper":  # its wait4 count includes the job's
        usage = usage._replace(switches=total.ru_nvcsw)
    return _Exited(pid, name, os.waitstatus_to_exitcode(status), usage)


def _usage(pid: int) -> Usage:
    """Return the usage of a process with its threads, without its children. Also works for a
    zombie."""
    place = Path(f"/proc/{pid}")
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    switches = 0
    for task in (place / "task").iterdir():
        status = (task / "status").read_text()
        switches += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, switches)


def children() -> set[int]:
    """Return the pids of this process' children."""
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(sum(usage.cpu_secs for usage in usages), sum(usage.switches for usage in usages))


def compare(folder: Path, environment: Mapping[str, str], rounds: int, secs: float) -> None:
    """Print both tables."""
    cost = JobCost(folder, environment, secs)
    sink = Sink()
    runs_of: dict[str, list[JobRun]] = defaultdict(list)
    try:
        for _ in range(rounds):
            for name, run in cost.peers(sink.url).items():
                runs_of[name].append(run())
    finally:
        sink.close()
    print(
        f"\n### Two processes that compute for {secs:g} s, 100 lines, 10 records and 10 bars a second\n"
    )
    print("| | ms a step | over bare | s, start and end included |\n|---|---|---|---|")
    bare = statistics.median(run.step_ms for run in next(iter(runs_of.values())))
    for name, runs in runs_of.items():
        step_ms = statistics.median(run.step_ms for run in runs)
        seconds = statistics.median(run.seconds for run in runs)
        print(f"| {name} | {step_ms:.3f} | {(step_ms / bare - 1) * 100:+.2f} % | {seconds:.2f} |")
    if not WANDB_PYTHON.exists():
        print("\nwandb isn't there: requirements/tool.sh wandb installs it.")
    print("\n| process | CPU s | wake-ups a second |\n|---|---|---|")
    for name, runs in runs_of.items():
        for kind in runs[0].usage_of:
            usages = [run.usage_of[kind] for run in runs if kind in run.usage_of]
            cpu = statistics.median(usage.cpu_secs for usage in usages)
            switches = statistics.median(usage.switches for usage in usages)
            seconds = statistics.median(run.seconds for run in runs)
            print(f"| {kind} ({name}) | {cpu:.2f} | {switches / seconds:.0f} |")


def adopt_orphans() -> None:
    """Become the reaper of orphaned descendants, so their CPU time counts."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as folder:
        environment = {**os.environ, "HOME": folder}
        rounds = int(os.environ.get("ROUNDS", "3"))
        compare(Path(folder), environment, rounds, float(os.environ.get("SECS", SECS)))


if __name__ == "__main__":
    main()
