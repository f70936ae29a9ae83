"""Text tables for spreadsheets: a spreadsheet shows a job's output, and calculates none of it."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.start.cli import main
from logshipper_observe.formats.csv_rows import CsvRows, no_formula
from tests.tools.stores.reading_store import SpooledCapture

FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=cmd|' /C calc'!A0",
    "-",
    "+",
    "-1_0",
    "-1 ",
    "＝1",
]
NUMBERS = ["-1", "+1", "-1.5e-3", "-Infinity", "-.5", "1", ""]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_quoted(text: str) -> None:
    assert no_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", [*NUMBERS, "a=1", "a-b", "'=1", '"=1"', " =1"])
def test_numbers_and_other_texts_stay(text: str) -> None:
    assert no_formula(text) == text


@given(
    st.lists(st.text(st.sampled_from("=+-@\t\r\n,\"' a1.e")), min_size=1), st.sampled_from(",\t")
)
def test_rows_can_be_read_again(cells: list[str], delimiter: str) -> None:
    for raw in (False, True):
        rows = io.StringIO(CsvRows(delimiter, raw=raw).row(cells) + "\n", newline="")
        (record,) = csv.reader(rows, delimiter=delimiter)
        assert record == [cell if raw else no_formula(cell) for cell in cells]


@pytest.mark.parametrize("raw", [False, True])
def test_every_command_that_writes_csv(
    raw: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, words = tmp_path / "store", ["--raw-cells"] if raw else []
    with SpooledCapture(store, name="=job") as job:
        job.metadata({"=key": "=1+1", "loss": -0.5}, {"=key": "ok", "loss": 0.25})
        job.lines("=1+1", "-0.5")
        job.end()

    def read(*command: str) -> str:
        assert main([*command, "--store", str(store), *words]) == 0
        return capsys.readouterr().out

    mark = "" if raw else "'"
    texts = [read("metadata", "last", "--format", "csv")]
    for form in ("csv", "tsv"):
        read("export", "last", "--what", "all", "--format", form, "--output", f"{tmp_path}/out/")
    out = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*.?sv")}
    assert len(out) == 4
    texts += [text for name, text in out.items() if name.startswith("metadata")]
    for text in texts:
        assert all(cell in text for cell in (f"{mark}=key", f"{mark}=1+1", "-0.5"))
        assert "'-0.5" not in text
        assert raw or ("'=key" in text and text.count("=key") == 1)
    for name in ("logs.csv", "logs.tsv"):
        assert f"{mark}=1+1" in out[name]
        assert "'-0.5" not in out[name]
    read("analyze", "throughput", "--csv", str(tmp_path / "points.csv"))
    summary = read("metadata", "last", "--summary", "--format", "csv")
    assert "loss,0.25,-0.5" in summary
