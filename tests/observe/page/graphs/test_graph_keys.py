"""Which graphs the page has, their X, and reasons for missing ones (R24, R25); hints about
near-records (R20)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graphing import chart, model, open_graphs, panel, pixel_of
from tests.tools.stores.reading_store import SpooledCapture

ONE_KEY, CONFIGURED, CONFIG_ONLY, NEVER, RATE, APART = (
    "one",
    "configured",
    "config",
    "never",
    "rate",
    "apart",
)
HINT = 'Text stands before it. The line: epoch 1: {"loss": 0.3} <b>'
LOSSES = [0.5, 0.4, 0.6]


@pytest.fixture
def key_server(serve: Callable[[Path], PageServer], tmp_path: Path) -> PageServer:
    store = tmp_path / "store"
    with SpooledCapture(store, ONE_KEY, name="one key") as job:
        job.metadata(*({"loss": loss} for loss in LOSSES))
        job.end()
    for job_id in (CONFIGURED, "again"):
        with SpooledCapture(store, job_id, name=job_id) as job:
            job.metadata({"hidden": 1024, "seed": 7, "name": "mlp"})
            job.metadata(*({"epoch": n, "loss": 1 / n, "lr": 0.1 / n} for n in (1, 2, 3)))
            job.end()
    with SpooledCapture(store, CONFIG_ONLY, name="configured only") as job:
        job.metadata({"hidden": 1024, "seed": 7})
        job.event("json_hint", HINT, reason="text_before", stream="stdout")
        job.event("json_hint", "A record holds NaN", reason="nan", stream="stdout")
        job.end()
    with SpooledCapture(store, NEVER, name="never a number") as job:
        job.metadata('{"loss": NaN}', '{"loss": NaN}')
        job.end()
    with SpooledCapture(store, RATE, name="rate only") as job:
        job.metadata({"lr": 0.2}, {"lr": 0.1})
        job.end()
    with SpooledCapture(store, APART, name="validation apart") as job:
        for epoch in (1, 2, 3):
            job.metadata({"step": 10 * epoch, "lr": 1 / epoch}, {"epoch": epoch, "loss": 1 / epoch})
        job.end()
    return serve(store)


@each_look
def test_the_only_key_goes_over_the_records_number(
    browse: Browsing, key_server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, key_server, f"job/{ONE_KEY}/graphs", width=width, dark=dark)
    (curve,) = model(page, "loss")["curves"]
    assert (curve["xs"], curve["ys"]) == ([1, 2, 3], LOSSES)
    expect(page.locator("p.graph-rule[role=status]")).to_have_text(
        "X axis: record number: loss is the only key with numbers"
    )
    chart(page, "loss")
    page.mouse.move(*pixel_of(page, "loss", 2, LOSSES[1]))
    expect(panel(page, "loss").locator(".chart-tip")).to_contain_text("record number: 2")
    page.get_by_label("X axis").select_option("time")
    expect(page.locator("p.graph-rule[role=status]")).to_contain_text("X axis: time")
    browse.picture(page)


@each_look
def test_one_value_is_a_row_of_a_table_and_no_graph(
    browse: Browsing, key_server: PageServer, width: int, dark: bool
) -> None:
    page = open_graphs(browse, key_server, f"job/{CONFIGURED}/graphs", width=width, dark=dark)
    expect(page.locator(".graph-panel h3")).to_have_text(["loss", "lr"])
    table = page.get_by_role("table", name="One value each, so no graph")
    expect(table.get_by_role("row")).to_have_text(["hidden1024", "seed7"])
    browse.picture(page)


def test_a_key_never_with_x_has_an_x_of_its_own_and_says_so(
    browse: Browsing, key_server: PageServer
) -> None:
    page = open_graphs(browse, key_server, f"job/{APART}/graphs")
    expect(
        panel(page, "lr").get_by_text("In no record with epoch, so over another X")
    ).to_be_visible()
    page.get_by_label("Layout").select_option("together")
    expect(
        panel(page, "All keys").get_by_text("Over another X, so not in this graph: lr.")
    ).to_be_visible()


def test_no_graph_has_a_reason(browse: Browsing, key_server: PageServer) -> None:
    page = browse.open(f"job/{CONFIG_ONLY}/graphs", server=key_server)
    expect(page.locator("p.graph-rule[role=status]")).to_have_text(
        "No curve yet: each key with numbers has one value, in the table below."
    )
    expect(page.locator(".graph-panel")).to_have_count(0)
    page = browse.open(f"job/{NEVER}/graphs", server=key_server)
    expect(page.locator(".graph-notes")).to_have_text(
        "loss has no graph: it never was a number, and is NaN"
    )
    expect(page.locator("p.graph-rule[role=status]")).to_contain_text("No record holds a number")


@pytest.mark.parametrize("tab", ["metadata", "graphs", "events"])
def test_hints_stand_on_each_page(tab: str, browse: Browsing, key_server: PageServer) -> None:
    page = browse.open(f"job/{CONFIG_ONLY}/{tab}", server=key_server)
    expect(page.get_by_text(HINT)).to_be_visible()


def test_compared_jobs_with_a_key_decide_on_its_x(browse: Browsing, key_server: PageServer) -> None:
    page = open_graphs(browse, key_server, f"compare/{CONFIGURED},again,{RATE}")
    assert [curve["xs"] for curve in model(page, "loss")["curves"]] == [[1, 2, 3]] * 2
    assert len(model(page, "lr")["curves"]) == 3, "over time, which is all that they share"
    expect(page.locator(".graph-panel h3")).to_have_text(["loss", "lr"])
    expect(page.get_by_text("X axis: time: no job's X is a key that all have")).to_be_visible()
