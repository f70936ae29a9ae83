"""Hints about near-records in `metadata` and `show` (R20, R21)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper.start.cli import main
from tests.tools.stores.reading_store import SpooledCapture

Ask = Callable[..., tuple[str, str]]
BEFORE = 'Text stands before it. The line: epoch 1: {"loss": 0.3}'
STDERR = "An object stands on stderr. The line: \x1b[31m{}"


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that runs a reading command; it returns stdout and stderr.

    The store has a job of two attempts with hints, and one without records.
    """
    store = tmp_path / "store"
    for attempt in (1, 2):
        with SpooledCapture(store, "job", attempt, started_ns=attempt * 10**18) as job:
            job.metadata({"step": attempt})
            job.event("json_hint", f"{BEFORE} {attempt}", reason="text_before", stream="stdout")
            job.event("json_hint", "A record holds NaN", reason="nan", stream="stdout")
            job.event("json_hint", STDERR, reason="stderr", stream="stderr")
            job.end()
    with SpooledCapture(store, "none") as job:
        job.event("json_hint", BEFORE, reason="text_before", stream="stdout")
        job.end()

    def run(*words: str) -> tuple[str, str]:
        assert main([*words, "--store", str(store)]) == 0
        return capsys.readouterr()

    return run


def test_metadata_says_them_next_to_its_table(ask: Ask) -> None:
    out, err = ask("metadata", "job")
    assert err.splitlines() == [f"logshipper: {BEFORE} 1", f"logshipper: {STDERR[:-7]}�[31m{{}}"]
    assert BEFORE not in out
    assert ask("metadata", "none") == (
        "",
        "logshipper: train.py has printed no metadata: that is, no line that is one JSON object\n"
        f"logshipper: {BEFORE}\n",
    )


@pytest.mark.parametrize("form", [("--json",), ("--format", "csv"), ("--format", "jsonl")])
def test_what_programs_read_has_none(form: tuple[str, ...], ask: Ask) -> None:
    assert ask("metadata", "job", *form)[1] == ""


def test_show_has_a_section_for_them(ask: Ask) -> None:
    out, _ = ask("show", "job")
    section = out[out.index("Hints") : out.index("Captures")]
    assert f"{BEFORE} 1" in section
    assert "NaN" not in section, "of a record, which isn't missing"
    assert "\x1b" not in out
    assert json.loads(ask("show", "job", "--json")[0])["hints"] == [f"{BEFORE} 1", STDERR]
