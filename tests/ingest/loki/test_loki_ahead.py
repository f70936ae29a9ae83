"""Events of many jobs in a Loki in memory: few queries read them, and none before a reader needs
it. The same with a real Loki: tests/observe/api/test_events_both_stores.py."""

import time
from collections import Counter

import pytest

import logshipper
from logshipper_ingest.loki import ahead
from logshipper_ingest.loki.finding import SeriesValue
from logshipper_ingest.model.job import SHIPPED_UNRESPONSIVE_NS
from logshipper_observe.model.job_events import EventSelection, StateEvent, events_of
from logshipper_observe.model.overlay import Overlay
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_pushing import JOB, Pushing, open_store

JOBS = 120
BEAT = {"event": "heartbeat", "mode": "enabled", "lines": 1}


@pytest.fixture
def fake() -> FakeLoki:
    return FakeLoki()


def store_of(fake: FakeLoki) -> logshipper.Store:
    return logshipper.Store(open_store(fake), Overlay.of_loki(tell=print))


def push_jobs(fake: FakeLoki, *, ended: int, running: int = 0, events: int = 2) -> None:
    now_ns = time.time_ns()
    for number in range(ended + running):
        began_ns = now_ns - (number + 2) * 1000 * NS
        job = Pushing(fake, job_id=f"j{number}", host=f"node{number % 7}", began_ns=began_ns)
        for at in range(events):
            event = {"event": "user_event", "message": f"{at}", "data": {"step": at}}
            job.event(event, (at + 1) * NS)
        if number < running:
            job.event(BEAT, now_ns - began_ns - 2 * NS)
        else:
            job.close(100 * NS)


def one_by_one(fake: FakeLoki) -> list[StateEvent]:
    """Return events of every tenth job, read one job at a time."""
    with open_store(fake) as store:
        events: list[StateEvent] = []
        for job in store.jobs()[::10]:
            with store.reader_of(job) as reader:
                events += events_of(reader.summary, reader, EventSelection())
    return sorted(events, key=order)


def order(event: StateEvent) -> tuple[int, str]:
    return event.time_ns, event.id


def test_events_of_many_jobs_take_few_questions(fake: FakeLoki) -> None:
    push_jobs(fake, ended=JOBS - 30, running=30)
    log = logshipper.EventLog(store_of(fake)).filter(own=True)
    events = list(log)
    assert len(fake.queries) < 20
    some = one_by_one(fake)
    job_ids = {event.job_id for event in some}
    assert len(job_ids) == JOBS // 10
    assert sorted((event for event in events if event.job_id in job_ids), key=order) == some
    assert [event.time_ns for event in events] == sorted(
        (event.time_ns for event in events), reverse=True
    )
    oldest_first = list(log.order_by("timestamp"))
    assert [event.id for event in oldest_first] == [event.id for event in events][::-1]
    assert log[: JOBS // 2] == events[: JOBS // 2]
    assert log[3:40:5] == events[3:40:5]


def test_what_is_not_asked_for_is_not_read(fake: FakeLoki) -> None:
    push_jobs(fake, ended=JOBS)
    store = store_of(fake)
    list(store.jobs())
    listing, handed = len(fake.queries), fake.handed
    assert [
        event.data.get("step") for event in logshipper.EventLog(store).filter(own=True)[:3]
    ] == [0, 1, None][::-1]
    assert len(fake.queries) == 2 * listing + 1
    assert fake.handed < 2 * handed + 5 * ahead.FIRST


def test_jobs_with_very_many_events_are_read_fewer_at_a_time(
    fake: FakeLoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_jobs(fake, ended=12, events=20)
    monkeypatch.setattr(ahead, "MOST_ENTRIES", 60)
    events = list(logshipper.EventLog(store_of(fake)).filter(own=True))
    assert Counter(event.job_id for event in events) == {f"j{number}": 22 for number in range(12)}
    monkeypatch.setattr(ahead, "MOST_ENTRIES", 10)  # fewer than the entries of one job
    assert list(logshipper.EventLog(store_of(fake)).filter(own=True)) == events


def test_another_clusters_job_of_the_same_id_is_another_job(fake: FakeLoki) -> None:
    push_jobs(fake, ended=3)
    copies = [
        entry._replace(labels={**entry.labels, "cluster": "other"}) for entry in fake._entries
    ]
    fake._entries += [entry for entry in copies if entry.metadata["job_id"] != "j2"]
    events = list(logshipper.EventLog(store_of(fake)).filter(own=True))
    assert Counter((event.cluster, event.job_id) for event in events) == {
        ("local", "j0"): 4, ("local", "j1"): 4, ("local", "j2"): 4, ("other", "j0"): 4, ("other", "j1"): 4,
    }  # fmt: skip
    assert len({event.id for event in events}) == len(events)


def test_a_job_that_is_removed_meanwhile_is_told_by_its_summary(fake: FakeLoki) -> None:
    push_jobs(fake, ended=20)
    events = iter(logshipper.EventLog(store_of(fake)).filter(own=True))
    next(events)
    fake._entries.clear()
    kinds = Counter(event.kind for event in events)
    assert kinds["state"] == 2 * 20 - 1
    assert kinds["user_event"] == 2 * ahead.FIRST


def test_the_last_heartbeats_of_silent_jobs_are_found_among_many(fake: FakeLoki) -> None:
    """60 jobs have sent heartbeats until now; the others went silent at different times."""
    now_ns = time.time_ns()
    began_ns = now_ns - 4 * 3600 * NS
    last: dict[str, int] = {}
    for number in range(100):
        job = Pushing(fake, job_id=f"j{number}", host=f"node{number}", began_ns=began_ns)
        silent_secs = 0 if number < 60 else (number - 59) * 300
        for back in range(5):
            last.setdefault(f"j{number}", now_ns - (silent_secs + 1) * NS)
            job.event(BEAT, now_ns - began_ns - (silent_secs + 1 + 10 * back) * NS)
    lost = logshipper.EventLog(store_of(fake)).filter(to_state="UNRESPONSIVE")
    last_times = {event.job_id: event.time_ns for event in lost}
    assert len(fake.queries) < 20
    silent = {f"j{number}" for number in range(60, 100)}
    assert set(last_times) == silent
    assert all(
        last[job_id] < at_ns <= last[job_id] + SHIPPED_UNRESPONSIVE_NS
        for job_id, at_ns in last_times.items()
    )


def test_what_ran_where_prometheus_knows_no_agent_is_whole(fake: FakeLoki) -> None:
    """Captures name their node themselves, but an agent may use another name for it."""
    began_ns = time.time_ns() - 1800 * NS
    Pushing(fake, host="pod-1", began_ns=began_ns).close(1700 * NS)
    Pushing(fake, host="pod-2", began_ns=began_ns, task="1").event(BEAT, 1799 * NS)
    hint = SeriesValue({"cluster": "local", "job_id": JOB, "host": "n1"}, began_ns / NS)
    with open_store(fake, metrics=lambda promql: [hint]).open(JOB) as reader:
        assert [capture.started_ns for capture in reader.captures] == [began_ns] * 2
        assert (reader.summary.name, reader.summary.state) == ("train.py", "RUNNING")


@pytest.mark.parametrize("begin_secs", [1e-9, 1.0, float("nan"), -5.0, 1e300])
def test_a_begin_that_nobody_believes_makes_no_long_search(
    fake: FakeLoki, begin_secs: float
) -> None:
    Pushing(fake).close()
    hint = SeriesValue({"cluster": "local", "job_id": JOB, "host": "node1"}, begin_secs)
    now_ns = time.time_ns()
    with open_store(fake, metrics=lambda promql: [hint]).open(JOB) as reader:
        assert reader.summary.state == "COMPLETED"
    assert min(query.begin_ns for query in fake.queries) > now_ns - 8 * 86_400 * NS
