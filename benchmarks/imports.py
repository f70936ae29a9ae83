"""Speed of `logshipper import files` for kinds of output, beside `zstd -3` over the same files.

    python -m benchmarks.imports [--mb 10] [--files 4] [--rounds 3]
    python -m benchmarks.imports --small 5000

The files are in the page cache. The second form imports many small files, imports them again, and
then again with new lines in ten of them. Other programs on the machine lengthen seconds, and change
CPU seconds less.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

MB = 10**6
POLL_SECS = 0.05
CLOCK = 1_763_632_800  # 2025-11-20 10:00 UTC
WORDS = "reading shard tokens worker cache batch queue retry flushed opened node checkpoint".split()


def _stamp(secs: float) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(CLOCK + secs))
    return f"{moment},{int(secs * 1000) % 1000:03d}"


def _training() -> Iterator[str]:
    """Log lines with a timestamp, and now and then other text."""
    step = 0
    while True:
        step += 1
        if step % 500 == 0:
            yield f"{_stamp(step / 3)} - INFO - saving checkpoint ckpt-{step}.pt\n"
        yield (
            f"{_stamp(step / 3)} - INFO - step {step}/400000 | loss: {9 / (step + 9) ** 0.3:.4f} | "
            f"lr: {3e-4 * 0.99999**step:.3e} | grad_norm: {0.5 + step % 7 / 10:.3f} | "
            f"{18000 + step % 900} tokens/s\n"
        )


def _table() -> Iterator[str]:
    """Thermodynamic output of a simulation."""
    yield "   Step          Temp          E_pair         TotEng         Press          Volume\n"
    step = 0
    while True:
        step += 100
        noise = step * 7919 % 1000 / 1000
        yield (
            f"{step:>7}   {1.4 + noise:<14.8g} {-6.5 + noise / 9:<14.8g} {-4.2 - noise / 99:<14.8g} "
            f"{-3.1 + noise:<14.8g} {4000 + noise:<14.8g}\n"
        )


def _prose() -> Iterator[str]:
    """Messages with timestamps and numbers, hardly one like another."""
    chance = random.Random(1)
    secs = 0.0
    while True:
        secs += chance.random()
        words = " ".join(chance.choices(WORDS, k=chance.randint(2, 5)))
        host, port = chance.randint(1, 99), chance.randint(1024, 60000)
        yield (
            f"{_stamp(secs)} [{chance.randint(1000, 9999)}] {words} {chance.randint(1, 10**6)} "
            f"from 10.0.3.{host}:{port} in {chance.random() * 90:.1f} ms ({chance.choice(WORDS)})\n"
        )


def _bars() -> Iterator[str]:
    """Bars of tqdm, redrawn ten times per line of text."""
    epoch = 0
    while True:
        epoch += 1
        for at in range(0, 101, 2):
            bar = "█" * (at // 10) + " " * (10 - at // 10)
            yield (
                f"\rEpoch {epoch}: {at:3d}%|{bar}| {at * 9}/900 [00:{at % 60:02d}<00:09, 9.87it/s, "
                f"loss={1 / (epoch + at):.4f}]"
            )
        yield f"\nvalidated epoch {epoch}: accuracy={1 - 1 / (epoch + 1):.4f}\n"


def _words() -> Iterator[str]:
    chance = random.Random(2)
    while True:
        yield " ".join(chance.choices(WORDS, k=chance.randint(4, 12))) + "\n"


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "log lines of a training, 4 numbers each": _training,
    "rows of a table with 6 columns": _table,
    "messages with timestamps and numbers": _prose,
    "redrawn bars": _bars,
    "text without numbers": _words,
}


class _Run(NamedTuple):
    secs: float
    cpu_secs: float  # of all cores
    peak_mb: float  # of all processes together, each with its shared pages
    out: str


def _run(command: list[str]) -> _Run:
    peaks = [0.0]
    begin, before = time.perf_counter(), os.times()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        watch = threading.Thread(target=_watch, args=(program, peaks))
        watch.start()
        out = program.communicate()[0]
    secs, after = time.perf_counter() - begin, os.times()
    watch.join()
    if program.returncode:
        raise SystemExit(f"{command} failed")
    cpu_secs = after.children_user - before.children_user
    cpu_secs += after.children_system - before.children_system
    return _Run(secs, cpu_secs, peaks[0], out)


def _watch(program: "subprocess.Popen[str]", peaks: list[float]) -> None:
    """Keep the largest resident memory of a program and its children."""
    while program.poll() is None:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        try:
            pids = [str(program.pid), *children.read_text().split()]
            pages = [Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in pids]
        except OSError:
            break
        peaks[0] = max(peaks[0], sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE") / MB)
        time.sleep(POLL_SECS)


def _import(folder: Path, store: Path) -> _Run:
    words = ("import", "files", str(folder), "--store", str(store))
    return _run([sys.executable, "-m", "logshipper", *words])


def _fill(folder: Path, make: Callable[[], Iterator[str]], files: int, size: int) -> None:
    folder.mkdir(parents=True)
    text, lines = [], 0
    for line in make():
        text.append(line)
        lines += len(line.encode())
        if lines >= size:
            break
    content = "".join(text).encode()
    for number in range(files):
        (folder / f"slurm-{number + 4000}.out").write_bytes(content)


def kinds(folder: Path, size: int, files: int, rounds: int) -> None:
    """Print the cost of each kind of file."""
    print(f"\n### `logshipper import files`: {files} files of {size / MB:g} MB of each kind\n")
    print("| text | CPU s for 10 MB | s for all | MB of memory | `zstd -3`, CPU s for 10 MB |")
    print("|---|---|---|---|---|")
    tens = files * size / MB / 10
    for name, make in KINDS.items():
        source, store = folder / "files", folder / "store"
        _fill(source, make, files, size)
        ours, peers = [], []
        for _ in range(rounds):
            shutil.rmtree(store, ignore_errors=True)
            ours.append(_import(source, store))
            if zstd := shutil.which("zstd"):
                command = [zstd, "-3", "-q", "-c", *map(str, sorted(source.iterdir()))]
                peers.append(_run(["sh", "-c", f"{' '.join(command)} > /dev/null"]).cpu_secs / tens)
        cpu = statistics.median(run.cpu_secs for run in ours) / tens
        secs = statistics.median(run.secs for run in ours)
        peak = max(run.peak_mb for run in ours)
        peer = f"{statistics.median(peers):.3f}" if peers else ""
        print(f"| {name} | {cpu:.2f} | {secs:.1f} | {peak:.0f} | {peer} |", flush=True)
        shutil.rmtree(source)
        shutil.rmtree(store)


def small(folder: Path, count: int) -> None:
    """Print the cost of many small files, and of importing them again."""
    source, store = folder / "files", folder / "store"
    source.mkdir()
    chance = random.Random(3)
    makers = list(KINDS.values())
    for number in range(count):
        limit, size, text = chance.randint(20_000, 200_000), 0, []
        for line in chance.choice(makers)():
            text.append(line)
            size += len(line)
            if size >= limit:
                break
        if number % 9 == 0:
            text.append(
                f"slurmstepd: error: *** JOB {number} ON n1 CANCELLED AT 2025-11-20T12:00:00 ***\n"
            )
        (source / f"slurm-{100_000 + number}.out").write_text("".join(text))
    total = sum(path.stat().st_size for path in source.iterdir())
    print(f"\n### {count:,} files of 20 to 200 KB, {total / MB:,.0f} MB\n")
    print("| import | s | CPU s | MB of memory | printed |\n|---|---|---|---|---|")
    for name in ("first", "again", "again, ten files have grown"):
        if "grown" in name:
            for path in sorted(source.iterdir())[:10]:
                with path.open("a") as file:
                    file.write("one more line\n")
        run = _import(source, store)
        out = run.out.strip()
        print(
            f"| {name} | {run.secs:.1f} | {run.cpu_secs:.1f} | {run.peak_mb:.0f} | {out} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=float, default=10)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", metavar="COUNT", type=int, help="import small files instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.small:
            small(Path(folder), options.small)
        else:
            kinds(Path(folder), int(options.mb * MB), options.files, options.rounds)


if __name__ == "__main__":
    main()
