"""`import files` of many files: again, grown, killed, and among files that are no output."""

import gzip
import os
import random
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks.imports import KINDS
from logshipper.start.cli import main
from logshipper_ingest.imports.output_files import FilesSource
from tests.tools.sources import ROOT
from tests.tools.stores.import_tools import Import, contents, store, take
from tests.tools.stress import crashing
from tests.tools.waiting import scaled

IMPORTS = ("files", "--timezone", "UTC")
FILES = 25
END = "slurmstepd: error: *** JOB {} ON n1 CANCELLED AT 2025-11-20T12:00:00 DUE TO TIME LIMIT ***\n"
__all__ = ["store", "take"]  # fixtures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with output of all kinds, under Slurm's names."""
    dice = random.Random(1)
    folder = tmp_path / "logs"
    folder.mkdir()
    for number, make in zip(range(FILES), list(KINDS.values()) * FILES, strict=False):
        text = "".join(islice(make(), dice.randint(50, 300)))
        end = END.format(number) if number % 4 == 0 else ""
        (folder / f"slurm-{number}.out").write_text(text + end)
    return folder


def databases(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "jobs").glob("*.db")}


def test_again_adds_nothing_and_grown_files_add_their_new_lines(
    take: Import, store: Path, folder: Path
) -> None:
    assert take(folder)[1] == f"{FILES} new jobs, 0 known\n"
    before, first = contents(store), databases(store)
    assert len(before) == FILES
    assert before["slurm-0"]["summary"].state == "TIMEOUT"
    assert before["slurm-0"]["summary"].records > 40
    assert take(folder)[1] == f"0 new jobs, {FILES} known\n"
    assert databases(store) == first
    grown = [f"slurm-{number}" for number in range(1, 11)]
    for name in grown:
        with (folder / f"{name}.out").open("a") as file:
            file.write("one more line\n")
    assert take(folder)[1] == f"0 new jobs, {FILES} known\n"
    after, second = contents(store), databases(store)
    for name, job in after.items():
        more = ["one more line"] if name in grown else []
        assert job["lines"] == before[name]["lines"] + more
        assert job["records"] == before[name]["records"]
    changed = {name for name in first if second[name] != first[name]}
    assert changed == {f"{name.removeprefix('slurm-')}.db" for name in grown}


@pytest.mark.parametrize(
    ("point", "times"),
    [("import_written", 3), ("import_committed", 2), ("imports_synced", 1), ("import_named", 9)],
)
def test_a_killed_import_is_repeated(
    store: Path, folder: Path, tmp_path: Path, point: str, times: int
) -> None:
    """The first two points are in a process that renders, the others in the main one."""
    words = ("import", *IMPORTS, str(folder), "--store", str(store))
    command = crashing.command(point, times, tmp_path / "flag", "logshipper", *words)
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=scaled(60))
    assert killed.returncode != 0
    assert main(["import", *IMPORTS, str(folder), "--store", str(store)]) == 0
    whole = tmp_path / "whole"
    assert main(["import", *IMPORTS, str(folder), "--store", str(whole)]) == 0
    assert contents(store) == contents(whole)


def test_a_file_that_grows_meanwhile_loses_and_doubles_no_line(
    take: Import, store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "slurm-0.out"
    lines = file.read_text().splitlines()
    describe = FilesSource._describe

    def grow(source: FilesSource, *values: Any) -> None:  # Any: passed on
        describe(source, *values)
        with file.open("a") as more:
            more.write(f"late {len(file.read_text())}\n")

    monkeypatch.setattr(FilesSource, "_describe", grow)
    for _ in range(3):
        take(file)
    monkeypatch.undo()
    take(file)
    (job,) = contents(store).values()
    assert [line for line in job["lines"] if "late" not in line] == lines
    assert job["lines"] == file.read_text().splitlines()


def test_files_that_are_no_output_are_named(take: Import, store: Path, folder: Path) -> None:
    (folder / "old.out.gz").write_bytes(gzip.compress(b"text\n"))
    (folder / "model.pt").write_bytes(b"PK\3\4\0\0")
    (folder / "empty.out").touch()
    (folder / "self").symlink_to("self")
    (folder / "up").symlink_to("..")
    (folder / "my run\n2.log").write_text("text\n")
    code, out, err = take(folder)
    assert (code, out) == (1, f"{FILES + 1} new jobs, 0 known\n")
    assert "old.out.gz: is compressed: unpack it by `gunzip` first" in err
    assert "model.pt: is binary" in err
    assert "self: is a link" in err
    assert "empty" not in err
    assert contents(store)["my run\n2"]["summary"].job_id == "my-run-2"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(take: Import, folder: Path) -> None:
    (folder / "slurm-3.out").chmod(0)
    code, out, err = take(folder)
    assert (code, out) == (1, f"{FILES - 1} new jobs, 0 known\n")
    assert "slurm-3.out: " in err
