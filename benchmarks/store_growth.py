"""Cost of commands and of the local page with a grown store: medians, as Markdown, start of Python
and imports included.

    make bench-store COUNT=100000           # the store takes 5 GB and some minutes
    .venv/bin/python -m benchmarks.store_growth --jobs 2000 --lines 1000000
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.grown_store import LONG, grow
from logshipper_observe.page.server import PageServer
from tests.observe.page.conftest import options
from tests.observe.page.test_access import Client

LINES_PER_JOB = 500
CALLS = (
    ("ls",),
    ("ls", "--state", "failed"),
    ("ls", "train-1*", "--filter", "duration>1h"),
    ("ls", "--by-state"),
    ("show", "last"),
    ("show", "j000001"),
    ("show", "train-7"),
    ("show", LONG),
    ("logs", LONG, "--tail", "20"),
    ("metadata", LONG),
    ("analyze", "throughput"),
    ("analyze", "utilization"),
    ("analyze", "nodes"),
    ("analyze", "overheads"),
    ("analyze", "gantt"),
)
PATHS = (
    ("the list, first of all", "api/jobs?limit=100"),
    ("the list again", "api/jobs?limit=100"),
    ("... those that failed", "api/jobs?limit=100&state=FAILED"),
    ("... a part of their names", "api/jobs?limit=100&q=train-17"),
    ("the long job's head", f"api/jobs/{LONG}"),
    ("... its last lines, first of all", f"api/jobs/{LONG}/lines?from=-200&count=200"),
    ("... lines in its middle", f"api/jobs/{LONG}/lines?from={{middle}}&count=200"),
    ("... its last lines again", f"api/jobs/{LONG}/lines?from=-100&count=100"),
    ("a job's head", "api/jobs/j000001"),
    ("... its lines", "api/jobs/j000001/lines?from=-200&count=200"),
)  # fmt: skip


class Cost(NamedTuple):
    """Cost of a call in seconds. cpu: user and kernel."""

    wall: float
    cpu: float


def call(words: tuple[str, ...], environment: dict[str, str]) -> Cost:
    begin = time.perf_counter()
    command = [sys.executable, "-m", "logshipper", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`logshipper {' '.join(words)}` ended with {process.returncode}")
    return Cost(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime)


def _commands(root: Path, folder: str, rounds: int) -> None:
    environment = {**os.environ, "HOME": folder, "LOGSHIPPER_STORE": str(root)}
    environment |= {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    call(("ls",), environment)  # compiled, as in an installation
    for words in (("--version",), *CALLS):
        first = call(words, environment)
        # `analyze` takes seconds, so one more run is enough
        again = 1 if words[0] == "analyze" else rounds
        costs = [call(words, environment) for _ in range(again)]
        _print_row(f"`logshipper {' '.join(words)}`", first, costs)


def _page(root: Path, lines: int, rounds: int) -> None:
    """Print the page's times; each round starts a server with empty caches."""
    costs: dict[str, list[Cost]] = {name: [] for name, _ in PATHS}
    for _ in range(rounds + 1):
        with PageServer(options(root)) as server:
            client = Client(server)
            for name, path in PATHS:
                costs[name].append(_cost(client, path.format(middle=lines // 2)))
    for name, (first, *others) in costs.items():
        _print_row(f"page: {name}", first, others)


def _cost(client: Client, path: str) -> Cost:
    begin, cpu = time.perf_counter(), time.process_time()
    answer = client.ask(path)
    assert answer.status == 200, (path, answer)
    return Cost(time.perf_counter() - begin, time.process_time() - cpu)


def _print_row(name: str, first: Cost, costs: list[Cost]) -> None:
    median: Callable[[list[float]], float] = statistics.median
    wall, cpu = median([cost.wall for cost in costs]), median([cost.cpu for cost in costs])
    print(f"| {name} | {wall:.2f} | {cpu:.2f} | {first.wall:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument(
        "--lines", type=int, help=f"of the long job (default: {LINES_PER_JOB} a job)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", type=Path, help="one that is there already, or is to be kept")
    arguments = parser.parse_args()
    lines = LINES_PER_JOB * arguments.jobs if arguments.lines is None else arguments.lines
    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as folder:
        root = arguments.store or Path(folder) / "store"
        if not (root / "jobs").is_dir():
            begin = time.perf_counter()
            grow(root, arguments.jobs, lines)
            print(f"The store was made in {time.perf_counter() - begin:.0f} s.", flush=True)
        print(f"\n### {arguments.jobs:,} jobs, and one of {lines:,} lines\n")
        print("| | s | CPU s | the first time, s |\n|---|---|---|---|")
        _commands(root, folder, arguments.rounds)
        _page(root, lines, arguments.rounds)


if __name__ == "__main__":
    main()
