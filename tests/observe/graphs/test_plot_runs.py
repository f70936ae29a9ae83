"""Curves of several runs: figures equal to numpy's, groups, breaks, limits, pictures; on both
stores."""

import itertools
import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logshipper
from logshipper.start.cli import main
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.model.x_axis import XChoice
from logshipper_observe.commands.analysis.plot import layout
from logshipper_observe.graphs import graph_png
from logshipper_observe.graphs.curves import SPREADS, Trace, Treatment, smoothed, spread, treated
from logshipper_observe.graphs.points import MovingMean, Points
from logshipper_observe.graphs.series import CLOCK_WORDS, Graph
from tests.servers.running import LokiServer
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.reading_store import SpooledCapture

Plot = Callable[..., tuple[int, str, str]]
RUNS = {"aaa": ("sweep", 1), "bbb": ("sweep", 2), "ccc": ("other", 3)}
NUMPY: dict[str, Callable[[Any], float]] = {
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "std": lambda values: np.std(values, ddof=1),
    "var": lambda values: np.var(values, ddof=1),
    "sem": lambda values: np.std(values, ddof=1) / np.sqrt(len(values)),
}


def losses(seed: int, epochs: int = 20) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(1 / epoch, 0.1) for epoch in range(1, epochs + 1)]


def make_runs(store: Path, jobs: dict[str, tuple[str, int]]) -> None:
    for job_id, (name, seed) in jobs.items():
        with SpooledCapture(store, job_id, name=name) as job:
            job.metadata(*({"epoch": at, "loss": loss, "acc": 1 - loss}
                           for at, loss in enumerate(losses(seed), start=1)))  # fmt: skip
            job.end()


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with three runs of two experiments."""
    store = tmp_path_factory.mktemp("runs") / "store"
    make_runs(store, RUNS)
    return store


@pytest.fixture
def plot(shared_store: Path, capsys: pytest.CaptureFixture[str]) -> Plot:
    def run(*words: str, store: Path = shared_store) -> tuple[int, str, str]:
        try:
            code = main(["plot", *words, "--store", str(store)])
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = answer
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def only_series(answer: tuple[int, str, str]) -> dict[str, Any]:
    (graph,) = document(answer)["graphs"]
    (series,) = graph["series"]
    return dict(series)


# ---- numbers


@pytest.mark.parametrize("aggregate", NUMPY)
def test_aggregates_are_numpys(aggregate: str, plot: Plot) -> None:
    series = only_series(
        plot(
            "aaa",
            "bbb",
            "--y",
            "loss",
            "--group-by",
            "experiment",
            "--aggregate",
            aggregate,
            "--json",
        )
    )
    assert (series["label"], series["group"], series["runs"], series["seen"]) == (
        "sweep",
        "sweep",
        2,
        40,
    )
    expected_values = [NUMPY[aggregate](pair) for pair in zip(losses(1), losses(2), strict=True)]
    assert series["x"] == list(range(1, 21))
    np.testing.assert_allclose(series["y"], expected_values, rtol=1e-12)


@pytest.mark.parametrize("measure", ["std", "var", "sem"])
def test_error_bars_and_shades_are_numpys(measure: str, plot: Plot) -> None:
    words = ("--y", "loss", "--group-by", "experiment", "--aggregate", "mean", "--json")
    series = only_series(plot("aaa", "bbb", *words, "--error-bars", measure, "--shade", measure))
    pairs = list(zip(losses(1), losses(2), strict=True))
    width = np.array([NUMPY[measure](pair) for pair in pairs])
    middle = np.array([np.mean(pair) for pair in pairs])
    np.testing.assert_allclose(series["errors"], width, rtol=1e-9)
    np.testing.assert_allclose(series["low"], middle - width, rtol=1e-9)
    np.testing.assert_allclose(series["high"], middle + width, rtol=1e-9)
    series = only_series(plot("aaa", "bbb", *words, "--shade", "min-max"))
    assert (series["low"], series["high"]) == (
        [min(pair) for pair in pairs],
        [max(pair) for pair in pairs],
    )


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.floats(-1e6, 1e6)), max_size=12),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(("mean", "min", "max", *SPREADS)),
    st.floats(0, 0.99),
)
def test_any_runs_as_numpy_has_them(
    runs: list[list[tuple[int, float]]], aggregate: str, weight: float
) -> None:
    """Only some runs have an X value, or have it several times."""
    run_points, by_x = [], dict[float, list[float]]()
    for run in runs:
        points = Points()
        for at, value in run:
            points.add(at, value)
        run_points.append(points)
        for x, y in zip(points.xs, smoothed(points.ys, MovingMean(weight)), strict=True):
            by_x.setdefault(x, []).append(y)
    (trace,) = treated(run_points, "g", "loss", "g", Treatment(weight, aggregate, "std", "sem"))
    least = 2 if aggregate in ("std", "var", "sem") else 1
    expected_values = {
        x: NUMPY[aggregate](values) for x, values in sorted(by_x.items()) if len(values) >= least
    }
    assert list(trace.xs) == list(expected_values)
    np.testing.assert_allclose(list(trace.ys), list(expected_values.values()), rtol=1e-6, atol=1e-6)
    assert trace.errors is not None
    for x, error in zip(trace.xs, trace.errors, strict=True):
        if len(by_x[x]) < 2:
            assert math.isnan(error), "no deviation of one value"
        else:
            np.testing.assert_allclose(error, NUMPY["std"](by_x[x]), rtol=1e-6, atol=1e-6)


def test_smoothing_is_the_recurrence_seeded_with_the_first_value(plot: Plot) -> None:
    expected_values, last = [], losses(1)[0]
    for value in losses(1):
        last = 0.9 * last + 0.1 * value
        expected_values.append(last)
    np.testing.assert_allclose(smoothed(losses(1), MovingMean(0.9)), expected_values, rtol=1e-12)
    series = only_series(plot("aaa", "--y", "loss", "--smooth", "0.9", "--json"))
    np.testing.assert_allclose(series["y"], expected_values, rtol=1e-12)
    assert smoothed([], MovingMean(0.5)).tolist() == []


def test_smoothing_is_by_run(plot: Plot) -> None:
    (graph,) = document(plot("aaa", "bbb", "--y", "loss", "--smooth", "0.5", "--json"))["graphs"]
    assert [series["y"][0] for series in graph["series"]] == [losses(1)[0], losses(2)[0]]


def test_debiased_smoothing_weighs_the_first_value_as_others(plot: Plot) -> None:
    """Figures calculated by hand: (4), (0.5*4 - 2) / 1.5, (0.25*4 - 0.5*2 + 7) / 1.75.

    Smoothing skips a gap, without reducing the weight of earlier values.
    """
    means = smoothed([math.nan, 4, -2, math.nan, 7], MovingMean(0.5, debias=True))
    np.testing.assert_allclose(means, [math.nan, 4, 0, math.nan, 4], rtol=1e-12)
    values = losses(1)
    sums = [sum(0.9**k * values[at - k] for k in range(at + 1)) for at in range(len(values))]
    expected_values = [total / sum(0.9**k for k in range(at + 1)) for at, total in enumerate(sums)]
    series = only_series(plot("aaa", "--y", "loss", "--smooth", "0.9", "--debias", "--json"))
    np.testing.assert_allclose(series["y"], expected_values, rtol=1e-12)
    assert smoothed([1e300, -1e300], MovingMean(0, debias=True)).tolist() == [1e300, -1e300]


def test_deviations_of_large_and_single_values() -> None:
    assert math.isnan(spread([1.0], "sem"))
    assert math.isnan(spread([1e200, -1e200], "std"))
    assert spread([5.0, 5.0], "var") == 0


# ---- X


def test_x_is_what_all_jobs_have(plot: Plot, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for job_id, keys in {"one": ("epoch", "step"), "two": ("step",), "three": ("iter",)}.items():
        with SpooledCapture(store, job_id, name=job_id) as job:
            job.metadata(*({**dict.fromkeys(keys, at), "loss": at / 2} for at in (5, 6, 7)))
            job.end()

    def x_of(*words: str) -> tuple[Any, Any]:
        graph = document(plot(*words, "--y", "loss", "--json", store=store))["graphs"][0]
        return graph["x_axis"]["key"], graph["series"][0]["x"]

    assert x_of("one", "two") == ("step", [5, 6, 7]), "epoch is one's own only"
    assert x_of("one", "two", "--x-rule", "xt") == ("step", [5, 6, 7])
    assert x_of("one", "--x-rule", "xt") == ("epoch", [5, 6, 7])
    assert x_of("one", "three", "--x-rule", "xt") == (None, [0, 1, 2]), "index"
    key, xs = x_of("two", "three")
    assert key is None, "time"
    assert xs[0] >= 0
    code, _, err = plot("one", "two", "--x", "epochs", store=store)
    assert (code, "no key 'epochs'" in err) == (1, True)
    code, out, err = plot("one", "three", "--x", "step", "--y", "loss", store=store)
    assert (code, "three has no key step" in " ".join(out.split())) == (0, True), err


def test_the_rule_that_chose_x_is_said(plot: Plot, tmp_path: Path) -> None:
    """A key with the name `time` differs from the clock."""
    store = tmp_path / "store"
    for job_id in ("one", "two"):
        with SpooledCapture(store, job_id, name=job_id) as job:
            job.metadata(*({"time": at, "volts": 0.5} for at in (5, 6, 7)))
            job.end()

    def x_of(*words: str) -> tuple[Any, Any]:
        graph = document(plot(*words, "--y", "volts", "--json", store=store))["graphs"][0]
        return graph["x_axis"]["words"], graph["series"][0]["x"]

    words = "time: integers that never fall"
    assert x_of("one") == (words, [5, 6, 7])
    assert x_of("one", "two") == x_of("one", "--smooth", "0.5") == (words, [5, 6, 7])
    assert (
        x_of("one", "two", "--x", "key:time")
        == x_of("one", "--x", "key:time")
        == ("time: asked for", [5, 6, 7])
    )
    assert x_of("one", "two", "--x", "time")[0].startswith("time: when each record")
    assert "(rule 3 of 7)" in plot("one", "two", "--y", "volts", store=store)[1]


# ---- groups, breaks, titles, limits


@pytest.mark.parametrize(
    ("by", "groups"),
    [("run", ["sweep aaa", "sweep bbb", "other"]), ("experiment", ["sweep", "sweep", "other"]),
     ("job", ["aaa", "bbb", "ccc"]), ("node", ["node1"] * 3)],
)  # fmt: skip
def test_groups(by: str, groups: list[str], plot: Plot) -> None:
    (graph,) = document(plot("aaa", "bbb", "ccc", "--y", "loss", "--group-by", by, "--json"))[
        "graphs"
    ]
    assert [series["group"] for series in graph["series"]] == groups
    assert [series["label"] for series in graph["series"]] == ["sweep aaa", "sweep bbb", "other"]


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with iterations of one job, a job with a tag, one with a key of that name, and
    one with neither."""
    store = tmp_path_factory.mktemp("grouped") / "store"
    for job_id, name in (
        ("i0", "sim:0"),
        ("i1", "sim:1"),
        ("t", "a.py"),
        ("k", "b.py"),
        ("n", "c.py"),
    ):
        with SpooledCapture(store, job_id, name=name) as job:
            job.metadata({"lr": 0.1 if job_id in ("i0", "t") else 0.2})
            if job_id == "k":
                job.metadata({"experiment": "foo"})
            job.metadata(*({"epoch": epoch, "loss": 1 / epoch} for epoch in (1, 2, 3)))
            job.end()
    with logshipper.Store.local(store) as jobs:
        jobs.job("t").tag("experiment=foo", "set=a")
    return store


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("experiment", ["sim", "sim", "foo", "foo", "c.py"]),
        ("lr", ["lr=0.1", "lr=0.2", "lr=0.1", "lr=0.2", "lr=0.2"]),
        ("hparams.lr", [f"hparams.lr=0.{n}" for n in (1, 2, 1, 2, 2)]),
        ("set", ["set=none", "set=none", "set=a", "set=none", "set=none"]),
        ("tags.set", ["set=none", "set=none", "set=a", "set=none", "set=none"]),
        ("job.name", [f"job.name={name}" for name in ("sim:0", "sim:1", "a.py", "b.py", "c.py")]),
    ],
)
def test_groups_by_tag_configuration_or_the_job_that_they_are_parts_of(
    by: str, groups: list[str], plot: Plot, grouped: Path
) -> None:
    names = {"i0": "sim:0", "i1": "sim:1", "t": "a.py", "k": "b.py", "n": "c.py"}
    found = document(plot(*names, "--y", "loss", "--group-by", by, "--json", store=grouped))
    (graph,) = found["graphs"]
    assert {series["label"]: series["group"] for series in graph["series"]} == dict(
        zip(names.values(), groups, strict=True)
    )


def test_a_group_that_no_job_has_is_said(plot: Plot, grouped: Path) -> None:
    code, _, err = plot("i0", "t", "--group-by", "nothing", store=grouped)
    assert (code, "no job has the tag or option 'nothing'" in err) == (1, True)


def test_measurements_with_different_tags_are_different_series(plot: Plot, tmp_path: Path) -> None:
    """Like InfluxDB: each set of tags is a series, and a tag a group."""
    store = tmp_path / "store"
    with SpooledCapture(store, "m", name="mlo.py") as job:
        for step, (host, rank) in itertools.product((1, 2, 3), (("n1", 0), ("n1", 1), ("n2", 2))):
            tags = {"host": host, "rank": str(rank), "user": "x"}
            job.metadata({"loss": {"step": step, "value": step + rank}, "tags": tags})
        job.end()
    words = ("m", "--y", "loss.value", "--x", "loss.step", "--json")
    (graph,) = document(plot(*words, store=store))["graphs"]
    assert [(series["label"], series["y"]) for series in graph["series"]] == [
        ("host n1, rank 0", [1, 2, 3]), ("host n1, rank 1", [2, 3, 4]), ("host n2, rank 2", [3, 4, 5]),
    ]  # fmt: skip
    (graph,) = document(plot(*words, "--group-by", "host", "--aggregate", "mean", store=store))[
        "graphs"
    ]
    assert [(series["group"], series["y"]) for series in graph["series"]] == [
        ("host=n1", [1.5, 2.5, 3.5]), ("host=n2", [3, 4, 5]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("breaks", "titles"),
    [
        ("col", ["acc", "loss"]),
        ("run", ["sweep aaa", "other"]),
        ("run,col", ["sweep aaa, acc", "other, acc", "sweep aaa, loss", "other, loss"]),
        ("group", ["sweep aaa", "other"]),
    ],
)
def test_breaks_and_titles(breaks: str, titles: list[str], plot: Plot, tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_runs(store, {"aaa": ("sweep aaa", 1), "ccc": ("other", 3)})
    graphs = document(plot("aaa", "ccc", "--break-on", breaks, "--json", store=store))["graphs"]
    assert [graph["title"] for graph in graphs] == titles
    assert sum(len(graph["series"]) for graph in graphs) == 4
    answer = document(
        plot(
            "aaa", "ccc", "--break-on", breaks, "--title", "$col of $run $$", "--json", store=store
        )
    )
    assert answer["graphs"][0]["title"].endswith(" $")


@pytest.fixture(scope="module")
def sweep_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with jobs v11 to v22: every combination of two learning rates and two
    models."""
    store = tmp_path_factory.mktemp("varied") / "store"
    for lr, model in itertools.product((1, 2), (1, 2)):
        with SpooledCapture(store, f"v{lr}{model}", name="varied") as job:
            job.metadata({"lr": lr / 10, "model": f"m{model}", "batch": 32})
            job.metadata(*({"epoch": epoch, "loss": lr / epoch} for epoch in (1, 2, 3)))
            job.end()
    return store


@pytest.mark.parametrize(
    ("facet", "graphs"),
    [
        ("lr", {"loss, lr=0.1": 2, "loss, lr=0.2": 2}),
        ("hparams.model", {"loss, model=m1": 2, "loss, model=m2": 2}),
        ("lr,model", {f"loss, lr=0.{lr}, model=m{model}": 1 for lr in (1, 2) for model in (1, 2)}),
        ("auto", {f"loss, lr=0.{lr}, model=m{model}": 1 for lr in (1, 2) for model in (1, 2)}),
        ("batch", {"loss, batch=32": 4}),
    ],
)
def test_facets_are_graphs_of_jobs_with_one_value(
    facet: str, graphs: dict[str, int], plot: Plot, sweep_store: Path
) -> None:
    answer = document(
        plot(
            "v11", "v12", "v21", "v22", "--y", "loss", "--facet", facet, "--json", store=sweep_store
        )
    )
    assert {graph["title"]: len(graph["series"]) for graph in answer["graphs"]} == graphs


def test_facets_part_groups_too(plot: Plot, sweep_store: Path) -> None:
    """Facets separate runs of one group with different values."""
    words = ("--group-by", "experiment", "--aggregate", "mean", "--title", "of $facet", "--json")
    answer = document(plot("v*", "--y", "loss", "--facet", "lr", *words, store=sweep_store))
    graphs = {
        graph["title"]: (graph["series"][0]["runs"], graph["series"][0]["y"][0])
        for graph in answer["graphs"]
    }
    assert graphs == {f"of lr=0.{lr}": (2, float(lr)) for lr in (1, 2)}


def test_facets_that_are_none(plot: Plot, sweep_store: Path) -> None:
    code, _, err = plot("v11", "v12", "--facet", "depth", store=sweep_store)
    assert (code, "no job has the option 'depth'" in err) == (1, True)
    code, _, err = plot("v11", "--facet", "auto", store=sweep_store)
    assert (code, "nothing differs between these jobs" in err) == (1, True)


def test_tasks_and_attempts_are_runs(plot: Plot, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for attempt in (1, 2):
        with SpooledCapture(store, "again", attempt, name="again") as job:
            job.metadata(*({"epoch": at, "loss": attempt * at} for at in (1, 2, 3)))
            job.end()
    (graph,) = document(plot("again", "--group-by", "job", "--json", store=store))["graphs"]
    assert [series["label"] for series in graph["series"]] == [
        "again, attempt 1",
        "again, attempt 2",
    ]
    series = only_series(
        plot("again", "--group-by", "job", "--aggregate", "mean", "--json", store=store)
    )
    assert series["y"] == [1.5, 3, 4.5]
    (graph,) = document(
        plot("again", "--attempt", "2", "--smooth", "0", "--layout", "x1", "--json", store=store)
    )["graphs"]
    assert [series["y"] for series in graph["series"]] == [[2, 4, 6]]


def test_limits_are_said(plot: Plot) -> None:
    answer = document(plot("aaa", "bbb", "ccc", "--max-traces", "4", "--json"))
    assert sum(len(graph["series"]) for graph in answer["graphs"]) == 4
    assert answer["notes"] == ["2 of 6 traces left out: --max-traces takes more"]
    answer = document(plot("aaa", "bbb", "ccc", "--max-runs", "2", "--y", "loss", "--json"))
    assert len(answer["graphs"][0]["series"]) == 2
    assert "the first 2 of 3 jobs: --max-runs takes more" in answer["notes"]


def test_the_heading_names_the_jobs_that_are_drawn(plot: Plot) -> None:
    def heading(*words: str) -> str:
        return plot(*words, "--y", "loss")[1].partition("  X axis")[0]

    assert heading("aaa", "bbb", "ccc", "--max-runs", "2") == heading("aaa", "bbb")
    assert heading("aaa", "bbb") != heading("aaa", "bbb", "ccc")


@pytest.fixture
def mixed_store(tmp_path: Path) -> Path:
    """Return a store with a job that prints its learning rate only, one with text only, and two
    trainings."""
    store = tmp_path / "store"
    with SpooledCapture(store, "rate", name="rate") as job:
        job.metadata({"lr": 0.2}, {"lr": 0.1})
        job.end()
    with SpooledCapture(store, "text", name="text") as job:
        job.metadata({"words": "only"})
        job.end()
    for job_id, scale in (("one", 1), ("two", 2)):
        with SpooledCapture(store, job_id, name=job_id) as job:
            job.metadata(
                *(
                    {"epoch": at, "loss": scale / at, "lr": scale / at, "seed": 7}
                    for at in (1, 2, 3)
                )
            )
            job.end()
    return store


def test_only_jobs_with_the_key_decide_on_its_x(mixed_store: Path, plot: Plot) -> None:
    answer = document(plot("rate", "one", "two", "--y", "loss", "--json", store=mixed_store))
    (graph,) = answer["graphs"]
    assert graph["x_axis"]["key"] == "epoch"
    assert [(series["label"], series["x"]) for series in graph["series"]] == [
        ("one", [1, 2, 3]), ("two", [1, 2, 3])
    ]  # fmt: skip
    assert "rate has no key loss" in answer["notes"]
    by_key = {graph["key"]: graph for graph in
              document(plot("rate", "one", "two", "--json", store=mixed_store))["graphs"]}  # fmt: skip
    assert {key: graph["x_axis"]["key"] for key, graph in by_key.items()} == {
        "loss": "epoch",
        "lr": None,
    }, "each key by those that have it"
    assert len(by_key["lr"]["series"]) == 3
    out = plot("rate", "one", "two", store=mixed_store)[1]
    assert "X axis: time" in out
    assert "loss: X axis: epoch: the key epoch" in out
    assert "one value in each job, so no graph: seed" in out


def test_max_runs_counts_what_is_drawn(mixed_store: Path, plot: Plot) -> None:
    words = ("--y", "loss", "--max-runs", "2", "--json")
    answer = document(plot("rate", "text", "one", "two", *words, store=mixed_store))
    assert [series["label"] for series in answer["graphs"][0]["series"]] == ["one", "two"]
    assert not any("--max-runs" in note for note in answer["notes"])


def test_jobs_with_one_key_go_over_the_records_number(mixed_store: Path, plot: Plot) -> None:
    answer = document(
        plot("rate", "rate", "--y", "lr", "--smooth", "0.5", "--json", store=mixed_store)
    )
    assert answer["graphs"][0]["x_axis"]["by_number"]
    assert answer["graphs"][0]["series"][0]["x"] == [1, 2]
    (graph,) = document(plot("rate", "--json", store=mixed_store))["graphs"]
    assert (graph["x_axis"]["by_number"], graph["series"][0]["x"]) == (True, [1, 2])
    assert "record number" in plot("rate", store=mixed_store)[1]


def test_folds_are_runs_that_are_put_together(tmp_path: Path, plot: Plot) -> None:
    with SpooledCapture(tmp_path / "store", "folds", name="folds") as job:
        job.metadata(*({"epoch": at, "loss": fold / at} for fold in (1, 3) for at in (1, 2, 4)))
        job.end()
    words = ("--group-by", "job", "--aggregate", "mean", "--max-runs", "1", "--json")
    series = only_series(plot("folds", *words, store=tmp_path / "store"))
    assert (series["runs"], series["x"], series["y"]) == (2, [1, 2, 4], [2, 1, 0.5])


def test_a_job_of_configuration_only_says_so(tmp_path: Path, plot: Plot) -> None:
    with SpooledCapture(tmp_path / "store", "config") as job:
        job.metadata({"hidden": 1024, "seed": 7})
        job.end()
    code, _, err = plot("config", store=tmp_path / "store")
    assert code == 1
    assert "One value each, so no graph: hidden 1024, seed 7" in err


def test_too_many_graphs_for_a_layout_is_an_error(plot: Plot) -> None:
    code, out, err = plot("aaa", "bbb", "--break-on", "run,col", "--layout", "1x3")
    assert (code, out) == (1, "")
    assert err == "logshipper: --layout 1x3 has room for 3 graphs, and there are 4\n"
    assert plot("aaa", "bbb", "--break-on", "run,col", "--layout", "x3")[0] == 0


@pytest.mark.parametrize(("text", "shape"), [("2x3", (2, 3)), ("x3", (0, 3)), ("4x", (4, 0))])
def test_layouts(text: str, shape: tuple[int, int]) -> None:
    assert layout(text) == shape


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layout", "x"], "isn't a layout"), (["--layout", "0x2"], "room for nothing"),
        (["--layout", "2x-1"], "isn't a layout"),
        (["--smooth", "1"], "isn't a weight from 0 to below 1"), (["--smooth", "nan"], "isn't a weight"),
        (["--break-on", "row"], "isn't of run, group and col"), (["--aggregate", "median"], "invalid choice"),
    ],
)  # fmt: skip
def test_wrong_options(words: list[str], message: str, plot: Plot) -> None:
    code, _, err = plot("aaa", *words)
    assert (code, message in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--x", "epoch", "--x-rule", "xt"], "give one of them"), (["--error-bars", "std"], "needs --aggregate"),
        (["--shade", "sem"], "needs --aggregate"), (["--shade", "raw"], "needs --smooth or --aggregate"),
    ],
)  # fmt: skip
def test_options_that_say_nothing_together(words: list[str], message: str, plot: Plot) -> None:
    code, _, err = plot("aaa", *words)
    assert (code, message in err) == (2, True), err


def test_a_key_that_no_job_has(plot: Plot) -> None:
    code, _, err = plot("aaa", "--y", "nothing", "--smooth", "0.5")
    assert (code, "no key nothing" in err) == (1, True), err


def test_unknown_jobs_are_told_one_by_one(plot: Plot) -> None:
    code, out, err = plot("nope", "aaa", "nada", "bbb", "--y", "loss", "--json")
    assert (code, len(err.splitlines())) == (1, 2)
    assert [job["job_id"] for job in json.loads(out)["jobs"]] == ["aaa", "bbb"]
    code, out, err = plot("nope", "nada")
    assert (code, out, len(err.splitlines())) == (1, "", 2)


def test_jobs_without_numbers_are_named(plot: Plot, tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_runs(store, {"aaa": ("sweep", 1)})
    with SpooledCapture(store, "text", name="text") as job:
        job.lines("no metadata")
        job.end()
    answer = document(plot("aaa", "text", "--json", store=store))
    assert answer["notes"] == ["left out, without numbers: text"]
    code, _, err = plot("text", "--smooth", "0.5", store=store)
    assert (code, err) == (1, "logshipper: nothing to plot: text printed no numbers as metadata\n")


# ---- drawings


def test_the_terminal_shows_a_legend_and_what_it_leaves_out(plot: Plot) -> None:
    code, out, _ = plot("aaa", "bbb", "ccc", "--y", "loss", "--smooth", "0.5", "--shade", "raw")
    assert code == 0
    assert out.startswith("sweep aaa, sweep bbb, other  X axis: epoch")
    assert re.search(r"\* sweep aaa   \+ sweep bbb   x other", out)
    assert "error bars and shades are in pictures only" in out


@pytest.mark.parametrize("words", [
    ["--smooth", "0.9", "--shade", "raw"],
    ["--aggregate", "mean", "--group-by", "experiment", "--error-bars", "sem", "--shade", "min-max"],
    ["--aggregate", "max", "--shade", "raw", "--break-on", "run", "--layout", "1x", "--title", "$run"],
    ["--x-rule", "xt", "--group-by", "experiment", "--layout", "x1"],
])  # fmt: skip
def test_pictures(words: list[str], plot: Plot, tmp_path: Path) -> None:
    png, svg = tmp_path / "a.png", tmp_path / "a.svg"
    code, out, err = plot("aaa", "bbb", "ccc", *words, "--png", str(png))
    assert (code, err) == (0, "")
    assert out.startswith(f"Wrote {png}: ")
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    assert plot("aaa", "bbb", "ccc", *words, "--svg", str(svg))[0] == 0
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  our own


@pytest.mark.parametrize("across", [1, 3])
def test_no_text_of_a_picture_is_cut(
    across: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Titles, notes and graphs' titles have any length; pictures have any width."""
    figures: list[Any] = []
    save = graph_png._save

    def keep(figure: Any, path: str, form: str) -> None:
        save(figure, path, form)
        figures.append(figure)

    monkeypatch.setattr(graph_png, "_save", keep)
    long = "WIDE words of a title, $x_" * 9 + "x" * 150 + "W" * 80
    for title, note in (("short", "note"), (long, long)):
        graphs = [Graph("loss", XChoice(None, 0, CLOCK_WORDS)) for _ in range(across)]
        for graph in graphs:
            graph.title = title
            graph.series = [Points("a")]
            graph.series[0].add(1.0, 2.0)
        graph_png.write_png(str(tmp_path / "a.png"), graphs, title, note, across=across)
    for figure in figures:
        texts = [
            *figure.texts,
            *(text for axes in figure.axes for text in (axes._left_title, axes.xaxis.label)),
        ]
        boxes = [text.get_window_extent() for text in texts if text.get_text()]
        assert len(boxes) >= 3
        for box in boxes:
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= figure.bbox.y1
        title, note = boxes[:2]
        assert note.y1 <= title.y0 + 1, "one below the other"
        assert max(axes.get_tightbbox().y1 for axes in figure.axes) <= note.y0 + 1


def test_a_group_has_one_colour(plot: Plot, tmp_path: Path) -> None:
    svg = tmp_path / "a.svg"
    assert (
        plot("aaa", "bbb", "ccc", "--y", "loss", "--group-by", "experiment", "--svg", str(svg))[0]
        == 0
    )
    pattern = r'<path d="[^"]*"[^>]*style="fill: none; stroke: (#[0-9a-f]{6}); stroke-width: 1.6'
    lines = re.findall(pattern, svg.read_text())
    assert [key for key, _ in itertools.groupby(lines[:3])] == ["#2563eb", "#ea580c"]


def test_a_trace_is_made_of_points() -> None:
    trace = Trace("a", "loss", "g")
    trace.add(1, 2)
    assert (trace.thinned(4).xs[0], trace.total) == (1, 1)


def test_from_loki_the_same(
    loki: LokiServer, plot: Plot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    make_runs(store, {"plot-loki-1": ("lokisweep", 4), "plot-loki-2": ("lokisweep", 5)})
    push_spool(LokiClient(loki.url), store / "spool")
    words = [
        "plot-loki-1",
        "plot-loki-2",
        "--group-by",
        "experiment",
        "--aggregate",
        "mean",
        "--shade",
        "std",
        "--json",
    ]
    local = plot(*words, store=store)
    assert main(["plot", *words, "--from", "loki", "--loki-url", loki.url]) == 0
    assert capsys.readouterr().out == local[1]
    assert len(json.loads(local[1])["graphs"]) == 2


def test_a_picture_that_ends_in_another_format_is_refused(plot: Plot, tmp_path: Path) -> None:
    for option, name in (("--png", "x.jpg"), ("--png", "x.svg"), ("--svg", "x.PDF")):
        code, out, err = plot("aaa", option, str(tmp_path / name))
        assert (code, out, f"ends in .{name[-3:].lower()}: call it .{option[2:]}" in err) == (
            2,
            "",
            True,
        )
    assert plot("aaa", "--png", str(tmp_path / "lr0.1"))[0] == 0
    assert plot("aaa", "--png", str(tmp_path / "x.PNG"))[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["lr0.1", "x.PNG"]
