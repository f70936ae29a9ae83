"""The summary of uncaptured tasks in `show`, from a local store and from Loki."""

import json
from pathlib import Path

import pytest

from logshipper.spool.captures import NOT_CAPTURED
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import asking
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store

__all__ = ["ask", "store"]  # fixtures


@pytest.fixture(params=["local", "loki"])
def show(
    request: pytest.FixtureRequest,
    store: Path,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Return a reader of a step with 2 of 8 tasks missed, and of an unrelated job without missed
    tasks."""
    for task in range(8):
        with SpooledCapture(store, "busy", step="0", task=task, suffix=f"t{task}") as job:
            if task in (2, 5):
                job.event(NOT_CAPTURED, "not captured: node too busy")
            else:
                job.lines("x")
            job.end()
    with SpooledCapture(store, "busy", step="batch", suffix="b") as job:
        job.lines("x")
        job.end()
    with SpooledCapture(store, "idle") as job:
        job.lines("x")
        job.end()
    if request.param == "local":
        return ask
    fake = FakeLoki()
    push_spool(fake, store / "spool")
    return asking(fake, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("job", "words", "number", "total"),
    [("busy", ["2 of 8 tasks: node too busy"], 2, 8), ("idle", [], 0, 0)],
)
def test_show_sums_them_up(show: Ask, job: str, words: list[str], number: int, total: int) -> None:
    code, out, _ = show("show", job)
    assert code == 0
    rows = [line.split(maxsplit=2)[2] for line in out.splitlines() if "Not captured" in line]
    assert rows == words
    document = json.loads(show("show", job, "--json")[1])
    assert document["missed_tasks"] == {"number": number, "total": total}


def test_each_is_an_event(show: Ask) -> None:
    code, out, _ = show("events", "busy", "--kind", NOT_CAPTURED, "--json")
    assert code == 0
    assert len(json.loads(out)["events"]) == 2
