"""`metadata --try FILE`, and hints for jobs whose lines would have given metadata."""

import json
from pathlib import Path

import pytest

from logshipper import config
from logshipper.spool.segment import Stream
from logshipper.start.cli import main
from logshipper_observe.commands.reading import metadata_trial
from logshipper_observe.model import line_trial
from tests.tools.stores.reading_store import SpooledCapture

PRINTED = (
    "start\n{'loss': 0.5}\r\n{\"epoch\": 1}\nbar 1\rbar 2\nloss is 0.30\n"
    "step=5 loss=0.4\nEpoch 1/3\n16/16 - 0s - loss: 0.4000\nend: 0.5"
)
TAKEN = [
    (2, "dict", {"loss": 0.5}),
    (3, "json", {"epoch": 1}),
    (6, "pairs", {"step": 5, "loss": 0.4}),
    (8, "keras", {"epoch": 1, "loss": 0.4}),
    (9, "pairs", {"end": 0.5}),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "slurm-4711.out"
    path.write_text(PRINTED, newline="")
    return path


def _documents(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["metadata", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_documents(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *records, summary = _documents(capsys, "--try", str(file))
    assert [(line["line"], line["origin"], line["record"]) for line in records] == TAKEN
    assert summary == {
        "schema": metadata_trial.SCHEMA,
        "lines": 9,
        "counts": {"pairs": 2, "dict": 1, "json": 1, "keras": 1},
        "switched_off": [],
        "logoptin": "metadata: [json, dict, pairs]",
        "shapes": [],
    }


@pytest.mark.parametrize("step", [1, 5, 64])
def test_how_the_file_is_read_makes_no_difference(
    step: int, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_trial, "STEP_BYTES", step)
    *records, _ = _documents(capsys, "--try", str(file))
    assert [(line["line"], line["origin"], line["record"]) for line in records] == TAKEN


def test_the_readers_own_corrections_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "out"
    file.write_text("".join(f"step {n} lm loss: 0.{n} time: 1.{n}\n" for n in range(1, 5)))
    (tmp_path / ".logoptin").write_text("ignore: ['time*']\nrename: {lm loss: loss}\n")
    *records, _ = _documents(capsys, "--try", str(file))
    assert [line["record"] for line in records] == [
        {"step": n, "loss": n / 10} for n in range(1, 5)
    ]
    (tmp_path / ".logoptin").write_text("ignore: time\n")
    assert main(["metadata", "--try", str(file)]) == 1
    assert "~/.logoptin: ignore: `time` is no list; write" in capsys.readouterr().err


def test_the_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metadata", "--try", str(file), "--limit", "2"]) == 0
    assert capsys.readouterr().out == (
        "line  origin  record\n"
        '   2  dict    {"loss": 0.5}\n'
        '   3  json    {"epoch": 1}\n'
        "The first 2 of 5 records: --json has all\n"
        "5 records of 9 lines: pairs 2, dict 1, json 1, keras 1\n"
        "In ~/.logoptin: metadata: [json, dict, pairs]\n"
    )
    file.write_text("nothing\n")
    assert main(["metadata", "--try", str(file)]) == 0
    assert capsys.readouterr().out == "None of 1 line would be a record.\n"


def test_the_shapes_of_series(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, a block, a table and a bar."""
    text = ""
    for number in range(1, 5):
        text += f"Time = {number}\nenergy: {number}.5 eV, force: 0.{number}\n"
    text += "Step Temp Press\n" + "".join(f"{step} 1.{step} 2.{step}\n" for step in range(1, 4))
    text += "".join(
        f"train: {25 * part}%|####      | {part}/4 [00:0{part}<00:03, 1.0it/s, loss=0.{part}]\n"
        for part in range(1, 4)
    )
    text += "".join(f"iteration {number} lm loss: 0.{number}\n" for number in range(1, 6))
    file.write_text(text)
    *records, summary = _documents(capsys, "--try", str(file))
    assert {line["origin"] for line in records} == {"auto"}
    assert summary["shapes"] == [
        {
            "name": "iteration # lm loss: #",
            "kind": "line",
            "lines": 5,
            "keys": ["iteration", "lm loss"],
            "example": "iteration 1 lm loss: 0.1",
        },
        {
            "name": "Time = #",
            "kind": "block",
            "lines": 4,
            "keys": ["Time", "energy", "force"],
            "example": "Time = 1",
        },
        {
            "name": "energy: # eV, force: #",
            "kind": "line",
            "lines": 4,
            "keys": ["energy", "force"],
            "example": "energy: 1.5 eV, force: 0.1",
        },
        {
            "name": "Step Temp Press",
            "kind": "table",
            "lines": 3,
            "keys": ["Step", "Temp", "Press"],
            "example": "1 1.1 2.1",
        },
        {
            "name": "count=# loss=#",
            "kind": "bar",
            "lines": 3,
            "keys": ["count", "loss"],
            "example": "train: 25%|####      | 1/4 [00:01<00:03, 1.0it/s, loss=0.1]",
        },
    ]
    assert main(["metadata", "--try", str(file)]) == 0
    table = capsys.readouterr().out.partition("\nSeries  10 keys\n")[2].splitlines()
    assert table[0].split() == ["shape", "kind", "lines", "example"]
    assert table[1] == "iteration # lm loss: #  line       5  iteration 1 lm loss: 0.1"
    assert len(table) == 6


def test_kinds_and_patterns_of_ones_own(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """~/.logoptin accepts the line that the command prints for it."""
    pattern = "loss is (?P<loss>[0-9.]+)(?:'s)?"
    *records, summary = _documents(
        capsys, "--try", str(file), "--kinds", "dict", "--pattern", pattern
    )
    assert [line["origin"] for line in records] == ["dict", "json", "pattern1"]
    assert config.parse(str(summary["logoptin"]).encode(), "f").metadata == (
        "json",
        "dict",
        config.MetadataPattern("pattern1", pattern),
    )


def test_a_pattern_that_is_switched_off_is_said(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("1" * 2000 + "\n")
    slow = "(?P<a>[0-9]*)[0-9]*[0-9]*[0-9]*[0-9]*x"
    assert _documents(capsys, "--try", str(file), "--pattern", slow)[-1]["switched_off"] == [
        "pattern1"
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "--try", "x"], "leave out JOB and --reread"),
        (["--reread", "--try", "x"], "leave out JOB and --reread"),
        (["last", "--kinds", "dict"], "are for --try FILE"),
        (["--try", "x", "--format", "csv"], "no other form"),
        (["--try", "x", "--kinds", "dicts"], "is no kind of metadata; there are json, dict"),
        (["--try", "x", "--pattern", "(?P<a>(a+)+)"], "repeats what is itself repeated"),
        (["--try", "x", *["--pattern", "(?P<a>5)"] * 9], "9 patterns; 8 is the limit"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["metadata", *words])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_that_isnt_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metadata", "--try", "/no/such/file"]) == 1
    assert "/no/such/file" in capsys.readouterr().err


# ---- jobs without records


def _store(tmp_path: Path, *lines: str, **record: int) -> str:
    with SpooledCapture(tmp_path) as job:
        job.lines("start", *lines)
        if record:
            job.metadata(record)
        job.end()
    return str(tmp_path)


def test_a_job_without_records_says_what_would_have_been_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _store(tmp_path, "{'loss': 0.5}", "{'loss': 0.4}", "loss: 0.5")
    assert main(["show", "last", "--store", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata_hint"] == {
        "lines": 4,
        "counts": {"dict": 2, "pairs": 1},
        "logoptin": "metadata: [json, dict, pairs]",
        "stream": "stdout",
        "series": 0,
    }
    for command in ("show", "metadata"):
        assert main([command, "last", "--store", store]) == 0
        output = "".join(capsys.readouterr())
        assert "first 4 lines of stdout some would be records (2 dict, 1 pairs)" in output
        assert "`metadata: [json, dict, pairs]`" in output


@pytest.mark.parametrize("stream", [Stream.STDOUT, Stream.STDERR])
def test_a_hint_counts_series(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SpooledCapture(tmp_path) as job:
        for number in range(1, 6):
            job.lines(f"iteration {number} lm loss: 0.{number} | lr: 0.{number}", stream=stream)
        job.end()
    name = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}[stream]
    assert main(["show", "last", "--store", str(tmp_path)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert f"first 5 lines of {name} some would be records (5 auto with 3 series)" in output
    assert "`metadata: [json, auto]` in ~/.logoptin would take them" in output
    assert "`logshipper metadata k3f9x2 --reread` shows the series" in output


@pytest.mark.parametrize(
    ("lines", "record"),
    [(["loss: 0.5", "loss: 0.4"], {}), (["loss: 0.5"] * 5, {"epoch": 1}), (["nothing"] * 5, {})],
)
def test_others_say_nothing_of_it(
    lines: list[str], record: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few matching lines may be chance."""
    store = _store(tmp_path, *lines, **record)
    assert main(["show", "last", "--store", store, "--json"]) == 0
    assert "metadata_hint" not in json.loads(capsys.readouterr().out)


def test_only_so_many_lines_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_trial, "HINT_LINES", 3)
    store = _store(tmp_path, "a", "b", "loss: 0.5", "loss: 0.4", "loss: 0.3")
    assert main(["show", "last", "--store", store, "--json"]) == 0
    assert "metadata_hint" not in json.loads(capsys.readouterr().out)
