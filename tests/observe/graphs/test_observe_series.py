"""Series of graphs: R22 (numbers only), R24-R26 (X), restarts as separate series, bounded
memory."""

import json
import math
import random
from typing import Any

import pytest

from logshipper.config import AUTO
from logshipper_observe.graphs import series
from logshipper_observe.graphs.graph_notes import key_notes
from logshipper_observe.graphs.points import MAX_POINTS, Points
from logshipper_observe.graphs.series import Graph, GraphRequest, graphs
from logshipper_observe.query.asked import UnknownKey
from tests.tools.fakes.observe_fake import FakeReader


def lines(*records: dict[str, Any]) -> list[str]:
    return [json.dumps(record) for record in records]


def graphs_of(reader: FakeReader, limit: int = 9, **options: Any) -> tuple[list[Graph], list[str]]:
    return graphs(reader, GraphRequest(**options), limit)  # type: ignore[arg-type]  # a fake


def points(graph: Graph) -> list[list[tuple[float, float]]]:
    return [list(zip(curve.xs, curve.ys, strict=True)) for curve in graph.series]


def test_r25_the_chosen_x_and_every_other_number() -> None:
    reader = FakeReader(
        lines(
            *({"epoch": n, "loss": 1 / n, "acc": n / 9, "on": True, "s": "0.1"} for n in (1, 2, 3))
        )
    )
    job_graphs, left_out = graphs_of(reader)
    assert [graph.key for graph in job_graphs] == ["loss", "acc"], (
        "R22: a boolean or a string is not a number"
    )
    assert not left_out
    assert job_graphs[0].x.rule == 2
    assert points(job_graphs[0]) == [[(1, 1), (2, 1 / 2), (3, 1 / 3)]]
    assert job_graphs[0].x_integer


def test_r25_a_key_without_the_chosen_x_has_its_own_and_says_so() -> None:
    steps = [{"step": n, "lr": 0.1 / n} for n in (10, 20, 30)]
    reader = FakeReader(lines({"epoch": 1, "loss": 1.0}, *steps, {"epoch": 2, "loss": 0.5}))
    job_graphs, _ = graphs_of(reader)
    by_key = {graph.key: graph for graph in job_graphs}
    assert list(by_key) == ["loss", "lr"], "no graph for the X of others"
    assert not by_key["loss"].own_x
    assert by_key["lr"].own_x
    assert (by_key["lr"].x.key, by_key["lr"].instead_of) == ("step", "epoch")
    assert "in the records of lr" in by_key["lr"].x.words
    assert points(by_key["lr"]) == [[(10, 0.1 / 10), (20, 0.1 / 20), (30, 0.1 / 30)]]


def test_counters_come_behind_measurements() -> None:
    """A bar's `count` or a number of updates must not stand before the loss."""
    records = [{"epoch": n, "count": 64 - n, "loss": 1 / n, "n_updates": 9 * n} for n in (1, 2, 3)]
    job_graphs, _ = graphs_of(FakeReader(lines(*records)))
    assert [graph.key for graph in job_graphs] == ["loss", "count", "n_updates"]


def test_r24_measurements_with_a_time_of_their_own() -> None:
    """Each set of tags has a curve over the time of measurement; the time itself has no graph."""
    second = 10**9
    records = [
        {"done": n, "tags": {"host": host}, "time": 10**18 + n * second}
        for n in range(3)
        for host in "ab"
    ]
    job_graphs, _ = graphs_of(FakeReader(lines(*records)))
    assert [graph.key for graph in job_graphs] == ["done"]
    assert [curve.label for curve in job_graphs[0].series] == ["host a", "host b"]
    (first, _) = points(job_graphs[0])
    assert [y for _, y in first] == [0, 1, 2]
    assert first[1][0] - first[0][0] == pytest.approx(1)
    notes = list(key_notes(FakeReader(lines(*records[:2])).keys()))
    assert notes == ["One value each, so no graph: done 0"]


def test_each_rank_of_series_has_a_curve() -> None:
    """Ranks print `[rank0]: ...` in any order into one capture."""
    records = [{"step": n, "loss": 9 - n + rank, "rank": rank} for n in range(3) for rank in (0, 1)]
    reader = FakeReader(lines(*records), origin=AUTO)
    assert [graph.key for graph in graphs_of(reader)[0]] == ["loss (auto)"], "a rank has no graph"
    job_graphs, _ = graphs_of(reader, y=["loss"])
    assert [curve.label for curve in job_graphs[0].series] == ["rank 0", "rank 1"]
    assert points(job_graphs[0])[1] == [(0, 10), (1, 9), (2, 8)]


def test_r24_by_time_on_request() -> None:
    job_graphs, _ = graphs_of(
        FakeReader(lines({"time": 5, "loss": 1}, {"time": 9, "loss": 2})), x="time", y=["loss"]
    )
    assert job_graphs[0].x.key is None
    assert points(job_graphs[0]) == [[(1, 1), (2, 2)]], "seconds since the start"
    job_graphs, _ = graphs_of(
        FakeReader(lines({"time": 5, "loss": 1}, {"time": 9, "loss": 2})), x="key:time", y=["loss"]
    )
    assert points(job_graphs[0]) == [[(5, 1), (9, 2)]]


def test_a_restart_is_a_series_of_its_own() -> None:
    first = lines({"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.9})
    restart = lines({"epoch": 1, "loss": 0.8})
    job_graphs, _ = graphs_of(FakeReader(first, restart))
    assert [curve.label for curve in job_graphs[0].series] == ["attempt 1", "attempt 2"]
    assert points(job_graphs[0]) == [[(1, 1.0), (2, 0.9)], [(1, 0.8)]]
    assert [
        curve.label for curve in graphs_of(FakeReader(first, restart), attempt=2)[0][0].series
    ] == ["attempt 2"]
    assert [
        curve.label for curve in graphs_of(FakeReader(first, restart, tasks=(0, 1)))[0][0].series
    ] == ["task 0", "task 1"]


def test_a_series_without_end_of_attempts_is_bounded() -> None:
    reader = FakeReader(*[lines({"epoch": 1, "loss": n}) for n in range(series.MAX_SERIES + 3)])
    graph = graphs_of(reader)[0][0]
    assert len(graph.series) == series.MAX_SERIES
    assert graph.more_series == 3
    assert graph.series[-1].label == f"attempt {series.MAX_SERIES + 3}"


def test_of_many_tasks_each_key_keeps_its_own_last_ones() -> None:
    tasks = range(series.MAX_SERIES + 4)
    reader = FakeReader(
        *[lines({"step": 1, "all": n, **({"first": n} if n < 2 else {})}) for n in tasks],
        tasks=tasks,
    )
    by_key = {graph.key: graph for graph in graphs_of(reader, x="step")[0]}
    assert [curve.label for curve in by_key["all"].series] == [f"task {n}" for n in tasks[4:]]
    assert by_key["all"].more_series == 4
    assert [curve.label for curve in by_key["first"].series] == ["task 0", "task 1"]
    backwards = FakeReader(*[lines({"step": 1, "all": n}) for n in tasks], tasks=tasks[::-1])
    assert [curve.label for curve in graphs_of(backwards, x="step")[0][0].series] == [
        f"task {n}" for n in tasks[4:]
    ]


def test_too_many_keys_are_left_out_by_name_but_not_those_asked_for() -> None:
    reader = FakeReader(
        lines(*({"epoch": n, "still": 1, **{f"k{i}": n * i for i in range(1, 6)}} for n in (1, 2)))
    )
    job_graphs, left_out = graphs_of(reader, limit=3)
    assert [graph.key for graph in job_graphs] == ["k1", "k2", "k3"]
    assert left_out == ["k4", "k5"], "what never changes has no graph"
    keys = ["k5", "k4", "k3", "k2"]
    assert [graph.key for graph in graphs_of(reader, limit=1, y=keys)[0]] == keys


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([{"loss": 0.5}, {"loss": 0.4}, {"loss": 0.6}], "loss is the only key with numbers"),
        (
            [{"seed": 7, "loss": 0.5}, {"loss": 0.4}, {"loss": 0.6}],
            "loss is the only key with changing numbers",
        ),
    ],
)
def test_where_x_is_the_only_key_it_goes_over_the_records_number(
    records: list[dict[str, Any]], words: str
) -> None:
    (graph,), _ = graphs_of(FakeReader(lines(*records)))
    assert graph.x.by_number
    assert (graph.x.key, graph.x.rule, graph.x.words) == (None, 0, f"record number: {words}")
    assert points(graph) == [[(1, 0.5), (2, 0.4), (3, 0.6)]]
    assert graph.x_integer


def test_x_that_is_asked_for_as_y_goes_over_the_records_number() -> None:
    reader = FakeReader(lines(*({"epoch": n, "loss": 1 / n} for n in (1, 2))), lines({"epoch": 1}))
    (graph,), _ = graphs_of(reader, y=["epoch"])
    assert points(graph) == [[(1, 1), (2, 2)], [(1, 1)]], "of each attempt from 1 on"
    assert "epoch itself is the X of the others" in graph.x.words


def test_one_value_is_configuration_and_no_graph() -> None:
    config = {"model": "mlp", "hidden": 1024, "seed": 7}
    epochs = [{"epoch": n, "loss": 1 / n, "lr": 0.1} for n in (1, 2)]
    reader = FakeReader(lines(config, *epochs))
    assert [graph.key for graph in graphs_of(reader)[0]] == ["loss"]
    assert list(key_notes(reader.keys())) == [
        "One value each, so no graph: hidden 1024, lr 0.1, seed 7"
    ]
    assert [graph.key for graph in graphs_of(reader, y=["lr"])[0]] == ["lr"], (
        "unless it is asked for"
    )
    assert graphs_of(FakeReader(lines(config)))[0] == [], "nor a dot of each"


def test_a_value_that_became_nan_is_no_configuration() -> None:
    reader = FakeReader(
        ['{"step": 1, "loss": 0.5, "acc": NaN}', '{"step": 2, "loss": NaN, "acc": NaN}']
    )
    assert [graph.key for graph in graphs_of(reader)[0]] == ["loss"]
    assert list(key_notes(reader.keys())) == ["acc has no graph: it never was a number, and is NaN"]


def test_nested_numbers_are_graphed() -> None:
    reader = FakeReader(lines(*({"epoch": n, "val": {"loss": 1 / n}} for n in (1, 2))))
    assert points(graphs_of(reader, y=["val.loss"])[0][0]) == [[(1, 1.0), (2, 0.5)]]


def test_numbers_beyond_a_float_are_counted() -> None:
    big = "9" * 400
    text = [
        f'{{"epoch": 1, "n": {big}}}',
        '{"epoch": 2, "n": 1e999}',
        '{"epoch": 3, "n": 3}',
        f'{{"epoch": {big}, "n": 4}}',
    ]
    graph = graphs_of(FakeReader([*text, '{"n": 5}']), y=["n"])[0][0]
    assert points(graph) == [[(3, 3)]]
    assert graph.beyond == 3
    assert graph.without_x == 1


def test_wrong_keys() -> None:
    reader = FakeReader(lines({"epoch": 1, "loss": 1.0, "name": "x"}))
    with pytest.raises(UnknownKey, match="did you mean loss"):
        graphs_of(reader, y=["lost"])
    with pytest.raises(UnknownKey, match="did you mean epoch"):
        graphs_of(reader, x="epochs")
    with pytest.raises(UnknownKey):
        graphs_of(reader, y=["name"])


def test_thinning_is_bounded_and_loses_no_peak() -> None:
    rng = random.Random(7)
    samples = Points()
    for x in range(MAX_POINTS * 3):
        samples.add(x, 1000.0 if x == 70_001 else -1000.0 if x == 99 else rng.random())
    assert samples.total == MAX_POINTS * 3
    assert len(samples.xs) <= MAX_POINTS
    thin = samples.thinned(600)
    assert len(thin.xs) <= 600
    assert thin.total == samples.total
    assert (70_001, 1000.0) in zip(thin.xs, thin.ys, strict=True)
    assert (99, -1000.0) in zip(thin.xs, thin.ys, strict=True)
    assert (thin.xs[0], thin.xs[-1]) == (0, samples.xs[-1])
    assert list(thin.xs) == sorted(thin.xs)


def test_thinning_is_even_over_the_whole_series() -> None:
    samples = Points(limit=4096)
    for x in range(1_000_000):
        samples.add(x, math.sin(x))
    for trace in (samples, samples.thinned(1000)):
        assert len(trace.xs) <= 4098
        tenths = [
            sum(begin <= x < begin + 100_000 for x in trace.xs)
            for begin in range(0, 1_000_000, 100_000)
        ]
        assert max(tenths) < 1.3 * min(tenths), "the beginning is shown as finely as the end"
    for count in range(1, 300):  # for any count: no point twice, and the first and last are present
        short_trace = Points(limit=16)
        for x in range(count):
            short_trace.add(x, 5.0)
        assert list(short_trace.xs) == sorted(set(short_trace.xs))
        assert (short_trace.xs[0], short_trace.xs[-1]) == (0, count - 1)
        assert len(short_trace.xs) <= 18
