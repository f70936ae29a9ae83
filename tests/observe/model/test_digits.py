"""Tables have 6 significant digits of a fraction (docs/reading.md); programs get all digits."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper.start.cli import main
from logshipper_observe.model.records import table_text
from tests.tools.captures.forked_commands import on_a_terminal
from tests.tools.stores.reading_store import SpooledCapture

EXACT = "0.12345678901234567"
Ask = Callable[..., str]


@pytest.mark.parametrize(
    ("value", "text"),
    {
        EXACT: "0.123457",
        "7.2355865": "7.23559",
        "-0.000123456789": "-0.000123457",
        "1.2345678e-05": "1.23457e-05",
        "789773523480.1762": "7.89774e+11",
        "1.0": "1.0",
        "0.10": "0.10",
        "0.123456": "0.123456",
        "123456789012345678901": "123456789012345678901",
        '"0.12345678"': '"0.12345678"',
        '"v1.2345678"': "v1.2345678",
        "[0.12345678]": "[0.12345678]",
        "null": "null",
        "NaN": "NaN",
    }.items(),
)
def test_a_value(value: str, text: str) -> None:
    assert table_text(value) == text


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("LOGSHIPPER_STORE", str(tmp_path / "store"))
    for job_id, last in {"aaa": EXACT, "bbb": EXACT[:-1] + "8"}.items():
        with SpooledCapture(tmp_path / "store", job_id) as job:
            job.metadata(
                '{"epoch": 1, "loss": 0.98765432109876}', f'{{"epoch": 2, "loss": {last}}}'
            )
            job.metadata(f'{{"eps": {last}}}')
            job.end(0)

    def call(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("line", "row"),
    {
        "show aaa": r"^loss +0.123457 +0.123457 +0.987654 +2$",
        "info aaa": r"^loss +0.123457 +0.123457 +0.987654$",
        "metadata aaa --summary": r"^loss +0.123457 +0.123457 +0.987654 ",
        "ls aaa --columns id,loss,loss.max": r"^aaa +0.123457 +0.987654$",
        "diff aaa bbb": r"^= +first.loss +0.987654 +0.987654$",
        "plot aaa --y loss": r"last 0.123457  min 0.123457  max 0.987654",
    }.items(),
)
def test_tables(line: str, row: str, ask: Ask) -> None:
    text = ask(*line.split())
    assert re.search(row, text, re.MULTILINE), text
    assert EXACT not in text or line.startswith("diff")


def test_records_have_all_digits_except_on_a_terminal(ask: Ask, tmp_path: Path) -> None:
    assert EXACT in ask("metadata", "aaa")
    environment = {**os.environ, "LOGSHIPPER_STORE": str(tmp_path / "store")}
    output, code = on_a_terminal(("metadata", "aaa"), environment, 40, 100)
    text = output.decode()
    assert code == 0
    assert "0.123457" in text
    assert EXACT not in text


def test_diff_shows_the_digits_in_which_values_differ(ask: Ask) -> None:
    assert re.search(rf"^! +eps +{EXACT} +{EXACT[:-1]}8$", ask("diff", "aaa", "bbb"), re.MULTILINE)


def test_programs_get_all_digits(ask: Ask) -> None:
    for line in ("show aaa --json", "metadata aaa --json", "metadata aaa --format csv"):
        assert EXACT in ask(*line.split())
    jobs = json.loads(ask("ls", "aaa", "--columns", "id,loss", "--json"))["jobs"]
    assert jobs[0]["columns"]["loss"] == float(EXACT)
