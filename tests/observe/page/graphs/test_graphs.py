"""The graphs of a job's page, in a real browser: they draw the printed values."""

import csv
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from logshipper_observe.page.api import graphs as graphs_api
from logshipper_observe.page.server import PageServer
from tests.observe.page.browsing import Browsing, each_look
from tests.observe.page.graphs.graph_jobs import (
    AGAIN,
    CURVES,
    EPOCHS,
    HOSTILE,
    HOSTILE_KEYS,
    KEYS,
    LONG,
    LONG_RECORDS,
    PEAK_AT,
    PLAIN,
    WIDE_JOB,
    XSS,
    curves_of,
    long_line,
)  # fmt: skip
from tests.observe.page.graphs.graphing import (
    chart,
    colour_at,
    line_colour_at,
    model,
    open_graphs,
    open_separate,
    panel,
    pixel_of,
    theme_colour,
    wait_for_ground,
    wait_for_model,
)  # fmt: skip
from tests.tools.stores.reading_store import SpooledCapture

RECORDS = curves_of(0.1)
LOSS: list[Any] = [record["loss"] for record in RECORDS]


@pytest.fixture
def curves(browse: Browsing, graph_server: PageServer) -> Page:
    return open_separate(browse, graph_server, f"job/{CURVES}/graphs")


def smooth_values(values: list[float], weight: float) -> list[float]:
    """Return averages by the formula in docs/page.md, seeded with the first value."""
    averages = values[:1]
    for value in values[1:]:
        averages.append(weight * averages[-1] + (1 - weight) * value)
    return averages


def test_r25_every_number_over_the_chosen_x(curves: Page) -> None:
    expect(curves.get_by_text("X axis: epoch: the key epoch (rule 2 of 7)")).to_be_visible()
    graph = model(curves, "loss")
    assert graph["curves"][0]["xs"] == list(range(1, EPOCHS + 1))
    assert graph["curves"][0]["ys"] == LOSS
    assert model(curves, "val.loss")["curves"][0]["ys"] == [
        record["val"]["loss"]  # type: ignore[index]
        for record in RECORDS
    ]
    titles = curves.locator(".graph-panel h3").all_inner_texts()
    assert titles == ["loss", "val.loss", "acc"], "what never changes has no graph"


def test_what_is_drawn_lies_where_it_should(curves: Page) -> None:
    assert line_colour_at(curves, "loss", 20, LOSS[19]) == pytest.approx(
        theme_colour(curves, "--chart-1"), abs=2
    )
    assert colour_at(curves, "loss", 35, 1.25) == theme_colour(curves, "--chart-ground")
    ticks = [tick["label"] for tick in model(curves, "loss")["xTicks"]]
    assert ticks == ["10", "20", "30", "40"]


def test_hovering_tells_exact_values(curves: Page) -> None:
    x, y = pixel_of(curves, "loss", 20, LOSS[19])
    curves.mouse.move(x + 2, y - 40)
    tip = panel(curves, "loss").locator(".chart-tip")
    expect(tip).to_contain_text("epoch: 20")
    expect(tip).to_contain_text(str(LOSS[19]))
    assert model(curves, "loss")["hover"]["points"] == [
        {"label": "", "x": 20, "y": LOSS[19], "number": 0}
    ]
    curves.mouse.move(0, 0)
    expect(tip).to_be_hidden()


def test_dragging_zooms_and_show_all_goes_back(curves: Page) -> None:
    begin, end = pixel_of(curves, "loss", 10, 1), pixel_of(curves, "loss", 20, 1)
    curves.mouse.move(*begin)
    curves.mouse.down()
    curves.mouse.move(*end, steps=4)
    curves.mouse.up()
    graph = model(curves, "loss")
    assert (graph["x"]["low"], graph["x"]["high"]) == (
        pytest.approx(10, abs=0.1),
        pytest.approx(20, abs=0.1),
    )
    assert graph["y"]["high"] < 1, "Y fits what is in view"
    panel(curves, "loss").get_by_role("button", name="Show all").click()
    graph = model(curves, "loss")
    assert (graph["x"]["low"], graph["x"]["high"], graph["zoomed"]) == (1, EPOCHS, False)
    expect(panel(curves, "loss").get_by_role("button", name="Show all")).to_be_disabled()


def test_a_rectangle_zooms_both_axes(curves: Page) -> None:
    curves.mouse.move(*pixel_of(curves, "loss", 10, 1.2))
    curves.mouse.down()
    curves.mouse.move(*pixel_of(curves, "loss", 30, 0.2), steps=4)
    curves.mouse.up()
    graph = model(curves, "loss")
    assert (graph["y"]["low"], graph["y"]["high"]) == (
        pytest.approx(0.2, abs=0.02),
        pytest.approx(1.2, abs=0.02),
    )


def test_the_wheel_zooms_only_where_the_graph_is_in_use(curves: Page) -> None:
    curves.mouse.move(*pixel_of(curves, "loss", 20, 1))
    curves.mouse.wheel(0, -100)
    assert not model(curves, "loss")["zoomed"]
    panel(curves, "loss").locator("canvas").focus()
    curves.mouse.move(*pixel_of(curves, "loss", 20, 1))
    curves.mouse.wheel(0, -100)
    graph = wait_for_model(curves, "loss", "model.zoomed")
    assert 1 < graph["x"]["low"] < 20 < graph["x"]["high"] < EPOCHS


def test_keys_alone_look_zoom_and_go_back(curves: Page) -> None:
    canvas = panel(curves, "loss").locator("canvas")
    panel(curves, "loss").get_by_role("button", name="CSV").focus()
    curves.keyboard.press("Tab")
    expect(canvas).to_be_focused()
    curves.keyboard.press("Home")
    curves.keyboard.press("ArrowRight")
    assert model(curves, "loss")["hover"]["x"] == 2
    announcement = panel(curves, "loss").locator("[aria-live]")
    expect(announcement).to_contain_text(f"epoch 2:  {LOSS[1]:.6g}")
    curves.keyboard.press("Shift+ArrowRight")
    assert model(curves, "loss")["hover"]["x"] == 12
    curves.keyboard.press("+")
    graph = model(curves, "loss")
    width = graph["x"]["high"] - graph["x"]["low"]
    assert width == pytest.approx((EPOCHS - 1) / 2)
    curves.keyboard.press("PageDown")
    assert model(curves, "loss")["x"]["low"] == pytest.approx(graph["x"]["low"] + width / 2)
    curves.keyboard.press("End")
    assert model(curves, "loss")["hover"]["x"] <= model(curves, "loss")["x"]["high"]
    curves.keyboard.press("0")
    assert not model(curves, "loss")["zoomed"]


def test_log_scale_says_what_it_cannot_show(curves: Page) -> None:
    panel(curves, "loss").get_by_role("button", name="Log").click()
    graph = model(curves, "loss")
    assert graph["y"]["log"]
    assert graph["y"]["low"] > 0
    assert not model(curves, "acc")["y"]["log"]
    curves.get_by_role("checkbox", name="Log scale").check()
    assert model(curves, "acc")["y"]["log"]
    # all values are above 0
    expect(panel(curves, "loss").get_by_text("not on a log scale")).to_have_count(0)


def test_smoothing_is_the_documented_formula(curves: Page) -> None:
    curves.get_by_role("slider").fill("0.9")
    graph = wait_for_model(curves, "loss", "model.curves.length === 2")
    assert [curve["faint"] for curve in graph["curves"]] == [True, False]
    assert graph["curves"][1]["ys"] == pytest.approx(smooth_values(LOSS, 0.9), rel=1e-12)


def test_smoothing_a_thinned_series_is_of_all_its_points(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_graphs(browse, graph_server, f"job/{LONG}/graphs")
    page.get_by_role("slider").fill("0.99")
    exact = smooth_values(
        [json.loads(long_line(step))["loss"] for step in range(LONG_RECORDS)], 0.99
    )
    wait_for_model(page, "loss", "model.curves.length === 2")
    end = wait_for_model(
        page, "loss", f"Math.abs(model.curves[1].ys.at(-1) - {exact[-1]!r}) < 1e-12"
    )
    curve = end["curves"][1]
    assert [exact[int(x)] for x in curve["xs"]] == pytest.approx(curve["ys"], rel=1e-12)


def test_x_is_overridden_and_said(curves: Page) -> None:
    curves.get_by_label("X axis").select_option("time")
    expect(curves.get_by_text("X axis: time: when each record was printed")).to_be_visible()
    graph = wait_for_model(curves, "loss", "model.curves[0].xs[0] < 1")
    xs = graph["curves"][0]["xs"]
    assert xs == sorted(xs)
    assert len(xs) == EPOCHS
    assert chart(curves, "loss").evaluate("(chart) => chart.xKind") == "elapsed"
    curves.get_by_label("X axis").select_option("acc")
    graph = wait_for_model(curves, "loss", "model.curves[0].xs[0] > 0.09")
    assert graph["curves"][0]["xs"] == [record["acc"] for record in RECORDS]
    curves.get_by_label("X axis").select_option("auto")
    wait_for_model(curves, "loss", "model.curves[0].xs[0] === 1")


def test_r27_legend(browse: Browsing, graph_server: PageServer) -> None:
    page = open_separate(browse, graph_server, f"job/{AGAIN}/graphs")
    legend = panel(page, "loss").get_by_role("group", name="Series")
    expect(legend.get_by_role("button")).to_have_count(2)
    first, second = legend.get_by_role("button").all()
    assert model(page, "loss")["labels"] == ["attempt 1", "attempt 2"]
    first.click()
    assert model(page, "loss")["shown"] == [True, False]
    expect(second).to_have_attribute("aria-pressed", "false")
    first.click()
    assert model(page, "loss")["shown"] == [True, True]
    second.click(modifiers=["Control"])
    assert model(page, "loss")["shown"] == [True, False]
    second.click(modifiers=["Meta"])
    assert model(page, "loss")["shown"] == [True, True]
    second.focus()
    page.keyboard.press("Enter")
    assert model(page, "loss")["shown"] == [False, True]
    first.focus()
    page.keyboard.press("Control+Enter")
    assert model(page, "loss")["shown"] == [True, True]
    assert model(page, "acc")["shown"] == [True, True], "each graph has its own"
    assert len(model(page, "loss")["curves"][1]["xs"]) == 10


def test_all_keys_in_one_graph(curves: Page) -> None:
    curves.get_by_label("Layout").select_option("together")
    graph = wait_for_model(curves, "All keys", "model.labels.length === 3")
    assert graph["labels"] == ["loss", "val.loss", "acc"]
    panel(curves, "All keys").get_by_role("button", name="loss", exact=True).click()
    assert model(curves, "All keys")["shown"] == [True, False, False]


def test_256_keys_only_what_is_in_view_is_asked_for(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_graphs(browse, graph_server, f"job/{WIDE_JOB}/graphs")
    assert page.locator(".graph-panel").count() == KEYS - 2, "one is 0 in each record"
    expect(page.get_by_text("254 keys")).to_be_visible()
    assert 3 <= page.locator(".graph-panel canvas").count() < 40
    graph = wait_for_model(page, "k254", "model.curves.length === 1")
    assert graph["curves"][0]["ys"] == [254 * step for step in range(1, 21)]
    assert page.locator(".graph-panel canvas").count() < 80
    page.get_by_role("searchbox", name="Search keys").fill("k1 7")
    matches = sum("7" in f"k{number:03}" for number in range(100, 200))
    expect(page.get_by_text(f"{matches} keys, {KEYS - 2 - matches} hidden")).to_be_visible()
    page.get_by_label("Layout").select_option("together")
    expect(
        page.get_by_text(f"{matches - 16} more keys left out: one graph shows 16.")
    ).to_be_visible()
    wait_for_model(page, "All keys", "model.labels.length === 16")


def test_long_jobs_are_thinned_evenly_and_it_is_said(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_graphs(browse, graph_server, f"job/{LONG}/graphs")
    expect(
        panel(page, "loss").get_by_text(f"of {LONG_RECORDS:,}: thinned evenly, each peak kept")
    ).to_be_visible()
    curve = model(page, "loss")["curves"][0]
    assert 1000 <= len(curve["xs"]) <= 2000
    peak = curve["ys"].index(99.5)
    assert curve["xs"][peak] == PEAK_AT
    tenths = [
        sum(begin <= x < begin + 2_000 for x in curve["xs"])
        for begin in range(0, LONG_RECORDS, 2_000)
    ]
    assert max(tenths) < 1.3 * min(tenths)
    assert (curve["xs"][0], curve["xs"][-1]) == (0, LONG_RECORDS - 1)


def test_a_long_job_is_drawn_by_and_by(
    browse: Browsing,
    graph_store: Path,
    serve: Callable[[Path], PageServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs_api, "READ_SECS", 0.0)
    # a server that has read none of it yet
    page = open_graphs(browse, serve(graph_store), f"job/{LONG}/graphs")
    page.get_by_label("X axis").select_option("time")
    secs = LONG_RECORDS / 100  # one every 10 ms
    wait_for_model(page, "loss", f"Math.abs(model.curves[0].xs.at(-1) - {secs}) < 0.1")
    expect(panel(page, "loss").get_by_text(f"of {LONG_RECORDS:,}: thinned evenly")).to_be_visible()
    expect(page.get_by_text(f"of {LONG_RECORDS:,} records …")).to_have_count(0)
    requests = [
        url for url in browse.requests if "/graphs?" in url and "x=time" in url
    ]  # without requests for marks of events
    assert len(requests) > LONG_RECORDS / 1000, "many answers, each with more of the graph"


def test_zooming_into_a_thinned_graph_shows_every_point(
    browse: Browsing, graph_server: PageServer
) -> None:
    page = open_graphs(browse, graph_server, f"job/{LONG}/graphs")
    page.get_by_role("slider").fill("0.9")
    all_is_read = f"model.curves[0].xs.at(-1) === {LONG_RECORDS - 1}"
    thin_graph = wait_for_model(
        page,
        "loss",
        f"model.curves.length === 2 && model.curves[1].xs.length < 2001 && {all_is_read}",
    )
    chart(page, "loss").evaluate("(chart) => chart.zoomTo([13990, 14010])")
    graph = wait_for_model(
        page, "loss", "model.curves[0].xs.length === 21 && model.curves[1].xs.length === 21"
    )
    exact = [json.loads(long_line(step))["loss"] for step in range(LONG_RECORDS)]
    assert graph["curves"][0]["ys"] == exact[13_990:14_011]
    of_all = smooth_values(exact, 0.9)
    assert graph["curves"][1]["ys"] == pytest.approx(of_all[13_990:14_011], rel=1e-12), (
        "seeded where the series begins"
    )
    panel(page, "loss").locator("canvas").focus()
    page.keyboard.press("-")
    wide_graph = wait_for_model(page, "loss", "model.curves[0].xs.length > 21 && model.zoomed")
    assert wide_graph["x"]["high"] - wide_graph["x"]["low"] == pytest.approx(40)
    panel(page, "loss").get_by_role("button", name="Show all").click()
    assert model(page, "loss")["curves"][0]["xs"] == thin_graph["curves"][0]["xs"]


def download(page: Page, key: str, name: str) -> Path:
    with page.expect_download() as download_info:
        panel(page, key).get_by_role("button", name=name).click()
    return Path(download_info.value.path())


def test_csv_has_the_exact_numbers(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", "exact") as job:
        job.metadata(
            '{"step": 4, "big": 123456789012345678901234567890, "exact": 0.10}',
            '{"step": 5, "big": 3, "exact": 1E5}',
        )
        job.end()
    page = open_graphs(browse, serve(tmp_path / "store"), "job/exact/graphs")
    page.get_by_label("X axis").select_option("step")
    rows = list(csv.reader(io.StringIO(download(page, "exact", "CSV").read_text())))
    assert [row[2:] for row in rows] == [["step", "exact"], ["4", "0.10"], ["5", "1E5"]]
    big = list(csv.reader(io.StringIO(download(page, "big", "CSV").read_text())))
    assert big[1][3] == "123456789012345678901234567890"


def test_csv_of_a_graph_is_every_record(curves: Page) -> None:
    rows = list(csv.reader(io.StringIO(download(curves, "loss", "CSV").read_text())))
    assert rows[0] == ["_time", "_attempt", "epoch", "loss"]
    assert [row[2:] for row in rows[1:]] == [
        [str(record["epoch"]), str(record["loss"])] for record in RECORDS
    ]


def test_png_is_a_picture_of_the_graph(curves: Page) -> None:
    data = download(curves, "loss", "PNG").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1800, 920)
    assert len(data) > 10_000


def test_hostile_keys_are_text(browse: Browsing, graph_server: PageServer) -> None:
    page = open_graphs(browse, graph_server, f"job/{HOSTILE}/graphs")
    page.get_by_label("X axis").select_option("step")
    assert page.locator(".graph-panel").count() == len(HOSTILE_KEYS), "four have one value"
    for key, factor in (("__proto__", 2), ("constructor", 3), ('""', 5), ("日本語", 10)):
        graph = wait_for_model(
            page, key, "model.curves.length === 1 && model.curves[0].xs[0] === 1"
        )
        assert graph["curves"][0]["ys"] == [factor, 2 * factor, 3 * factor]
    panel(page, json.dumps(XSS)).scroll_into_view_if_needed()
    page.get_by_label("Layout").select_option("together")
    wait_for_model(page, "All keys", "model.labels.length > 8")
    assert page.evaluate("window.attacked") is None
    assert "\u202e" not in page.locator("main").inner_text()


def test_a_running_jobs_graph_grows(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    with SpooledCapture(tmp_path / "store", name="live") as job:
        job.metadata(*({"step": step, "loss": 1 / step} for step in range(1, 4)))
        job.beat()
        page = open_graphs(browse, serve(tmp_path / "store"), "job/k3f9x2/graphs")
        assert model(page, "loss")["curves"][0]["xs"] == [1, 2, 3]
        job.metadata(*({"step": step, "loss": 1 / step} for step in range(4, 7)))
        job.beat()
        graph = wait_for_model(page, "loss", "model.curves[0].xs.length === 6")
        assert graph["curves"][0]["ys"] == [1 / step for step in range(1, 7)]
        job.metadata(*({"step": step, "loss": 0.1, "late": -step} for step in (7, 8)))
        job.end()
        wait_for_model(page, "loss", "model.curves[0].xs.length === 8")
        expect(panel(page, "late")).to_be_visible()


def test_jobs_without_a_number_say_so(browse: Browsing, graph_server: PageServer) -> None:
    page = browse.open(f"job/{PLAIN}/graphs", server=graph_server)
    expect(page.get_by_text("No record holds a number")).to_be_visible()


@each_look
def test_graphs_fit_and_follow_the_theme(
    browse: Browsing, graph_server: PageServer, width: int, dark: bool
) -> None:
    page = open_separate(browse, graph_server, f"job/{CURVES}/graphs", width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('main').scrollWidth") <= width
    ground = colour_at(page, "loss", 35, 1.25)
    assert ground == theme_colour(page, "--chart-ground")
    assert (sum(ground) < 150) == dark
    assert line_colour_at(page, "loss", 20, LOSS[19]) == pytest.approx(
        theme_colour(page, "--chart-1"), abs=2
    )
    browse.picture(page)
    page.emulate_media(color_scheme="light" if dark else "dark")
    wait_for_ground(page, "loss", (255, 255, 255) if dark else (13, 17, 23))


def test_graphs_are_drawn_anew_at_another_width(curves: Page) -> None:
    before = panel(curves, "loss").locator("canvas").evaluate("(canvas) => canvas.width")
    curves.set_viewport_size({"width": 700, "height": 900})
    curves.wait_for_function(
        """([canvas, before]) => canvas.width !== before
            && canvas.width === Math.round(canvas.clientWidth * devicePixelRatio)""",
        arg=[panel(curves, "loss").locator("canvas").element_handle(), before],
    )
    assert line_colour_at(curves, "loss", 20, LOSS[19]) == pytest.approx(
        theme_colour(curves, "--chart-1"), abs=2
    )


def test_numbers_for_those_who_cannot_see(curves: Page) -> None:
    label = panel(curves, "loss").locator("canvas").get_attribute("aria-label")
    assert label is not None
    assert (
        f"loss. Over epoch. {EPOCHS} points, from {min(LOSS)} to {max(LOSS):.6g}, last {LOSS[-1]}."
        in label
    )
    panel(curves, "loss").get_by_text("Numbers").click()
    cells = panel(curves, "loss").locator("tbody td")
    expect(cells).to_have_text([str(EPOCHS), str(min(LOSS)), f"{max(LOSS):.6g}", str(LOSS[-1])])
    exact = cells.evaluate_all("(cells) => cells.map((cell) => cell.title)")
    assert exact == [str(EPOCHS), str(min(LOSS)), str(max(LOSS)), str(LOSS[-1])]


def test_tags_of_measurements_are_series(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    """Legend and tooltip name the tags that differ, also of a running job."""
    with SpooledCapture(tmp_path / "store", "m1", name="m1") as job:
        for host in ("n1", "n2"):
            tags = {"host": host, "user": "x"}
            job.metadata(*({"loss": {"step": at, "value": at}, "tags": tags} for at in (1, 2, 3)))
        server = serve(tmp_path / "store")
        page = open_graphs(browse, server, "job/m1/graphs")
        page.get_by_label("X axis").select_option("loss.step")
        expect(page.get_by_role("figure", name="loss.step")).to_have_count(0)
        shown = wait_for_model(page, "loss.value", "model.curves.length === 2")
        assert shown["labels"] == ["host n1", "host n2"]
        graph = panel(page, "loss.value")
        expect(graph.locator(".legend-entry")).to_have_text(["host n1", "host n2"])
        graph.locator("canvas").press("Home")
        expect(graph.locator(".chart-tip-name")).to_have_text(["host n1", "host n2"])
        tags = {"host": "n3", "user": "y"}
        job.metadata(*({"loss": {"step": at, "value": 4}, "tags": tags} for at in (1, 2, 3)))
        shown = wait_for_model(page, "loss.value", "model.curves.length === 3")
        assert shown["labels"] == ["host n1, user x", "host n2, user x", "host n3, user y"]
        job.end()


def test_tags_of_jobs_side_by_side_are_series(
    browse: Browsing, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    for job_id, hosts in (("m1", ("n1", "n2")), ("m2", ("n1",))):
        with SpooledCapture(tmp_path / "store", job_id, name=job_id) as job:
            for host in hosts:
                tags = {"host": host, "user": "x"}
                job.metadata(*({"epoch": at, "loss": at, "tags": tags} for at in (1, 2, 3)))
            job.end()
    page = open_graphs(browse, serve(tmp_path / "store"), "compare/m1,m2")
    shown = wait_for_model(page, "loss", "model.curves.length === 3")
    assert shown["labels"] == ["m1, host n1", "m1, host n2", "m2"]
