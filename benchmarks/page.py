"""Speed of the local page: first paint of a long job, search, jumps to places, and the browser's
cost of following.

Runs in Debian's headless Chromium with the tests' driver; skipped without Chromium.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import FLAGS, WAIT_MS
from tests.observe.page.conftest import options
from tests.observe.page.test_access import Client
from tests.tools.stores.reading_store import SpooledCapture

RECORDS = 100_000
FRAME = 1_000  # lines
RATE = 1_000  # lines a second while following
FOLLOWED_SECS = 20.0
JOB, RUNNING = "longj0b", "runn1ng"
_SOUGHT = {  # each text once, because the server caches recent searches
    "no line has": [f"no such text {number}" for number in range(5)],
    "a thousandth of the lines have": [f"batch {number}," for number in range(500, 505)],
    "nearly every line has": ["step", "of the", "train", "batch", "took"],
}
_TICK_SECS = 1 / os.sysconf("SC_CLK_TCK")
_FIRST_LINE = "document.querySelector('.row .text')?.textContent"


def measure(folder: Path, lines: int, rounds: int) -> None:
    """Print the figures. lines: of the long job, including RECORDS records."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("\n### The local page\n\nThere is no Chromium: left out.")
        return
    root = folder / "page-store"
    _long_job(root, lines)
    with PageServer(options(root)) as server, sync_playwright() as playwright:
        Client(server).ask("api/jobs")  # ingests the job
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        paints = [_first_paint(browser, server) for _ in range(rounds)]
        searches = {
            kind: [_search(server, text) for text in texts] for kind, texts in _SOUGHT.items()
        }
        places = [_place(server, lines * at // 101) for at in range(101)]
        cpu = _following(browser, root, server)
        browser.close()
    print(f"\n### The local page: a job of {lines:,} lines and {RECORDS:,} records\n")
    print("| | |\n|---|---|")
    print(
        f"| first paint of its lines, from the navigation on, s | {statistics.median(paints):.2f} |"
    )
    for kind, secs in searches.items():
        print(f"| a search for what {kind}, s | {statistics.median(secs):.2f} |")
    print(f"| 200 lines at any place, ms: median, 99th percentile | {_places(places)} |")
    print(f"| following at {RATE:,} lines a second: browser, % of a core | {100 * cpu[0]:.1f} |")
    print(f"| ... the server, ingesting included | {100 * cpu[1]:.1f} |")
    shutil.rmtree(root)


def _places(secs: list[float]) -> str:
    ordered = sorted(1000 * value for value in secs)
    return f"{ordered[len(ordered) // 2]:.1f}, {ordered[-2]:.1f}"


def _long_job(root: Path, lines: int) -> None:
    every = lines // RECORDS
    with SpooledCapture(root, JOB, name="long") as job:
        for first in range(0, lines, FRAME):
            records = range(first, first + FRAME, every)
            job.lines(*(_line(number) for number in range(first, first + FRAME - len(records))))
            job.metadata(
                *({"epoch": at // 10_000, "step": at, "loss": 1 / (at + 1)} for at in records)
            )
        job.end()


def _line(number: int) -> str:
    return (
        f"[{number:9d}] step {number} of the training: batch {number % 977}, took {number % 13} ms"
    )


def _first_paint(browser: Browser, server: PageServer) -> float:
    """Return the seconds from the navigation to a frame with the job's last lines, in a new window
    without a cache."""
    with _window(browser, server) as page:
        begin = time.perf_counter()
        page.goto(
            f"http://127.0.0.1:{server.port}{server.access.root}#/job/{JOB}", wait_until="commit"
        )
        page.wait_for_selector(".row:visible .text:not(:empty)")
        page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        return time.perf_counter() - begin


@contextmanager
def _window(browser: Browser, server: PageServer) -> Iterator[Page]:
    """Yield an authenticated, empty window."""
    with browser.new_context(viewport={"width": 1500, "height": 900}) as context:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(server.link())
        page.wait_for_url(lambda url: "token=" not in url)
        page.goto("about:blank")
        yield page


def _search(server: PageServer, text: str) -> float:
    client = Client(server)
    client.ask(f"api/jobs/{JOB}/lines?count=1")  # builds the index before the first search
    begin = time.perf_counter()
    while not json.loads(client.ask(f"api/jobs/{JOB}/search?q={text.replace(' ', '+')}").body)[
        "complete"
    ]:
        pass
    return time.perf_counter() - begin


def _place(server: PageServer, line: int) -> float:
    client = Client(server)
    begin = time.perf_counter()
    client.ask(f"api/jobs/{JOB}/lines?from={line}&count=200")
    return time.perf_counter() - begin


def _following(browser: Browser, root: Path, server: PageServer) -> tuple[float, float]:
    """Return the CPU shares of a core: all processes of the browser, and this process, the server."""
    over = threading.Event()
    with SpooledCapture(root, RUNNING, name="running", started_ns=time.time_ns()) as job:
        job.lines("begin")
        job.beat()
        printing = threading.Thread(target=_print, args=(job, over))
        with _window(browser, server) as page:
            page.goto(f"http://127.0.0.1:{server.port}{server.access.root}#/job/{RUNNING}")
            page.wait_for_selector(".row:visible .text:not(:empty)")
            printing.start()
            time.sleep(2.0)  # skips the warm-up
            begin, browsers, cpu_secs = time.perf_counter(), _browser_secs(), time.process_time()
            time.sleep(FOLLOWED_SECS)
            secs = time.perf_counter() - begin
            shares = (_browser_secs() - browsers) / secs, (time.process_time() - cpu_secs) / secs
            over.set()
            printing.join()
            assert page.evaluate(_FIRST_LINE) != "begin", "the page didn't follow"
        job.end()
    return shares


def _print(job: SpooledCapture, over: threading.Event) -> None:
    number = 0
    while not over.wait(0.1):
        job.lines(*(_line(number + at) for at in range(RATE // 10)))
        number += RATE // 10
        job.beat()


def _browser_secs() -> float:
    """Return the CPU seconds of all Chromium processes that descend from this one."""
    total = 0.0
    for pid in _descendants(os.getpid()):
        try:
            comm, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue  # the process has just ended
        if "chrom" in comm:
            user, system = rest.split()[11:13]
            total += (int(user) + int(system)) * _TICK_SECS
    return total


def _descendants(pid: int) -> list[int]:
    pids = []
    unvisited = [pid]
    while unvisited:
        parent = unvisited.pop()
        result = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False
        )
        children = [int(word) for word in result.stdout.split()]
        pids += children
        unvisited += children
    return pids


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as scratch:
        measure(Path(scratch), int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, 5)
