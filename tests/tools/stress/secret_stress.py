"""`python -m tests.tools.stress.secret_stress`: run jobs that disable logging on one stream and
print a secret on the other at the same moment.

Relays read both streams at once, so no secret may be stored. Exit code: 0, or 1 if a secret was
stored.

A job waits until its output contains all earlier lines: relays have then read them. `open N` comes
before each secret, and shows that logging was enabled. Lines of a secret look like a series, so a
record's key could contain it, too.
"""

import argparse
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import public_folder
from tests.tools.fakes.slurm_player import build, build_obstacle
from tests.tools.stress.order_stress import TIMEOUT_SECS, ByPlugin, ByRun, Run

SECRETS = 36
JOBS = 72  # 2,592 secrets
LINES = 3  # of each secret: they confirm a shape
# arguments: its name, number of secrets, its output files
JOB = """
import os, random, sys, time
name, count, *files = sys.argv[1:]
chance, sent = random.Random(name), 0
def say(stream, text):
    global sent
    sent += os.write(stream, text.encode())
def mode(stream, word):
    say(stream, '/LOGCOMMAND {"mode":"%s"}\\n' % word)
def until_read():
    while sum(os.stat(file).st_size for file in set(files)) < sent: time.sleep(0.001)
    time.sleep(0.003)  # silence is seen, too
for number in range(int(count)):
    stream = chance.choice((1, 2))
    other = 3 - stream
    say(stream, f"open {number}\\n")
    if chance.random() < 0.5: until_read()
    mode(other, "disabled")
    say(stream, "".join(f"this is secret-{name}-{number}e = {n}.5\\n" for n in range(3)))
    until_read()
    mode(other, "enabled")
    until_read()
    mode(stream, "enabled")
    until_read()
"""


def argv(python: str, name: str, files: Sequence[Path], secrets: int = SECRETS) -> list[str]:
    return [python, "-S", "-E", "-c", JOB, name, str(secrets), *map(str, files)]


def leaks_in(stored: bytes, name: str, secrets: int = SECRETS) -> list[int]:
    """Return the numbers of the stored secrets."""
    return [
        number for number in range(secrets) if b"secret-%s-%de" % (name.encode(), number) in stored
    ]


def open_in(stored: bytes, secrets: int = SECRETS) -> int:
    """Return the number of stored lines before secrets."""
    return sum(b"open %d\n" % number in stored for number in range(secrets))


def stored_of(by: ByRun | ByPlugin, name: str, folder: Path, *, tty: bool, one_file: bool) -> bytes:
    """Run a job; return the content of all files in the spool, or in its home."""
    files = [folder / f"{name}.out", folder / f"{name}.out" if one_file else folder / f"{name}.err"]
    fds = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for path in files]
    run = Run([], tty, "", "", 0.0, tuple(argv(sys.executable, name, files)))
    process, where = by.start(run, *fds)
    for fd in fds:
        os.close(fd)
    assert process.wait(300) == 0
    wait_until(lambda: by.is_over(where), "the sidecars have ended", TIMEOUT_SECS)
    return b"".join(path.read_bytes() for path in where.rglob("*") if path.is_file())


def stress(
    makers: Sequence[Callable[[ExitStack], ByRun | ByPlugin]], jobs: range, workers: int
) -> Counter[str]:
    """Return counts: `jobs`, `secrets`, `leaks`, `open` (stored lines)."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(public_folder("logshipper-secrets-"))
            by = makers[number % len(makers)](stack)
            for job in jobs[number::workers]:
                name = f"j{job}"
                stored = stored_of(by, name, folder, tty=job % 3 != 0, one_file=job % 2 == 0)
                leaks = leaks_in(stored, name)
                with lock:
                    counts.update(jobs=1, secrets=SECRETS, leaks=len(leaks), open=open_in(stored))
                    if leaks:
                        print(f"{name}, {type(by).__name__}: stored {leaks}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, number) for number in range(workers)]:
            done.result()
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    about = (__doc__ or "").partition(":")[2]
    parser = argparse.ArgumentParser(
        description=about,
        prog="python -m tests.tools.stress.secret_stress",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--by", choices=("run", "plugin"), default="plugin")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--first", type=int, default=0, help="number of the first job")
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        maker: Callable[[ExitStack], ByRun | ByPlugin] = ByRun
        if options.by == "plugin":
            if obstacle := build_obstacle():
                parser.error(obstacle)
            binaries = build(stack.enter_context(public_folder("logshipper-secrets-")))
            maker = lambda stack: ByPlugin(stack, binaries)  # noqa: E731
        jobs = range(options.first, options.first + options.jobs)
        counts = stress([maker], jobs, options.workers)
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    return 1 if counts["leaks"] else 0


if __name__ == "__main__":
    sys.exit(main())
