"""NaN and infinities, as Python's json.dumps writes them, in all readers of records (R18, R19,
R22)."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import logshipper
from logshipper.start.cli import main
from logshipper_observe.model.records import valid_json
from tests.tools.stores.reading_store import SpooledCapture

Ask = Callable[..., str]
PRINTED = [
    '{"step": 1, "loss": 0.50, "in": {"lr": 1e-4}, "note": "NaN, 1"}',
    '{"step": 2, "loss": NaN, "in": {"lr": -Infinity}, "note": "a \\" NaN"}',
    '{"step": 3, "loss": Infinity, "in": {"lr": 3}, "all": [NaN, 1], "note": "NaN"}',
]
STRICT = [
    {"step": 1, "loss": 0.5, "in": {"lr": 1e-4}, "note": "NaN, 1"},
    {"step": 2, "loss": None, "in": {"lr": None}, "note": 'a " NaN'},
    {"step": 3, "loss": None, "in": {"lr": 3}, "all": [None, 1], "note": "NaN"},
]


def strict(text: str) -> Any:  # Any: JSON
    """Parse JSON as a strict parser does."""

    def refuse(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with one captured job."""
    place = tmp_path / "store"
    with SpooledCapture(place, "job") as job:
        job.metadata(*PRINTED)
        job.end()
    return place


@pytest.fixture
def ask(store: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that runs a reading command and returns its output."""

    def run(*words: str) -> str:
        assert main([*words, "--store", str(store)]) == 0
        return capsys.readouterr().out

    return run


def test_they_are_records_with_their_exact_text(ask: Ask) -> None:
    assert ask("logs", "job").splitlines() == PRINTED
    assert ask("metadata", "job", "--format", "jsonl").splitlines() == PRINTED


def test_tables_show_them(ask: Ask) -> None:
    header, *rows = [
        line.split() for line in ask("metadata", "job", "--keys", "loss,note").splitlines()
    ]
    assert [row[header.index("loss")] for row in rows] == ["Infinity", "NaN", "0.50"]
    assert rows[0][-1] == '"NaN"', "a text that looks like one is told apart"
    assert " NaN" not in ask("show", "job"), "the last value of no key"
    assert "Infinity" in ask("show", "job")


def test_json_is_json_and_has_the_exact_text(ask: Ask) -> None:
    documents = [strict(line) for line in ask("metadata", "job", "--json").splitlines()]
    assert [document["record"] for document in documents] == STRICT
    assert "line" not in documents[0]
    assert [document["line"] for document in documents[1:]] == PRINTED[1:]
    (loss,) = [key for key in strict(ask("show", "job", "--json"))["keys"] if key["key"] == "loss"]
    assert (loss["last"], loss["last_text"], loss["max"]) == (None, "Infinity", 0.5)
    assert (loss["count"], loss["numbers"]) == (3, 1)
    (job,) = strict(ask("ls", "--columns", "loss", "--json"))["jobs"]
    assert job["columns"] == {"loss": None}
    strict(ask("info", "job", "--json"))
    strict(ask("metadata", "job", "--summary", "--json"))
    strict(ask("metadata", "job", "--by", "step", "--json"))


def test_csv_keeps_the_text_which_its_readers_know(ask: Ask, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ask("metadata", "job", "--format", "csv"))))
    assert [row["loss"] for row in rows] == ["0.50", "NaN", "Infinity"]
    assert [row["in.lr"] for row in rows] == ["1e-4", "-Infinity", "3"]
    ask("export", "job", "--output", str(tmp_path / "job.csv"))
    exported_rows = list(csv.DictReader((tmp_path / "job.csv").read_text().splitlines()))
    assert [row["in.lr"] for row in exported_rows] == ["1e-4", "-Infinity", "3"]


def test_exported_jsonl_is_json(ask: Ask, tmp_path: Path) -> None:
    ask("export", "job", "--output", str(tmp_path / "job.jsonl"))
    documents = [strict(line) for line in (tmp_path / "job.jsonl").read_text().splitlines()]
    assert [document["record"] for document in documents] == STRICT
    assert [document.get("line") for document in documents] == [None, *PRINTED[1:]]


@pytest.mark.parametrize("times", [1, 100], ids=["line by line", "by the block"])
def test_parquet_has_doubles_that_are_no_numbers(times: int, tmp_path: Path) -> None:
    from logshipper_observe.formats.record_columns import ColumnMaker

    lines = ['{"a": NaN, "i": 1}', '{"a": -Infinity, "i": 2}', '{"a": 0.5, "i": null}'] * times
    columns = ColumnMaker().columns("\n".join(lines), len(lines))
    values = columns[("a",)].to_pylist()
    assert math.isnan(values[0])
    assert values[1:3] == [-math.inf, 0.5]
    assert columns[("i",)].to_pylist()[:3] == [1, 2, None]
    too_large = ColumnMaker().columns("\n".join(['{"a": 1e999}', '{"a": NaN}']), 2)
    assert too_large[("a",)].to_pylist() == ["1e999", "NaN"], "no infinity was printed"


def test_parquet_of_a_job(ask: Ask, tmp_path: Path) -> None:
    ask("export", "job", "--output", str(tmp_path / "job.parquet"))
    table = pq.read_table(tmp_path / "job.parquet", columns=["loss", "in.lr"]).to_pydict()
    assert math.isnan(table["loss"][1])
    assert (table["loss"][2], table["in.lr"][1]) == (math.inf, -math.inf)


def test_python_reads_floats(store: Path) -> None:
    with logshipper.Store.local(store) as jobs:
        job = jobs.job("job")
        records = list(job.records())
        assert math.isnan(records[1].values["loss"])
        assert records[1].line == PRINTED[1]
        columns = job.metrics("loss", "step")
        assert str(columns["loss"][1]) == "nan"
        assert columns["loss"][2] == math.inf
        assert columns["step"] == [1, 2, 3], "integers stay integers"
        loss = job.rollup()["loss"]
        assert (loss.last, loss.min, loss.max, loss.mean, loss.count) == (
            math.inf,
            0.5,
            0.5,
            0.5,
            1,
        )


@pytest.mark.parametrize(
    ("text", "strict_text"),
    [
        ("NaN", "null"),
        ('{"NaN": [NaN,-Infinity, Infinity]}', '{"NaN": [null,null, null]}'),
        (r'{"a\"NaN": "Infinity\\", "b": NaN}', r'{"a\"NaN": "Infinity\\", "b": null}'),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_only_values_become_null(text: str, strict_text: str) -> None:
    assert valid_json(text) == strict_text
