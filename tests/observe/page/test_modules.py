"""The page's modules by themselves: valid JavaScript, axis numbers, smoothing, and colours."""

import math
import re
import shutil
import subprocess
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.observe.page.graphs.graphing import PIXEL
from tests.tools.sources import OBSERVE
from tests.tools.waiting import scaled

ASSETS = OBSERVE / "page" / "assets"
_MAX_LINES = 500  # per module
Colour = tuple[float, float, float]
# how colours look to people without red, green or blue cones: Machado, Oliveira and Fernandes 2009,
# severity 1
SIGHTS = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


@pytest.fixture
def module(page: Page) -> Any:
    """Return a function that calls a module's export: `module("scale.js", "ticksOf", ...)`."""

    def call(name: str, function: str, *values: object) -> Any:  # Any: JSON
        return page.evaluate(
            """async ([name, call, values]) => {
                const found = (await import(new URL(name, location.href.split("#")[0])))[call](...values);
                return ArrayBuffer.isView(found) ? [...found] : found;
            }""",
            [name, function, list(values)],
        )

    return call


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.js")), ids=lambda path: path.name)
def test_every_module_is_valid_and_small(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("//"), "says what it is for"
    assert len(text.splitlines()) < _MAX_LINES
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node to check the syntax")
    process = subprocess.run(
        [node, "--check", "--input-type=module", "-"],
        input=text,
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert process.returncode == 0, process.stderr


def test_ticks_are_round_and_lie_inside(module: Any) -> None:
    def labels(
        low: float, high: float, limit: int = 6, kind: str = "number", log: bool = False
    ) -> list[str]:
        ticks = module("scale.js", "ticksOf", {"low": low, "high": high, "log": log}, limit, kind)
        places = [tick["at"] for tick in ticks]
        assert all(low - 1e-9 * abs(low) <= at <= high + 1e-9 * abs(high) for at in places)
        assert 1 <= len(ticks) <= limit + 1 or log
        return [tick["label"] for tick in ticks]

    assert labels(0, 1) == ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert labels(0, 3, kind="integer") == ["0", "1", "2", "3"]
    assert labels(-0.5, 0.5, 4) == ["-0.50", "-0.25", "0", "0.25", "0.50"]
    assert labels(0, 5e7, 5) == ["0", "1e7", "2e7", "3e7", "4e7", "5e7"]
    assert labels(1e9, 1e9 + 4, 4) == [
        "1.000000000e9",
        "1.000000001e9",
        "1.000000002e9",
        "1.000000003e9",
        "1.000000004e9",
    ]
    assert labels(0, 600, kind="elapsed") == ["0s", "2m", "4m", "6m", "8m", "10m"]
    assert labels(0, 86400 * 3, kind="elapsed") == ["0s", "12h", "1d", "1d12h", "2d", "2d12h", "3d"]
    assert labels(5000, 5040, kind="elapsed")[1:3] == ["1h23m30s", "1h23m40s"]
    assert labels(130_000, 130_900, 4, kind="elapsed") == ["1d12h10m", "1d12h15m", "1d12h20m"]
    assert labels(86_395, 86_420, 3, kind="elapsed") == ["1d", "1d00h00m10s", "1d00h00m20s"]
    assert labels(0.001, 100, log=True) == ["0.001", "0.01", "0.1", "1", "10", "100"]
    assert labels(2, 3, log=True) == ["2", "3"]
    for low, high in ((0.1, 0.3), (-1e-7, 1e-7), (123456, 123999), (1e-12, 3e-12), (-5e300, 5e300),
                      (1e9, 1e9 + 4e-7), (1e15, 1e15 + 2)):  # fmt: skip
        for kind in ("number", "elapsed"):
            texts = labels(low, high, kind=kind)
            assert len(set(texts)) == len(texts), texts


def test_smoothing_starts_at_the_first_number_and_leaves_gaps(module: Any) -> None:
    assert module("curve.js", "smoothed", [1, 2, 4], 0.5) == [1, 1.5, 2.75]
    assert module("curve.js", "smoothed", [3, 3], 0) == [3, 3]
    with_gap = module("curve.js", "smoothed", [float("nan"), 2, float("nan"), 4], 0.5)
    assert [with_gap[1], with_gap[3]] == [2, 3]
    debiased = module("curve.js", "smoothed", [4, float("nan"), -2, 7], 0.5, True)
    assert [debiased[0], *debiased[2:]] == [4, 0, 4], "worked out by hand"
    assert with_gap[0] != with_gap[0]
    assert with_gap[2] != with_gap[2]


def test_a_gap_is_not_drawn_over(page: Page) -> None:
    pixels = page.evaluate(
        """async () => {
            const { Chart } = await import(new URL("chart.js", location.href.split("#")[0]));
            const host = document.createElement("div");
            document.querySelector("main").append(host);
            const chart = new Chart(host, { title: "gap", xLabel: "x" });
            chart.setSeries([{ label: "", xs: [0, 1, 2, 3, 4, 5], ys: [1, 1, NaN, NaN, 1, 1] }]);
            while (!chart.painted) await new Promise(requestAnimationFrame);
            const at = (x) => (PIXEL)(chart, ...chart.pixelOf(x, 1)).join();
            return [at(0.5), at(2.5), at(4.5)];
        }""".replace("PIXEL", PIXEL)
    )
    assert pixels[0] == pixels[2] != pixels[1]


def test_legend_clicks(module: Any) -> None:
    assert module("legend.js", "afterClick", [True, True, True], 1, False) == [False, True, False]
    assert module("legend.js", "afterClick", [False, True, False], 1, False) == [True, True, True]
    assert module("legend.js", "afterClick", [True, True, False], 1, True) == [True, False, False]
    assert module("legend.js", "afterClick", [True, False], 0, True) == [True, True], "never none"


def test_keys_are_shared_out_to_short_addresses(module: Any) -> None:
    keys = [f"{number}{'日' * 80}" for number in range(100)]
    batches = module("graph_data.js", "batches", keys)
    assert [key for batch in batches for key in batch] == keys
    assert all(len(batch) <= 24 for batch in batches)
    assert module("graph_data.js", "batches", []) == []


def test_marks_stand_where_the_key_was_then(module: Any) -> None:
    """Two tasks of a first attempt, and one of a second attempt, whose steps begin again."""
    task0, task1 = (
        {"xs": [10, 20, 20, 30], "ys": [0, 10, 11, 21]},
        {"xs": [12, 28], "ys": [100, 260]},
    )
    second_attempt = {"xs": [50, 60], "ys": [0, 10]}
    courses = [second_attempt, {"xs": [], "ys": []}, task0, task1]

    def places(*secs: float) -> list[float]:
        marks = [{"x": at, "secs": at, "look": "user", "label": ""} for at in secs]
        placed_marks = module("marks.js", "placed", marks, courses)
        assert [mark["secs"] for mark in placed_marks] == list(secs)
        return [mark["x"] for mark in placed_marks]

    assert places(-5, 0, 10, 15, 20, 25, 30) == [0, 0, 0, 5, 11, 16, 21]
    assert places(35, 50, 57, 60, 1e9) == [21, 0, 7, 10, 10], "between two attempts, and after all"
    assert module("marks.js", "placed", [{"x": 1, "secs": 1}], []) == []


def test_file_names_are_plain(module: Any) -> None:
    assert module("save.js", "fileName", ["a/../b c", "loss\u202e"], "png") == "a-..-b-c-loss.png"
    assert module("save.js", "fileName", ["日本", ""], "csv") == "graph.csv"


# ---- colours


def colours(theme: str) -> dict[str, Colour]:
    """Return the variables of a theme, as linear red, green and blue."""
    blocks = re.findall(r"(:root[^{]*)\{([^}]*)\}", (ASSETS / "chart.css").read_text())
    selector = {"light": ":root ", "dark": ':root[data-theme="dark"] '}[theme]
    (text,) = [body for head, body in blocks if head == selector]
    rows = re.findall(r"(--chart-\w+): #(..)(..)(..);", text)
    return {name: tuple(_linear(int(part, 16) / 255) for part in parts) for name, *parts in rows}  # type: ignore[misc]


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _luminance(colour: Colour) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(colour: Colour, ground: Colour) -> float:
    """Return the contrast ratio by WCAG."""
    low, high = sorted((_luminance(colour), _luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def sight_colour(colour: Colour, sight: str) -> Colour:
    values = [sum(a * b for a, b in zip(row, colour, strict=True)) for row in SIGHTS[sight]]
    return tuple(min(max(value, 0.0), 1.0) for value in values)  # type: ignore[return-value]


def distance(colour: Colour, other_colour: Colour) -> float:
    """Return the CIE 1976 distance: from 2.3 on, people see a difference side by side."""
    return math.dist(_lab(colour), _lab(other_colour))


def _lab(colour: Colour) -> Colour:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = _luminance(colour)
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    a, b, c = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_and_are_told_apart(theme: str) -> None:
    variables = colours(theme)
    ground = variables["--chart-ground"]
    series = [variables[f"--chart-{number}"] for number in range(1, 9)]
    assert min(contrast(colour, ground) for colour in series) >= 3
    assert contrast(variables["--chart-text"], ground) >= 4.5
    assert contrast(variables["--chart-faint"], ground) >= 4.5
    for sight in SIGHTS:
        views = [sight_colour(colour, sight) for colour in series]
        nearest = min(distance(first, second) for first, second in combinations(views, 2))
        assert nearest > 10, (sight, nearest)
        assert min(distance(first, second) for first, second in pairwise(views[:4])) > 20, sight


def test_both_dark_themes_are_one() -> None:
    blocks = re.findall(r":root([^{]*)\{([^}]*)\}", (ASSETS / "chart.css").read_text())
    texts = {" ".join(body.split()) for head, body in blocks if "data-theme" in head}
    assert len(texts) == 1
