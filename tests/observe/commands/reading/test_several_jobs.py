"""`logs`, `events` and `metadata` of several jobs: under headings, and equal over both stores."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper.start.cli import main
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import asking
from tests.tools.stores.reading_store import SpooledCapture

Ask = Callable[..., tuple[int, str, str]]


def _write(store: Path) -> None:
    began_ns = time.time_ns() - 600 * NS
    for at in range(3):
        name = "other" if at == 2 else "sweep"
        with SpooledCapture(store, f"s{at}", name=name, started_ns=began_ns + at * NS) as job:
            job.lines(f"line of s{at}", "last line")
            job.metadata({"epoch": at, "loss": 0.5})
            job.end(at)


@pytest.fixture(params=["local", "loki"])
def ask(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Ask:
    store = tmp_path / "store"
    _write(store)
    if request.param == "loki":
        fake = FakeLoki()
        push_spool(fake, store / "spool")
        return asking(fake, monkeypatch, capsys)
    monkeypatch.setenv("LOGSHIPPER_STORE", str(store))

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return code, *capsys.readouterr()

    return run


def test_logs(ask: Ask) -> None:
    one = 'line of {}\nlast line\n{{"epoch": {}, "loss": 0.5}}\n'
    newest, older = one.format("s1", 1), one.format("s0", 0)
    text = f"==> sweep s1 <==\n{newest}\n==> sweep s0 <==\n{older}"
    assert ask("logs", "sweep*") == (0, text, "")
    assert ask("logs", "s1") == (0, newest, ""), "no heading above one job"
    assert ask("logs", "s0", "s2", "--tail", "1", "--grep", "line")[1] == (
        "==> sweep s0 <==\nlast line\n\n==> other s2 <==\nlast line\n"
    )


def test_metadata(ask: Ask) -> None:
    code, text, _ = ask("metadata", "sweep*", "--keys", "epoch")
    assert code == 0
    tables = text.split("\n\n")
    assert [table.splitlines()[0] for table in tables] == ["==> sweep s1 <==", "==> sweep s0 <=="]
    assert [table.split()[-1] for table in tables] == ["1", "0"]
    text = ask("metadata", "s0", "s1", "--summary")[1]
    assert text.count("==> ") == text.count("\nloss ") == 2


def test_events(ask: Ask) -> None:
    code, text, _ = ask("events", "s0", "s1", "--limit", "1")
    assert code == 0
    tables = text.split("\n\n")
    assert [table.splitlines()[0] for table in tables] == ["==> sweep s0 <==", "==> sweep s1 <=="]
    assert ["COMPLETED" in tables[0], "FAILED" in tables[1]] == [True, True]
    assert "==>" not in ask("events", "s0")[1]
    assert "==>" not in ask("events")[1], "all jobs are one list"


@pytest.mark.parametrize("command", ["logs", "metadata"])
def test_documents_name_their_job(command: str, ask: Ask) -> None:
    lines = ask(command, "sweep*", "--json")[1].splitlines()
    documents = [json.loads(line) for line in lines]
    jobs = [(document["job_id"], document["name"]) for document in documents]
    assert list(dict.fromkeys(jobs)) == [("s1", "sweep"), ("s0", "sweep")]
    assert "job_id" not in json.loads(ask(command, "s0", "--json")[1].splitlines()[0])


@pytest.mark.parametrize("command", ["logs", "metadata", "events"])
def test_an_unknown_job_is_reported_and_the_others_are_printed(command: str, ask: Ask) -> None:
    code, text, errors = ask(command, "s0", "nobody", "s1")
    assert code == 1
    assert text.count("==> ") == 2
    assert "no job has the id or name 'nobody'" in errors
    assert ask(command, "nobody")[:2] == (1, "")


@pytest.mark.parametrize("command", ["logs", "metadata"])
def test_a_job_without_the_attempt_stops_no_other(command: str, ask: Ask) -> None:
    code, text, errors = ask(command, "s0", "s1", "--attempt", "2")
    assert (code, text) == (1, "")
    assert errors.count("--attempt: the job has no attempt 2") == 2
    assert "s0: " in errors


def test_options_for_one_job(ask: Ask) -> None:
    code, text, errors = ask("logs", "s0", "s1", "--follow")
    assert (code, text) == (2, "")
    assert "--follow: is for one job, and 2 are named" in errors
    code, text, errors = ask("logs", "sweep*", "--follow")
    assert (code, text) == (1, "")
    assert "stands for 2 jobs; name one of them" in errors
    code, text, errors = ask("metadata", "sweep*", "--format", "csv")
    assert (code, text) == (1, "")
    assert "`logshipper export` writes files of several" in errors
