"""Importers with hostile input: values that no store can hold, and files that change their
identity."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper.start.cli import main
from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.plain_json import MAX_DEPTH
from logshipper_ingest.imports.source_file import SourceFile, Unreadable
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.import_tools import contents, store

__all__ = ["store"]  # fixture
Json = Any  # Any: JSON
XT = '{"time": "2026-01-01T00:00:00+00:00", "event": "hparams", "data": {"a": %s}}'
QCG = '{"task": "a", "state": "SUCCEED", "x": %s}'
JOB = '{"id": 1, "workdir": "a", "state": "RUNNING", "last_update": "2026-01-01", "parameters": %s}'
EVENT = ('{"job_id": 1, "from_state": "PREPROCESSED", "to_state": "RUNNING", "timestamp": "2026-01-01",'
         ' "data": {"num_nodes": %s}}')  # fmt: skip
ENTRIES = {"run.log": ("xt", XT), "track.states": ("qcg", QCG), "jobs.jsonl": ("balsam", JOB),
           "events.jsonl": ("balsam", EVENT)}  # fmt: skip
VALUES = {
    "10 ** 30": "1" + 30 * "0", "not finite": "1e999", "no number": "NaN", "a surrogate": r'"\ud800"',
    "a name that is one": r'{"\udfff": 1}', "a small weight": "1e-300", "a large one": "1e300",
    "as deep as may be": "[" * (MAX_DEPTH - 3) + "]" * (MAX_DEPTH - 3),
    "controls": r'"\u0000\u001b[2J\n\u2028"', "a year": '"9999-12-31T23:59:59"',
}  # fmt: skip


def take(store: Path, system: str, path: Path) -> int:
    return main(["import", system, str(path), "--store", str(store)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("value", VALUES)
def test_values_that_a_store_cannot_hold(store: Path, run: Path, name: str, value: str) -> None:
    system, entry = ENTRIES[name]
    (run / name).write_text(entry % VALUES[value] + "\n")
    assert take(store, system, run) == 0
    (job,) = contents(store).values()  # every part of it is readable
    assert job["summary"].packing >= 1


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("depth", [MAX_DEPTH, 300, 900, 100_000])
def test_what_is_nested_deeply_is_left_out(store: Path, run: Path, name: str, depth: int) -> None:
    system, entry = ENTRIES[name]
    (run / name).write_text(f"{entry % ('[' * depth + ']' * depth)}\n{entry % 1}\n")
    assert take(store, system, run) == 1
    assert len(contents(store)) == 1


def test_what_python_prints_may_be_no_json(store: Path, run: Path) -> None:
    job = {"id": 1, "workdir": "a", "state": "RUNNING", "last_update": "2026-01-01",
           "parameters": {1: {2}, b"x": b"y", "z": 1j}}  # fmt: skip
    (run / "jobs.jsonl").write_text(f"{job}\n")
    assert take(store, "balsam", run) == 0
    assert contents(store)["a"]["details"]["parameters"] == {"1": [2], "b'x'": "b'y'", "z": "1j"}


# ---- files


@pytest.fixture
def few_files() -> Iterator[None]:
    """Lower the limit of open files to 40 more than now, so that a leak fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_more_files_than_may_be_open(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(60):
        folder = tmp_path / "runs" / f"run{number}" / "output"
        folder.mkdir(parents=True)
        (folder / "console.txt").write_text("one\n")
        (folder.parent / "run.log").write_text(XT % number + "\n")
    assert take(store, "xt", tmp_path / "runs") == 0
    assert capfd.readouterr().out == "60 entries: 60 new jobs, 0 known\n"


def test_a_file_that_is_found_and_cannot_be_read_is_said_once(
    store: Path, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, (system, entry) in ENTRIES.items():
        good, bad = run / system / "good", run / system / "bad"
        good.mkdir(parents=True, exist_ok=True)
        bad.mkdir(exist_ok=True)
        (good / name).write_text(entry % 1 + "\n")
        (bad / name).symlink_to(good / name)
    for system, folder in (
        ("xt", run / "xt"),
        ("qcg", run / "qcg"),
        ("balsam", run / "balsam" / "bad"),
    ):
        for inner in ("good", "bad"):
            if system == "qcg":
                (folder / inner).rename(folder / f".qcgpjm-service-{inner}")
        links = len([path for path in folder.rglob("*") if path.is_symlink()])
        assert take(store, system, folder) == 1
        assert capfd.readouterr().err.count("link") == links


def lines(file: SourceFile) -> list[bytes]:
    return [line.text for line in file.lines(last=False)]


def test_a_file_that_another_takes_the_place_of(tmp_path: Path) -> None:
    """The importer reads a replaced file from its begin, but continues a longer copy of its
    content."""
    messages: list[str] = []
    path, successor = tmp_path / "a", tmp_path / "b"
    path.write_text("one\ntw")
    file = SourceFile(str(path), Faults(messages.append))
    assert lines(file) == [b"one"]
    successor.write_text("one\ntwo\nthree\n")
    successor.rename(path)
    assert (lines(file), messages) == ([b"two", b"three"], [])
    path.write_text("ONE\nTWO\nTHREE\nFOUR\n")
    assert lines(file) == [b"ONE", b"TWO", b"THREE", b"FOUR"]
    assert messages == [f"{path}: is another file: it is read again"]
    os.truncate(path, 4)
    assert lines(file) == [b"ONE"]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Unreadable, match="isn't a file"):
        lines(file)
    path.unlink()
    with pytest.raises(Unreadable):
        lines(file)


def test_followed_files_that_go_and_come(store: Path, run: Path) -> None:
    """The log of a run is copied again and again, and is missing for a while."""
    log = run / "run.log"
    start_event = json.dumps({"time": "2026-01-01T00:00:00+00:00", "event": "started", "data": {}})
    end_event = start_event.replace("started", "ended").replace("{}", '{"status": "completed"}')
    log.write_text(start_event + "\n")
    command = [
        sys.executable,
        "-m",
        "logshipper",
        "import",
        "xt",
        str(run),
        "--follow",
        "--store",
        str(store),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            wait_until(
                lambda: (store / "catalogue.db").exists() and contents(store),
                "its begin is imported",
            )
            log.unlink()
            assert "no such file" in process.stderr.readline().lower()
            (run / "new").write_text(f"{start_event}\n{end_event}\n")
            (run / "new").rename(log)
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode == 1  # since the log was missing
    assert contents(store)["run"]["summary"].state == "COMPLETED"
