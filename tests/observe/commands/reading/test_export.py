"""`logshipper export`: exact values in every format, on both stores; complete files or none."""

import csv
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from logshipper.spool.segment import Kind, Stream
from logshipper.start.cli import main
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.formats.record_columns import ColumnMaker, is_exact
from logshipper_observe.model.records import flat
from tests.servers.running import LokiServer
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.reading_store import SpooledCapture, training
from tests.tools.stress.model_settings import examples

Export = Callable[..., tuple[int, str, str]]
OWN = ["_job_id", "_time", "_attempt", "_step", "_task", "_host", "_origin"]
LOGS = [
    "job_id",
    "time",
    "attempt",
    "step",
    "task",
    "host",
    "stream",
    "kind",
    "text",
    "repeat",
    "part",
]
BIG = 2**53 + 1


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def export(store: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    """Return a function that runs `export` on the store; it returns exit code, stdout and
    stderr."""

    def run(*words: str, place: tuple[str, ...] = ()) -> tuple[int, str, str]:
        code = main(["export", *words, *(place or ("--store", str(store)))])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Return a file's rows with times as text: a datetime holds no nanoseconds."""
    table = pq.read_table(path)
    for at, field in enumerate(table.schema):
        if str(field.type).startswith("timestamp"):
            table = table.set_column(at, field.name, table.column(at).cast("string"))
    return list(table.to_pylist())


def odd_job(store: Path, job_id: str = "odd") -> list[str]:
    """Make a job with numbers beyond doubles, late keys, text that needs quotes, nested and mixed
    values; return its lines."""
    lines = [
        '{"model": "a,b\\t\\"c\\"\\n", "opt": {"lr": 0.10, "name": "adam"}, "seed": 7}',
        f'{{"epoch": 1, "loss": 0.1, "tokens": {BIG}, "big": {2**80}, "fine": 0.1234567890123456789}}',
        '{"epoch": 2, "loss": 1e-07, "tokens": 3, "big": 1, "fine": 2.5, "mixed": 1}',
        '{"epoch": 3, "loss": null, "on": true, "list": [1, 2.50], "mixed": "x", "größe": "ü😀"}',
    ]
    with SpooledCapture(store, job_id, name="odd.py") as job:
        job.metadata(*lines)
        job.lines("plain, with a comma", 'a "quote"', "tab\there")
        job.stderr("warned")
        job.lines(
            "[the line above 9 times more]",
            stream=Stream.STDERR,
            kind=Kind.NOTE,
            attrs={0: {"repeat": 9}},
        )
        job.end()
    return lines


# ---- formats


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_tables_of_text_hold_what_was_printed(
    form: str, store: Path, export: Export, tmp_path: Path
) -> None:
    odd_job(store)
    path = tmp_path / f"out.{form}"
    code, out, err = export("odd", "--output", str(path))
    assert (code, out, err) == (0, f"Wrote {path}: 4 records\n", "")
    rows = rows_of(path)
    keys = "model opt.lr opt.name seed epoch loss tokens big fine mixed on list größe".split()
    assert list(rows[0]) == [*OWN, *keys]
    assert rows[0]["model"] == 'a,b\t"c"\n'
    assert rows[0]["opt.lr"] == "0.10"
    assert (rows[1]["tokens"], rows[1]["big"], rows[1]["fine"]) == (
        str(BIG),
        str(2**80),
        "0.1234567890123456789",
    )
    assert (rows[2]["loss"], rows[3]["loss"], rows[0]["loss"]) == ("1e-07", "null", "")
    assert (rows[3]["list"], rows[3]["mixed"], rows[3]["größe"]) == ("[1, 2.50]", "x", "ü😀")
    assert {row["_job_id"] for row in rows} == {"odd"}
    assert b"\r" not in path.read_bytes()


def test_parquet_has_types_that_hold_every_value(
    store: Path, export: Export, tmp_path: Path
) -> None:
    odd_job(store)
    path = tmp_path / "out.parquet"
    assert export("odd", "--output", str(path)) == (0, f"Wrote {path}: 4 records\n", "")
    table = pq.read_table(path)
    types = {field.name: str(field.type) for field in table.schema}
    assert [types[name] for name in OWN] == [
        "string",
        "timestamp[ns, tz=UTC]",
        "int32",
        "string",
        "int32",
        "string",
        "string",
    ]
    assert [types[key] for key in ("epoch", "loss", "tokens", "on", "opt.lr")] == [
        "int64", "double", "int64", "bool", "double",
    ]  # fmt: skip
    rows = parquet_rows(path)
    assert [row["tokens"] for row in rows] == [None, BIG, 3, None]
    assert [row["big"] for row in rows] == [None, Decimal(2**80), Decimal(1), None]
    assert [row["fine"] for row in rows] == [
        None,
        Decimal("0.1234567890123456789"),
        Decimal("2.5"),
        None,
    ]
    assert [row["loss"] for row in rows] == [None, 0.1, 1e-7, None]
    assert [row["mixed"] for row in rows] == [None, None, "1", "x"]
    assert (rows[0]["model"], rows[3]["list"], rows[3]["on"]) == ('a,b\t"c"\n', "[1, 2.50]", True)


def test_jsonl_rows_are_documents(store: Path, export: Export, tmp_path: Path) -> None:
    lines = odd_job(store)
    assert export("odd", "--output", str(tmp_path / "m.jsonl"))[0] == 0
    text = (tmp_path / "m.jsonl").read_text()
    for line, row in zip(lines, text.splitlines(), strict=True):
        assert row.endswith(f'"record":{line}}}'), "not a digit is changed"
    document = json.loads(text.splitlines()[0])
    assert (document["schema"], document["job_id"], document["task"]) == (
        "logshipper.metadata/1",
        "odd",
        0,
    )
    assert export("odd", "--what", "logs", "--output", str(tmp_path / "l.jsonl"))[0] == 0
    log_lines = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    assert [row["text"] for row in log_lines][-2:] == ["warned", "[the line above 9 times more]"]
    assert (log_lines[-1]["schema"], log_lines[-1]["attrs"]) == ("logshipper.logs/1", {"repeat": 9})


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_logs_as_tables(form: str, store: Path, export: Export, tmp_path: Path) -> None:
    odd_job(store)
    path = tmp_path / f"l.{form}"
    assert export("odd", "--what", "logs", "--output", str(path))[0] == 0
    rows: list[dict[str, Any]] = parquet_rows(path) if form == "parquet" else list(rows_of(path))
    assert list(rows[0]) == LOGS
    assert [row["text"] for row in rows[4:]] == [
        "plain, with a comma", 'a "quote"', "tab\there", "warned", "[the line above 9 times more]",
    ]  # fmt: skip
    assert [row["kind"] for row in rows] == ["metadata"] * 4 + ["log"] * 4 + ["note"]
    assert (str(rows[-1]["repeat"]), rows[-2]["stream"]) == ("9", "stderr")


def test_a_key_of_a_job_may_be_called_as_our_columns(
    store: Path, export: Export, tmp_path: Path
) -> None:
    with SpooledCapture(store, "own") as job:
        job.metadata({"_time": 5, "_job_id": "mine"})
        job.end()
    for form in ("csv", "parquet"):
        path = tmp_path / f"o.{form}"
        assert export("own", "--output", str(path))[0] == 0
        row: dict[str, Any] = parquet_rows(path)[0] if form == "parquet" else dict(rows_of(path)[0])
        assert (str(row["_time"]), row["_job_id"], row["__job_id"]) == ("5", "mine", "own")


def test_a_job_without_metadata_is_a_table_without_rows(
    store: Path, export: Export, tmp_path: Path
) -> None:
    with SpooledCapture(store, "none") as job:
        job.end()
    for form in ("csv", "parquet", "jsonl"):
        for content in ("metadata", "logs"):
            path = tmp_path / f"{content}.{form}"
            noun = "record" if content == "metadata" else "line"
            assert export("none", "--what", content, "--output", str(path)) == (
                0,
                f"Wrote {path}: 0 {noun}s\n",
                "",
            )
            if form == "parquet":
                assert pq.read_table(path).num_rows == 0
            else:
                assert len(path.read_text().splitlines()) == (form == "csv")


def test_too_many_keys_for_a_table(
    store: Path, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SpooledCapture(store, "wide") as job:
        job.metadata({f"k{number}": number for number in range(9)})
        job.end()
    monkeypatch.setattr("logshipper_observe.formats.export_rows.MAX_COLUMNS", 8)
    for form in ("csv", "parquet"):
        code, _, err = export("wide", "--output", str(tmp_path / f"w.{form}"))
        assert code == 1
        assert "more than 8 keys are too many for a table; --format jsonl has them" in err
    assert export("wide", "--output", str(tmp_path / "w.jsonl"))[0] == 0


# ---- exact columns


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("0.1", True), ("1e-07", True), ("0.10000000000000001", True), ("0.1234567890123456789", False),
        ("9007199254740993", False), ("1e400", False), ("0.0", True), ("-0.0", True), ("1e-400", False),
        ("0.30000000000000004", True), ("0.99999999999999993", False), ("123456789012345678901234567890", False),
        ("0.0021601671513147600", True), ("0.10000000000000000000000000000", True),
    ],
)  # fmt: skip
def test_which_numbers_a_double_gives_back(text: str, exact: bool) -> None:
    assert is_exact(text) is exact


NUMBER = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=19, min_value=-9, max_value=9).map(
        lambda d: f"{d:f}"
    ),
    st.floats(0, 1).map(lambda value: f"{value:.17g}"),
)
VALUE = st.one_of(
    NUMBER,
    st.sampled_from(["null", "true", "false", "[1, 2]", '{"a": 1.0}', "{}", "-0", "0.10"]),
    st.text().map(json.dumps),
    st.text(alphabet=',":{} ab\\null').map(json.dumps),
)
RECORD = st.dictionaries(
    st.sampled_from(["loss", "epoch", "a b", 'q"', "ü", "x,y"]), VALUE, max_size=4
)
SHAPES = st.lists(st.tuples(RECORD, st.integers(1, 40)), min_size=1, max_size=4)


@given(SHAPES, st.sampled_from([": ", ":", " : "]), st.sampled_from([", ", ",", " , "]))
@example([({"loss": "0.5", "epoch": "1"}, 40), ({"epoch": "1", "loss": "0.5"}, 40)], ": ", ", ")
@example([({"loss": "0.0021601671513147600"}, 1)], ": ", ", ")
@example([({"loss": '"0.5"'}, 40), ({"loss": "0.5"}, 40)], ": ", ", ")
@example([({"loss": '"a\\", \\"epoch\\": 1"'}, 40), ({"loss": "1", "epoch": "2"}, 1)], ": ", ", ")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_columns_are_what_the_lines_hold(
    shapes: list[tuple[dict[str, str], int]], colon: str, comma: str
) -> None:
    """Columns are correct for each way to parse: equal shapes, several mixed shapes, or line by
    line."""
    lines = [
        "{"
        + comma.join(
            f"{json.dumps(key, ensure_ascii=False)}{colon}{value}" for key, value in record.items()
        )
        + "}"
        for record, times in shapes
        for _ in range(times)
    ]
    maker = ColumnMaker()
    for _ in range(2):  # the second time, the maker knows the shapes
        columns = maker.columns("\n".join(lines), len(lines))
        records = [flat(line) for line in lines]
        assert set(columns) == {path for row in records for path in row}
        for path, array in columns.items():
            for row, value in zip(records, array.to_pylist(), strict=True):
                assert is_printed_value(row.get(path), value, str(array.type)), (path, row, value)


def is_printed_value(text: str | None, value: Any, kind: str) -> bool:
    """Return whether a column's value equals the printed one."""
    if text is None or text == "null":
        return value is None
    if isinstance(value, bool):
        return text == json.dumps(value)
    if isinstance(value, int):
        return Decimal(text) == value
    if isinstance(value, float):
        return is_exact(text) and float(text) == value
    if kind == "large_string":
        return bool(text == value)
    return bool(value == (json.loads(text) if text.startswith('"') else text))


def test_blocks_of_many_kinds_become_one_file(
    store: Path, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns appear, disappear, and change their type from block to block."""
    importlib.import_module("logshipper_observe.formats.export_parquet")
    monkeypatch.setattr("logshipper_observe.formats.export_rows.BLOCK_ROWS", 5)
    values: list[Any] = [0, 1, 2.5, BIG, "x", True, None, 0.1]
    records = [
        {"n": at, "a": values[at // 10], **({"late": at} if at > 60 else {})} for at in range(80)
    ]
    with SpooledCapture(store, "many") as job:
        job.metadata(*records)
        job.end()
    assert export("many", "--output", str(tmp_path / "m.parquet"))[0] == 0
    rows = parquet_rows(tmp_path / "m.parquet")
    texts = [None if record["a"] is None else record["a"] if record["a"] == "x" else json.dumps(record["a"])
             for record in records]  # fmt: skip
    assert [(row["n"], row["a"], row["late"]) for row in rows] == [
        (at, texts[at], at if at > 60 else None) for at in range(80)
    ]


def test_blocks_of_records_are_the_records(store: Path) -> None:
    """Two captures have the same times; blocks have any size."""
    began_ns = time.time_ns() - 60 * NS
    for attempt in (1, 2):
        with SpooledCapture(store, "both", attempt, started_ns=began_ns) as job:
            job.metadata(*({"n": at, "attempt": attempt} for at in range(20)))
            job.end()
    with LocalStore(str(store)) as local:
        local.ingest()
        with local.open("both") as reader:
            records = [
                (record.time_ns, record.capture, record.attempt, record.line)
                for record in reader.records()
            ]
            assert len(records) == 40
            for rows in (1, 3, 40, 41, 1000):
                block_records = [
                    (time_ns, capture, block.attempts[capture], line)
                    for block in reader.record_blocks(rows)
                    for time_ns, capture, line in zip(
                        block.times, block.captures, block.text.split("\n"), strict=True
                    )
                ]
                assert block_records == records, rows


# ---- several jobs, files and folders


def test_a_folder_per_job_and_unknown_jobs_one_by_one(
    store: Path, export: Export, tmp_path: Path
) -> None:
    training(store, job_id="aaaaaa", name="one.py")
    training(store, job_id="bbbbbb", name="two.py")
    out_folder = tmp_path / "out"
    code, out, err = export(
        "nope", "aaaaaa", "nada", "two.py", "aaaaaa", "--output", f"{out_folder}/"
    )
    assert code == 1
    assert [line.split(":")[0] for line in err.splitlines()] == ["logshipper"] * 2
    assert "nope" in err.splitlines()[0]
    assert "nada" in err.splitlines()[1]
    files = sorted(
        str(path.relative_to(out_folder)) for path in out_folder.rglob("*") if path.is_file()
    )
    assert files == [
        f"{job}/{content}.csv" for job in ("aaaaaa", "bbbbbb") for content in ("logs", "metadata")
    ]
    assert len(out.splitlines()) == 4
    assert [row["epoch"] for row in rows_of(out_folder / "bbbbbb" / "metadata.csv")] == list(
        "12345"
    )


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_several_jobs_in_one_file(form: str, store: Path, export: Export, tmp_path: Path) -> None:
    training(store, job_id="aaaaaa", name="one.py", epochs=2)
    odd_job(store)
    path = tmp_path / f"both.{form}"
    assert export("aaaaaa", "odd", "--output", str(path)) == (
        0,
        f"Wrote {path}: 6 records of 2 jobs\n",
        "",
    )
    if form == "jsonl":
        jobs = [json.loads(line)["job_id"] for line in path.read_text().splitlines()]
    else:
        rows: list[dict[str, Any]] = (
            parquet_rows(path) if form == "parquet" else list(rows_of(path))
        )
        jobs = [row["_job_id"] for row in rows]
        assert [row["seed"] for row in rows][:3] == (
            [None, None, 7] if form == "parquet" else ["", "", "7"]
        )
    assert jobs == ["aaaaaa"] * 2 + ["odd"] * 4


def test_captures_of_a_job_are_told_apart(store: Path, export: Export, tmp_path: Path) -> None:
    for attempt in (1, 2):
        with SpooledCapture(store, "again", attempt) as job:
            job.metadata({"epoch": attempt})
            job.end()
    assert export("again", "--output", str(tmp_path / "a.csv"))[0] == 0
    assert {(row["_attempt"], row["epoch"]) for row in rows_of(tmp_path / "a.csv")} == {
        ("1", "1"),
        ("2", "2"),
    }


def test_files_that_are_there_stay_unless_forced(
    store: Path, export: Export, tmp_path: Path
) -> None:
    odd_job(store)
    path = tmp_path / "out.csv"
    path.write_text("mine")
    code, out, err = export("odd", "--output", str(path))
    assert (code, out, err) == (
        1,
        "",
        f"logshipper: --output: {path} is there already; --force replaces it\n",
    )
    assert path.read_text() == "mine"
    assert export("odd", "--output", str(path), "--force")[0] == 0
    assert len(rows_of(path)) == 4
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "store"]


def test_a_failure_leaves_no_half_file(
    store: Path, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_job(store)
    for form in ("csv", "parquet", "jsonl"):

        def full(self: Any, *args: Any) -> None:
            raise OSError(28, "No space left on device")

        module = (
            "logshipper_observe.formats.export_parquet"
            if form == "parquet"
            else "logshipper_observe.formats.export_text"
        )
        importlib.import_module(module)
        name = {"csv": "CsvWriter", "jsonl": "JsonlWriter", "parquet": "ParquetWriter"}[form]
        monkeypatch.setattr(getattr(sys.modules[module], name), "finish", full)
        code, _, err = export("odd", "--output", str(tmp_path / f"f.{form}"))
        assert (code, err) == (
            1, f"logshipper: --output: {tmp_path}/f.{form} can't be written: no space left on device\n",
        )  # fmt: skip
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "-"], "export writes files; `logshipper metadata --format csv`"),
        (["--output", "{tmp}/x.csv", "--what", "all"], "a file holds metadata or logs; {tmp}/x.csv/ is a folder"),
        (["--output", "/dev/null"], "/dev/null is no file"),
        (["--output", "/proc/none/x.csv"], "can't be made: "),
    ],
)  # fmt: skip
def test_outputs_that_cannot_be(
    words: list[str], message: str, store: Path, export: Export, tmp_path: Path
) -> None:
    odd_job(store)
    words = [word.format(tmp=tmp_path) for word in words]
    assert _code_and_words(export, "odd", *words)[0] == 1
    assert message.format(tmp=tmp_path) in _code_and_words(export, "odd", *words)[1]


def test_a_name_that_ends_in_another_format_is_refused(
    store: Path, export: Export, tmp_path: Path
) -> None:
    odd_job(store)
    for name in ("o.xml", "o.json", "o.csv.gz"):
        code, out, err = export("odd", "--output", str(tmp_path / name))
        assert (code, out, f"{name} ends in none of .csv, .tsv, .jsonl, .parquet" in err) == (
            2,
            "",
            True,
        )
        assert not (tmp_path / name).exists()
    for name, more in (("o", ()), ("lr0.1", ()), ("o.txt", ("--format", "tsv")), ("o.TSV", ())):
        assert export("odd", "--output", str(tmp_path / name), *more)[0] == 0
    assert "\t" in (tmp_path / "o.txt").read_text()
    assert "," in (tmp_path / "lr0.1").read_text()
    (tmp_path / "v1.out").mkdir()
    assert export("odd", "--output", str(tmp_path / "v1.out"))[0] == 0, "a folder that is there"


def _code_and_words(export: Export, *words: str) -> tuple[int, str]:
    code, _, err = export(*words)
    return code, err


def test_without_pyarrow_parquet_says_what_to_install(
    store: Path, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_job(store)
    for name in [
        name
        for name in sys.modules
        if name.startswith(
            (
                "logshipper_observe.formats.export_parquet",
                "logshipper_observe.formats.record_columns",
            )
        )
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = export("odd", "--output", str(tmp_path / "x.parquet"))
    assert (code, "pip install pyarrow" in err) == (1, True)
    assert export("odd", "--output", str(tmp_path / "x.csv"))[0] == 0


def test_json_tells_of_files_and_problems(store: Path, export: Export, tmp_path: Path) -> None:
    odd_job(store)
    path = tmp_path / "o.tsv"
    code, out, _ = export("odd", "nope", "--output", str(path), "--json")
    document = json.loads(out)
    assert (code, document["schema"], len(document["problems"])) == (1, "logshipper.export/1", 1)
    assert document["files"] == [
        {"path": str(path), "what": "metadata", "format": "tsv", "job_ids": ["odd"], "rows": 4,
         "bytes": path.stat().st_size},
    ]  # fmt: skip


# ---- Loki


def test_from_loki_the_same_files(
    loki: LokiServer, store: Path, export: Export, tmp_path: Path
) -> None:
    """The job has more rows than one answer of Loki holds."""
    with SpooledCapture(store, "export-loki") as job:
        job.metadata({"model": "mlp"}, *({"step": at, "loss": 1 / (1 + at)} for at in range(6000)))
        job.lines("a line", "another")
        job.end()
    push_spool(LokiClient(loki.url), store / "spool")
    place = ("--from", "loki", "--loki-url", loki.url)
    for form in ("csv", "jsonl", "parquet"):
        for source, options in (("loki", place), ("local", ())):
            code, _, err = export(
                "export-loki", "--format", form, "--output", f"{tmp_path}/{source}/", place=options
            )
            assert (code, err) == (0, "")
        for content in ("metadata", "logs"):
            paths = [
                tmp_path / source / "export-loki" / f"{content}.{form}"
                for source in ("loki", "local")
            ]
            rows = [[str(row) for row in parquet_rows(path)] if form == "parquet" else path.read_text().splitlines()
                    for path in paths]  # fmt: skip
            assert rows[0] == rows[1], (form, content)
            assert len(rows[0]) >= 6001
