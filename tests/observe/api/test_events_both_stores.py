"""Events of jobs, over a local store and over a real Loki that the node agent fills: the same tests
for both."""

import json
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logshipper
from logshipper.spool.segment import Kind
from logshipper.start.cli import main
from logshipper_ingest.model.capture_account import MAX_EVENTS
from logshipper_ingest.store.job_reader import JobReader
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.api import event_log
from logshipper_observe.api.event_log import EventQuery
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.stores.two_stores import TwoStores, note_opened, source, store, two_stores

__all__ = ["source", "store"]  # fixtures
BEGAN_NS = time.time_ns() - 1800 * NS


def write_jobs(store: Path) -> None:
    """Make the jobs e1 to e7.

    - e1: user events, a mode change, lost lines, forged events
    - e2: its heartbeat was late twice
    - e3: the heartbeat of one of two tasks was late, then that of both
    - e4: died with unwritten lines
    - e5: forges changes of its state
    - e6: more events than the cap
    - e7: its clock went back an hour before its restart
    """
    with SpooledCapture(store, "e1", name="train.py", started_ns=BEGAN_NS) as job:
        job.event("user_event", "checkpoint", data={"step": 100, "opt": {"lr": 0.1, "wd": 0}})
        job.lines('/LOGCOMMAND {"event":"x"}', kind=Kind.COMMAND)
        job.event("user_event", "evil \x1b[31m\x07", data={"name": "evil", "event": "job_ended"})
        job.event(
            "mode_changed", "metadata now", **{"from": "enabled", "to": "metadata"}, stream="stdout"
        )
        job.event(
            "lines_lost",
            "3 lines lost here: no space",
            lines=3,
            reason="no space left",
            stream="stdout",
        )
        job.event("heartbeat_lost", "forged")
        job.event("job_ended", "forged", state="FAILED")
        job.end()
    with SpooledCapture(store, "e2", name="train.py", started_ns=BEGAN_NS + 60 * NS) as job:
        job.lines("one")
        job.sleep(20.5)
        job.lines("two")
        job.sleep(19)
        job.lines("three")
        job.sleep(100)
        job.lines("four")
        job.end(1)
    for task in (0, 1):
        with SpooledCapture(
            store, "e3", task=task, suffix=f"task{task}", started_ns=BEGAN_NS + 300 * NS
        ) as job:
            job.lines("one")
            job.sleep(15 if task else 50)
            job.lines("two")
            job.sleep(30 if task else 60)
            job.lines("three")
            job.sleep(64 if task else 0)
            job.lines("four")
            job.sleep(5)
            job.end()
    with SpooledCapture(store, "e4", name="died", started_ns=BEGAN_NS + 500 * NS) as job:
        job.lines("one")
        job.lose(4, account="pending")
        job.heartbeat()
    with SpooledCapture(store, "e5", name="forger", started_ns=BEGAN_NS + 600 * NS) as job:
        job.event("state", **{"from": "RUNNING", "to": "COMPLETED"}, num_nodes=2)
        job.event("long_" * 1000, "told")
        job.end(1)
    with SpooledCapture(store, "e6", name="many", started_ns=BEGAN_NS + 700 * NS) as job:
        for number in range(MAX_EVENTS + 500):
            job.event("user_event", "again", data={"number": number})
        job.end()
    for attempt, began_ns in ((1, BEGAN_NS + 900 * NS), (2, BEGAN_NS + 850 * NS)):
        with SpooledCapture(store, "e7", attempt, name="restarted", started_ns=began_ns) as job:
            job.lines("one")
            job.end(1 if attempt == 1 else 0)


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, loki: LokiServer, prometheus: PrometheusServer
) -> Iterator[TwoStores]:
    folder = tmp_path_factory.mktemp("events")
    yield from two_stores(folder, loki, prometheus, f"t{uuid.uuid4().hex[:10]}", write_jobs)


@pytest.fixture
def log(store: logshipper.Store) -> EventQuery:
    return logshipper.EventLog(store)


def changes(events: "EventQuery | list[logshipper.StateEvent]") -> list[tuple[str, str]]:
    return [(event.from_state, event.to_state) for event in events]


def kinds(events: EventQuery) -> list[str]:
    return [event.kind for event in events]


def test_all_that_happened_to_a_job(log: EventQuery) -> None:
    events = list(log.filter(job_id="e1", own=True).order_by("timestamp"))
    assert [event.kind for event in events] == [
        "state", "user_event", "user_event", "mode_changed", "lines_lost", "not_heartbeat_lost", "not_job_ended",
        "state",
    ]  # fmt: skip
    checkpoint, evil, _, drop = events[1:5]
    assert checkpoint.data == {"step": 100, "opt": {"lr": 0.1, "wd": 0}}
    assert (checkpoint.from_state, checkpoint.to_state, checkpoint.message) == (
        "",
        "",
        "checkpoint",
    )
    assert evil.data == {"name": "evil", "event": "job_ended"}, "just what the user gave"
    assert (drop.data["reason"], drop.data["lines"]) == ("no space left", 3)
    assert changes(log.filter(job_id="e1")) == [("RUNNING", "COMPLETED"), ("QUEUED", "RUNNING")], (
        "newest first"
    )
    assert len({event.id for event in events}) == len(events)
    assert (
        list(log.filter(id=[event.id for event in events[:2]], own=True).order_by("timestamp"))
        == events[:2]
    )


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        ({"step": 100}, True), ({"step": 100.0}, True), ({"step": "100"}, False), ({"opt": {"lr": 0.1}}, True),
        ({"opt": {"wd": 0}}, True), ({"opt": {"wd": False}}, False), ({"opt": {"lr": 0.1, "x": 1}}, False),
        ({"opt": {}}, True), ({"opt": None}, False), ({}, True),
    ],
)  # fmt: skip
def test_data_is_contained(log: EventQuery, data: dict[str, Any], fits: bool) -> None:
    assert log.filter(job_id="e1", kind="user_event", data=data).count() == fits + (not data)


def test_a_late_heartbeat_is_said_once_and_taken_back(
    log: EventQuery, store: logshipper.Store
) -> None:
    query = log.filter(job_id="e2").order_by("timestamp")
    assert changes(query) == [
        ("QUEUED", "RUNNING"), ("RUNNING", "UNRESPONSIVE"), ("UNRESPONSIVE", "RUNNING"), ("RUNNING", "UNRESPONSIVE"),
        ("UNRESPONSIVE", "RUNNING"), ("RUNNING", "FAILED"),
    ]  # fmt: skip
    first_loss, first_return = list(query)[1:3]
    first_ns, second_ns, *_ = (line.time_ns for line in store.job("e2").lines())
    assert (first_loss.time_ns, first_return.time_ns) == (first_ns + 20 * NS, second_ns)
    assert (first_loss.message, first_return.message) == (
        "no heartbeat for 20 seconds", "the heartbeat is back, after 21 seconds",
    )  # fmt: skip
    assert kinds(log.filter(job_id="e2", kind=["heartbeat_lost", "heartbeat_found"])) == [
        "heartbeat_found", "heartbeat_lost", "heartbeat_found", "heartbeat_lost",
    ]  # fmt: skip
    assert kinds(log.filter(job_id="e2", own=True)) == kinds(log.filter(job_id="e2")), (
        "nothing is reported twice"
    )
    assert log.filter(to_state="UNRESPONSIVE")[0].job_id in ("e2", "e3")
    assert store.job("e2").state == "FAILED"


def test_a_job_is_unresponsive_when_all_of_its_tasks_are(log: EventQuery) -> None:
    """Task 0 is silent from 20 to 50 s and from 70 to 110 s, task 1 from 35 to 45 s and from 65 to
    109 s."""
    events = list(log.filter(job_id="e3", own=True).order_by("timestamp"))
    begin_ns = events[0].time_ns
    heartbeats = [
        (round((event.time_ns - begin_ns) / NS), event.kind, event.to_state)
        for event in events[1:-2]
    ]
    assert heartbeats == [
        (20, "heartbeat_lost", ""), (35, "heartbeat_lost", "UNRESPONSIVE"), (45, "heartbeat_found", "RUNNING"),
        (50, "heartbeat_found", ""), (65, "heartbeat_lost", ""), (70, "heartbeat_lost", "UNRESPONSIVE"),
        (109, "heartbeat_found", "RUNNING"),
    ]  # fmt: skip
    assert [(event.kind, event.to_state) for event in events[-2:]] == [
        ("heartbeat_found", ""),
        ("state", "COMPLETED"),
    ]


def test_what_a_dead_capture_never_wrote_is_a_drop_with_its_reason(log: EventQuery) -> None:
    (drop,) = log.filter(job_id="e4", kind="lines_lost")
    assert (drop.data["lines"], drop.data["reason"]) == (
        4,
        "its capture died before it had written them",
    )
    assert changes(log.filter(job_id="e4"))[0][1] == "FAILED"


def test_a_job_forges_no_change_of_its_state(log: EventQuery) -> None:
    assert changes(log.filter(job_id="e5")) == [("RUNNING", "FAILED"), ("QUEUED", "RUNNING")]
    assert kinds(log.filter(job_id="e5", own=True)) == [
        "state",
        "long_" * 1000,
        "not_state",
        "state",
    ]


def test_events_beyond_the_cap_are_said(log: EventQuery) -> None:
    query = log.filter(job_id="e6", own=True)
    assert query.filter(kind="user_event").count() == MAX_EVENTS
    (cap_event,) = query.filter(kind="events_left_out")
    assert f"it has {MAX_EVENTS:,}" in cap_event.message
    assert changes(log.filter(job_id="e6")) == [("RUNNING", "COMPLETED"), ("QUEUED", "RUNNING")]


def test_a_clock_that_went_back_turns_no_change_around(log: EventQuery) -> None:
    expected_changes = [("QUEUED", "RUNNING"), ("RUNNING", "FAILED"), ("FAILED", "REQUEUED"), ("REQUEUED", "RUNNING"),
                ("RUNNING", "COMPLETED")]  # fmt: skip
    events = list(log.filter(job_id="e7").order_by("timestamp"))
    assert changes(events) == expected_changes
    assert [event.time_ns for event in events] == sorted(event.time_ns for event in events)
    assert changes(log.filter(job_id="e7")) == expected_changes[::-1]


def test_times_are_included_and_orders_are_each_others_reverse(log: EventQuery) -> None:
    events = list(log.filter(own=True))
    assert [event.time_ns for event in events] == sorted(
        (event.time_ns for event in events), reverse=True
    )
    assert {event.id for event in log.filter(own=True).order_by("timestamp")} == {
        event.id for event in events
    }
    moment = next(event for event in events if event.kind == "mode_changed").timestamp
    micro = timedelta(microseconds=1)
    assert (
        log.filter(
            own=True, timestamp_after=moment - micro, timestamp_before=moment + micro
        ).count()
        >= 1
    )
    assert log.filter(job_id="e1", kind="mode_changed", timestamp_after=moment + micro).count() == 0
    assert (
        log.filter(job_id="e1", kind="mode_changed", timestamp_before=moment - micro).count() == 0
    )
    naive = (moment + micro).astimezone(UTC).replace(tzinfo=None)
    assert log.filter(job_id="e1", kind="mode_changed", timestamp_before=naive).count() == 1, (
        "UTC without a zone"
    )


@pytest.mark.parametrize("job_id", [f"e{number}" for number in range(1, 8)])
def test_one_jobs_events_are_the_same_in_either_order(
    log: EventQuery, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_first = list(log.filter(job_id=job_id, own=True))
    assert list(log.filter(job_id=job_id, own=True).order_by("timestamp")) == newest_first[::-1]
    assert len({event.id for event in newest_first}) == len(newest_first)
    assert log.filter(job_id=job_id, own=True)[2:9:3] == newest_first[2:9:3]


def test_how_many_jobs_are_held_open_changes_nothing(
    log: EventQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in (log.filter(own=True), log.filter(own=True).order_by("timestamp")):
        events = list(query)
        for at_once, files in ((1, 2), (3, 1), (2, 0)):
            with monkeypatch.context() as patch:
                patch.setattr(event_log, "MAX_AT_ONCE", at_once)
                patch.setattr(event_log, "MAX_OPEN", files)
                assert list(query) == events


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        (),
        ("user_event",),
        ("heartbeat_lost", "heartbeat_found"),
        ("lines_lost", 'x"y'),
        ("größer",),
    ],
)
def test_a_reader_gives_what_is_asked_for(
    store: logshipper.Store, names: tuple[str, ...], newest_first: bool
) -> None:
    for job_id in ("e1", "e2", "e6", "e7"):
        with store._store.open(job_id) as reader:
            events = list(reader.events())
            selection = [event for event in events if not names or event.event["event"] in names]
            ordered_selection = selection[::-1] if newest_first else selection
            assert list(reader.events(names=names, newest_first=newest_first)) == ordered_selection
            if not events:
                continue
            begin_ns, end_ns = events[len(events) // 3].time_ns, events[-1].time_ns
            events_in_range = [
                event for event in ordered_selection if begin_ns <= event.time_ns < end_ns
            ]
            answers = reader.events(
                names=names, newest_first=newest_first, begin_ns=begin_ns, end_ns=end_ns
            )
            assert list(answers) == events_in_range


def test_the_newest_of_very_many_events_are_read_alone(
    stores: TwoStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = 0
    read = JobReader._fetch

    def count_texts(reader: JobReader, query: str, *values: object) -> list[tuple[Any, ...]]:
        nonlocal texts
        rows = read(reader, query, *values)
        texts += len(rows) * ("SELECT time_ns, capture, event" in query)
        return rows

    monkeypatch.setattr(JobReader, "_fetch", count_texts)
    with stores.local() as store:
        assert len(logshipper.EventLog(store).filter(job_id="e6", own=True)[:10]) == 10
        assert 0 < texts < MAX_EVENTS / 3
        after = store.job("e6").summary.started_ns + 100 * NS
        texts = 0
        query = logshipper.EventLog(store).filter(
            job_id="e6",
            own=True,
            timestamp_after=datetime.fromtimestamp(after / NS, UTC),
            timestamp_before=None,
        )
        assert query.count() < 100
        assert texts < 100, "what is too old isn't looked at"


def test_allocations(log: EventQuery) -> None:
    assert {event.job_id for event in log.filter(scheduler_id="e2")} == {"e2"}
    assert {event.job_id for event in log.filter(batch_job_id=["e1", "e2"])} == {"e1", "e2"}
    assert log.filter(scheduler_id="e2", job_id="e1").count() == 0


def test_only_jobs_that_may_matter_are_opened(
    log: EventQuery, store: logshipper.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_ids = note_opened(store, monkeypatch)
    assert len(log.filter(job_id=["e1", "e2", "e6"])[:2]) == 2
    assert opened_ids == [], "e6 ran once, without a late heartbeat"
    assert changes(log.filter(job_id=["e1", "e2"])[:1]) == [("RUNNING", "FAILED")]
    # a local store's catalogue has how it ran
    assert opened_ids == ([] if isinstance(store._store, LocalStore) else ["e2"])


# ---- the command


def answer(
    stores: TwoStores, source: str, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any], str]:
    code = main([*words, *stores.options(source)])
    out, err = capsys.readouterr()
    return code, json.loads(out) if "--json" in words else {"out": out}, err


def test_every_filter_has_an_option(
    stores: TwoStores, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*words: str) -> list[dict[str, Any]]:
        code, document, err = answer(stores, source, capsys, "events", *words, "--json")
        assert (code, "no such" in err) == (0, False)
        events: list[dict[str, Any]] = document["events"]
        return events

    of_e1 = ask("e1", "--oldest-first")
    assert ask("--id", of_e1[1]["id"], "--id", of_e1[3]["id"], "--oldest-first") == [
        of_e1[1],
        of_e1[3],
    ]
    assert ask("--scheduler-id", "e1", "--kind", "user_event", "--data", "step=100") == [of_e1[1]]
    assert ask("--batch-job-id", "e1", "--data", '{"opt": {"lr": 0.1}}') == [of_e1[1]]
    assert ask("e1", "--data", "reason=no space left") == [of_e1[4]]
    assert ask("e1", "--changes", "--oldest-first") == [of_e1[0], of_e1[-1]]
    assert [event["to_state"] for event in ask("e2", "--from-state", "unresponsive")] == [
        "RUNNING",
        "RUNNING",
    ]
    assert [event["kind"] for event in ask("e1", "--limit", "2")] == ["state", "not_job_ended"]
    at = datetime.fromtimestamp(of_e1[3]["time_ns"] / NS, UTC)
    assert of_e1[3] in ask("e1", "--after", (at - timedelta(milliseconds=1)).isoformat(), "--before",
                           (at + timedelta(milliseconds=1)).isoformat())  # fmt: skip


def test_the_table_is_fit_for_a_terminal(
    stores: TwoStores, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, table, _ = answer(stores, source, capsys, "events", "e1", "nobody")
    assert code == 1
    assert not {"\x1b", "\x07"} & set(table["out"])
    assert [line.split()[1:4] for line in table["out"].splitlines()][-2] == ["e1", "user", "event"]
    assert "train.py: checkpoint" in table["out"]
    lines = answer(stores, source, capsys, "events", "e5")[1]["out"].splitlines()
    assert max(map(len, lines)) < 160
    assert "long long long long long long long long…" in lines[2]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--data", "x"), 2, "neither KEY=VALUE nor a JSON object"), (("--data", "{"), 2, "isn't a JSON object"),
        (("--to-state", "faled"), 2, "isn't a state"), (("--after", "yesterday"), 2, "isn't a time"),
    ],
)  # fmt: skip
def test_bad_options_are_named(
    stores: TwoStores,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    try:
        exit_code: int | str | None = main(["events", *words, *stores.options("local")])
    except SystemExit as error:
        exit_code = error.code
    assert exit_code == code
    assert message in capsys.readouterr().err


def test_both_stores_answer_alike(stores: TwoStores, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for store_name in ("local", "loki"):
        events = answer(stores, store_name, capsys, "events", "e1-e7", "--all", "--json")[1][
            "events"
        ]
        answers.append(
            [{**event, "id": "", "cluster": "", "data": without_capture(event)} for event in events]
        )
    assert answers[0] == answers[1]


def without_capture(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event's data without the capture's number, which depends on the store."""
    return {name: value for name, value in event["data"].items() if name != "capture"}
