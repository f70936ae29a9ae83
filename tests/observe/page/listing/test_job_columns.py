"""Columns of options and metrics in the list of jobs: their choice, their order, and their
persistence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

from logshipper_observe.page.data import job_values
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import PHONE, Browsing, each_look
from tests.observe.page.graphs.graph_jobs import XSS
from tests.observe.page.test_access import Client
from tests.tools.stores.reading_store import SpooledCapture

RUNS = (("r1", 0.3, "vit", 0.5), ("r2", 0.1, "mlp", 0.25), ("r3", 0.1, "vit", 1 / 3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make three runs that differ in two options and in their command line, and one without
    records."""
    store = tmp_path / "store"
    for number, (job_id, lr, model, loss) in enumerate(RUNS):
        with SpooledCapture(store, job_id, started_ns=10**18 + number) as job:
            job.event("context", "", command=["train", f"--lr={lr}", "--fold", str(number)])
            job.lines("begins")
            job.metadata({"lr": lr, "model": model, "batch": 64})
            job.metadata({"epoch": 1, "loss": loss}, {"epoch": 2, "loss": loss + 1})
            job.end()
    with SpooledCapture(store, "none", name="prepare", started_ns=10**18 - 1) as job:
        job.lines("nothing to count")
        job.end()
    return store


def answer(client: Client, **words: str) -> dict[str, Any]:
    found = client.ask(f"api/jobs?{urlencode(words)}")
    assert found.status == 200, found.body
    document: dict[str, Any] = json.loads(found.body)
    return document


def complete_answer(client: Client, **words: str) -> dict[str, Any]:
    """Return the answer that covers all jobs; each answer has a limit of time."""
    while not (document := answer(client, **words))["complete"]:
        pass
    return document


def cells(document: dict[str, Any]) -> dict[str, list[str]]:
    return {job["job_id"]: job["cells"] for job in document["jobs"]}


def test_unasked_those_in_which_jobs_differ(
    serve: Callable[[Path], PageServer], root: Path
) -> None:
    document = complete_answer(Client(serve(root)))
    names = [column["name"] for column in document["columns"]]
    assert names == ["lr", "model", "start.--fold"], "all have one batch; --lr is lr"
    assert cells(document)["r2"] == ["0.1", "mlp", "1"]
    assert cells(document)["none"] == ["", "", ""]
    assert document["offer"]["metrics"] == ["epoch", "loss"]
    assert {"lr", "start.--lr", "start.command"} <= set(document["offer"]["options"])


def test_unasked_no_results_and_no_python(
    serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    """A metric that is printed once, as in a run of one epoch, is not an option."""
    store = tmp_path / "store"
    for number in range(3):
        with SpooledCapture(store, f"r{number}", started_ns=10**18 + number) as job:
            job.event(
                "context",
                "",
                command=["train", "--lr", f"0.{number}"],
                python={"prefix": f"/home/me/venv{number}", "version": f"3.1{number}.1"},
            )
            job.metadata({"size": number, "seed": 3})
            job.metadata({"epoch": 1, "loss": 0.1 * number})
            if number:
                job.metadata({"epoch": 2, "loss": 0.3})
            job.metadata({"test/acc": 0.9 + number / 100, "lr": number / 10})
            job.end()
    document = complete_answer(Client(serve(store)))
    assert [column["name"] for column in document["columns"]] == ["size", "start.--lr"]
    assert {"test/acc", "start.python.prefix"} <= set(document["offer"]["options"])


def test_columns_and_order_of_the_readers_own(
    serve: Callable[[Path], PageServer], root: Path
) -> None:
    client = Client(serve(root))
    names = ["loss.min", "loss", "start.--fold", "host", "nothing"]
    document = complete_answer(client, columns=json.dumps(names), sort="loss.min", ascending="1")
    assert [job["job_id"] for job in document["jobs"]] == ["r2", "r3", "r1", "none"]
    assert cells(document)["r3"][:3] == ["0.3333333333333333", "1.3333333333333333", "2"]
    assert cells(document)["r1"][4] == ""
    down = complete_answer(client, sort="loss.min", columns="[]")
    assert [job["job_id"] for job in down["jobs"]] == ["r1", "r3", "r2", "none"], "none stays last"
    by_text = complete_answer(client, sort="start.--fold", ascending="1", columns="[]")
    assert [job["job_id"] for job in by_text["jobs"]] == ["r1", "r2", "r3", "none"]


@pytest.mark.parametrize("columns", ["{", "1", "[1]", json.dumps([str(n) for n in range(25)])])
def test_columns_that_are_none(client_of_store: Client, columns: str) -> None:
    found = client_of_store.ask(f"api/jobs?columns={quote(columns)}")
    assert found.status == 400
    assert json.loads(found.body)["error"].startswith("columns: ")


@pytest.fixture
def client_of_store(page_server: PageServer) -> Client:
    return Client(page_server)


def test_what_takes_long_comes_with_the_next_answer(
    serve: Callable[[Path], PageServer], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer reads at least one job, however short its time limit."""
    monkeypatch.setattr(job_values.ValueCache.read, "__defaults__", (0.0,))
    client = Client(serve(root))
    seen = []
    for _ in range(4):
        document = answer(client, columns='["lr"]')
        seen.append((sum(cell != [""] for cell in cells(document).values()), document["complete"]))
    assert seen == [(1, False), (2, False), (3, False), (3, True)]


def test_new_values_are_another_answer(serve: Callable[[Path], PageServer], tmp_path: Path) -> None:
    with SpooledCapture(tmp_path / "store", "live") as job:
        job.metadata({"step": 1})
        job.beat()
        client = Client(serve(tmp_path / "store"))
        assert cells(answer(client, columns='["step"]')) == {"live": ["1"]}
        job.metadata({"step": 2})
        job.beat()
        while (found := cells(answer(client, columns='["step"]'))) == {"live": ["1"]}:
            pass  # the server limits how often it ingests
        assert found == {"live": ["2"]}


# ---- in the browser


def headings(page: Page) -> list[str]:
    return [text for text in page.locator("th.cell bdi").all_inner_texts() if text]


def tick(page: Page, *names: str) -> None:
    page.locator(".columns summary").click()
    for name in names:
        page.locator(".column-list").get_by_text(name, exact=True).click()
    page.locator(".columns summary").click()


def names(page: Page) -> list[str]:
    return [href.rpartition("/")[2] for href in page.locator("td.name a").evaluate_all(
        "(links) => links.map((link) => link.getAttribute('href'))")]  # fmt: skip


def test_chosen_sorted_and_kept(
    browse: Browsing, serve: Callable[[Path], PageServer], root: Path
) -> None:
    page = browse.open(server=serve(root))
    expect(page.locator("th.cell")).to_have_count(3)
    assert headings(page) == ["lr", "model", "--fold"]
    tick(page, "--fold", "loss.min", "last values")
    expect(page.locator("th.cell")).to_have_text(["lr", "model", "loss.min"])
    expect(page.locator("th.last")).to_be_hidden()
    page.get_by_role("button", name="loss.min", exact=True).click()
    expect(page.locator("th.cell").last).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("td.name a").first).to_have_attribute("href", "#/job/r2")
    third = page.locator("tbody tr").nth(1).locator("td.cell").last
    expect(third.locator("bdi")).to_have_text("0.333333")
    expect(third).to_have_attribute("title", "0.3333333333333333")
    assert "column=lr&column=model&column=loss.min" in page.url
    page.reload()  # from the address
    expect(page.locator("th.cell")).to_have_text(["lr", "model", "loss.min ↑"])
    assert names(page) == ["r2", "r3", "r1", "none"]
    page.goto(page.url.partition("#")[0] + "#/job/r1")
    page.get_by_role("link", name="logshipper").click()  # from the browser's storage
    expect(page.locator("th.cell")).to_have_text(["lr", "model", "loss.min"])
    assert "column=loss.min" in page.url
    page.locator(".columns summary").click()
    page.get_by_role("button", name="Default").click()
    expect(page.locator("th.cell")).to_have_count(3)
    assert "column" not in page.url


@each_look
def test_columns_fit(
    browse: Browsing, serve: Callable[[Path], PageServer], root: Path, width: int, dark: bool
) -> None:
    page = browse.open(server=serve(root), width=width, dark=dark)
    expect(page.locator("td.cell").first).to_be_visible()
    page.locator(".columns summary").click()
    box = page.locator(".column-panel").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == PHONE:
        expect(page.locator("tbody tr").nth(1)).to_contain_text("lr 0.1")
    browse.picture(page)


def test_values_are_texts(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    for job_id in ("v1", "v2"):
        with SpooledCapture(tmp_path / "store", job_id) as job:
            job.metadata({"<i>set</i>": f"{XSS}{job_id}"})
            job.end()
    page = browse.open(server=serve(tmp_path / "store"))
    expect(page.locator("th.cell")).to_have_text(["<i>set</i>"])
    page.locator("th.cell button").click()
    expect(page.locator("td.cell bdi").first).to_have_text(f"{XSS}v1")
    assert page.evaluate("window.attacked") is None
