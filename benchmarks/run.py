"""Cost of capture (`make bench`): ratios against peers of the same run, medians of several rounds.

Rounds alternate the peers, so a noisy neighbour affects all of them. The output is Markdown.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import agent_load, job_cost, masks, page, rendering, shipping, training
from benchmarks.rendering import LINE

if TYPE_CHECKING:
    from logshipper.classify.classifier import Classifier
    from logshipper.spool.segment import Stream

BIN = Path(sys.executable).parent
LOGSHIPPER = str(BIN / "logshipper")
AGENT = str(BIN / "logshipper-agent")
MEASUREMENTS = (
    *(
        "throughput",
        "start_up",
        "the_end",
        "rendering",
        "masks",
        "beside_pyte",
        "floods",
        "training",
        "job",
    ),
    *("memory", "ingesting", "page", "shipping", "delay", "catch_up", "tasks"),
)
MEMORY_LINES = 10_000_000


class Bench:
    """One run of the benchmark. folder: scratch; lines: of the big file; rounds: of each
    measurement."""

    def __init__(self, folder: Path, lines: int, rounds: int) -> None:
        self.folder = folder
        self.lines = lines
        self.rounds = rounds
        self.data = folder / "lines.txt"
        self.data.write_bytes(b"".join(LINE % number for number in range(lines)))
        self.environment = {**os.environ, "HOME": str(folder), "LOGSHIPPER_AGENT": "off"}
        self.environment["LOGSHIPPER_STORE"] = str(folder / "store")

    def timed(self, command: Sequence[str], output: Path | None = None) -> tuple[float, float]:
        """Return the seconds until the command returned, and its CPU seconds. CPU covers all
        processes that it left behind; the function waits for them."""
        with (output or Path(os.devnull)).open("wb") as out:
            begin = time.perf_counter()
            child = subprocess.Popen(
                command, stdout=out, stdin=subprocess.DEVNULL, env=self.environment
            )
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
        cpu = usage.ru_utime + usage.ru_stime + _reap_orphans()
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        return seconds, cpu

    def medians(self, **peers: Callable[[], tuple[float, float]]) -> dict[str, tuple[float, float]]:
        times_of: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
        for round_ in range(self.rounds):
            for name, peer in peers.items():
                _say(f"round {round_ + 1}/{self.rounds}: {name}")
                times_of[name].append(peer())
        _say("")
        return {
            name: (
                statistics.median(wall for wall, _ in values),
                statistics.median(cpu for _, cpu in values),
            )
            for name, values in times_of.items()
        }

    # ---- measurements

    def throughput(self) -> None:
        out = self.folder / "out.txt"
        typescript = self.folder / "typescript"
        cat = f"cat {self.data}"
        medians_of = self.medians(
            cat=lambda: self.timed(["cat", str(self.data)], out),
            script=lambda: self.timed(["script", "-q", "-c", cat, str(typescript)], out),
            logshipper=lambda: self.timed([LOGSHIPPER, "run", "--", "cat", str(self.data)], out),
            pipes=lambda: self.timed(
                [LOGSHIPPER, "run", "--no-tty", "--", "cat", str(self.data)], out
            ),
            filling=lambda: self._filling(out),
        )
        megabytes = self.data.stat().st_size / 1e6
        script = medians_of["script"][0]
        print(f"\n### {self.lines:,} lines of {len(LINE % 0)} bytes, output to a file\n")
        print(
            "| | s | MB/s | of what `script` moves | CPU s per million lines |\n|---|---|---|---|---|"
        )
        names = {"cat": "bare `cat`", "script": "`script`", "logshipper": "`logshipper run`"}
        names |= {
            "pipes": "`logshipper run --no-tty`",
            "filling": "`logshipper run`, the agent filling the local store meanwhile",
        }
        for name, (wall, cpu) in medians_of.items():
            per_million = cpu * 1e6 / self.lines
            print(
                f"| {names[name]} | {wall:.2f} | {megabytes / wall:.0f} | {script / wall:.2f} | {per_million:.2f} |"
            )

    def _filling(self, out: Path) -> tuple[float, float]:
        """Measure `logshipper run` next to the user's own agent, which fills the local store; CPU
        of all processes."""
        agent = subprocess.Popen(
            [AGENT, "run", "--idle-secs", "600"], stderr=subprocess.DEVNULL, env=self.environment
        )
        time.sleep(1)  # leaves out the agent's start
        with out.open("wb") as file:
            begin = time.perf_counter()
            child = subprocess.Popen([LOGSHIPPER, "run", "--", "cat", str(self.data)], stdout=file,
                stdin=subprocess.DEVNULL, env=self.environment)  # fmt: skip
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        agent.terminate()
        _, status, agents = os.wait4(agent.pid, 0)
        agent.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + agents.ru_utime + agents.ru_stime + _reap_orphans()
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        return seconds, cpu

    def masks(self) -> None:
        masks.cost()

    def beside_pyte(self) -> None:
        rendering.beside_pyte(self.medians)

    def floods(self) -> None:
        rendering.floods(self.rounds)

    def training(self) -> None:
        training.compare(
            self.folder, LOGSHIPPER, self.environment, self.rounds, min(self.lines, training.LINES)
        )
        _reap_orphans()
        shutil.rmtree(self.folder / "store", ignore_errors=True)

    def job(self) -> None:
        job_cost.compare(self.folder, self.environment, self.rounds, job_cost.SECS)

    def start_up(self) -> None:
        python = sys.executable
        medians_of = self.medians(
            true=lambda: self._repeat(["true"]),
            run=lambda: self._repeat([LOGSHIPPER, "run", "--", "true"]),
            bare=lambda: self._repeat([python, "-I", "-S", "-c", "pass"]),
            python=lambda: self._repeat([python, "-c", "pass"]),
            emit=lambda: self._repeat([python, "-c", "from logshipper import emit"]),
            hook=lambda: self._repeat([LOGSHIPPER, "run", "--if-opted-in", "--", "true"]),
        )
        ms = {name: wall * 1000 for name, (wall, _) in medians_of.items()}
        cpu_ms = {name: cpu * 1000 for name, (_, cpu) in medians_of.items()}
        print(
            "\n### Start-up\n\n| | ms | CPU ms, of all it left behind, too | |\n|---|---|---|---|"
        )
        over = {
            name: f"{ms[name] - ms[base]:.1f} ms over {base}"
            for name, base in (("run", "true"), ("emit", "python"), ("hook", "python"))
        }
        for name, words in (
            ("true", "`true`"),
            ("bare", "`python3 -I -S -c pass`"),
            ("python", "`python3 -c pass`"),
            ("run", "`logshipper run -- true`"),
            ("emit", "`from logshipper import emit`"),
            ("hook", "`logshipper run --if-opted-in -- true`, not opted in"),
        ):
            print(f"| {words} | {ms[name]:.1f} | {cpu_ms[name]:.1f} | {over.get(name, '')} |")

    def _repeat(self, command: Sequence[str], times: int = 10) -> tuple[float, float]:
        runs = [self.timed(command) for _ in range(times)]
        return statistics.median(wall for wall, _ in runs), statistics.median(
            cpu for _, cpu in runs
        )

    def the_end(self, lines: int = 300_000) -> None:
        stamp = self.folder / "stamp"
        part = self.folder / "part.txt"
        part.write_bytes(b"".join(LINE % number for number in range(lines)))
        command = [LOGSHIPPER, "run", "--", "sh", "-c", f"cat {part}; date +%s%N > {stamp}"]
        waits: list[float] = []
        for _ in range(self.rounds):
            self.timed_until(command, waits, stamp)
        print(f"\n### From the end of CMD to the return of `run`, after {lines:,} lines\n")
        print(
            f"{statistics.median(waits) * 1000:.0f} ms (longest of {self.rounds}: {max(waits) * 1000:.0f} ms)"
        )

    def timed_until(self, command: Sequence[str], waits: list[float], stamp: Path) -> None:
        with (self.folder / "out.txt").open("wb") as out:
            subprocess.run(command, stdout=out, check=True, env=self.environment)
        waits.append((time.time_ns() - int(stamp.read_text())) / 1e9)
        _reap_orphans()
        shutil.rmtree(self.folder / "store", ignore_errors=True)

    def rendering(self) -> None:
        """Print the sidecar's CPU cost for several kinds of bytes: one process, no pipes, chunks of
        64 KiB."""
        from logshipper.classify.classifier import Classifier
        from logshipper.config import METADATA_KINDS
        from logshipper.spool.segment import Stream

        bar = "\r%3d%%|████████      | %d/1000 [00:00<00:21,  1.08it/s]"
        kinds = {
            "plain lines": b"".join(LINE % number for number in range(500_000)),
            "plain lines, UTF-8": b"".join(
                "Größe %07d: ".encode() % number + LINE % number for number in range(200_000)
            ),
            "coloured lines": b"".join(
                b"\x1b[32mINFO\x1b[0m " + LINE % number for number in range(200_000)
            ),
            "lines, one in ten JSON": b"".join(
                (b"" if number % 10 else b'{"step": %d, "loss": 0.5}\n' % number) + LINE % number
                for number in range(200_000)
            ),
            "JSON lines": b"".join(
                b'{"step": %d, "loss": 0.123, "lr": 1e-4}\n' % number for number in range(100_000)
            ),
            "one line, repeated": b"warning: the same again\n" * 500_000,
            "a bar's updates (CR)": "".join(bar % (n % 100, n) for n in range(200_000)).encode(),
            "nested bars' updates (cursor up)": "".join(
                f"\n{bar}\x1b[A" % (n % 100, n) for n in range(50_000)
            ).encode(),
        }
        print("\n### Rendering and sorting, one core\n\n| | MB/s | a second |\n|---|---|---|")
        for name, data in kinds.items():
            count = data.count(b"\r") or data.count(b"\n")
            seconds = statistics.median(
                _feed(Classifier("enabled"), Stream.STDOUT, data) for _ in range(self.rounds)
            )
            print(f"| {name} | {len(data) / 1e6 / seconds:.0f} | {count / seconds:,.0f} |")
        for name in ("plain lines", "lines, one in ten JSON"):
            data = kinds[name]
            line_count = data.count(b"\n")
            seconds = statistics.median(
                _feed(Classifier("enabled", metadata=METADATA_KINDS), Stream.STDOUT, data)
                for _ in range(self.rounds)
            )
            print(
                f"| {name}, `metadata: [json, dict, pairs]` | {len(data) / 1e6 / seconds:.0f} "
                f"| {line_count / seconds:,.0f} |"
            )
        data = kinds["coloured lines"]
        seconds = statistics.median(
            _feed(Classifier("enabled", keep_colours=True), Stream.STDOUT, data)
            for _ in range(self.rounds)
        )
        print(
            f"| coloured lines, `colors: keep` | {len(data) / 1e6 / seconds:.0f} | {200_000 / seconds:,.0f} |"
        )
        medians_of = self.medians(render=lambda: self.timed([LOGSHIPPER, "render", str(self.data)]))
        megabytes, cpu = self.data.stat().st_size / 1e6, medians_of["render"][1]
        print(
            f"| `logshipper render`, plain lines | {megabytes / cpu:.0f} | {self.lines / cpu:,.0f} |"
        )

    def memory(self) -> None:
        """Print the memory after the first tenth of MEMORY_LINES and after all. It must not grow."""
        passes = max(2, MEMORY_LINES // self.lines)
        part = max(1, passes // 10)
        script = f"for pass in $(seq {passes}); do cat {self.data}; printf . >&2; done; sleep 60"
        sizes: dict[str, list[tuple[float, float]]] = {}
        with Path(os.devnull).open("wb") as out:
            child = subprocess.Popen([LOGSHIPPER, "run", "--", "sh", "-c", script], stdout=out,
                stderr=subprocess.PIPE, env=self.environment)  # fmt: skip
            assert child.stderr is not None
            for count in (part, passes - part):
                child.stderr.read(count)  # the relay has passed on everything before
                time.sleep(1)  # the renderer catches up
                for pid in [child.pid, *_children(child.pid)]:
                    sizes.setdefault(_comm(pid), []).append(_status(pid))
            child.terminate()
            child.wait()
            child.stderr.close()
        _reap_orphans()
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        print(
            f"\n### Memory, MiB, after {part * self.lines:,} lines and after {passes * self.lines:,}\n"
        )
        print("| process | resident | | peak | |\n|---|---|---|---|---|")
        for name, samples in sizes.items():
            if name not in ("sh", "cat", "sleep"):
                (resident, peak), (last, last_peak) = samples[0], samples[-1]
                print(f"| {name} | {resident:.0f} | {last:.0f} | {peak:.0f} | {last_peak:.0f} |")

    def ingesting(self) -> None:
        subprocess.run(
            [LOGSHIPPER, "run", "--", "cat", str(self.data)],
            stdout=subprocess.DEVNULL,
            check=True,
            env=self.environment,
        )
        _reap_orphans()
        begin = time.perf_counter()
        usage = _run_usage([LOGSHIPPER, "show", "last"], self.environment)
        seconds = time.perf_counter() - begin
        million = self.lines / 1e6
        print(f"\n### Taking {self.lines:,} lines into the local store (`show last`)\n")
        print(f"{seconds / million:.2f} s, {usage / million:.2f} CPU s per million lines")
        shutil.rmtree(self.folder / "store", ignore_errors=True)

    def page(self) -> None:
        page.measure(self.folder, 1_000_000, self.rounds)

    def shipping(self) -> None:
        shipping.cost(self.folder, self.data, self.lines, self.medians)

    def delay(self) -> None:
        agent_load.delay(self.folder)

    def catch_up(self) -> None:
        agent_load.catch_up(self.folder)

    def tasks(self) -> None:
        agent_load.tasks(self.folder)


def _feed(classifier: "Classifier", stream: "Stream", data: bytes) -> float:
    """Return the CPU seconds of feeding the data."""
    begin = time.process_time()
    for at in range(0, len(data), 65536):
        classifier.feed(stream, data[at : at + 65536], 1.0)
        classifier.take()
    return time.process_time() - begin


def _run_usage(command: Sequence[str], environment: dict[str, str]) -> float:
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return usage.ru_utime + usage.ru_stime


def _reap_orphans() -> float:
    """Wait for all orphans and return their CPU seconds. This process is their reaper."""
    cpu = 0.0
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return cpu
        cpu += usage.ru_utime + usage.ru_stime


def _children(pid: int) -> list[int]:
    direct = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return direct + [below for child in direct for below in _children(child)]


def _comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _status(pid: int) -> tuple[float, float]:
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lines", type=int, default=1_500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(MEASUREMENTS)} (default: all)"
    )
    arguments = parser.parse_args()
    for name in set(arguments.names) - set(MEASUREMENTS):
        parser.error(f"there is no measurement {name!r}; there are {', '.join(MEASUREMENTS)}")
    job_cost.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as folder:
        bench = Bench(Path(folder), arguments.lines, arguments.rounds)
        for name in arguments.names or MEASUREMENTS:
            getattr(bench, name)()


if __name__ == "__main__":
    main()
