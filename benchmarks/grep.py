"""Speed of `logshipper grep` over many jobs, beside ripgrep on the same text in files.

    python -m benchmarks.grep [--jobs 10000] [--lines 1000]

The store and the files are in the page cache. Both programs print all matches into a pipe, and use all
cores.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.grown_store import NS, _catalogue_row, _lines
from logshipper.spool.segment import decode_frame, encode_record
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.store.job_db import JobWriter
from logshipper_ingest.store.local_store import LocalStore
from logshipper_ingest.store.new_databases import MAX_WAITING, NewDatabases

BLOCK = 100  # lines of a block
PATTERNS = {
    "no line has": ["no such text"],
    "one line of a thousand has": ["CUDA out of memory"],
    "the same, in any case": ["-i", "cuda OUT of memory"],
    "an expression for one of a thousand": [r"out of \w+\. Tried"],
    "an expression without a literal": [r"[A-Z]{4}\d{3}"],
}


def fill(root: Path, files: Path, jobs: int, lines: int) -> None:
    """Write jobs with the same text as in the files, a file a job."""
    files.mkdir()
    now_ns = time.time_ns()
    with closing(LocalStore(str(root), create=True)) as store:
        for begin in range(0, jobs, MAX_WAITING):
            new = NewDatabases(store.root, os.path.join(store.root, "jobs"))
            rows = []
            for number in range(begin, min(begin + MAX_WAITING, jobs)):
                job_id = f"j{number:06d}"
                texts = [_text(number, first) for first in range(0, lines, BLOCK)]
                (files / f"{job_id}.log").write_bytes(b"".join(texts))
                path = new.make(job_id, job_id, small=False)
                with closing(JobWriter(path, wal=False, synced=False)) as job:
                    _write(job, texts, now_ns - (jobs - number) * 600 * NS)
                    rows.append(_catalogue_row(job_id, job))
            new.publish()
            store._catalogue.current.put_all(rows)


def _text(job: int, first: int) -> bytes:
    return "".join(_line(job, number) for number in range(first, first + BLOCK)).encode()


def _line(job: int, number: int) -> str:
    if (job * 7919 + number) % 1000 == 17:
        return f"RuntimeError: CUDA out of memory. Tried to allocate {number % 40}.00 GiB\n"
    noise = (job * 2_654_435_761 + number * 40_503) % 1_000_003
    loss = noise / 1_000_003
    return f"[{number:7d}] epoch {number // 500} step {number}: loss {loss:.6f}, took {noise % 97} ms\n"


def _write(job: JobWriter, texts: list[bytes], started_ns: int) -> None:
    account = CaptureAccount(name="train", user="ada", host="node1")
    row = job.add_capture("0", Source(1, "", 0), account)
    rows = Rows()
    start = {"type": "start", "started_ns": started_ns, "host": "node1", "mode": "enabled"}
    end_ns = started_ns + 500 * NS
    end = {"type": "end", "state": "COMPLETED", "exit_code": 0, "signal": 0, "ended_ns": end_ns}
    frames = [
        decode_frame(encode_record(started_ns, start), 0),
        *((_lines(started_ns + (1 + at) * NS, text), 0) for at, text in enumerate(texts)),
        decode_frame(encode_record(end_ns, end), 0),
    ]
    for frame in frames:
        assert frame is not None
        account.take(frame[0], row.axis, rows, end_ns)
    job.write(row._replace(done=True), rows)


class _Run(NamedTuple):
    """Seconds of a program, and the lines that it printed."""

    first_secs: float  # until the first line
    secs: float
    cpu_secs: float  # of all cores
    lines: int


def _run(command: list[str], folder: Path) -> _Run:
    begin, before = time.perf_counter(), os.times()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        first = program.stdout.readline()
        first_secs = time.perf_counter() - begin
        lines = bool(first) + sum(1 for _ in program.stdout)
    secs, after = time.perf_counter() - begin, os.times()
    cpu_secs = after.children_user - before.children_user
    cpu_secs += after.children_system - before.children_system
    return _Run(first_secs, secs, cpu_secs, lines)


def measure(folder: Path, jobs: int, lines: int, rounds: int) -> None:
    """Print the figures."""
    root, files = folder / "store", folder / "files"
    if not root.exists():
        fill(root, files, jobs, lines)
    os.environ["LOGSHIPPER_STORE"] = str(root)
    rg = shutil.which("rg")
    print(f"\n### `logshipper grep`: {jobs:,} jobs of {lines:,} lines, {os.cpu_count()} cores\n")
    heads = (
        "",
        "s",
        "first match, s",
        "CPU s",
        "million lines per CPU s",
        "`rg`, s",
        "`rg`, CPU s",
        "ratio of CPU",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, words in PATTERNS.items():
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(_run([sys.executable, "-m", "logshipper", "grep", *words], folder))
            if rg:
                theirs.append(_run([rg, "-n", *words, str(files)], folder))
        assert not rg or ours[0].lines == theirs[0].lines, (ours[0], theirs[0])
        cpu = statistics.median(run.cpu_secs for run in ours)
        cells = [
            f"{statistics.median(run.secs for run in ours):.2f}",
            f"{statistics.median(run.first_secs for run in ours):.2f}" if ours[0].lines else "",
            f"{cpu:.2f}",
            f"{jobs * lines / cpu / 1e6:.1f}",
        ]
        if rg:
            peer = statistics.median(run.cpu_secs for run in theirs)
            secs = statistics.median(run.secs for run in theirs)
            cells += [f"{secs:.2f}", f"{peer:.2f}", f"{cpu / peer:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"\nThe largest process had {peak // 1024} MB.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--keep", metavar="DIR", help="a folder for store and files, made if missing"
    )
    options = parser.parse_args()
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        measure(Path(options.keep), options.jobs, options.lines, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.jobs, options.lines, options.rounds)


if __name__ == "__main__":
    main()
