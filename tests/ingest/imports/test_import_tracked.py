"""`import csv`, `tensorboard` and `wandb`: runs written by their own libraries
(tests/imports/make_tracked.py) become jobs with records."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.segment import Stream
from logshipper.start.cli import main
from logshipper_ingest.imports.protobuf_fields import BrokenMessage, message
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import Overlay
from tests.tools.stores.import_tools import RECORDED, contents, store

TRACKED = RECORDED / "tracked"
WANDB_RUN = TRACKED / "run-abcd1234.wandb"
__all__ = ["store"]  # a fixture


def take(store: Path, system: str, *words: str | Path) -> int:
    return main(["import", system, *map(str, words), "--timezone", "UTC", "--store", str(store)])


def records(job: dict[str, Any]) -> list[Any]:  # Any: JSON
    return [json.loads(line, parse_constant=pytest.fail) for line in job["records"]]


# ---- CSV


def test_columns_become_records(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_text(
        "step,Timestamp,loss,note,acc\n1,2026-11-20 10:00:00,0.50,first,\n2,2026-11-20 10:01:00,nan,,1e-3\n"
    )
    assert take(store, "csv", file) == 0
    job = contents(store)["results"]
    assert job["records"] == [
        '{"step": 1, "loss": 0.50, "note": "first"}',
        '{"step": 2, "loss": null, "acc": 1e-3}',
    ]
    summary = job["summary"]
    assert (summary.job_id, summary.origin, summary.state) == ("results", "csv", "UNKNOWN")
    assert summary.ended_ns - summary.started_ns == 60 * 10**9
    with LocalStore(str(store)) as local_store, local_store.open("results") as reader:
        assert reader.x_axis().key == "step"


@pytest.mark.parametrize("time", ["1790000000", "1790000000.5", "1790000000500"])
def test_a_column_of_seconds_is_a_time(store: Path, tmp_path: Path, time: str) -> None:
    (tmp_path / "a.csv").write_text(f"time,loss\n{time},1\n")
    take(store, "csv", tmp_path / "a.csv")
    job = contents(store)["a"]
    assert job["records"] == ['{"loss": 1}']
    assert job["summary"].started_ns // 10**9 == 1_790_000_000


def test_a_column_of_elapsed_time_stays_a_value(store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,loss\n12.5,1\n")
    take(store, "csv", tmp_path)
    assert contents(store)["a"]["records"] == ['{"time": 12.5, "loss": 1}']


def test_a_grown_table_adds_its_rows(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("step,loss\n" + "".join(f"{step},{step}\n" for step in range(12_000)))
    assert take(store, "csv", file) == 0
    assert take(store, "csv", file) == 0
    assert len(contents(store)["a"]["records"]) == 12_000
    with file.open("a") as more:
        more.write("12000,1\nbroken\n")
    assert take(store, "csv", file) == 1
    assert f"{file}:12003" in capsys.readouterr().err
    assert [record["step"] for record in records(contents(store)["a"])] == list(range(12_001))


# ---- TensorBoard


def test_scalars_of_a_step_are_a_record(store: Path) -> None:
    assert take(store, "tensorboard", TRACKED / "tensorboard") == 0
    jobs = contents(store)
    assert records(jobs["mlp"]) == [
        {"step": 1, "train/loss": 1.0, "train/acc": 0.0},
        {"step": 2, "train/loss": 0.5, "train/acc": 0.5},
        {"step": 3, "train/loss": 0.33333334, "train/acc": 0.6666667},
        {"step": 4, "train/loss": 0.25, "train/acc": 0.75},
        {"step": 5, "train/loss": 0.2, "train/acc": 0.8, "val/loss": None},
    ]
    summary = jobs["mlp"]["summary"]
    assert (summary.started_ns, summary.ended_ns) == (1_790_000_001_500_000_000, 1_790_000_006_000_000_000)  # fmt: skip
    assert jobs["mlp"]["lines"] == ["note, step 0: first try"]
    hparams = {"lr": 0.1, "optimizer": "adam", "nesterov": True}
    assert jobs["hp"]["details"]["hparams"] == hparams


def test_a_file_that_is_still_written_grows(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "tb" / "mlp"
    shutil.copytree(TRACKED / "tensorboard" / "mlp", run)
    (file,) = run.glob("events*")
    whole = file.read_bytes()
    for size in (len(whole) // 2, len(whole) - 5, len(whole)):
        file.write_bytes(whole[:size])
        assert take(store, "tensorboard", run) == 0
    assert [record["step"] for record in records(contents(store)["mlp"])][:4] == [1, 2, 3, 4]


def test_a_file_of_another_kind_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"\4\0\0\0\0\0\0\0crc1\xff\xff\xff\xffcrc2")
    (tmp_path / "run-x.wandb").write_text("no file of wandb")
    assert take(store, "tensorboard", tmp_path) == 1
    assert "events.out.tfevents.1: is damaged" in capsys.readouterr().err
    assert take(store, "wandb", tmp_path) == 1
    assert "run-x.wandb: is no file of wandb" in capsys.readouterr().err
    assert take(store, "tensorboard", tmp_path / "missing") == 1


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x09abc", b"\x0b", b"\xff" * 20])
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(BrokenMessage):
        message(data)


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def test_scalars_as_tensors(store: Path, tmp_path: Path) -> None:
    """TensorFlow 2 writes scalars so."""
    tensor = b"\x08\x01" + field(5, struct.pack("<f", 0.1))
    plugin = field(9, field(1, field(1, b"scalars")))
    value = field(1, b"loss") + field(8, tensor) + plugin
    event = b"\x09" + struct.pack("<d", 1_790_000_000.5) + b"\x10\x07" + field(5, field(1, value))
    path = tmp_path / "tf" / "events.out.tfevents.1"
    path.parent.mkdir()
    path.write_bytes(struct.pack("<Q", len(event)) + b"crc1" + event + b"crc2")
    assert take(store, "tensorboard", tmp_path) == 0
    assert contents(store)["tf"]["records"] == ['{"step": 7, "loss": 0.1}']


# ---- wandb


def test_a_run_of_wandb(store: Path) -> None:
    assert take(store, "wandb", TRACKED) == 0
    job = contents(store)["mlp-1"]
    assert records(job) == [
        *({"step": n, "epoch": n, "loss": 1 / (n + 1), "val.acc": n / 5} for n in range(5)),
        {"step": 5, "loss": None, "table": [1, 2]},
    ]
    summary, details = job["summary"], job["details"]
    assert (summary.job_id, summary.state, summary.exit_code) == ("run-abcd1234", "COMPLETED", 0)
    assert details["config"] == {"lr": 0.1, "layers": [3, 4], "optimizer": {"name": "adam"}}
    assert (details["project"], details["summary"]["best"]) == ("mnist", 0.2)
    assert job["lines"] == [*(f"epoch {n}" for n in range(5)), "bad"]
    with LocalStore(str(store)) as local_store:
        with local_store.open("run-abcd1234") as reader:
            assert [line.text for line in reader.lines(streams=(Stream.STDERR,))] == ["bad"]
        marks = Overlay.of_local(local_store).of(JobKey("run-abcd1234"))
    assert (list(marks.tags), marks.note) == (["first"], "a try")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_run_that_goes_on(store: Path, tmp_path: Path, share: float) -> None:
    """A file cut at any byte and a later import give the same as a single import."""
    file = tmp_path / WANDB_RUN.name
    whole = WANDB_RUN.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    assert take(store, "wandb", file) == 0
    file.write_bytes(whole)
    assert take(store, "wandb", file) == 0
    grown = contents(store)["mlp-1"]
    shutil.rmtree(store)
    take(store, "wandb", file)
    once = contents(store)["mlp-1"]
    assert [grown[name] for name in ("records", "details")] == [
        once[name] for name in ("records", "details")
    ]
    assert "".join(grown["lines"]) == "".join(once["lines"])


def test_old_and_new_runs_share_a_graph(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_text("".join(f"epoch {n} loss: {1 / (n + 2)}\n" for n in range(5)))
    take(store, "wandb", TRACKED)
    take(store, "files", tmp_path / "run.log")
    capsys.readouterr()
    assert (
        main(["plot", "run-abcd1234", "run", "--y", "loss", "--json", "--store", str(store)]) == 0
    )
    out = capsys.readouterr().out
    assert "mlp-1" in out
    assert '"run' in out
