"""Pictures of the local page for docs/page.md and README: `python -m
tests.observe.page.pictures`."""

import math
import random
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import FLAGS, PHONE, Browsing
from tests.observe.page.conftest import options
from tests.observe.page.graphs.graphing import pixel_of, wait_for_model
from tests.observe.page.jobs import STARTED_NS
from tests.observe.page.pictured_jobs import RUNNING, pictured_jobs
from tests.tools.sources import ROOT
from tests.tools.stores.reading_store import SpooledCapture

FOLDER = ROOT / "docs" / "images"
_WIDTH, _HEIGHT = 1100, 620
_EPOCHS = 120


def training(root: Path, job_id: str, lr: float, batch: int) -> None:
    """Make a run with realistic numbers."""
    noise = random.Random(job_id)
    with SpooledCapture(root, job_id, name="train.py", started_ns=STARTED_NS) as job:
        command = ["python", "train.py", "--lr", str(lr), "--batch", str(batch)]
        job.event("context", command=command, cwd="/home/ada/cifar10")
        job.metadata({"lr": lr, "batch": batch, "seed": 7, "model": "resnet50"})
        for epoch in range(1, _EPOCHS + 1):
            fall = math.exp(-lr * epoch)
            loss = 0.3 + 2 * fall + noise.gauss(0, 0.06)
            val = 0.42 + 1.9 * fall + max(epoch - 60, 0) / 250 + noise.gauss(0, 0.02)
            acc = 0.93 - 0.8 * fall + noise.gauss(0, 0.012)
            val_acc = 0.89 - 0.77 * fall + noise.gauss(0, 0.01)
            job.lines(f"epoch {epoch} of {_EPOCHS}: accuracy {val_acc:.4f} of the test images")
            job.metadata(
                {
                    "epoch": epoch,
                    "loss": round(loss, 4),
                    "acc": round(acc, 4),
                    "val": {"loss": round(val, 4), "acc": round(val_acc, 4)},
                    "grad_norm": round(3 * fall + 0.4 + abs(noise.gauss(0, 0.1)), 4),
                    "images/s": round(noise.gauss(2310, 25), 1),
                }
            )
        job.end()


def take(page: Page, name: str, dark: bool) -> None:
    path = FOLDER / f"page-{name}-{'dark' if dark else 'light'}.png"
    page.screenshot(path=path)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(128)
    small.save(path, optimize=True)


def list_and_console(browser: Browser, root: Path) -> None:
    """Picture the list of jobs and a running job's console, also on a phone."""
    with (
        pictured_jobs(root),
        PageServer(options(root)) as server,
        Browsing(browser, server, "pictures") as browsing,
    ):
        for dark in (False, True):
            page = browsing.open(width=_WIDTH, dark=dark)
            page.set_viewport_size({"width": _WIDTH, "height": 400})
            expect(page.locator("td.last .value").first).to_be_visible()
            take(page, "jobs", dark)
            page = browsing.open(f"job/{RUNNING}/console", width=_WIDTH, dark=dark)
            page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
            page.get_by_label("Search in the log").fill("checkpoint")
            expect(page.locator(".row.found")).to_be_visible()
            page.get_by_role("button", name="Follow").click()
            expect(page.locator(".live")).to_contain_text("epoch 31")
            take(page, "console", dark)
        page = browsing.open(f"job/{RUNNING}/console", width=PHONE, dark=True)
        page.set_viewport_size({"width": PHONE, "height": 720})
        expect(page.locator(".live")).to_contain_text("epoch 31")
        take(page, "phone", dark=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        root = Path(scratch) / "store"
        training(root, "4711", 0.05, 32)
        training(root, "4712", 0.11, 64)
        with LocalStore(str(root)) as store:
            store.ingest(deadline_secs=60)
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        list_and_console(browser, Path(scratch) / "jobs")
        with PageServer(options(root)) as server, Browsing(browser, server, "pictures") as browsing:
            for dark in (False, True):
                page = browsing.open("job/4711", width=1440, dark=dark)
                wait_for_model(page, "loss", "model.curves.length === 2")
                expect(page.locator(".overview-lines .row:visible")).to_have_count(10)
                take(page, "overview", dark)
                page = browsing.open("job/4711/graphs", width=_WIDTH, dark=dark)
                page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
                wait_for_model(page, "loss", "model.curves.length === 2")
                page.get_by_role("slider").fill("0.8")
                wait_for_model(page, "loss", "model.curves.length === 4")
                page.locator("main").evaluate("(main) => main.scrollTo(0, 0)")
                page.mouse.move(*pixel_of(page, "loss", 40, 1))
                expect(page.locator(".chart-tip:visible")).to_have_count(1)
                take(page, "graphs", dark)
                page = browsing.open("job/4711/metadata", width=_WIDTH, dark=dark)
                page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
                page.get_by_role("button", name="Exact line of").nth(2).click()
                take(page, "metadata", dark)
                page = browsing.open("compare/4711,4712", width=_WIDTH, dark=dark)
                page.set_viewport_size({"width": _WIDTH, "height": 900})
                wait_for_model(page, "loss", "model.curves.length === 2")
                page.locator("main").evaluate("(main) => main.scrollTo(0, 0)")
                take(page, "compare", dark)
        browser.close()


if __name__ == "__main__":
    main()
