"""`metadata --reread`, `plot --reread`: series in the stored lines of a job."""

import argparse
import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from logshipper.spool.segment import COPY, ORIGIN, Kind, Stream
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.commands import completers
from logshipper_observe.model import reread
from logshipper_observe.model.reread import RereadJob, SeriesSearch
from tests.logshipper.classify.series.test_corpus import FOLDER, LEAST_RECORDS, series_of
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, assert_spans, store

__all__ = ["ask", "store"]  # fixtures
STEPS = range(1, 9)


def _print_steps(job: SpooledCapture, stream: Stream = Stream.STDOUT) -> None:
    for step in STEPS:
        job.lines(f"step {step} loss: {1 / step:.3f}", stream=stream)


def _steps(output: str) -> list[int]:
    return [json.loads(line)["step"] for line in output.splitlines()]


@pytest.mark.parametrize("stream", [Stream.STDOUT, Stream.STDERR])
def test_records_have_the_times_of_their_lines(stream: Stream, store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        _print_steps(job, stream)
        job.end()
    code, output, errors = ask("metadata", "last", "--reread", "--json")
    assert (code, errors) == (0, "")
    documents = [json.loads(line) for line in output.splitlines()]
    assert [line["record"] for line in documents] == [
        {"step": step, "loss": float(f"{1 / step:.3f}")} for step in STEPS
    ]
    assert {(line["origin"], line["stream"]) for line in documents} == {
        ("auto", {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}[stream])
    }
    with LocalStore(str(store)) as local, local.open("k3f9x2") as reader:
        lines = list(reader.lines(streams=(stream,), kinds=(Kind.LOG,)))
        assert [line["time_ns"] for line in documents] == [line.time_ns for line in lines]
        assert list(reader.records()) == []  # nothing is stored


@pytest.mark.parametrize("program", ["lammps", "openfoam", "stable-baselines3", "transformers"])
def test_the_series_are_those_of_the_capture(program: str, store: Path, ask: Ask) -> None:
    path = FOLDER / f"{program}.txt.xz"
    with SpooledCapture(store) as job:
        job.lines(
            *(line.rstrip() for line in lzma.decompress(path.read_bytes()).decode().split("\n"))
        )
        job.end()
    code, output, _ = ask("metadata", "last", "--reread", "--format", "jsonl")
    assert code == 0
    counts = Counter(key for line in output.splitlines() for key in json.loads(line))
    assert {key for key, count in counts.items() if count >= LEAST_RECORDS} == series_of(path)


def test_all_forms_work_on_reread_records(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.metadata({"epoch": 1, "acc": 0.5})
        _print_steps(job)
        job.end()
    table = ask("metadata", "last", "--reread")[1]
    assert table.count(" auto ") == len(STEPS)
    assert table.index(" 0.5\n") < table.index("Found in the output") < table.index(" auto ")
    csv = ask("metadata", "last", "--reread", "--format", "csv", "--keys", "step,loss")[1]
    assert [line.split(",")[-2] for line in csv.splitlines()] == ["step (auto)", *map(str, STEPS)]
    summary = ask("metadata", "last", "--reread", "--summary", "--json")[1]
    assert [key["key"] for key in json.loads(summary)["keys"]] == [
        "acc",
        "epoch",
        "loss (auto)",
        "step (auto)",
    ]
    newest = ask("metadata", "last", "--reread", "--limit", "2", "--format", "jsonl")[1]
    assert _steps(newest) == [7, 8]
    graph = json.loads(ask("plot", "last", "--reread", "--y", "loss", "--json")[1])["graphs"][0]
    assert graph["series"][0]["x"] == list(STEPS)
    assert graph["x_axis"]["key"] == "step (auto)"
    code, output, _ = ask(
        "plot", "last", "last", "--reread", "--y", "loss", "--json", "--smooth", "0.5"
    )
    assert code == 0
    assert json.loads(output)["graphs"][0]["series"][0]["x"] == list(STEPS)


def test_stored_series_are_replaced_and_others_stay(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        for step in STEPS:
            job.lines(f"[main] step {step} loss: {1 / step:.3f}", f"lr=0.{step}, acc=0.{step}")
            copies = {"auto": {"step": step}, "pairs": {"lr": step / 10, "acc": step / 10}}
            for origin, record in copies.items():
                attrs = {0: {"n": 1, ORIGIN: origin, COPY: 1}}
                job.lines(json.dumps(record), kind=Kind.METADATA, attrs=attrs)
        job.end()
    output = ask("metadata", "last", "--reread", "--json")[1]
    documents = [json.loads(line) for line in output.splitlines()]
    assert Counter(line["origin"] for line in documents) == {
        "auto": len(STEPS),
        "pairs": len(STEPS),
    }
    assert all(
        line["record"].keys() == {"auto": {"step", "loss"}, "pairs": {"lr", "acc"}}[line["origin"]]
        for line in documents
    )


def test_a_job_without_stored_lines_says_so(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        attrs = {0: {"n": 1, ORIGIN: "auto", COPY: 1}}
        job.lines('{"step": 1}', kind=Kind.METADATA, attrs=attrs)
        job.end()
    code, output, errors = ask("metadata", "last", "--reread", "--format", "jsonl")
    assert (code, output) == (0, '{"step": 1}\n')
    assert "the store has no lines of its output (mode enabled)" in errors


def test_without_series_the_command_says_so(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.lines("hello", "done")
        job.end()
    code, _, errors = ask("plot", "last", "--reread")
    assert code == 1
    assert "train.py: no series in 2 lines of its output" in errors


def test_attempts_and_tasks_are_apart(store: Path, ask: Ask) -> None:
    """The lines of a shape must come from one stream."""
    for attempt in (1, 2):
        with SpooledCapture(store, attempt=attempt) as job:
            _print_steps(job)
            job.end()
    for task in range(3):
        with SpooledCapture(store, "other", task=task, suffix=str(task)) as job:
            job.lines(f"step {task} loss: 0.{task}")
            job.end()
    for attempt in (1, 2):
        output = ask(
            "metadata", "k3f9x2", "--reread", "--attempt", str(attempt), "--format", "jsonl"
        )[1]
        assert _steps(output) == list(STEPS)
    assert ask("metadata", "other", "--reread", "--format", "jsonl")[1] == ""


def test_colours_parts_and_notes_are_no_obstacle(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        for step in STEPS:
            job.lines(f"step {step} \x1b[31mloss: {1 / step:.3f}\x1b[m")
            job.lines("[repeated 3 times: step 5 loss: 7.5]", kind=Kind.NOTE)
        job.lines("step 9 loss: 0.5", attrs={0: {"part": "1"}})
        job.end()
    assert _steps(ask("metadata", "last", "--reread", "--format", "jsonl")[1]) == list(STEPS)


def test_limits_are_reported(store: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpooledCapture(store) as job:
        _print_steps(job)
        _print_steps(job, Stream.STDERR)
        job.end()
    monkeypatch.setattr(reread, "MAX_STREAMS", 1)
    code, output, errors = ask("metadata", "last", "--reread", "--format", "jsonl")
    assert (code, _steps(output)) == (0, list(STEPS))
    assert "1 stream left out" in errors
    monkeypatch.setattr(reread, "MAX_RECORDS", 4)
    code, output, errors = ask("metadata", "last", "--reread", "--format", "jsonl")
    assert (code, _steps(output)) == (0, [1, 2, 3, 4])
    assert "only the first 4 lines were read: a limit of 4 records" in errors


def test_a_search_reads_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, and with the lines of a running job that came meanwhile."""
    monkeypatch.setattr(reread, "_LOOK_LINES", 3)
    search = SeriesSearch()
    with SpooledCapture(store) as job, LocalStore(str(store)) as local:
        for turn in (1, 2):
            _print_steps(job)
            local.ingest()
            with local.open("k3f9x2") as reader:
                answers: list[bool] = []
                while not answers or not answers[-1]:
                    answers.append(search.read_on(reader, secs=0))
                assert len(answers) > 2
                again = RereadJob(reader, search)
                assert again.summary.records == len(search.records)
                assert_spans(again)
                found = "\n".join(record.line for record in again.records())
                assert _steps(found) == [*STEPS] * turn
        job.end()


def test_progress_and_completion(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread, "_LOOK_LINES", 3)
    with SpooledCapture(store) as job:
        _print_steps(job)
        job.end()
    calls = []
    with LocalStore(str(store)) as local:
        local.ingest()
        with local.open("k3f9x2") as reader:
            SeriesSearch().read_on(reader, progress=lambda *numbers: calls.append(numbers))
    assert calls == [(3, 8), (6, 8)]
    options = argparse.Namespace(store=str(store), jobs=["last"], reread=True)
    assert completers.keys("lo", options) == ["loss (auto)"]
    options.reread = False
    assert completers.keys("lo", options) == []
