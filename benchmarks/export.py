"""`logshipper export` of a million records to Parquet, next to pyarrow alone.

    .venv/bin/python -m benchmarks.export                 # five minutes; --help lists the options

A job prints the records, and the local store holds them before the clock starts. The time of the
export covers a whole process with its start, its imports and its reads of the store. pyarrow has
the same records in memory before its clock starts: as dicts, as JSON lines, and as Arrow columns.
"""

import argparse
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

LOGSHIPPER = str(Path(sys.executable).parent / "logshipper")


def records(count: int) -> list[dict[str, Any]]:
    """Return a training loop's records: a new step each time, noisy losses, a falling learning
    rate."""
    rng = random.Random(1)
    return [
        {
            "epoch": step // 1000,
            "step": step,
            "loss": 1 / (1 + step / 5000) + rng.gauss(0, 0.01),
            "acc": round(rng.random(), 4),
            "lr": 0.1 * 0.99 ** (step // 1000),
        }
        for step in range(count)
    ]


class _Bench:
    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "LOGSHIPPER_STORE": str(folder / "store"),
            "LOGSHIPPER_AGENT": "off",
        }
        self.dicts = records(count)
        self.lines = "".join(json.dumps(record) + "\n" for record in self.dicts).encode()
        (folder / "records.jsonl").write_bytes(self.lines)
        self.table = pa.Table.from_pylist(self.dicts)
        with open(os.devnull, "wb") as null:
            command = [
                LOGSHIPPER,
                "run",
                "--name",
                "bench",
                "--",
                "cat",
                str(folder / "records.jsonl"),
            ]
            subprocess.run(command, stdout=null, check=True, env=self.environment)
            subprocess.run(
                [LOGSHIPPER, "show", "last"], stdout=null, check=True, env=self.environment
            )

    def seconds(self, work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def export(self, form: str) -> float:
        """Export in a separate process and return its peak memory in MiB."""
        words = ["export", "last", "--output", str(self.folder / f"out.{form}"), "--force"]
        script = (
            "import sys; from logshipper.start.cli import main; main(sys.argv[1:]);"
            " print(open('/proc/self/status').read())"
        )
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, check=True, text=True,
                              env=self.environment)  # fmt: skip
        peak = next(line for line in done.stdout.splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024

    def write(self, table: pa.Table) -> None:
        pq.write_table(table, self.folder / "alone.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="logshipper-bench-"))
    try:
        _compare(_Bench(folder, arguments.records), arguments.rounds)
    finally:
        shutil.rmtree(folder)


def _compare(bench: _Bench, rounds: int) -> None:
    peers: dict[str, Callable[[], object]] = {
        "pyarrow, from dicts": lambda: bench.write(pa.Table.from_pylist(bench.dicts)),
        "pyarrow, from JSON lines": lambda: bench.write(
            pa.json.read_json(pa.BufferReader(bench.lines))
        ),
        "pyarrow, from its own columns": lambda: bench.write(bench.table),
        **{
            f"export, {form}": functools.partial(bench.export, form)
            for form in ("parquet", "jsonl", "csv")
        },
    }
    secs_of: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, work in peers.items():
            secs_of[name].append(bench.seconds(work))
    medians = {name: statistics.median(values) for name, values in secs_of.items()}
    dicts = medians["pyarrow, from dicts"]
    print(f"\n### {len(bench.dicts):,} records of 5 keys, medians of {rounds} rounds\n")
    print("| | s | speed, pyarrow from dicts being 1 | peak MiB |\n|---|---|---|---|")
    for name, secs in medians.items():
        form = name.removeprefix("export, ")
        peak = f"{bench.export(form):.0f}" if form != name else ""
        print(f"| {name} | {secs:.2f} | {dicts / secs:.2f} | {peak} |")
    export, alone = (
        pq.read_table(bench.folder / "out.parquet"),
        pq.read_table(bench.folder / "alone.parquet"),
    )
    assert export.select(alone.column_names).equals(alone), "the same values, in the same order"


if __name__ == "__main__":
    main()
