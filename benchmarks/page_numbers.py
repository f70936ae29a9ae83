"""Speed of the local page's graphs, metadata and comparison with many records and keys, in
Chromium: seconds from the navigation to the display. `python -m benchmarks.page_numbers [--records
N]`."""

import argparse
import json
import math
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import FLAGS, Browsing
from tests.observe.page.conftest import options
from tests.tools.stores.reading_store import SpooledCapture

_WAIT_MS = 300_000
_KEYS = 255


def _jobs(root: Path, records: int) -> None:
    for job_id, count in (("tenth", records // 10), ("all", records)):
        with SpooledCapture(root, job_id, name=job_id) as job:
            for begin in range(0, count, 10_000):
                steps = range(begin, min(begin + 10_000, count))
                job.metadata(
                    *(
                        json.dumps({"step": n, "loss": math.exp(-n / count), "lr": 1e-3})
                        for n in steps
                    )
                )
            job.end()
    with SpooledCapture(root, "keys", name="keys") as job:
        for step in range(1000):
            job.metadata(
                {"step": step, **{f"k{number:03}": step * number for number in range(_KEYS)}}
            )
        job.end()
    with LocalStore(str(root)) as store:
        store.ingest(deadline_secs=3600)


def _first_graph(page: Page) -> None:
    expect(page.locator(".graph-panel canvas[aria-label]").first).to_be_visible(timeout=_WAIT_MS)


def _whole_graph(count: int) -> str:
    return f"of {count:,}: thinned evenly"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        root = Path(scratch) / "store"
        _jobs(root, records)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with PageServer(options(root)) as server, Browsing(browser, server, "bench") as browsing:
            print("| what | seconds |\n|---|---|")

            def open_view(view: str) -> tuple[Page, float]:
                page = browsing.open("", server=server)
                began = time.perf_counter()
                page.evaluate(f"location.hash = '#/{view}'")
                return page, began

            def say(words: str, began: float) -> None:
                print(f"| {words} | {time.perf_counter() - began:.2f} |", flush=True)

            for job_id, count in (("tenth", records // 10), ("all", records)):
                page, began = open_view(f"job/{job_id}/graphs")
                _first_graph(page)
                say(f"graphs, {count:,} records: first drawn", began)
                expect(page.get_by_text(_whole_graph(count)).first).to_be_visible(timeout=_WAIT_MS)
                say(f"graphs, {count:,} records: all read", began)
                page, began = open_view(f"job/{job_id}/metadata")
                expect(page.locator(".records tbody tr").first).to_be_visible(timeout=_WAIT_MS)
                say(f"metadata, {count:,} records: newest page", began)
                began = time.perf_counter()
                page.get_by_role("button", name="Oldest records").click()
                expect(page.get_by_text("Oldest first")).to_be_visible(timeout=_WAIT_MS)
                say(f"metadata, {count:,} records: oldest page", began)
                began = time.perf_counter()
                page.get_by_role("searchbox", name="Search records").fill("nowhere")
                expect(page.get_by_text("has this text")).to_be_visible(timeout=_WAIT_MS)
                say(f"metadata, {count:,} records: search through all", began)
            page, began = open_view("job/keys/graphs")
            _first_graph(page)
            say(f"graphs, {_KEYS + 1} keys: first drawn", began)
            page, began = open_view("compare/tenth,all")
            _first_graph(page)
            say("compare, read before: first drawn", began)
        browser.close()


if __name__ == "__main__":
    main()
