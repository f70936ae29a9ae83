"""`show` of a failed job begins with its exit and last errors; without JOB, commands read the
newest job."""

import json
from pathlib import Path

import pytest

from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store, training

__all__ = ["ask", "store"]  # fixtures


def failed(store: Path) -> None:
    with SpooledCapture(store, "bad", name="train.py") as job:
        job.lines("Training on 1,000 samples")
        job.stderr(*(f"warning {number}" for number in range(20)))
        job.stderr(
            "Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: shape \x1b[2J"
        )  # fmt: skip
        job.end(1)


def test_exit_and_last_errors_come_first(store: Path, ask: Ask) -> None:
    failed(store)
    code, out, err = ask("show", "bad")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["train.py", "bad"]
    assert lines[2] == "FAILED, exit code 1"
    assert lines[3] == "  warning 11"
    assert lines[12:15] == [
        "  Traceback (most recent call last):",
        '    File "train.py", line 3',
        "  ValueError: shape \ufffd[2J",
    ]
    assert lines[15] == ""
    assert lines[16].split() == ["State", "FAILED,", "exit", "code", "1"]
    document = json.loads(ask("show", "bad", "--json")[1])
    assert len(document["last_lines"]) == 12
    assert document["last_lines"][10] == {"stream": "stderr", "text": '  File "train.py", line 3'}


def test_without_stderr_it_is_what_stdout_said(store: Path, ask: Ask) -> None:
    with SpooledCapture(store, "bad") as job:
        job.lines("error: no such dataset")
        job.end(2)
    lines = ask("show", "bad")[1].splitlines()
    assert lines[2:4] == ["FAILED, exit code 2", "  error: no such dataset"]


def test_a_job_that_completed_has_no_such_lines(store: Path, ask: Ask) -> None:
    training(store, job_id="good")
    assert ask("show", "good")[1].splitlines()[2].split() == ["State", "COMPLETED,", "exit", "code", "0"]  # fmt: skip
    assert json.loads(ask("show", "good", "--json")[1])["last_lines"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("show", "--json"), ("logs",), ("logs", "--stream", "stderr"), ("metadata",), ("metadata", "--summary"),
        ("metadata", "--format", "csv"), ("plot", "--y", "loss"), ("plot", "--json"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_without_job_it_is_the_newest(store: Path, ask: Ask, words: tuple[str, ...]) -> None:
    training(store, job_id="older", started_ns=10**18)
    training(store, job_id="newer")
    command, *options = words
    code, out, _ = ask(command, *options)
    assert code == 0
    _, expected, _ = ask(command, "newer", *options)
    if words != ("show", "--json"):  # it contains the current time
        assert out == expected
    else:
        assert json.loads(out)["job_id"] == "newer"
