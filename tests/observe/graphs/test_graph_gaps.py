"""Graphs of records with NaN, and over an X that falls: marked gaps, and curves that begin again
(R22, R24)."""

import json
import math
import random
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from logshipper_observe.base.output import Output
from logshipper_observe.graphs.graph_notes import gap_notes
from logshipper_observe.graphs.graph_png import write_png
from logshipper_observe.graphs.graph_text import graph_lines
from logshipper_observe.graphs.points import MAX_CURVES, MAX_GAPS, MovingMean, Points
from logshipper_observe.graphs.series import Graph, GraphRequest, graphs
from tests.tools.fakes.observe_fake import FakeReader

NAN, INF = math.nan, math.inf


def lines(*records: dict[str, Any]) -> list[str]:
    return [json.dumps(record) for record in records]


def graph_of(reader: FakeReader, **request: Any) -> Graph:
    (graph,), _ = graphs(reader, GraphRequest(y=["loss"], **request), 9)  # type: ignore[arg-type]  # a fake
    return graph


Pieces: TypeAlias = "list[list[tuple[float, float]]]"


def pieces(points: Points) -> Pieces:
    return [list(zip(xs, ys, strict=True)) for xs, ys in points.pieces()]


def over_steps(*losses: float, first: int = 1) -> list[str]:
    return lines(*({"step": step, "loss": loss} for step, loss in enumerate(losses, start=first)))


# ---- gaps


def test_nan_is_a_gap_that_no_line_crosses() -> None:
    graph = graph_of(FakeReader(over_steps(3, 2, NAN, NAN, 1, 0.5)))
    (points,) = graph.series
    assert pieces(points) == [[(1, 3), (2, 2)], [(5, 1), (6, 0.5)]]
    assert (points.total, graph.total, graph.gaps, points.breaks) == (4, 4, 2, [2])
    assert (graph.without_x, graph.beyond) == (0, 0)
    assert list(gap_notes(graph)) == ["loss is NaN from step 3 to 4 (2 records)"]


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((1, 2, NAN, NAN), "loss is NaN from step 3 on (2 records)"),
        ((1, NAN, 2), "loss is NaN at step 2"),
        ((NAN, INF, 2), "loss is NaN or Infinity in 2 records, first at step 1"),
        ((1, -INF, 1, NAN, NAN),
         "loss is -Infinity or NaN in 3 records, first at step 2, and from step 4 on"),
        ((1, 2), ""),
    ],
)  # fmt: skip
def test_a_sentence_says_where(losses: tuple[float, ...], words: str) -> None:
    assert "".join(gap_notes(graph_of(FakeReader(over_steps(*losses)), x="step"))) == words


def test_the_last_value_is_the_gap() -> None:
    (points,) = graph_of(FakeReader(over_steps(1, NAN, 0.5)), x="step").series
    assert points.last == 0.5
    graph = graph_of(FakeReader(over_steps(1, 0.5, INF)), x="step")
    assert graph.series[0].last == INF
    out = Output("never")
    out.columns = 80
    assert "last Infinity  min 0.5  max 1" in graph_lines([graph], out)[0]


@pytest.mark.parametrize("points", [9, 200])
def test_a_picture_has_gaps_and_what_stands_between_two(points: int, tmp_path: Path) -> None:
    losses = [NAN if step % 3 else step / 7 for step in range(points)]
    graph = graph_of(FakeReader(over_steps(*losses)), x="step")
    write_png(str(tmp_path / "a.svg"), [graph], "title", "below", form="svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000


def test_a_number_that_is_too_large_is_no_gap() -> None:
    graph = graph_of(FakeReader([*over_steps(1, 2), '{"step": 3, "loss": 1e999}']))
    assert (graph.beyond, graph.gaps) == (1, 0)


def test_nested_and_deep_records_have_gaps_too() -> None:
    deep = '{"step": 2, "loss": NaN, "deep": ' + "[" * 3000 + "]" * 3000 + "}"
    assert graph_of(FakeReader([*over_steps(1), deep, *over_steps(2, first=3)]), x="step").gaps == 1


def test_x_that_is_nan_is_no_x() -> None:
    graph = graph_of(FakeReader([*over_steps(1, 2), '{"step": NaN, "loss": 1}']))
    assert (graph.without_x, graph.gaps, graph.total) == (1, 0, 2)


def test_many_gaps_are_bounded_and_counted() -> None:
    losses = [number if number % 2 else NAN for number in range(1, 6 * MAX_GAPS)]
    (points,) = graph_of(FakeReader(over_steps(*losses)), x="step").series
    assert len(points.gaps) == MAX_GAPS
    assert sum(gap.count for _, gap in points.gaps) + points.more_gaps == losses.count(NAN)


def test_thinning_keeps_gaps_and_peaks() -> None:
    points = Points(limit=400)
    random_numbers = random.Random(7)
    peak = 123.0
    for step in range(100_000):
        if 60_000 <= step < 60_400:
            points.add_gap(step, NAN)
        else:
            points.add(step, peak if step == 77_777 else random_numbers.random())
    for thin in (points, points.thinned(120)):
        assert peak in thin.ys
        assert len(thin.xs) <= 400
        assert not any(map(math.isnan, [*thin.xs, *thin.ys]))
        ends = [(before[0][-1], after[0][0]) for before, after in pairwise(thin.pieces())]
        assert [low < 60_200 < high for low, high in ends] == [True]
        assert (thin.xs[0], thin.xs[-1]) == (0, 99_999)
    assert len(points.thinned(120).xs) <= 120


# ---- X falls


def folds(count: int, epochs: int = 3) -> list[str]:
    return lines(
        *({"epoch": epoch, "loss": fold + 1 / epoch} for fold in range(count)
          for epoch in range(1, epochs + 1))
    )  # fmt: skip


def test_where_x_falls_another_curve_begins() -> None:
    graph = graph_of(FakeReader(folds(3)))
    assert [points.label for points in graph.series] == ["curve 1", "curve 2", "curve 3"]
    assert [list(points.xs) for points in graph.series] == [[1, 2, 3]] * 3
    assert [points.ys[0] for points in graph.series] == [1, 2, 3]
    assert [points.total for points in graph.series] == [3, 3, 3]


def test_a_restart_within_one_attempt_is_another_curve() -> None:
    records = [{"epoch": epoch, "loss": 1.0} for epoch in (1, 2, 3, 4, 3, 4, 5)]
    labels = [points.label for points in graph_of(FakeReader(lines(*records), folds(1))).series]
    assert labels == ["attempt 1, curve 1", "attempt 1, curve 2", "attempt 2"]


def test_many_curves_are_one_series_with_the_pen_lifted() -> None:
    (points,) = graph_of(FakeReader(folds(MAX_CURVES + 1))).series
    assert points.label == ""
    assert len(pieces(points)) == MAX_CURVES + 1
    assert all(low <= high for xs, _ in points.pieces() for low, high in pairwise(xs))


@pytest.mark.parametrize(
    ("values", "x"),
    [((5, 4, 3, 2, 1), "x"), ((5.5, 5.1, 5.2, 4, 3.5, 3.6, 3), "x")],
    ids=["counts down", "goes up and down"],
)
def test_an_x_that_does_not_begin_again_is_one_curve(values: tuple[float, ...], x: str) -> None:
    records = lines(*({"x": value, "loss": 1 / value} for value in values))
    (points,) = graph_of(FakeReader(records), x=x).series
    assert pieces(points) == [[(value, 1 / value) for value in values]]


def test_over_time_no_curve_begins_again() -> None:
    (points,) = graph_of(FakeReader(folds(2)), x="time").series
    assert len(pieces(points)) == 1


def test_gaps_belong_to_their_curve() -> None:
    records = lines(*({"epoch": epoch, "loss": loss} for epoch, loss in
                      ((1, 1), (2, NAN), (1, 2), (2, NAN), (3, 3))))  # fmt: skip
    graph = graph_of(FakeReader(records))
    assert list(gap_notes(graph)) == [
        "loss of curve 1 is NaN at epoch 2",
        "loss of curve 2 is NaN at epoch 2",
    ]
    assert [pieces(points) for points in graph.series] == [[[(1, 1)]], [[(1, 2)], [(3, 3)]]]


@pytest.mark.parametrize(
    ("mean", "values", "first_pieces", "second_pieces"),
    [
        (MovingMean(0.5), (4, 2, NAN, 1, 8, 4), [[(1, 4), (2, 3)], [(4, 2)]], [[(1, 8), (2, 6)]]),
        (
            MovingMean(0.5, debias=True),
            (4, -2, NAN, 7, 8, 2),
            [[(1, 4), (2, 0)], [(4, 4)]],
            [[(1, 8), (2, 4)]],
        ),
    ],
    ids=["seeded", "debiased"],
)
def test_each_curve_is_smoothed_by_itself_and_over_gaps(
    mean: MovingMean, values: tuple[float, ...], first_pieces: Pieces, second_pieces: Pieces
) -> None:
    points = Points(mean=mean)
    points.begins_again = True
    for x, y in zip((1, 2, 3, 4, 1, 2), values, strict=True):
        if math.isnan(y):
            points.add_gap(x, y)
        else:
            points.add(x, y)
    first, second = points.curves(9)
    assert pieces(first) == first_pieces
    assert pieces(second) == second_pieces


def test_thinning_keeps_curves_apart() -> None:
    points = Points(limit=64)
    points.begins_again = True
    for fold in range(4):
        for step in range(5_000):
            points.add(step, fold + step / 5_000)
    curves = points.curves(9)
    assert [curve.total for curve in curves] == [5_000] * 4
    for fold, curve in enumerate(curves):
        assert all(fold <= y < fold + 1 for y in curve.ys)
        assert list(curve.xs) == sorted(curve.xs)
        assert len(curve.xs) <= 64


def test_rows_go_back_into_points() -> None:
    points = Points()
    points.hold(array("d", [1, 2, 3]), array("d", [1, NAN, 3]), 2)
    assert (list(points.xs), list(points.ys), points.breaks) == ([1, 3], [1, 3], [1])
