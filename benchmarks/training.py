"""Slowdown of a printing training loop by capture, and its wait at the end; next to wandb.

wandb runs offline in its own environment (requirements/tool.sh wandb). It prints only WANDB_LINES,
because it takes minutes for a million. Each program measures itself: lines a second of its loop,
and seconds from the loop's end to its own.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

LINES = 1_000_000
WANDB_LINES = 20_000
WANDB_PYTHON = Path(sys.prefix) / "wandb" / "bin" / "python"
PROGRAM = """
import sys, time
lines, stamp, console = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if console != "none":
    import wandb
    run = wandb.init(mode="offline", settings=wandb.Settings(console=console, silent=True))
begin = time.perf_counter()
for step in range(lines):
    print(f"epoch 12 step {step:07d}: loss 0.123456 acc 0.98765 lr 1.0e-04 grad 0.5432 time 0.123 s/it ok")
sys.stdout.flush()
seconds = time.perf_counter() - begin
end = time.time()
if console != "none":
    run.finish()
with open(stamp, "w") as file:
    print(seconds, end, file=file)
"""


def compare(
    folder: Path, logshipper: str, environment: dict[str, str], rounds: int, lines: int
) -> None:
    """Print the table. logshipper: path of the program."""
    program = folder / "train.py"
    program.write_text(PROGRAM)
    stamp = str(folder / "stamp")
    bare = [sys.executable, str(program), str(lines), stamp, "none"]
    peers: dict[str, tuple[Sequence[str], int]] = {
        "nothing (output to a file)": (bare, lines),
        "`script`: a terminal": (
            ["script", "-q", "-e", "-c", " ".join(bare), str(folder / "typescript")],
            lines,
        ),
        "`logshipper run`: a terminal": ([logshipper, "run", "--", *bare], lines),
        "`logshipper run --no-tty`": ([logshipper, "run", "--no-tty", "--", *bare], lines),
    }
    if WANDB_PYTHON.exists():
        for console in ("wrap", "redirect"):
            words = [str(WANDB_PYTHON), str(program), str(WANDB_LINES), stamp, console]
            peers[f"wandb, `console={console}`"] = words, WANDB_LINES
    runs_of: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, (command, count) in peers.items():
            runs_of[name].append(_run(command, count, folder, environment))
    rates = {
        name: statistics.median(rate for rate, _ in values) for name, values in runs_of.items()
    }
    slowest = min(
        (rate for name, rate in rates.items() if name.startswith("wandb")), default=float("nan")
    )
    print(f"\n### A loop that prints {lines:,} lines ({WANDB_LINES:,} under wandb)\n")
    print(
        "| captured by | lines a second | times the slower wandb | s at the end |\n|---|---|---|---|"
    )
    for name, rate in rates.items():
        end = statistics.median(end for _, end in runs_of[name])
        print(f"| {name} | {rate:,.0f} | {rate / slowest:.0f} | {end:.2f} |")
    if not WANDB_PYTHON.exists():
        print("\nwandb isn't there: requirements/tool.sh wandb installs it.")


def _run(
    command: Sequence[str], lines: int, folder: Path, environment: dict[str, str]
) -> tuple[float, float]:
    """Return the lines a second, and the seconds from the loop's end until the command returned."""
    with (folder / "out.txt").open("wb") as out:
        subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            check=True,
            cwd=folder,
            env={
                **environment,
                "WANDB_MODE": "offline",
                "WANDB_DIR": str(folder),
                "PATH": os.environ["PATH"],
            },
        )
    seconds, end = map(float, (folder / "stamp").read_text().split())
    return lines / seconds, time.time() - end
