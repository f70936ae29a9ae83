"""Every reading command on real stores, into a pipe: formats, exit codes, bad input."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from logshipper.spool.segment import Kind
from logshipper.start.cli import main
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import ROOT, SOURCES
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store, training
from tests.tools.waiting import scaled

DEADLINE_SECS = scaled(30.0)
ESCAPE = "\x1b"
BOX = "─│┌┐└┘━┃╭╮╰╯"

__all__ = ["ask", "store"]  # fixtures


def ok(answer: tuple[int, str, str]) -> str:
    code, out, err = answer
    assert (code, err) == (0, "")
    return out


def command(store: Path, *words: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start the command line in a process of its own. options: of Popen."""
    environment = {**os.environ, "LOGSHIPPER_STORE": str(store), "PYTHONPATH": SOURCES}
    return subprocess.Popen(
        [sys.executable, "-m", "logshipper", *words], env=environment, **options
    )


# ---- ls


def test_ls_lists_newest_first(store: Path, ask: Ask) -> None:
    began = time.time_ns()
    for age, job_id, name in (
        (300, "aaaaaa", "old"),
        (20, "bbbbbb", "new"),
        (100, "cccccc", "between"),
    ):
        training(store, job_id=job_id, name=name, started_ns=began - age * NS)
    out = ok(ask("ls"))
    header, *rows = out.splitlines()
    assert header.split() == [
        "id",
        "state",
        "exit",
        "started",
        "took",
        "lines",
        "records",
        "lost",
        "name",
    ]
    assert [row.split()[0] for row in rows] == ["bbbbbb", "cccccc", "aaaaaa"]
    assert rows[0].split()[1:3] == ["COMPLETED", "0"]
    assert rows[0].split()[5:] == ["8", "5", "0", "new"]
    assert not any(mark in out for mark in (ESCAPE, "\t", *BOX))


def test_ls_filters_and_limits(store: Path, ask: Ask) -> None:
    for number in range(25):
        with SpooledCapture(
            store, f"job{number:02}", name=f"train{number}.py", started_ns=NS * (1000 + number)
        ) as job:
            job.lines("x")
            job.end(number % 3)
    with LocalStore(str(store), create=True) as local_store:
        local_store.ingest()
    code, out, err = ask("ls")
    assert code == 0
    assert len(out.splitlines()) == 11
    assert err == "logshipper: 15 older jobs left out: --all shows them\n"
    assert len(ok(ask("ls", "--all")).splitlines()) == 26
    assert (
        ok(ask("ls", "--name", "train1?.py", "--state", "completed")).splitlines()[-1].split()[0]
        == "job12"
    )
    assert {
        row.split()[1] for row in ok(ask("ls", "--state", "failed", "--all")).splitlines()[1:]
    } == {"FAILED"}
    assert len(ok(ask("ls", "--name", "RAIN7")).splitlines()) == 2
    code, out, err = ask("ls", "--name", "nothing")
    assert (code, out, err) == (0, "", "logshipper: no job matches, of 25 jobs in all\n")
    document = json.loads(ok(ask("ls", "--json", "--limit", "2")))
    assert (document["schema"], document["matching"], len(document["jobs"])) == (
        "logshipper.ls/1",
        25,
        2,
    )
    assert document["store"] == str(store)


@pytest.mark.parametrize("exists", [False, True])
def test_ls_of_an_empty_store_says_how_to_begin(exists: bool, store: Path, ask: Ask) -> None:
    if exists:
        store.mkdir(mode=0o700)
    code, out, err = ask("ls")
    assert (code, out) == (0, "")
    assert (
        err
        == f"logshipper: no jobs in {store} yet; begin with: logshipper run --store {store} -- COMMAND\n"
    )
    assert json.loads(ok(ask("ls", "--json")))["jobs"] == []
    assert list(store.iterdir() if exists else []) == [], "looking makes nothing"


def test_a_folder_that_is_no_store_is_left_alone(store: Path, ask: Ask) -> None:
    store.mkdir()
    (store / "thesis.tex").write_text("x")
    code, out, err = ask("ls")
    assert (code, out) == (1, "")
    assert "isn't a logshipper store" in err
    assert [path.name for path in store.iterdir()] == ["thesis.tex"]


def test_wrong_state_is_wrong_usage(ask: Ask) -> None:
    code, _, err = ask("ls", "--state", "done")
    assert code == 2
    assert "'DONE' isn't a state; there are QUEUED, RUNNING" in err
    assert ask("ls", "--limit", "-3")[0] == 2


# ---- show


def test_show_tells_all(store: Path, ask: Ask) -> None:
    training(store)
    out = ok(ask("show", "last"))
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert out.startswith("train.py  k3f9x2\n")
    assert "COMPLETED, exit code 0" in lines["State"]
    assert "50.0 kB printed" in lines["Output"]
    assert "times smaller" in lines["Output"]
    assert lines["X axis"].split(None, 2)[2] == "epoch: the key epoch  (rule 2 of 7)"
    assert lines["stdout"].split() == ["stdout", "7", "6", "0", "0", "0", "1", "0", "0"]
    assert lines["stderr"].split() == ["stderr", "501", "2", "499", "0", "0", "0", "0", "0"]
    assert lines["loss"].split() == ["loss", "0.2", "0.2", "1", "5"]
    assert "mode changed from enabled to metadata" in out
    assert "balance" not in out
    assert not any(mark in out for mark in (ESCAPE, "\t", *BOX))


def test_show_json_is_what_the_schema_promises(store: Path, ask: Ask) -> None:
    training(store)
    document = json.loads(ok(ask("show", "train.py", "--json")))
    assert document["schema"] == "logshipper.show/1"
    assert document["x_axis"] == {"key": "epoch", "rule": 2, "words": "epoch: the key epoch"}
    assert document["started"].endswith("Z")
    assert isinstance(document["started_ns"], int)
    assert (document["state"], document["exit_code"], document["signal"]) == ("COMPLETED", 0, 0)
    for account in (document["ledger"]["stdout"], document["ledger"]["stderr"]):
        assert account["read"] == sum(value for name, value in account.items() if name != "read")
    keys = {key["key"]: key for key in document["keys"]}
    assert keys["opt.lr"] == {
        "key": "opt.lr", "path": ["opt", "lr"], "origin": None, "repeats": None, "count": 5,
        "numbers": 5, "last": 0.1, "min": 0.1, "max": 0.1, "integer": False,
    }  # fmt: skip
    assert document["events"][0]["details"] == {
        "from": "enabled",
        "to": "metadata",
        "stream": "stdout",
    }
    assert document["captures"][0]["columns"] == 160
    assert document["live_status"] == {}
    page = (ROOT / "docs" / "json.md").read_text()
    assert [field for field in [*document, *document["captures"][0], *keys["loss"]] if f"`{field}`" not in page
            and not field.endswith("_ns") and field != "schema"] == []  # fmt: skip


def test_show_of_other_ends(store: Path, ask: Ask) -> None:
    with SpooledCapture(store, "killed") as job:
        job.lose(3)
        job.end(None, 9)
    with SpooledCapture(store, "died00") as job:
        job.lines("x")
    assert "CANCELLED, died of SIGKILL" in ok(ask("show", "killed"))
    assert json.loads(ok(ask("show", "killed", "--json")))["lost"] == 3
    out = ok(ask("show", "died00"))
    assert "State     FAILED" in out
    assert "died without an end record" in out


def test_show_of_a_running_job(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.lines("x")
        job.status("epoch 7:  42%|████▏     | 17/40")
        job.beat()
        out = ok(ask("show", "last"))
        assert "RUNNING" in out
        assert "so far" in out
        assert "epoch 7:  42%|████▏     | 17/40" in out
        assert json.loads(ok(ask("show", "last", "--json")))["live_status"]["stderr"][
            "text"
        ].startswith("epoch 7")


def test_show_of_attempts(store: Path, ask: Ask) -> None:
    training(store, attempt=1)
    training(store, attempt=2)
    out = ok(ask("show", "k3f9x2"))
    assert "Captures  2 attempts" in out
    assert json.loads(ok(ask("show", "k3f9x2", "--json")))["attempts"] == 2


# ---- naming a job


def test_job_names(store: Path, ask: Ask) -> None:
    training(store, started_ns=5 * NS)
    training(store, job_id="k3zzzz", name="eval", started_ns=9 * NS)
    for name, job_id in (
        ("last", "k3zzzz"),
        ("train.py", "k3f9x2"),
        ("k3f", "k3f9x2"),
        ("eval", "k3zzzz"),
    ):
        assert json.loads(ok(ask("show", name, "--json")))["job_id"] == job_id
    code, out, err = ask("show", "trian.py")
    assert (code, out) == (1, "")
    assert "did you mean train.py" in err
    code, out, err = ask("logs", "k3")
    assert code == 1
    assert "k3zzzz" in err
    assert "k3f9x2" in err


@pytest.mark.parametrize("name", ["show", "logs", "metadata", "plot", "rm"])
def test_no_job_at_all(name: str, ask: Ask) -> None:
    code, out, err = ask(name, "last")
    assert (code, out) == (1, "")
    assert "has no jobs yet; begin with `logshipper run --store" in err


# ---- logs


def test_logs_are_both_streams_in_order_of_time(store: Path, ask: Ask) -> None:
    training(store, epochs=1)
    out = ok(ask("logs", "last"))
    assert out.splitlines() == [
        "Training on 1,000 samples",
        "UserWarning: lr is high",
        "[the line above 499 times more]",
        '{"epoch": 1, "loss": 1.0, "opt": {"lr": 0.1}}',
        "epoch 5: 100%|██████████| 40/40 [00:00<00:00, 812.3it/s]",
        '/LOGCOMMAND {"mode":"metadata"}',
    ]
    assert len(ok(ask("logs", "last", "--stream", "stdout")).splitlines()) == 3
    assert len(ok(ask("logs", "last", "--stream", "stderr")).splitlines()) == 3
    assert ok(ask("logs", "last", "-n", "1")) == '/LOGCOMMAND {"mode":"metadata"}\n'
    assert ok(ask("logs", "last", "--tail", "0")) == ""
    assert ok(ask("logs", "last", "--grep", "lr", "--tail", "1")).startswith('{"epoch": 1'), (
        "counted after --grep"
    )
    assert ok(ask("logs", "last", "--grep", "^no such")) == ""
    first_line = ok(ask("logs", "last", "--times")).splitlines()[0]
    assert first_line[19] == "."
    assert first_line[24:] == "Training on 1,000 samples"


def test_logs_grep_finds_a_line_as_often_as_it_was_printed(store: Path, ask: Ask) -> None:
    """R30: a note stands for the lines that it quotes; other lines that look like a note stay
    unchanged."""
    note = "[repeated 499 times: lr is high]"
    with SpooledCapture(store) as job:
        job.lines("lr is high")
        job.lines(note, kind=Kind.NOTE, attrs={0: {"repeat": 499}})
        job.lines("[last line repeated 3 times]", kind=Kind.NOTE, attrs={0: {"repeat": 3}})
        job.lines("[repeated 5 times: lr is high]")
    output = ok(ask("logs", "last", "--grep", "^lr is high$", "--json"))
    lines = [json.loads(line) for line in output.splitlines()]
    assert [line["text"] for line in lines] == ["lr is high", note]
    assert sum(line["attrs"].get("repeat", 1) for line in lines) == 500
    assert ok(ask("logs", "last", "--grep", "^.repeated", "--tail", "9")).count("\n") == 1
    assert ok(ask("logs", "last", "--grep", "^.last line")).count("\n") == 1


def test_logs_json(store: Path, ask: Ask) -> None:
    training(store, epochs=1)
    lines = [json.loads(line) for line in ok(ask("logs", "last", "--json")).splitlines()]
    assert [line["kind"] for line in lines] == ["log", "log", "note", "metadata", "log", "command"]
    assert lines[2]["attrs"] == {"repeat": 499}
    assert lines[3]["attrs"] == {"n": 1}
    assert lines[1]["stream"] == "stderr"
    assert lines[0]["schema"] == "logshipper.logs/1"
    assert [line["time_ns"] for line in lines] == sorted(line["time_ns"] for line in lines)


def test_logs_of_one_attempt(store: Path, ask: Ask) -> None:
    for attempt in (1, 2):
        with SpooledCapture(store, attempt=attempt, started_ns=attempt * NS) as job:
            job.lines(f"attempt {attempt}")
            job.end()
    assert ok(ask("logs", "last")) == "attempt 1\nattempt 2\n"
    assert ok(ask("logs", "last", "--attempt", "1")) == "attempt 1\n"
    code, _, err = ask("logs", "last", "--attempt", "3")
    assert code == 1
    assert "has no attempt 3; it has 1, 2" in err
    assert ask("logs", "last", "--attempt", "x")[0] == 2


def test_parts_of_a_long_line_are_one_line(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.lines("a" * 50)
        job.lines("b" * 50, attrs={0: {"part": "2"}})
        job.lines("c", "next", attrs={0: {"part": "3/3"}})
        job.end()
    assert ok(ask("logs", "last")) == f"{'a' * 50}{'b' * 50}c\nnext\n"


@pytest.mark.parametrize(("first", "last"), [("1", "2/2"), ("1/2", "2/2"), ("1.1/2", "2/2.2/2")])
def test_a_long_line_begins_a_line(store: Path, ask: Ask, first: str, last: str) -> None:
    with SpooledCapture(store) as job:
        job.lines("before")
        for text in ("a", "b"):
            job.lines(text, attrs={0: {"part": first}})
            job.lines(text, attrs={0: {"part": last}})
        job.lines("after")
        job.end()
    assert ok(ask("logs", "last")) == "before\naa\nbb\nafter\n"


def test_invalid_regular_expression(store: Path, ask: Ask) -> None:
    training(store)
    code, out, err = ask("logs", "last", "--grep", "(")
    assert (code, out) == (2, "")
    assert err.startswith("logshipper: --grep: '(' isn't a regular expression: ")


def test_lost_lines_are_said(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.lines("x")
        job.lose(2)
        job.end()
    code, out, err = ask("logs", "last")
    assert (code, out) == (0, "x\n")
    assert "2 lines of this job couldn't be logged" in err


def test_a_pipe_gets_the_text_as_it_was_captured(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.lines("tab\there, a \x1b[31mcolour, wide 日本, ⚠️")
        job.end()
    assert ok(ask("logs", "last")) == "tab\there, a colour, wide 日本, ⚠️\n"


# ---- metadata


def test_metadata_formats(store: Path, ask: Ask) -> None:
    """R19 byte for byte; R23: newest first."""
    r19 = [
        '{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}',
        '{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}',
        '{"size": "big", "speed": "slow", "lr": 0.1}',
    ]
    with SpooledCapture(store) as job:
        job.metadata(*r19)
        job.end()
    assert ok(ask("metadata", "last", "--format", "jsonl")).splitlines() == r19
    rows = list(csv.DictReader(io.StringIO(ok(ask("metadata", "last", "--format", "csv")))))
    assert [row["lr"] for row in rows] == ["", "0.07938926", "0.1"]
    assert rows[1]["flops"] == "789773523480.1762"
    header, *table = ok(ask("metadata", "last")).splitlines()
    assert header.split() == [
        "_time",
        "_attempt",
        "epoch",
        "loss",
        "acc",
        "step",
        "lr",
        "flops",
        "time",
        "size",
        "speed",
    ]
    assert [row.split()[2:] for row in table] == [
        ["-", "-", "-", "-", "0.1", "-", "-", "big", "slow"],
        ["-", "-", "-", "151100", "0.07938926", "789773523480.1762", "16520", "-", "-"],
        ["1", "7.2355865", "0.00123", "-", "-", "-", "-", "-", "-"],
    ]
    documents = [json.loads(line) for line in ok(ask("metadata", "last", "--json")).splitlines()]
    assert [document["record"] for document in documents] == [json.loads(line) for line in r19]
    selection = ok(ask("metadata", "last", "--keys", "lr", "--limit", "1")).splitlines()
    assert [line.split()[2:] for line in selection] == [["lr"], ["0.1"]]


def test_metadata_of_none(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.lines("x")
        job.end()
    code, out, err = ask("metadata", "last")
    assert (code, out) == (0, "")
    assert "train.py has printed no metadata" in err
    assert ok(ask("metadata", "last", "--format", "jsonl")) == ""
    assert ok(ask("metadata", "last", "--format", "csv")) == "_time,_attempt,_origin\n"


def test_metadata_with_a_wrong_key(store: Path, ask: Ask) -> None:
    training(store)
    code, _, err = ask("metadata", "last", "--keys", "los")
    assert (code, err) == (1, "logshipper: this job has no key 'los'; did you mean loss?\n")


# ---- plot


def test_plot_draws_and_says_the_rule(store: Path, ask: Ask) -> None:
    training(store, epochs=20)
    out = ok(ask("plot", "last"))
    assert out.startswith("train.py  k3f9x2  X axis: epoch: the key epoch (rule 2 of 7)\n")
    assert "loss" in out
    assert "opt.lr" in out
    assert ESCAPE not in out
    out = ok(ask("plot", "last", "--y", "loss", "--x", "time"))
    assert "X axis: time: when each record was printed" in out
    assert "opt.lr" not in out


def test_plot_as_png(store: Path, ask: Ask, tmp_path: Path) -> None:
    training(store, epochs=20)
    path = tmp_path / "a.png"
    out = ok(ask("plot", "last", "--png", str(path)))
    assert out == (
        f"Wrote {path}: 1 graph. X axis: epoch: the key epoch (rule 2 of 7)\n"
        "One value each, so no graph: opt.lr 0.1\n"
    )
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    code, _, err = ask("plot", "last", "--png", str(tmp_path / "no" / "a.png"))
    assert code == 1
    assert "can't be written: no such file or directory" in err


def test_png_into_a_pipe(store: Path) -> None:
    training(store)
    with command(
        store, "plot", "last", "--png", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, err = process.communicate(timeout=DEADLINE_SECS)
    assert process.returncode == 0
    assert out[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"Wrote -" in err


def test_plot_json(store: Path, ask: Ask) -> None:
    training(store, epochs=3)
    document = json.loads(ok(ask("plot", "last", "--y", "loss", "--json")))
    assert document["schema"] == "logshipper.plot/1"
    assert document["graphs"][0]["x_axis"] == {
        "key": "epoch",
        "rule": 2,
        "words": "epoch: the key epoch",
        "by_number": False,
    }
    assert document["graphs"][0]["series"] == [
        {"label": "", "seen": 3, "x": [1, 2, 3], "y": [1.0, 0.5, 1 / 3], "breaks": [], "gaps": []}
    ]


def test_nothing_to_plot(store: Path, ask: Ask) -> None:
    with SpooledCapture(store, "plain0") as job:
        job.lines("x")
        job.end()
    with SpooledCapture(store, "words0") as job:
        job.metadata({"size": "big"})
        job.end()
    with SpooledCapture(store, "nan0") as job:
        job.metadata('{"loss": NaN}', '{"loss": NaN}')
        job.end()
    with SpooledCapture(store, "alone0") as job:
        job.metadata({"loss": 1}, {"loss": 2})
        job.end()
    for name, words in (
        ("plain0", "printed no metadata"),
        ("words0", "no number"),
        ("nan0", "loss has no graph: it never was a number, and is NaN"),
    ):
        code, out, err = ask("plot", name)
        assert (code, out) == (1, "")
        assert words in err
    assert "time" in ok(ask("plot", "alone0", "--x", "time"))
    assert "record number" in ok(ask("plot", "alone0"))


# ---- rm


def test_rm(store: Path, ask: Ask) -> None:
    for job_id in ("aaaaaa", "bbbbbb", "cccccc"):
        training(store, job_id=job_id, name=job_id)
    code, out, err = ask("rm", "aaaaaa")
    assert (code, out) == (2, "")
    assert "--yes" in err, "no terminal to ask on"
    assert ask("rm", "--yes", "aaaaaa", "nobody")[0] == 1
    assert len(ok(ask("ls")).splitlines()) == 4, "one name was wrong: nothing is removed"
    assert (
        ok(ask("rm", "--yes", "aaaaaa", "bbbbbb"))
        == "Removed aaaaaa (aaaaaa)\nRemoved bbbbbb (bbbbbb)\n"
    )
    assert [line.split()[0] for line in ok(ask("ls")).splitlines()[1:]] == ["cccccc"]


def test_rm_refuses_a_running_job(store: Path, ask: Ask) -> None:
    with SpooledCapture(store) as job:
        job.beat()
        code, _, err = ask("rm", "--yes", "last")
        assert code == 1
        assert "runs" in err


# ---- damaged captures


def test_damage_is_said_and_the_rest_is_read(store: Path, ask: Ask) -> None:
    training(store)
    training(store, job_id="broken")
    (store / "spool" / "broken@1.aaaa" / "identity.json").write_text("[]")
    code, out, err = ask("ls")
    assert code == 0
    assert out.splitlines()[1].split()[0] == "k3f9x2"
    assert "identity.json isn't a JSON object" in err
    assert json.loads(ask("ls", "--json")[1])["problems"]


# ---- pipes


def test_broken_pipe_ends_silently(store: Path) -> None:
    with SpooledCapture(store) as job:
        for _ in range(50):
            job.lines(*[f"line {number} " + "x" * 80 for number in range(1000)])
        job.end()
    for words in (["logs", "last"], ["logs", "last", "--json"]):
        with command(store, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert b"line 0" in process.stdout.readline()
            process.stdout.close()
            assert process.wait(DEADLINE_SECS) == 141, "as a shell shows SIGPIPE"
            assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "words", [["ls"], ["show", "last"], ["rm", "last"]], ids=lambda words: words[0]
)
def test_closed_streams_are_no_error_of_their_own(store: Path, words: list[str]) -> None:
    training(store)
    shell = f"{sys.executable} -m logshipper {' '.join(words)} <&- >&- 2>&-"
    environment = {**os.environ, "LOGSHIPPER_STORE": str(store), "PYTHONPATH": SOURCES}
    process = subprocess.run(["/bin/sh", "-c", shell], env=environment, timeout=DEADLINE_SECS)
    assert process.returncode == (2 if words[0] == "rm" else 0)


def test_full_disk_is_one_line(store: Path) -> None:
    training(store)
    with (
        open("/dev/full", "wb") as full,
        command(store, "ls", stdout=full, stderr=subprocess.PIPE) as process,
    ):
        _, err = process.communicate(timeout=DEADLINE_SECS)
    assert process.returncode == 1
    assert err == b"logshipper: standard output: no space left on device\n"


def test_output_is_utf8_whatever_the_locale(store: Path) -> None:
    training(store)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONIOENCODING", "ascii")
        with command(store, "logs", "last", **options) as process:
            out, err = process.communicate(timeout=DEADLINE_SECS)
    assert (process.returncode, err) == (0, b"")
    assert "100%|██████████|" in out.decode()


def test_follow_prints_what_comes_and_ends_with_the_job(store: Path) -> None:
    with SpooledCapture(store) as job:
        job.lines("first", "second")
        job.beat()
        words = ["logs", "last", "--follow", "--tail", "1"]
        with command(store, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"second\n"
            job.lines("third")
            job.stderr("fourth")
            assert process.stdout.readline() == b"third\n"
            assert process.stdout.readline() == b"fourth\n"
            job.lines("last words")
            job.end(3)
            assert process.stdout.read() == b"last words\n"
            assert process.wait(DEADLINE_SECS) == 0
            assert process.stderr.read() == b""


def test_follow_ends_when_nobody_reads_any_more(store: Path) -> None:
    with SpooledCapture(store) as job:
        job.lines("first")
        job.beat()
        with command(
            store, "logs", "last", "-f", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            process.stdout.close()
            assert process.wait(DEADLINE_SECS) == 141, (
                "the job prints nothing any more, and yet it is noticed"
            )


# ---- a big job


def test_a_big_job_is_read_in_bounded_memory(store: Path) -> None:
    """200,000 lines, half of them records: the commands never load all of them at once."""
    with SpooledCapture(store) as job:
        for begin in range(0, 100_000, 1000):
            job.lines(*[f"line {number} " + "x" * 100 for number in range(begin, begin + 1000)])
            records = [
                f'{{"step": {number}, "loss": {number % 7}.5}}'
                for number in range(begin, begin + 1000)
            ]
            job.lines(
                *records,
                kind=Kind.METADATA,
                attrs={at: {"n": begin + at + 1} for at in range(1000)},
            )
        job.end()

    def answer(*words: str) -> list[bytes]:
        """Return the lines that a command prints; it measures its own memory, without that of its
        parent."""
        script = (
            "import sys; from pathlib import Path; from logshipper.start.cli import main; code = main(sys.argv[1:])\n"
            "words = Path('/proc/self/status').read_text().split(); peak = int(words[words.index('VmHWM:') + 1])\n"
            "sys.exit(code or peak > 100_000)  # KiB; some 30,000, as a rule"
        )
        environment = {**os.environ, "LOGSHIPPER_STORE": str(store), "PYTHONPATH": SOURCES}
        process = subprocess.run(
            [sys.executable, "-c", script, *words],
            env=environment,
            capture_output=True,
            timeout=scaled(60),
        )
        assert (process.returncode, process.stderr) == (0, b"")
        return process.stdout.splitlines()

    assert answer("logs", "last", "--tail", "2")[-1] == b'{"step": 99999, "loss": 4.5}'  # ingests
    began = time.monotonic()
    assert len(answer("logs", "last", "--tail", "5")) == 5
    assert time.monotonic() - began < scaled(10), "generous: a quarter of a second, as a rule"
    assert len(answer("logs", "last")) == 200_000
    assert len(answer("metadata", "last", "--format", "csv")) == 100_001
    assert len(answer("plot", "last", "--y", "loss")) > 10


# ---- help and completion


@pytest.mark.parametrize(
    "name",
    [
        "ls",
        "show",
        "logs",
        "metadata",
        "export",
        "plot",
        "events",
        "wait",
        "diff",
        "tag",
        "annotate",
        "rm",
        "completion",
    ],
)
def test_help_has_examples_and_exit_codes(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as error:
        main([name, "--help"])
    assert error.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out or "completion bash" in out
    assert "exit codes:" in out
    assert max(map(len, out.splitlines())) <= 84


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "ls --colums id",
            "logshipper ls: unrecognized arguments: --colums; did you mean --columns?",
        ),
        (
            "annotate last --note hello",
            "logshipper annotate: unrecognized arguments: --note hello\n",
        ),
        ("--bogus ls", "unrecognized arguments: --bogus\n"),
        (
            "--store X ls",
            "logshipper: --store stands behind a command, as in `logshipper ls --store ...`\n",
        ),
        ("--reverse", "--reverse stands behind a command, as in `logshipper "),
        ("follow last", "there is no command `follow`; did you mean `monitor`?"),
        ("analyze", "the following arguments are required: REPORT\n"),
    ],
)
def test_wrong_usage_names_the_command_and_what_was_meant(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(line.split())
    assert error.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "_ARGCOMPLETE" in out
    for program in ("logshipper", "logshipper-agent"):
        assert re.search(
            rf"^(complete|compdef) .*[ \"']{program}(?![-\w])",
            out.replace("compdef", "\ncompdef"),
            re.M,
        )


def completions(store: Path, line: str) -> list[str]:
    output_file = store.parent / "found"
    environment = {**os.environ, "LOGSHIPPER_STORE": str(store), "PYTHONPATH": SOURCES, "_ARGCOMPLETE": "1",
                   "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
                   "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(output_file)}  # fmt: skip
    process = subprocess.run(
        [sys.executable, "-m", "logshipper"],
        env=environment,
        capture_output=True,
        timeout=DEADLINE_SECS,
    )
    assert (process.stdout, process.stderr) == (b"", b"")
    return output_file.read_text().split("\n")


def test_completion_knows_commands_jobs_and_keys(store: Path) -> None:
    training(store)
    training(store, job_id="k9zzzz", name="evil\x1b[31m")
    # completion itself ingests only for a short time
    assert main(["ls", "--store", str(store)]) == 0
    assert completions(store, "logshipper me") == ["metadata "]
    assert set(completions(store, "logshipper show k")) == {"k3f9x2", "k9zzzz"}
    assert completions(store, "logshipper logs tr") == ["train.py "]
    assert completions(store, "logshipper plot k3f9x2 --y lo") == ["loss "]
    assert completions(store, "logshipper metadata last --keys epoch,lo")[0].strip() == "epoch,loss"
    assert set(completions(store, "logshipper ls --state f")) == {"failed "}
    (store / "typescript").touch()
    assert completions(store, f"logshipper render {store}/ty") == [f"{store}/typescript "]
    assert set(completions(store, "logshipper render --stream-type p")) == {"pty", "pipe"}


def test_completion_is_silent_on_errors(store: Path) -> None:
    store.write_text("no folder")
    assert completions(store, "logshipper show k") == [""]


# ---- metadata, as numbers


def numbers_job(store: Path) -> None:
    with SpooledCapture(store, "nums", name="numbers.py") as job:
        job.metadata({"lr": 0.5, "model": "mlp"})
        for epoch in (1, 2, 3):
            job.metadata({"epoch": epoch, "loss": 3 - epoch})
            job.metadata({"epoch": epoch, "val_loss": float(epoch)})
        job.end()


def test_metadata_summary(store: Path, ask: Ask) -> None:
    numbers_job(store)
    header, *rows = ok(ask("metadata", "nums", "--summary")).splitlines()
    assert header.split() == ["key", "last", "min", "max", "mean", "std", "count"]
    assert {row.split()[0]: row.split()[1:] for row in rows} == {
        "epoch": ["3", "1", "3", "2", "0.816497", "6"],
        "loss": ["0", "0", "2", "1", "0.816497", "3"],
        "lr": ["0.5", "0.5", "0.5", "0.5", "0", "1"],
        "val_loss": ["3", "1", "3", "2", "0.816497", "3"],
    }
    document = json.loads(ok(ask("metadata", "nums", "--summary", "--keys", "loss", "--json")))
    assert document["schema"] == "logshipper.metadata-summary/1"
    assert document["keys"] == [{"key": "loss", "last": 0, "min": 0, "max": 2, "mean": 1.0,
                                 "std": pytest.approx(0.816496580927726), "count": 3}]  # fmt: skip
    table = list(
        csv.reader(
            io.StringIO(
                ok(ask("metadata", "nums", "--summary", "--keys", "lr,loss", "--format", "csv"))
            )
        )
    )
    assert table[1:] == [
        ["loss", "0", "0", "2", "1.0", table[1][5], "3"],
        ["lr", "0.5", "0.5", "0.5", "0.5", "0.0", "1"],
    ]


def test_metadata_by_sets_of_keys_and_merged(store: Path, ask: Ask) -> None:
    numbers_job(store)
    tables = ok(ask("metadata", "nums", "--sets")).split("\n\n")
    assert [table.splitlines()[0].split() for table in tables] == [
        ["_time", "lr"], ["_time", "epoch", "loss"], ["_time", "epoch", "val_loss"],
    ]  # fmt: skip
    assert [line.split()[1:] for line in tables[1].splitlines()[1:]] == [
        ["1", "2"],
        ["2", "1"],
        ["3", "0"],
    ]
    document = json.loads(ok(ask("metadata", "nums", "--by", "epoch", "--json")))
    (key_set,) = document["sets"]
    assert key_set["columns"]["epoch"] == [1, 2, 3]
    assert (key_set["columns"]["loss"], key_set["columns"]["val_loss"]) == (
        [2, 1, 0],
        [1.0, 2.0, 3.0],
    )
    (newest,) = json.loads(ok(ask("metadata", "nums", "--by", "epoch", "--limit", "2", "--json")))[
        "sets"
    ]
    assert newest["columns"]["epoch"] == [2, 3], "the newest, as without --by"
    tables = ok(ask("metadata", "nums", "--sets", "--limit", "1")).split("\n\n")
    assert [len(table.splitlines()) for table in tables] == [2, 2, 2]
    assert tables[1].splitlines()[1].split()[1:] == ["3", "0"]
    code, _, err = ask("metadata", "nums", "--by", "epcoh")
    assert (code, "did you mean epoch" in err) == (1, True)
    assert ask("metadata", "nums", "--by", "epoch", "--sets")[0] == 2
