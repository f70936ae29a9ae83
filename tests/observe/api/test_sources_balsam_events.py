"""Examples of the EventLog API in Balsam's documentation run here, verbatim except for the
import."""

import json
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import logshipper
from logshipper.start.cli import main
from logshipper_observe.api.event_log import EventQuery
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.captures.segment_factory import START_NS
from tests.tools.stores.import_tools import RECORDED
from tests.tools.stores.reading_store import SpooledCapture

# the snippets' own
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")

PRINTED = """
from balsam.api import EventLog

for evt in EventLog.objects.filter(tags={"experiment": "foo"}):
    print(evt.job_id) # Job ID
    print(evt.timestamp) # Time of state change (UTC)
    print(evt.from_state) # From which state the job transitioned
    print(evt.to_state) # To which state
    print(evt.data) # optional payload
"""
BY_JOB = "EventLog.objects.filter(job_id=[123, 124, 125])"
BY_BATCH_JOB = (
    "EventLog.objects.filter(batch_job_id=123)  # Using Balsam's intrinsic BatchJob ID "
    "(revealed by balsam queue ls --history)"
)
BY_SCHEDULER = (
    "EventLog.objects.filter(scheduler_id=456)  # Using the HPC scheduler's own ID (e.g. Cobalt ID)"
)
BY_TAGS = 'EventLog.objects.filter(tags={"experiment": "ffn-1", "scale_nodes": "512"})'
STARTUPS = 'EventLog.objects.filter(to_state="RUNNING")  # all Job startup events'
RESTARTS = 'EventLog.objects.filter(from_state="RESTART_READY", to_state="RUNNING")  # Only *restart* Events'
SINCE_YESTERDAY = """
from datetime import datetime, timedelta

yesterday = datetime.utcnow() - timedelta(days=1)
EventLog.objects.filter(timestamp_after=yesterday)  # Only events more recent than 1 day
"""


def run(snippet: str) -> Any:  # Any: value of its last line
    """Run a snippet; return the value of its last line, an expression."""
    text = (
        textwrap.dedent(snippet).strip().replace("from balsam.api import", "from logshipper import")
    )
    *before, last = text.split("\n")
    namespace: dict[str, Any] = {"EventLog": logshipper.EventLog}
    if last.startswith(" "):
        exec(text, namespace)  # noqa: S102  the document's own
        return None
    exec("\n".join(before), namespace)  # noqa: S102  likewise
    return eval(last, namespace)  # noqa: S307  likewise


def snippet_changes(snippet: str) -> list[tuple[str, str, str]]:
    return [(event.job_id, event.from_state, event.to_state) for event in run(snippet)]


def run_changes(job_id: str, end: str = "COMPLETED") -> list[tuple[str, str, str]]:
    """Return a run's changes, newest first."""
    return [(job_id, "RUNNING", end), (job_id, "QUEUED", "RUNNING")]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> logshipper.Store:
    """Return a store with jobs 123 to 126 and 456 of last year, a minute apart, and `new`, of
    today.

    Job 124 restarted after a failure.
    """
    folder = tmp_path / "store"
    for number, job_id in enumerate(("123", "124", "125", "126", "456")):
        with SpooledCapture(folder, job_id, started_ns=START_NS + number * 60 * NS) as job:
            job.lines("one")
            job.event("mode_changed", "metadata now", **{"from": "enabled", "to": "metadata"})
            job.end(1 if job_id == "124" else 0)
    with SpooledCapture(folder, "124", 2, started_ns=START_NS + 400 * NS) as job:
        job.end()
    with SpooledCapture(folder, "new") as job:
        job.end(3)
    monkeypatch.setenv("LOGSHIPPER_STORE", str(folder))
    with logshipper.Store.local(folder) as local_store:
        local_store.job("125").tag("experiment=ffn-1", "scale_nodes=512")
        local_store.job("126").tag("experiment=ffn-1", "scale_nodes=64")
        local_store.job("123").tag("experiment=foo")
    return local_store


def test_all_details_of_the_events_of_tagged_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    run(PRINTED)
    output_lines = capsys.readouterr().out.splitlines()
    end = datetime.fromtimestamp(START_NS / NS, UTC)
    assert [output_lines[0], *output_lines[2:4], output_lines[5], *output_lines[7:10]] == [
        "123", "RUNNING", "COMPLETED", "123", "QUEUED", "RUNNING", "{'attempt': 1, 'num_nodes': 1}",
    ]  # fmt: skip
    assert output_lines[4] == "{'attempt': 1, 'exit_code': 0, 'signal': 0, 'reason': ''}"
    at = [datetime.fromisoformat(output_lines[place]) for place in (6, 1)]
    assert at == sorted(at)
    assert all((moment - end).total_seconds() < 5 and moment.tzinfo is UTC for moment in at)


def test_events_of_some_jobs() -> None:
    restart_changes = [
        ("124", "RUNNING", "COMPLETED"),
        ("124", "REQUEUED", "RUNNING"),
        ("124", "FAILED", "REQUEUED"),
    ]
    assert snippet_changes(BY_JOB) == [
        *restart_changes,
        *run_changes("125"),
        *run_changes("124", "FAILED"),
        *run_changes("123"),
    ]


def test_events_of_an_allocation() -> None:
    assert snippet_changes(BY_BATCH_JOB) == run_changes("123")
    assert snippet_changes(BY_SCHEDULER) == run_changes("456")


def test_all_tags_must_match() -> None:
    assert snippet_changes(BY_TAGS) == run_changes("125")


def test_a_particular_change() -> None:
    startups = snippet_changes(STARTUPS)
    assert [job_id for job_id, *_ in startups] == ["new", "124", "456", "126", "125", "124", "123"]
    assert snippet_changes(RESTARTS) == [("124", "REQUEUED", "RUNNING")]


def test_only_events_of_the_last_day() -> None:
    assert snippet_changes(SINCE_YESTERDAY) == run_changes("new", "FAILED")


# ---- imports of Balsam's own jobs: all reports of Balsam's own API (tests/imports/make_balsam.py)


@pytest.fixture
def balsam_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> EventQuery:
    folder = tmp_path / "imported"
    assert main(["import", "balsam", str(RECORDED / "balsam"), "--store", str(folder)]) == 0
    monkeypatch.setenv("LOGSHIPPER_STORE", str(folder))
    return logshipper.EventLog.objects.filter()


def state_changes(
    events: Iterable[Any],
) -> list[tuple[int, str, str, datetime]]:  # Any: of Balsam or of here
    """Return changes, newest first; changes at equal times have any order."""
    changes = [
        (
            int(str(event.job_id).removeprefix("balsam-")),
            event.from_state,
            event.to_state,
            event.timestamp,
        )
        for event in events
    ]
    return sorted(changes, key=lambda change: (change[3], change[0], change[1]), reverse=True)


def of_balsam(**conditions: object) -> list[tuple[int, str, str, datetime]]:
    """Return the result of Balsam's own query: its recorded events, filtered."""
    events = json.loads((RECORDED / "balsam" / "events.json").read_text())["results"]
    matches = [
        event for event in events if all(event[name] == value for name, value in conditions.items())
    ]
    return state_changes(
        SimpleNamespace(
            **{**event, "timestamp": datetime.fromisoformat(event["timestamp"]).replace(tzinfo=UTC)}
        )
        for event in matches
    )


def test_imported_events_are_balsams_own(balsam_events: EventQuery) -> None:
    assert state_changes(balsam_events) == of_balsam()
    times = [event.timestamp for event in balsam_events]
    assert times == sorted(times, reverse=True)
    for state in {state for _, *states, _ in of_balsam() for state in states}:
        if state not in {
            "FAILED",
            "RUNNING",
        }:  # these are also states of logshipper, which stand for other states of Balsam
            assert state_changes(balsam_events.filter(to_state=state)) == of_balsam(
                to_state=state
            ), state
            assert state_changes(balsam_events.filter(from_state=state)) == of_balsam(
                from_state=state
            ), state
    restarts = balsam_events.filter(from_state="RESTART_READY", to_state="RUNNING")
    assert state_changes(restarts) == of_balsam(from_state="RESTART_READY", to_state="RUNNING")
    assert state_changes(balsam_events.filter(job_id=[101, 103])) == state_changes(
        event for event in balsam_events if event.job_id in ("balsam-101", "balsam-103")
    )


def test_imported_events_of_an_allocation(balsam_events: EventQuery) -> None:
    of_batch = state_changes(balsam_events.filter(batch_job_id=5))
    assert of_batch
    assert of_batch == state_changes(balsam_events.filter(scheduler_id=456)), (
        "it is the scheduler's 456"
    )
    assert {job_id for job_id, *_ in of_batch} < {job_id for job_id, *_ in of_balsam()}
    assert balsam_events.filter(batch_job_id=6, scheduler_id=456).count() == 0


STATES = ("CREATED", "AWAITING_PARENTS", "READY", "STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_ERROR", "RESTART_READY",
          "RUNNING", "RUN_DONE", "POSTPROCESSED", "JOB_FINISHED", "JOB_FINISHED")  # fmt: skip


def test_imported_states_keep_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = datetime.fromtimestamp(START_NS / NS, UTC)
    events = [
        {"id": second, "job_id": 7, "timestamp": (began + timedelta(seconds=second)).isoformat(), "data": {},
         "from_state": before, "to_state": after}
        for second, (before, after) in enumerate(pairwise(STATES))
    ]  # fmt: skip
    (tmp_path / "events.json").write_text(
        json.dumps({"count": len(events), "results": events[::-1]})
    )
    folder = str(tmp_path / "states")
    assert main(["import", "balsam", str(tmp_path / "events.json"), "--store", folder]) == 0
    monkeypatch.setenv("LOGSHIPPER_STORE", folder)
    query = logshipper.EventLog.objects.filter().order_by("timestamp")

    def changes(events: EventQuery) -> list[tuple[str, str]]:
        return [(event.from_state, event.to_state) for event in events]

    assert changes(query) == list(pairwise(STATES[:-1])), "a same-state update is no event"
    for state in set(STATES[1:]):
        assert {event.to_state for event in query.filter(to_state=state.lower())} == {state}
    assert changes(query.filter(to_state="COMPLETED")) == [("RUNNING", "RUN_DONE")], (
        "once, though three stand for it"
    )
    assert changes(query.filter(to_state="FAILED")) == [("RUNNING", "RUN_ERROR")]
    assert changes(query.filter(from_state="RESTART_READY", to_state="RUNNING")) == [
        ("RESTART_READY", "RUNNING")
    ]
    assert changes(query.filter(from_state="QUEUED")) == [("PREPROCESSED", "RUNNING")]
    assert changes(query.filter(to_state="QUEUED")) == []


def test_a_balsam_state_finds_captured_jobs_too() -> None:
    events = logshipper.EventLog.objects.filter(job_id=["123", "456"], to_state="RUN_DONE")
    assert [(event.job_id, event.to_state) for event in events] == [
        ("456", "COMPLETED"),
        ("123", "COMPLETED"),
    ]
