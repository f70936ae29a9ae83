"""`make order-stress`: check that logshipper stores no output that it had to keep out.

The two streams of each job switch modes against each other. Jobs run with and without ptys, by both
relays, with readers at every pace; the run kills some of their processes. No file of the spool may
contain a line that was printed while its mode was narrow. Lines look like series, and `auto` is on.

Exit code: 0, or 1 if a secret was stored. Lines before any command may be missing after a kill;
they only count.
"""

import argparse
import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from logshipper.classify.commands import narrowest
from tests.tools.captures.captured_runs import Home, comm_of, wait_until
from tests.tools.captures.other_users import public_folder
from tests.tools.fakes.slurm_player import RELAY, SIDECAR, Node, build, build_obstacle

# its argument: writes, each "stream:text in hex:seconds until the next"
JOB = """
import os, sys, time
for step in sys.argv[1].split():
    stream, text, secs = step.split(":")
    os.write(int(stream), bytes.fromhex(text))
    if float(secs): time.sleep(float(secs))
"""
EXACT = '/LOGCOMMAND {"mode":"%s"}\n'
ODD = (
    "/LOGCOMMAND {'mode': '%s'}\n",
    'Loading.../LOGCOMMAND {"mode":"%s"}\n',
    ' /logcommand {"mode":"%s"}\n',
)
PAUSES = (0.0, 0.0, 0.0, 0.0005, 0.005, 0.02)
READERS = ("fast", "slow", "blocked", "one file")
KILLED = ("", "", "", "relay", "sidecar", "both")
PIPE_BYTES = 4096
OPT_IN = b"metadata: [json, auto]\n"
BLOCKED_SECS = 0.25
TIMEOUT_SECS = 120.0


class Step(NamedTuple):
    """One write of a job. mode: that a command asks for; is_odd: the command can only narrow;
    secret: the secret in text."""

    stream: int
    text: str
    secs: float
    mode: str = ""
    is_odd: bool = False
    secret: str = ""


class Run(NamedTuple):
    """A job and its capture. killed: the process to kill, kill_secs after the start; command: runs
    instead of the steps."""

    steps: list[Step]
    tty: bool
    reader: str
    killed: str
    kill_secs: float
    command: tuple[str, ...] = ()

    def argv(self) -> list[str]:
        if self.command:
            return list(self.command)
        steps = " ".join(
            f"{step.stream}:{step.text.encode().hex()}:{step.secs}" for step in self.steps
        )
        return [sys.executable, "-S", "-E", "-c", JOB, steps]

    def kept_out(self) -> list[str]:
        return [
            step.secret
            for at, step in enumerate(self.steps)
            if step.secret and self._is_kept_out(at)
        ]

    def before_commands(self) -> list[str]:
        first = next((at for at, step in enumerate(self.steps) if step.mode), len(self.steps))
        return [step.secret for step in self.steps[:first]]

    def _is_kept_out(self, at: int) -> bool:
        """Return whether the mode is narrow for any number of unread commands of the other stream.

        A command that is not read yet protects nothing on the other stream.
        """
        stream = self.steps[at].stream
        commands = [step for step in self.steps[:at] if step.mode]
        other_steps = [step for step in commands if step.stream != stream]
        modes = set()
        for unread in range(len(other_steps) + 1):
            mode = "enabled"
            for step in commands:
                if step.stream == stream or step not in other_steps[len(other_steps) - unread :]:
                    mode = narrowest(mode, step.mode) if step.is_odd else step.mode
            modes.add(mode)
        return "enabled" not in modes


def a_run(seed: int) -> Run:
    chance = random.Random(seed)
    steps = []
    for number in range(chance.randint(3, 24)):
        stream, secs = chance.choice((1, 2)), chance.choice(PAUSES)
        if chance.random() < 0.5:
            secret = f"S{seed:x}N{number}E"
            text = f"secret {secret} 1.5: loss={number}.5 acc=0.{number}\n"
            steps.append(Step(stream, text, secs, secret=secret))
            continue
        mode = chance.choice(("enabled", "enabled", "disabled", "metadata"))
        form = chance.choice((EXACT, EXACT, *ODD))
        steps.append(Step(stream, form % mode, secs, mode, form != EXACT))
    killed, secs = chance.choice(KILLED), chance.uniform(0.05, 0.3)
    return Run(steps, chance.random() < 0.6, chance.choice(READERS), killed, secs)


def telling_runs(count: int) -> list[Run]:
    """Return the first runs with something to keep out: enough for each kind of reader and of
    death."""
    return [run for run in map(a_run, range(10 * count)) if len(run.kept_out()) > 2][:count]


class ByRun:
    """Captures by `logshipper run`, each with its own home."""

    def __init__(self, stack: ExitStack) -> None:
        self._folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="logshipper-order-"))
        )
        self._count = 0

    def start(self, run: Run, out: int, err: int) -> "tuple[subprocess.Popen[bytes], Path]":
        self._count += 1
        home = Home(self._folder / str(self._count))
        home.folder.mkdir()
        home.opt_in(OPT_IN)
        words = ("run", *(() if run.tty else ("--no-tty",)), "--", *run.argv())
        return home.start(*words, stdout=out, stderr=err), home.folder

    def pids(self, process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, list[int]]:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return {
            "relay": [process.pid],
            "sidecar": [int(pid) for pid in children if comm_of(int(pid)) == SIDECAR],
        }

    def is_over(self, folder: Path) -> bool:
        """Return whether no process writes to any capture any more, once the job has ended."""
        return not _is_locked(folder)


class ByPlugin:
    """Captures by the C relay, in one node's spool."""

    def __init__(self, stack: ExitStack, binaries: Path) -> None:
        folder = stack.enter_context(public_folder("logshipper-order-"))
        self._node = Node(folder, binaries, sanitized=False)
        stack.callback(self._node.close)

    def start(self, run: Run, out: int, err: int) -> "tuple[subprocess.Popen[bytes], Path]":
        self._node.opt_in(OPT_IN if run.tty else OPT_IN + b"tty: false\n")
        return self._node.start(*run.argv(), stdout=out, stderr=err).process, self._node.spool

    def pids(self, process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, list[int]]:
        return {"relay": self._node.processes(RELAY), "sidecar": self._node.processes(SIDECAR)}

    def is_over(self, folder: Path) -> bool:
        """Return whether all has ended. Relays wait for their sidecars, even for one that has not
        begun."""
        return not (self._node.processes(RELAY) or _is_locked(folder))


def captured(by: ByRun | ByPlugin, run: Run) -> tuple[list[str], int]:
    """Run it. Return the stored secrets, and the number of missing lines from before any
    command."""
    with ExitStack() as stack:
        out, err = _outputs(run, stack)
        process, folder = by.start(run, out, err)
        for fd in {out, err}:
            os.close(fd)
        if run.killed:
            _kill(lambda: by.pids(process, folder), run)
        process.wait(TIMEOUT_SECS)
    wait_until(lambda: by.is_over(folder), "the sidecars have ended", TIMEOUT_SECS)
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    leaks = [secret for secret in run.kept_out() if secret.encode() in stored]
    return leaks, sum(secret.encode() not in stored for secret in run.before_commands())


def _outputs(run: Run, stack: ExitStack) -> tuple[int, int]:
    """Return the job's two outputs. A thread reads each at the run's pace until the job ends."""
    if run.reader == "one file":
        fd = os.memfd_create("output")
        return fd, os.dup(fd)
    ends = []
    for stream in (1, 2):
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        pace = run.reader if stream == 1 else "fast"
        if pace == "blocked":
            os.write(write, bytes(PIPE_BYTES))
        reader = threading.Thread(target=_read, args=(read, pace))
        reader.start()
        stack.callback(reader.join)
        ends.append(write)
    return ends[0], ends[1]


def _read(fd: int, pace: str) -> None:
    if pace == "blocked":
        time.sleep(BLOCKED_SECS)  # the pace under test
    while os.read(fd, 32 if pace == "slow" else PIPE_BYTES):
        if pace == "slow":
            time.sleep(0.002)  # the pace under test
    os.close(fd)


def _kill(pids: Callable[[], dict[str, list[int]]], run: Run) -> None:
    time.sleep(run.kill_secs)  # so that the kill comes at any time of the run
    with contextlib.suppress(OSError):
        group_pids = pids()
        for whom in ("relay", "sidecar") if run.killed == "both" else (run.killed,):
            for pid in group_pids[whom]:
                os.kill(pid, signal.SIGKILL)


def _is_locked(folder: Path) -> bool:
    """Return whether a sidecar writes to any capture below folder."""
    for path in folder.rglob("segments/lock"):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def stress(
    makers: Sequence[Callable[[ExitStack], ByRun | ByPlugin]], seeds: range, workers: int
) -> Counter[str]:
    """Print each leak. Return counts: `runs`, `leaks`, `kept out`, `missing`."""
    counts: Counter[str] = Counter()
    last_report = time.monotonic()
    lock = threading.Lock()

    def work(number: int) -> None:
        nonlocal last_report
        with ExitStack() as stack:
            by = makers[number % len(makers)](stack)
            for seed in seeds[number::workers]:
                run = a_run(seed)
                leaks, missing_lines = captured(by, run)
                with lock:
                    counts.update(runs=1, leaks=len(leaks), missing=missing_lines)
                    counts["kept out"] += len(run.kept_out())
                    if leaks:
                        print(
                            f"seed {seed}, {type(by).__name__}: stored {leaks} of {run}", flush=True
                        )
                    if time.monotonic() - last_report > 10.0:
                        last_report = time.monotonic()
                        print(
                            f"{counts['runs']:,} of {len(seeds):,} runs, {counts['leaks']} leaks",
                            flush=True,
                        )

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, number) for number in range(workers)]:
            done.result()
    return counts


def main(argv: Sequence[str] | None = None) -> int:
    about = (__doc__ or "").partition(":")[2]
    parser = argparse.ArgumentParser(
        description=about, prog="python -m tests.tools.stress.order_stress"
    )
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first run; each has the next one"
    )
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        makers: list[Callable[[ExitStack], ByRun | ByPlugin]] = [ByRun]
        if obstacle := build_obstacle():
            print(f"Only `logshipper run`: {obstacle}")
        else:
            binaries = build(stack.enter_context(public_folder("logshipper-order-")))
            makers.append(lambda stack: ByPlugin(stack, binaries))
        counts = stress(makers, range(options.seed, options.seed + options.runs), options.workers)
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    return 1 if counts["leaks"] else 0


if __name__ == "__main__":
    sys.exit(main())
