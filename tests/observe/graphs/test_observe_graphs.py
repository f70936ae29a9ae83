"""Drawn graphs: on a terminal within its width, as ASCII, and as a PNG, with keys of any name."""

import json
import math
import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from logshipper.errors import LogshipperError
from logshipper_observe.base.output import Output, cells_wide
from logshipper_observe.graphs.graph_png import write_png
from logshipper_observe.graphs.graph_text import graph_lines
from logshipper_observe.graphs.series import Graph, GraphRequest, graphs
from tests.tools.fakes.observe_fake import FakeReader

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def screen(columns: int, rows: int = 40, *, colour: bool = False, unicode: bool = True) -> Output:
    out = Output()
    out.columns, out.rows, out.colour, out.unicode = columns, rows, colour, unicode
    return out


def graphs_of(
    *captures: list[dict[str, object]], limit: int = 9, y: Sequence[str] = ()
) -> list[Graph]:
    lines = [[json.dumps(record) for record in capture] for capture in captures]
    job_graphs, _ = graphs(FakeReader(*lines), GraphRequest(y=y), limit)  # type: ignore[arg-type]  # a fake
    return job_graphs


def training(epochs: int = 30) -> list[dict[str, object]]:
    return [
        {
            "epoch": n,
            "loss": math.exp(-n / 9),
            "acc": 1 - math.exp(-n / 9),
            "lr": 0.1 / n,
            "flops": 7.8e12 + n,
        }
        for n in range(1, epochs + 1)
    ]


@pytest.mark.parametrize("columns", [20, 40, 80, 119, 120, 140, 300])
@pytest.mark.parametrize("colour", [False, True])
def test_graphs_fit_the_terminal(columns: int, colour: bool) -> None:
    lines = graph_lines(graphs_of(training(), training(9)), screen(columns, colour=colour))
    assert max(cells_wide(ESCAPES.sub("", line)) for line in lines) <= columns
    assert colour == any("\x1b" in line for line in lines)
    text = "\n".join(lines)
    assert "loss" in text
    assert "epoch" in text


def test_restarts_have_a_legend() -> None:
    text = "\n".join(graph_lines(graphs_of(training(), training(9)), screen(80)))
    assert "* attempt 1   + attempt 2" in text


def test_two_columns_where_there_is_room() -> None:
    job_graphs = graphs_of(training())
    assert len(graph_lines(job_graphs, screen(140))) < len(graph_lines(job_graphs, screen(100)))


def test_ascii_only() -> None:
    assert "\n".join(graph_lines(graphs_of(training()), screen(80, unicode=False))).isascii()


@pytest.mark.parametrize(
    "records",
    [
        [{"epoch": 1, "loss": 5}],
        [{"epoch": 1, "loss": 0}, {"epoch": 1, "loss": 0}],
        [{"epoch": n, "loss": 1e16 + n} for n in range(3)],
        [{"epoch": n, "loss": 1e299 * (-1) ** n} for n in range(3)],
        [{"epoch": n, "loss": 5e-324 * n} for n in range(3)],
        [{"epoch": 1e-300 * n, "loss": n} for n in range(3)],
        [{"epoch": n, "loss": 10**400} for n in range(3)],
        [{"$\\frac{$_^": n, "日本\x1b[31m": -n, "_": 2 * n} for n in range(3)],
        [{"k" * 250: n, "l" * 250: 2 * n} for n in range(3)],
    ],
)
def test_odd_numbers_and_keys_are_drawn(records: list[dict[str, object]], tmp_path: Path) -> None:
    job_graphs = graphs_of(records, y=["loss"] if "loss" in records[0] else ())
    for columns in (30, 80):
        lines = graph_lines(job_graphs, screen(columns))
        assert max(map(cells_wide, lines)) <= columns
        assert "\x1b" not in "".join(lines)
    write_png(str(tmp_path / "a.png"), job_graphs, "name · k3f9x2", "X axis: $x_")
    assert (tmp_path / "a.png").stat().st_size > 1000


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_png_grows_with_its_graphs(tmp_path: Path) -> None:
    png_of_one, png_of_four = tmp_path / "one.png", tmp_path / "four.png"
    write_png(str(png_of_one), graphs_of(training(), limit=1), "t", "s")
    write_png(str(png_of_four), graphs_of(training(), training()), "t", "s")
    assert png_size(png_of_four) > png_size(png_of_one)


def test_png_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(
        LogshipperError, match=r"nowhere/a\.png: the PNG can't be written: no such file"
    ):
        write_png(str(tmp_path / "nowhere" / "a.png"), graphs_of(training()), "t", "s")


def test_without_matplotlib_the_fix_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LogshipperError, match=re.escape("pip install matplotlib")):
        write_png(str(tmp_path / "a.png"), graphs_of(training()), "t", "s")
