"""Duration of `logshipper ls` with many jobs, start of Python and imports included: medians, as
Markdown.

python -m benchmarks.listing [--jobs 10000] [--rounds 7]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.model.key_values import KeyValues
from logshipper_ingest.sqlite_file import transaction
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.local_store import LocalStore

NS = 10**9
STATES = ("COMPLETED",) * 7 + ("FAILED", "CANCELLED", "TIMEOUT")
CALLS = (
    ("ls", ()),
    (
        "ls, conditions on metadata and properties",
        ("--filter", "loss<0.2", "--filter", "duration>1m"),
    ),
    (
        "ls, own columns, sorted by a key",
        ("--columns", "id,name,loss=Loss:.5f,opt.lr", "--sort", "loss"),
    ),
    (
        "ls, roll-ups and wildcards as columns, sorted by one",
        ("--columns", "id,loss.min,metrics.*", "--sort", "loss.min"),
    ),
    ("ls --all, every key a column", ("--all", "--columns", "id,*")),
    ("ls of a range and a wildcard", ("j100-j199", "*-7.py")),
    ("ls --by-state", ("--by-state",)),
    ("ls --all", ("--all",)),
    ("ls --all --json", ("--all", "--json")),
)


def fill(root: str, jobs: int) -> None:
    """Fill a store's catalogue and its cache of last values, as ingestion does."""
    now_ns = time.time_ns()
    with (
        closing(LocalStore(root, create=True)) as store,
        transaction(store._catalogue.current._connection),
    ):
        for number in range(jobs):
            started_ns = now_ns - (jobs - number) * 60 * NS
            job = JobSummary(
                f"j{number}", f"train-{number % 10}.py", "ada", "node1", STATES[number % 10], number % 10 // 7, 0, 1,
                started_ns, started_ns + number % 7200 * NS, started_ns, "enabled", 1000, 50, 0, 100_000, 50_000,
            )  # fmt: skip
            store._catalogue.current.put(CatalogueRow(job))
            loss = (number * 7919 % jobs) / jobs
            last = {"epoch": "50", "loss": f"{loss:.7f}", "opt.lr": "0.1"}
            values = {key: KeyValues(text, 50, text, text) for key, text in last.items()}
            store._values.put(job, {**values, "model": KeyValues('"mlp"', 1)}, 0)  # no database


def seconds(words: tuple[str, ...], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "logshipper", *words], env=environment, check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)  # fmt: skip
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "store")
        fill(root, options.jobs)
        environment = {**os.environ, "HOME": folder, "LOGSHIPPER_STORE": root}
        environment |= {
            "PYTHONPYCACHEPREFIX": folder,
            "PYTHONDONTWRITEBYTECODE": "",
        }  # compiled, as in an installation
        seconds(("ls", "--json"), environment)
        print(f"\n### {options.jobs:,} jobs\n\n| | s | CPU s |\n|---|---|---|")
        start = [seconds(("--version",), environment) for _ in range(options.rounds)]
        print(f"| `logshipper --version` | {statistics.median(start):.2f} | |")
        for name, words in CALLS:
            before = os.times()
            secs = [seconds(("ls", *words), environment) for _ in range(options.rounds)]
            after = os.times()
            cpu = (
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )
            print(
                f"| {name} | {statistics.median(secs):.2f} | {cpu / options.rounds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
