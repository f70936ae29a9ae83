"""Cost of capture for a Slurm job (`make bench-slurm`), with a real slurmctld and slurmd.

An ordinary user's jobs run without the plugin, with the plugin but no opt-in, and with an opt-in.
Variants alternate, so a noisy neighbour affects all of them. No agent runs, because `make bench`
measures the cost of shipping. The output is Markdown.
"""

import argparse
import contextlib
import datetime
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.tools import plugin
from tests.slurm.tools.cluster import SlurmCluster
from tests.tools.captures.captured_runs import wait_until

MEASUREMENTS = ("start", "end", "throughput", "many_tasks")
LINE = "epoch 12 step %07d: loss 0.123456 acc 0.98765 lr 1.0e-04 grad 0.5432 time 0.123 s/it ok"
PRINTING = f"for n in range({{lines}}): print({LINE!r} % n)"
TASKS = 64
JOB_SECS = 300.0


@dataclass(frozen=True)
class Variant:
    """plugin: plugstack.conf names it; opt_in: content of ~/.logoptin, None for no file."""

    name: str
    plugin: bool = True
    opt_in: str | None = None


BARE = Variant("no plugin", plugin=False)
OUT = Variant("plugin, not opted in")
IN = Variant("opted in", opt_in="")
PIPES = Variant("opted in, `tty: false`", opt_in="tty: false\n")


class Bench:
    """One run of the benchmark. rounds: jobs of each variant for times in milliseconds, an eighth
    of it for long ones."""

    def __init__(self, cluster: SlurmCluster, rounds: int, lines: int) -> None:
        self.cluster = cluster
        self.rounds = rounds
        self.lines = lines
        self.user = cluster.add_user()
        self.python = plugin.python_for_users(cluster.folder)
        built = plugin.build(cluster.folder)
        self.line = f"optional {built} spool=$folder/spool cluster=bench python={self.python}"
        self.spool = cluster.node_folder("n1") / "spool"
        self.spool.mkdir(mode=0o711)
        self.spool.chmod(0o711)
        self._is_set: Variant | None = None

    def use(self, variant: Variant) -> None:
        if self._is_set != variant:
            self.cluster.set_plugstack(self.line if variant.plugin else "")
            place = self.user.home / ".logoptin"
            place.unlink(missing_ok=True)
            if variant.opt_in is not None:
                place.write_text(variant.opt_in)
                place.chmod(0o644)
            self._is_set = variant

    def batch(self, variant: Variant, script: str, *options: str) -> str:
        """Run a batch job until it and all processes of its capture have ended; return its id."""
        self.use(variant)
        job_id = self.cluster.sbatch(self.user, script, "--nodelist=n1", *options)
        end = self.cluster.wait(job_id, JOB_SECS)
        if end.state != "COMPLETED":
            raise SystemExit(f"{variant.name}: the job ended as {end}")
        self.settle()
        return job_id

    def settle(self) -> None:
        wait_until(lambda: not helpers(), "keeper, relay and sidecar have ended", JOB_SECS)

    # ---- measurements

    def start(self) -> None:
        """Print the time from slurmd's first mention of the job to the script's first command."""
        millis: dict[str, list[float]] = {}
        for variant in self.turns("start", (BARE, OUT, IN), self.rounds):
            job_id = self.batch(variant, "echo $EPOCHREALTIME", "--output=start.out")
            began = float((self.user.home / "start.out").read_text())
            millis.setdefault(variant.name, []).append((began - self.first_word(job_id)) * 1000)
        print(
            f"\n### From slurmd's first word about a batch job to its first command, {self.rounds} jobs each\n"
        )
        print("| | ms | more than without | quarter to three quarters |\n|---|---|---|---|")
        bare = statistics.median(millis[BARE.name])
        for name, values in millis.items():
            low, middle, high = statistics.quantiles(values, n=4)
            print(f"| {name} | {middle:.1f} | {middle - bare:+.1f} | {low:.1f} to {high:.1f} |")

    def first_word(self, job_id: str) -> float:
        """Return the Unix time in seconds when the node's log first mentions a job."""
        for line in self.cluster.log("n1").splitlines():
            if re.search(rf"\b{job_id}\b", line):
                return datetime.datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
        raise SystemExit(f"slurmd's log doesn't name job {job_id}")

    def end(self) -> None:
        """Print the time from a task's last command to srun's return."""
        millis: dict[str, list[float]] = {}
        for variant in self.turns("end", (BARE, OUT, IN, PIPES), self.rounds):
            self.use(variant)
            with self.cluster.start_as(
                self.user, "srun", "--nodelist=n1", "bash", "-c", "echo $EPOCHREALTIME"
            ) as srun:
                out, err = srun.communicate(timeout=JOB_SECS)
                returned = time.time()
            if srun.returncode:
                raise SystemExit(f"{variant.name}: srun said {err.decode()}")
            millis.setdefault(variant.name, []).append((returned - float(out)) * 1000)
            self.settle()
        print(f"\n### From a quiet task's last command to srun's return, {self.rounds} each\n")
        print("| | ms | more than without | longest |\n|---|---|---|---|")
        bare = statistics.median(millis[BARE.name])
        for name, values in millis.items():
            middle = statistics.median(values)
            print(f"| {name} | {middle:.0f} | {middle - bare:+.0f} | {max(values):.0f} |")

    def throughput(self) -> None:
        """Print the duration of a printing command, as the job sees it."""
        data = self.cluster.folder / "lines.txt"
        data.write_text("".join(f"{LINE % number}\n" for number in range(self.lines)))
        code = self.cluster.folder / "printing.py"
        code.write_text(PRINTING.format(lines=self.lines))
        commands = {
            "a Python loop of print()": f"/usr/bin/python3 {code}",
            "the same with a flush each": f"/usr/bin/python3 -u {code}",
            "cat": f"cat {data}",
        }
        rounds = max(3, self.rounds // 8)
        print(
            f"\n### {self.lines:,} lines of {len(LINE % 0) + 1} bytes into the output file, {rounds} jobs each\n"
        )
        print("| | | s | of the time without |\n|---|---|---|---|")
        for task_name, command in commands.items():
            millis: dict[str, list[float]] = {}
            for variant in self.turns(task_name, (BARE, PIPES, IN), rounds):
                script = f"a=$EPOCHREALTIME; {command}; echo $a $EPOCHREALTIME > stamp"
                self.batch(variant, script, "--output=out.txt")
                begin, ended = map(float, (self.user.home / "stamp").read_text().split())
                millis.setdefault(variant.name, []).append(ended - begin)
                self.forget_captures()
            bare = statistics.median(millis[BARE.name])
            for name, values in millis.items():
                middle = statistics.median(values)
                print(f"| {task_name} | {name} | {middle:.2f} | {middle / bare:.2f} |")

    def forget_captures(self) -> None:
        """Delete all captures. No agent ships them here, so they would fill the disk."""
        self.cluster.as_root("find", str(self.spool), "-mindepth", "1", "-maxdepth", "1", "-name", "[0-9]*",
                             "-exec", "rm", "-rf", "{}", "+")  # fmt: skip

    def many_tasks(self) -> None:
        """Print the memory of each task's helpers, and the start and end times of many tasks at
        once."""
        script = "echo begun; sleep 15; echo $EPOCHREALTIME"
        print(f"\n### {TASKS} tasks on a node at once\n")
        print(
            "| | first begun to last begun, s | last command to srun's return, s |\n|---|---|---|"
        )
        sizes: dict[str, list[tuple[float, float]]] = {}
        self.forget_captures()
        for variant in (BARE, IN):
            self.use(variant)
            command = [
                "srun",
                f"-n{TASKS}",
                "--nodelist=n1",
                "bash",
                "-c",
                f"echo $EPOCHREALTIME; {script}",
            ]
            with self.cluster.start_as(self.user, *command) as srun:
                if variant is IN:
                    sizes = self.sizes()
                out, err = srun.communicate(timeout=JOB_SECS)
                returned = time.time()
            times = sorted(float(word) for word in out.split() if word != b"begun")
            if srun.returncode or len(times) != 2 * TASKS:
                raise SystemExit(f"{variant.name}: srun said {err.decode()}")
            print(
                f"| {variant.name} | {times[TASKS - 1] - times[0]:.2f} | {returned - times[-1]:.2f} |"
            )
            self.settle()
        print(
            "\n| process | how many | MiB each (PSS: shared pages are shared) | resident |\n|---|---|---|---|"
        )
        for name, values in sizes.items():
            pss, rss = (statistics.median(value[at] for value in values) for at in (0, 1))
            print(f"| {name} | {len(values)} | {pss:.1f} | {rss:.1f} |")
        self.forget_captures()

    def sizes(self) -> dict[str, list[tuple[float, float]]]:
        """Return the proportional and resident set of each process in MiB, by process name, once
        all sidecars relay."""

        def all_begun() -> bool:
            pids_of = {
                path
                for path in self.spool.glob("*@*/segments/0000000001.seg")
                if path.stat().st_size > 32
            }
            return len(pids_of) >= TASKS

        wait_until(all_begun, f"{TASKS} sidecars have begun", 60.0)
        memory_of: dict[str, list[tuple[float, float]]] = {}
        for name, pid in helpers():
            with contextlib.suppress(OSError):  # a process that only synced has ended
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                kib = {
                    key: int(value)
                    for key, value in re.findall(r"^(Pss|Rss): +(\d+) kB", rollup, re.MULTILINE)
                }
                memory_of.setdefault(name, []).append((kib["Pss"] / 1024, kib["Rss"] / 1024))
        return memory_of

    def turns(self, task_name: str, variants: Sequence[Variant], rounds: int) -> Iterator[Variant]:
        """Yield each variant once per round."""
        for round_ in range(rounds):
            for variant in variants:
                say(f"{task_name}: round {round_ + 1} of {rounds}: {variant.name}")
                yield variant
        say("")


def helpers() -> list[tuple[str, int]]:
    """Return name and pid of each capturing process on this machine."""
    processes = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            name = comm.read_text().strip()
            if name.startswith("logship"):
                processes.append((name, int(comm.parent.name)))
    return processes


def say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--rounds", type=int, default=40, help="jobs of each variant (default 40)")
    parser.add_argument(
        "--lines", type=int, default=1_000_000, help="of a printing job (default 1,000,000)"
    )
    parser.add_argument("--proctrack", choices=("linuxproc", "cgroup"), default="cgroup")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(MEASUREMENTS)} (default: all)"
    )
    arguments = parser.parse_args()
    for name in set(arguments.names) - set(MEASUREMENTS):
        parser.error(f"there is no measurement {name!r}; there are {', '.join(MEASUREMENTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if helpers():
        raise SystemExit("captures of other jobs run on this machine; measure when they have ended")
    with SlurmCluster(proctrack=arguments.proctrack, cpus=TASKS, cluster="bench") as cluster:
        bench = Bench(cluster, arguments.rounds, arguments.lines)
        for name in arguments.names or MEASUREMENTS:
            getattr(bench, name)()


if __name__ == "__main__":
    main()
