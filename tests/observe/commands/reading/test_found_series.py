"""Commands keep records of series apart from other records, and mark them."""

import csv
import io
import json
from pathlib import Path

import pytest

from logshipper import Store
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store

__all__ = ["ask", "store"]


@pytest.fixture(autouse=True)
def _jobs(store: Path) -> None:
    """Both: a job whose lines repeat its JSON; text: one without JSON."""
    with SpooledCapture(store, "both", name="both") as job:
        for epoch in (1, 2, 3, 4):
            job.metadata({"epoch": epoch, "loss": 1 / epoch})
            job.found({"Epoch": epoch, "Loss": round(1 / epoch, 2), "grad": 2.5 * epoch, "z": 7})
        job.end()
    with SpooledCapture(store, "text", name="text") as job:
        job.found(*({"step": 10 * n, "lm loss": 7.1 / n} for n in (1, 2, 3)))
        job.end()


def test_metadata_has_a_table_of_each_origin(ask: Ask) -> None:
    _, out, _ = ask("metadata", "both")
    tables = out.split("Found in the output\n")
    assert [table.split("\n")[0].split() for table in tables] == [
        ["_time", "_attempt", "epoch", "loss"],
        ["_time", "_attempt", "_origin", "Epoch", "Loss", "grad", "z"],
    ]
    assert [table.count("\n") for table in tables] == [5, 5]
    _, out, _ = ask("metadata", "both", "--keys", "loss,grad")
    first, second = out.split("Found in the output\n")
    assert (first.split()[:3], second.split()[:4]) == (
        ["_time", "_attempt", "loss"],
        ["_time", "_attempt", "_origin", "grad"],
    )


def test_csv_and_json_of_records_have_their_origin(ask: Ask) -> None:
    _, out, _ = ask("metadata", "both", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["_origin"], row["loss"], row["Loss (auto)"]) for row in rows[:2]] == [
        ("json", "1.0", ""),
        ("auto", "", "1.0"),
    ]
    _, out, _ = ask("metadata", "text", "--keys", "lm loss", "--json")
    document = json.loads(out.splitlines()[0])
    assert (document["origin"], document["record"]) == ("auto", {"lm loss": 7.1})


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_exports_have_the_origin(form: str, ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / f"out.{form}"
    code, _, err = ask("export", "both", "--format", form, "-o", str(path))
    assert code == 0, err
    if form == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(path, columns=["_origin", "loss", "Loss (auto)"]).to_pylist()
    elif form == "jsonl":
        documents = map(json.loads, path.read_text().splitlines())
        rows = [{"_origin": one["origin"], "loss": one["record"].get("loss"),
                 "Loss (auto)": one["record"].get("Loss")} for one in documents]  # fmt: skip
    else:
        delimiter = "\t" if form == "tsv" else ","
        rows = list(csv.DictReader(io.StringIO(path.read_text()), delimiter=delimiter))
    names = ("_origin", "loss", "Loss (auto)")
    values = [[str(row[name] or "") for name in names] for row in rows[:2]]
    assert values == [["json", "1.0", ""], ["auto", "", "1.0"]]


def graphs(ask: Ask, *words: str) -> list[tuple[str, str]]:
    _, out, _ = ask("plot", *words, "--json")
    return [(graph["key"], graph["x_axis"]["key"]) for graph in json.loads(out)["graphs"]]


def test_plots_draw_series_last_over_their_own_x_and_no_number_twice(ask: Ask) -> None:
    assert graphs(ask, "both") == [("loss", "epoch"), ("grad (auto)", "Epoch (auto)")]
    assert graphs(ask, "text") == [("lm loss (auto)", "step (auto)")]
    assert graphs(ask, "text", "--y", "lm loss", "--x", "step") == [
        ("lm loss (auto)", "step (auto)")
    ]
    assert graphs(ask, "both", "--y", "Loss")[0][0] == "Loss (auto)", "asked for by name"
    _, out, _ = ask("plot", "both")
    before, after = out.split("\nFound in the output\n")
    assert ("loss" in before, "grad (auto)" in before, "grad (auto)" in after) == (
        True,
        False,
        True,
    )
    _, out, _ = ask("plot", "both", "--json")
    notes = json.loads(out)["notes"]
    assert (
        "Drawn once: Epoch (auto) has the numbers of epoch, Loss (auto) has the numbers of loss"
        in notes
    )
    assert dict(graphs(ask, "both", "text")).keys() == {"loss", "grad (auto)", "lm loss (auto)"}


def test_lists_and_differences_mark_series(ask: Ask) -> None:
    _, out, _ = ask("ls", "--columns", "name,loss,lm loss")
    assert out.splitlines()[0].split("  ")[-1].strip() == "lm loss (auto)"
    assert "7.1" not in out.splitlines()[1] or "text" in out.splitlines()[1]
    _, out, _ = ask("diff", "both", "text")
    assert "first.lm loss (auto)" in out


def test_the_library_names_series_and_their_origin(store: Path) -> None:
    with Store.local(store) as opened:
        job = opened.job("both")
        assert [record.origin for record in job.records()][:2] == ["json", "auto"]
        assert job.metrics("loss")["loss"] == [1.0, 0.5, 1 / 3, 0.25]
        columns = job.metrics("grad", "Loss", by="Epoch")
        assert columns["grad (auto)"] == [2.5, 5.0, 7.5, 10.0]
        repeats = {key.key: key.repeats for key in job.keys() if key.repeats}  # noqa: SIM118  not a dict
        assert repeats == {"Epoch (auto)": "epoch", "Loss (auto)": "loss"}
