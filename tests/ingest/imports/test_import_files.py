"""`import files`: output files become jobs like captured ones."""

import json
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logshipper.spool.segment import Stream
from logshipper.start.cli import main
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.stores.import_tools import Import, contents, store, take

IMPORTS = ("files", "--timezone", "UTC")
SECRET = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
STEPS = "".join(
    f"2026-11-20 10:{minute:02}:05,123 INFO step {minute}/40 loss: {1 / (minute + 1):.4f}\n"
    for minute in range(40)
)
__all__ = ["store", "take"]  # fixtures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9


def only(store: Path) -> dict[str, object]:
    (job,) = contents(store).values()
    return dict(job)


# ---- classes of lines


def test_a_file_gives_the_lines_and_records_of_a_captured_run(
    take: Import, store: Path, folder: Path, tmp_path: Path
) -> None:
    output = (
        '{"model": "mlp"}\n' + "same warning\n" * 9 + f"\n\n{STEPS}token {SECRET}\n"
        '/LOGCOMMAND {"mode":"disabled"}\nhidden\n/LOGCOMMAND {"mode":"enabled"}\n'
        "\x1b[31mred\x1b[0m\nbar 10%\rbar 90%\rbar 100%\nlast"
    )
    file = folder / "run.log"
    file.write_text(output)
    assert take(file)[0] == 0
    home = Home(tmp_path)
    program = f"import sys; sys.stdout.write(open({str(file)!r}).read())"
    assert home.run(sys.executable, "-c", program, options=("--name", "run")).returncode == 0
    with LocalStore(str(home.store)) as captured:
        captured.ingest()
    imported, run = contents(store)["run"], contents(home.store)["run"]
    assert imported["lines"] == run["lines"]
    assert imported["records"] == run["records"]
    assert len(imported["records"]) == 41
    assert not any(word in str(imported) for word in (SECRET, "hidden"))
    assert imported["summary"].origin == "files"


def test_all_lines_of_a_long_file_are_searched_for_series(
    take: Import, store: Path, folder: Path
) -> None:
    """A capture limits the CPU time for series; an import has none."""
    lines = 60_000
    text = "".join(f"step {step} loss: {step / 7:.4f} lr: 0.1\n" for step in range(lines))
    (folder / "run.log").write_text(text)
    take(folder)
    assert only(store)["summary"].records == lines  # type: ignore[attr-defined]


# ---- names and ids


@pytest.mark.parametrize(
    ("file", "options", "name", "job_id"),
    [
        ("slurm-4711.out", (), "slurm-4711", "4711"),
        ("slurm-4711_3.out", (), "slurm-4711_3", "4711_3"),
        ("train-big-4711.out", (), "train-big", "4711"),
        ("4711.out", (), "4711", "4711"),
        ("train.o4711", (), "train", "4711"),
        ("run.log", (), "run", "run"),
        ("my run (2).txt", (), "my run (2)", "my-run-2"),
        ("big_4711_3.log", ("--name-pattern", "%x_%A_%a.log"), "big", "4711_3"),
        ("4711-node1-big", ("--name-pattern", "%j-%N-%x"), "big", "4711"),
        ("run.log", ("--as", "sweep"), "sweep", "sweep-run"),
    ],
)
def test_name_and_id_come_from_the_file(
    take: Import, store: Path, folder: Path, file: str, options: tuple[str, ...], name: str, job_id: str
) -> None:  # fmt: skip
    (folder / file).write_text("text\n")
    assert take(folder / file, *options)[0] == 0
    summary = only(store)["summary"]
    assert (summary.name, summary.job_id) == (name, job_id)  # type: ignore[attr-defined]


def test_files_of_one_name_are_jobs_of_their_own(take: Import, store: Path, folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "run.log").write_text(f"{name}\n")
    take(folder)
    with LocalStore(str(store)) as local_store:
        assert {job.job_id for job in local_store.jobs()} == {"run", "b-run"}


@pytest.mark.parametrize("pattern", ["%q", "%x-%x", "run.log", "100%"])
def test_a_wrong_pattern_is_refused(take: Import, folder: Path, pattern: str) -> None:
    (folder / "run.log").write_text("text\n")
    code, _, err = take(folder, "--name-pattern", pattern)
    assert code == 2
    assert "--name-pattern" in err


# ---- times, states


def test_times_come_from_the_text(take: Import, store: Path, folder: Path) -> None:
    (folder / "run.log").write_text("begin\n" + STEPS + "end\n")
    take(folder)
    summary = only(store)["summary"]
    assert summary.started_ns == ns("2026-11-20 10:00:05")  # type: ignore[attr-defined]
    assert summary.ended_ns == ns("2026-11-20 10:39:05")  # type: ignore[attr-defined]
    with LocalStore(str(store)) as local_store, local_store.open("run") as reader:
        lines = reader.lines(streams=(Stream.STDOUT,))
        seconds = [line.time_ns // 10**9 * 10**9 for line in lines]
    assert seconds[0] == ns("2026-11-20 10:00:05")
    assert seconds[21] == ns("2026-11-20 10:20:05")
    assert seconds[-1] == ns("2026-11-20 10:39:05")


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("[2026-11-20T10:00:00Z] a", "2026-11-20 10:00:00"),
        ("2026-11-20T10:00:00.5+02:00 a", "2026-11-20 08:00:00"),
        ("INFO 2026/11/20 10:00:00 a", "2026-11-20 10:00:00"),
        ("Start: Fri Nov 20 10:00:00 UTC 2026", "2026-11-20 10:00:00"),
        ("Fri Nov  6 10:00:00 2026", "2026-11-06 10:00:00"),
    ],
)
def test_forms_of_timestamps(take: Import, store: Path, folder: Path, line: str, time: str) -> None:
    (folder / "run.log").write_text(line + "\n")
    take(folder)
    assert only(store)["summary"].started_ns == ns(time)  # type: ignore[attr-defined]


def test_without_timestamps_the_file_gives_the_end(take: Import, store: Path, folder: Path) -> None:
    text = (
        "version 2026-13-45 10:00:00\n" + "x" * 50 + " 2020-01-01 00:00:00 is no begin of a line\n"
    )
    (folder / "run.log").write_text(text)
    os.utime(folder / "run.log", ns=(0, ns("2026-11-01 12:00:00")))
    take(folder)
    assert only(store)["summary"].ended_ns == ns("2026-11-01 12:00:00")  # type: ignore[attr-defined]


TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\nValueError: bad\n'


@pytest.mark.parametrize(
    ("end", "state", "reason", "exit_code", "signo"),
    [
        ("slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-20T11:00:00 DUE TO TIME LIMIT ***",
         "TIMEOUT", "killed: time limit (Slurm)", None, 0),
        ("slurmstepd-n1: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-11-20T11:00:00 ***",
         "CANCELLED", "cancelled (Slurm)", None, 0),
        ("slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-20T11:00:00 DUE TO PREEMPTION ***",
         "PREEMPTED", "preempted (Slurm)", None, 0),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch.",
         "OUT_OF_MEMORY", "killed: out of memory (Slurm)", None, 0),
        ("srun: error: n1: task 0: Exited with exit code 2",
         "FAILED", "n1: task 0: Exited with exit code 2", 2, 0),
        ("srun: error: n1: tasks 0-3: Segmentation fault (core dumped)",
         "FAILED", "n1: tasks 0-3: Segmentation fault (core dumped)", None, 11),
        (TRACEBACK, "FAILED", "ValueError: bad", None, 0),
        ("".join(f"[rank0]: {line}\n" for line in TRACEBACK.splitlines())
         + "srun: error: n1: task 0: Exited with exit code 1",
         "FAILED", "ValueError: bad", 1, 0),
        (TRACEBACK + "retry\n" * 9, "UNKNOWN", "", None, 0),
        ("all went well", "UNKNOWN", "", None, 0),
    ],
)  # fmt: skip
def test_the_text_names_the_end(
    take: Import, store: Path, folder: Path, end: str, state: str, reason: str, exit_code: int | None, signo: int
) -> None:  # fmt: skip
    (folder / "run.log").write_text(f"{STEPS}{end}\n")
    take(folder)
    summary = only(store)["summary"]
    outcome = summary.state, summary.reason, summary.exit_code, summary.signal  # type: ignore[attr-defined]
    assert outcome == (state, reason, exit_code, signo)


SACCT = """#!/bin/sh
[ "$SLURM_TIME_FORMAT" = %s ] || exit 1
echo "$@" >> "$0.calls"
echo '4711|big|ann|CANCELLED by 1000|0:15|1800000000|1800000600|2|64|gpu|n[1-2]'
echo '4712|big|ann|RUNNING|0:0|1800000000|Unknown|2|64|gpu|n[1-2]'
"""


def test_sacct_knows_better(
    take: Import, store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sacct").write_text(SACCT)
    (folder / "sacct").chmod(0o755)
    for number in (4711, 4712, 4713):
        (folder / f"slurm-{number}.out").write_text("text\n")
    take(folder / "slurm-*.out")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    assert take(folder / "slurm-*.out", "--sacct")[:2] == (0, "0 new jobs, 3 known\n")
    with LocalStore(str(store)) as local_store:
        jobs = {job.job_id: job for job in local_store.jobs()}
    cancelled, running, other = jobs["4711"], jobs["4712"], jobs["4713"]
    assert (cancelled.state, cancelled.signal, cancelled.user) == ("CANCELLED", 15, "ann")
    assert (cancelled.started_ns, cancelled.ended_ns) == (1800000000 * 10**9, 1800000600 * 10**9)
    assert (cancelled.nodes, cancelled.cores, cancelled.partition) == (2, 64, "gpu")
    assert (running.state, running.ended_ns, other.state) == ("RUNNING", None, "UNKNOWN")
    assert (folder / "sacct.calls").read_text().count("\n") == 1, "one call for all jobs"


def test_without_sacct_the_option_is_refused(
    take: Import, store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "slurm-4711.out").write_text("text\n")
    monkeypatch.setenv("PATH", str(folder))
    code, _, err = take(folder, "--sacct")
    assert code == 2
    assert "leave out --sacct" in err


# ---- stderr


def test_a_stderr_file_joins_its_job(take: Import, store: Path, folder: Path) -> None:
    (folder / "big-4711.out").write_text(STEPS)
    (folder / "big-4711.err").write_text(f"2026-11-20 10:20:30 WARN slow\n{TRACEBACK}")
    take(folder)
    job = only(store)
    assert job["summary"].state == "FAILED"  # type: ignore[attr-defined]
    with LocalStore(str(store)) as local_store, local_store.open("4711") as reader:
        lines = list(reader.lines(streams=tuple(Stream)))
        err = [line.text for line in reader.lines(streams=(Stream.STDERR,))]
    assert [line.text for line in lines].index("2026-11-20 10:20:30 WARN slow") == 21, "by its time"
    assert err[-1] == "ValueError: bad"
    assert len(lines) == 45


def test_a_stderr_file_that_comes_later_joins_its_job(
    take: Import, store: Path, folder: Path
) -> None:
    (folder / "4711.out").write_text("out\n")
    take(folder)
    (folder / "4711.err").write_text("err\n")
    assert take(folder / "4711.err")[1] == "0 new jobs, 1 known\n"
    assert only(store)["lines"] == ["out", "err"]


def test_a_mode_of_stdout_counts_for_the_stderr_file(
    take: Import, store: Path, folder: Path
) -> None:
    """The files do not tell their common order, so the narrowest mode applies."""
    command = '/LOGCOMMAND {"mode":"%s"}\n'
    (folder / "4711.out").write_text(command % "disabled" + command % "enabled")
    (folder / "4711.err").write_text("hidden\n")
    take(folder)
    assert "hidden" not in str(only(store))


# ---- again


def test_again_adds_nothing(take: Import, store: Path, folder: Path) -> None:
    for number in range(5):
        (folder / f"slurm-{number}.out").write_text(STEPS)
    assert take(folder)[1] == "5 new jobs, 0 known\n"
    first = contents(store)
    files = {path: path.stat().st_mtime_ns for path in (store / "jobs").iterdir()}
    assert take(folder)[1] == "0 new jobs, 5 known\n"
    assert contents(store) == first
    assert {path: path.stat().st_mtime_ns for path in (store / "jobs").glob("*.db")} == {
        path: time for path, time in files.items() if path.suffix == ".db"
    }


@pytest.mark.parametrize("lines", [1, 7, 39])
def test_a_grown_file_appends(take: Import, store: Path, folder: Path, lines: int) -> None:
    text = '{"a": 1}\n' + STEPS + "".join(f"repeat\n{step}%\r" for step in range(9))
    head = "".join(text.splitlines(keepends=True)[:lines])
    (folder / "4711.out").write_text(head)
    (folder / "4711.err").write_text("first\n")
    take(folder)
    (folder / "4711.out").write_text(text)
    (folder / "4711.err").write_text("first\nsecond\n")
    assert take(folder)[1] == "0 new jobs, 1 known\n"
    grown = only(store)
    whole = folder.parent / "whole"
    assert main(["import", *IMPORTS, str(folder), "--store", str(whole)]) == 0
    expected = only(whole)
    assert sorted(grown["lines"]) == sorted(expected["lines"])  # type: ignore[call-overload]
    assert grown["records"] == expected["records"]
    assert grown["summary"].lines == expected["summary"].lines  # type: ignore[attr-defined]


def test_a_part_of_a_line_that_grew_is_a_line_of_its_own(
    take: Import, store: Path, folder: Path
) -> None:
    (folder / "run.log").write_text("one\ntw")
    take(folder)
    (folder / "run.log").write_text("one\ntwo\nthree\n")
    take(folder)
    assert only(store)["lines"] == ["one", "tw", "o", "three"]


@pytest.mark.parametrize(
    ("text", "words"), [("short\n", "became shorter"), ("other" * 400, "has another text")]
)
def test_a_replaced_file_is_a_new_job(
    take: Import, store: Path, folder: Path, text: str, words: str
) -> None:
    (folder / "run.log").write_text(STEPS[:1000])
    take(folder)
    (folder / "run.log").write_text(text)
    code, out, err = take(folder)
    assert (code, out) == (0, "1 new job, 0 known\n")
    assert words in err
    assert "run-2" in err
    assert take(folder)[1] == "0 new jobs, 1 known\n"
    with LocalStore(str(store)) as local_store:
        assert {job.job_id: job.lines for job in local_store.jobs()} == {
            "run": len(STEPS[:1000].splitlines()),
            "run-2": 1,
        }


def test_a_removed_job_stays_removed(take: Import, store: Path, folder: Path) -> None:
    (folder / "run.log").write_text("text\n")
    take(folder)
    assert main(["rm", "run", "--yes", "--store", str(store)]) == 0
    assert "removed" in take(folder)[2]
    assert take(folder, "--removed")[1].endswith("1 new job, 0 known\n")


def test_follow_imports_growing_files_until_interrupted(tmp_path: Path, folder: Path) -> None:
    home = Home(tmp_path)
    file = folder / "run.log"
    file.write_text("first\nunfinished")
    with home.start("import", *IMPORTS, str(folder), "--follow") as process:

        def lines() -> list[str]:
            if not (home.store / "catalogue.db").exists():
                return []
            return [str(line) for job in contents(home.store).values() for line in job["lines"]]

        wait_until(lambda: "first" in lines(), "the first line")
        assert "unfinished" not in lines(), "its rest may come"
        with file.open("a") as more:
            more.write(" line\nlast\n")
        (folder / "other.log").write_text("other\n")
        wait_until(lambda: {"unfinished line", "last", "other"} <= set(lines()), "grown files")
        with file.open("a") as more:
            more.write("rest")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert "rest" in lines()


# ---- faults


def test_unreadable_and_binary_files_are_named(take: Import, store: Path, folder: Path) -> None:
    (folder / "good.log").write_text("text\n")
    (folder / "data.bin").write_bytes(b"\x7fELF\0\0")
    (folder / "empty.log").touch()
    os.mkfifo(folder / "fifo")
    code, out, err = take(folder)
    assert (code, out) == (1, "1 new job, 0 known\n")
    assert "data.bin: is binary" in err
    assert "fifo" in err
    assert take(folder / "missing.log")[0] == 1


def test_utf_16_is_text(take: Import, store: Path, folder: Path) -> None:
    (folder / "run.log").write_text("caf\u00e9\n", encoding="utf-16")
    assert take(folder)[0] == 0
    assert only(store)["lines"] == ["caf\u00e9"]


def test_a_dry_run_imports_nothing(take: Import, store: Path, folder: Path) -> None:
    (folder / "big-4711.out").write_text(f"{STEPS}{TRACEBACK}")
    code, out, _ = take(folder, "--dry-run")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["4711", "big", "FAILED"]
    assert not store.exists()
    code, out, _ = take(folder, "--dry-run", "--json")
    document = json.loads(out)
    assert document["started"].startswith("2026-11-20T10:00:05")
    assert (document["id"], document["reason"]) == ("4711", "ValueError: bad")


def test_options_of_files_are_refused_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["import", "xt", str(folder), "--dry-run"])
    assert stop.value.code == 2
    assert "import files" in capsys.readouterr().err


# ---- like captured jobs


def test_files_are_listed_searched_and_plotted(
    take: Import, store: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "big-4711.out").write_text(STEPS)
    take(folder)

    def ask(*words: str) -> str:
        assert main([*words, "--store", str(store)]) == 0
        return capsys.readouterr().out

    assert "4711" in ask("ls", "--filter", "origin=files")
    assert "step 39/40" in ask("logs", "4711", "--grep", "step 39")
    assert "loss" in ask("plot", "4711")
    assert "output file" in ask("show", "4711")
