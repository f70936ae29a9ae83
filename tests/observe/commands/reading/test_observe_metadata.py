"""The formats of `logshipper metadata`: exact lines, readable CSV, and columns that fit (R19, R22,
R23)."""

import argparse
import csv
import io
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper_observe.commands.reading import metadata
from logshipper_observe.model import records
from tests.observe.model.test_observe_records import OBJECTS, R19
from tests.tools.fakes.observe_fake import STARTED_NS, FakeReader
from tests.tools.stress.model_settings import examples


def select(reader: FakeReader, **options: Any) -> metadata._Selection:
    defaults = {"attempt": None, "limit": None, "all": False, "keys": None}
    return metadata._Selection(reader, argparse.Namespace(**{**defaults, **options}))  # type: ignore[arg-type]  # a fake


print_csv = partial(metadata._print_csv, raw=True)


def output(function: Any, *arguments: Any) -> str:
    """Return a function's standard output. Hypothesis calls it many times, so pytest's fixtures do
    not fit."""
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO(newline="")
        patch.setattr("sys.stdout", out)
        function(*arguments)
    return out.getvalue()


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(OBJECTS, min_size=1, max_size=5))
def test_jsonl_is_what_was_printed(values: list[dict[str, object]]) -> None:
    lines = [json.dumps(value) for value in values]
    assert output(metadata._print_jsonl, select(FakeReader(lines))) == "".join(
        f"{line}\n" for line in lines
    )


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(OBJECTS, min_size=1, max_size=5))
def test_csv_reads_back(values: list[dict[str, object]]) -> None:
    lines = [json.dumps(value) for value in values]
    text = output(print_csv, select(FakeReader(lines)))
    header, *rows = list(csv.reader(io.StringIO(text, newline="")))
    assert len(rows) == len(lines)
    assert len(set(header)) == len(header), "no two columns are called the same"
    flat = [records.flat(line) for line in lines]
    paths = list(dict.fromkeys(path for values in flat for path in values))
    assert len(header) == 3 + len(paths)
    for row, values_of in zip(rows, flat, strict=True):
        assert row[3:] == [
            records.cell(values_of[path]) if path in values_of else "" for path in paths
        ]


def test_r19_in_every_format() -> None:
    reader = FakeReader(R19)
    assert output(metadata._print_jsonl, select(reader)) == "".join(f"{line}\n" for line in R19)
    header, *rows = csv.DictReader(io.StringIO(output(print_csv, select(reader)))), ()
    first, second, third = list(header)
    assert rows == [()]
    assert (first["loss"], first["acc"], first["flops"]) == ("7.2355865", "0.00123", "")
    assert (second["flops"], second["time"]) == ("789773523480.1762", "16520")
    assert (third["size"], third["lr"], third["_attempt"]) == ("big", "0.1", "1")
    assert third["_time"].endswith("Z")
    documents = [
        json.loads(line)
        for line in output(metadata._print_documents, select(reader), {}).splitlines()
    ]
    assert [document["record"] for document in documents] == [json.loads(line) for line in R19]
    assert documents[0]["schema"] == "logshipper.metadata/1"
    assert documents[0]["time_ns"] == STARTED_NS + 10**9


def test_exact_numbers_survive() -> None:
    line = f'{{"n": {"7" * 400}, "x": 1.0000000000000000000001, "y": 1e999, "z": -0.0}}'
    out = output(metadata._print_documents, select(FakeReader([line])), {})
    assert out.rstrip().endswith(f'"record":{line}}}')
    assert f",{'7' * 400},1.0000000000000000000001,1e999,-0.0" in output(
        print_csv, select(FakeReader([line]))
    )


def test_csv_columns_of_awkward_keys() -> None:
    lines = [
        '{"a.b": 1, "a": {"b": 2, "c": [1, 2], "e": {}}, "_time": "x", "q\\"": "1,\\"2\\"\\n\\r"}'
    ]
    header, row = list(
        csv.reader(io.StringIO(output(print_csv, select(FakeReader(lines))), newline=""))
    )
    assert header == [
        "__time",
        "_attempt",
        "_origin",
        '"a.b"',
        "a.b",
        "a.c",
        "a.e",
        "_time",
        '"q\\""',
    ]
    assert row[3:] == ["1", "2", "[1, 2]", "{}", "x", '1,"2"\n\r']


def test_chosen_keys() -> None:
    lines = [
        '{"epoch": 1, "loss": 0.50, "v": {"x": 1.0}}',
        '{"note": "warm"}',
        '{"epoch": 2, "loss": 0.25}',
    ]
    reader = FakeReader(lines)
    assert output(metadata._print_jsonl, select(reader, keys="loss,v.x")) == (
        '{"loss": 0.50, "v.x": 1.0}\n{"loss": 0.25}\n'
    )
    assert (
        output(print_csv, select(reader, keys="loss,v.x"))
        .splitlines()[1]
        .endswith(",1,json,0.50,1.0")
    )
    assert output(metadata._print_jsonl, select(reader, keys="v")) == '{"v": {"x": 1.0}}\n'
    with pytest.raises(Exception, match="did you mean epoch"):
        select(reader, keys="epochs")


def test_limit_takes_the_newest_in_the_order_of_printing() -> None:
    reader = FakeReader([f'{{"n": {n}}}' for n in range(5)], ['{"n": 5}'])
    assert output(metadata._print_jsonl, select(reader, limit=2)) == '{"n": 4}\n{"n": 5}\n'
    assert output(metadata._print_jsonl, select(reader, limit=0)) == ""
    assert output(metadata._print_jsonl, select(reader, limit=2, all=True)).count("\n") == 6
    assert output(metadata._print_jsonl, select(reader, attempt=2)) == '{"n": 5}\n'


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 80), min_size=1, max_size=12), st.integers(1, 200), st.integers(0, 11)
)
def test_columns_fit_and_x_is_never_left_out(widths: list[int], room: int, x: int) -> None:
    always = x if x < len(widths) else None
    columns = metadata._fitting(widths, room, always)
    assert columns == sorted(set(columns))
    assert columns
    assert always is None or always in columns
    least = [min(widths[at], metadata._NARROW_CELL) + 2 for at in columns]
    assert len(columns) <= 2 or sum(least) <= room + metadata._WIDE_CELL + 2
