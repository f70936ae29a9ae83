"""Jobs in Loki with an end from Slurm's controller: it counts for the job, the node's own end for
each capture."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from logshipper.errors import UnknownJob
from logshipper_ingest.loki.finding import SeriesValue
from logshipper_ingest.model.job import JOB_ENDED
from logshipper_ingest.servers.loki_push import Entry
from logshipper_observe.base.words import utc
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_pushing import BOTH, JOB, Ask, Pushing, asking, open_store, texts

HOST = "controller"
# a capture's end by its node (Any: JSON)
KILLED: dict[str, Any] = {"state": "CANCELLED", "exit_code": None, "signal": 9}
FAILED: dict[str, Any] = {"state": "FAILED", "exit_code": 3, "signal": 0}


@pytest.fixture
def fake() -> FakeLoki:
    return FakeLoki()


@pytest.fixture
def ask(fake: FakeLoki, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    return asking(fake, monkeypatch, capsys)


def end_job(
    fake: FakeLoki, state: object, at_ns: int, *, attempt: int = 1, note: str = "", **fields: Any
) -> None:
    """Push the event of the controller's agent. Any: JSON."""
    labels = {"cluster": "local", "host": HOST, "service_name": "logshipper"}
    metadata = {"job_id": JOB, "user": "me", "attempt": str(attempt)}
    message = f"Slurm ended job {JOB}: {state}"
    event = {
        "event": JOB_ENDED,
        "message": message,
        "state": state,
        "exit_code": None,
        "signal": 0,
        "ended_ns": at_ns,
    }
    fake.push(
        {**labels, "kind": "event"}, [Entry(at_ns, json.dumps({**event, **fields}), metadata)]
    )
    if note:
        fake.push(
            {**labels, "kind": "log", "stream": "stdout"},
            [Entry(at_ns, note, {**metadata, "note": "1"})],
        )


def outcome(fake: FakeLoki) -> tuple[str, int | None, int]:
    """Return state, exit code and signal by the job's page; the list has the same."""
    store = open_store(fake)
    with store.open(store.resolve(JOB)) as reader:
        job = reader.summary
    (summary,) = open_store(fake).jobs()
    assert (summary.state, summary.exit_code, summary.signal) == (
        job.state,
        job.exit_code,
        job.signal,
    )
    return job.state, job.exit_code, job.signal


@pytest.mark.parametrize(
    ("of_node", "of_slurm", "result"),
    [
        (KILLED, {"state": "OUT_OF_MEMORY", "signal": 9}, ("OUT_OF_MEMORY", None, 9)),
        (KILLED, {"state": "TIMEOUT"}, ("TIMEOUT", None, 9)),
        (FAILED, {"state": "COMPLETED", "exit_code": 0}, ("COMPLETED", 0, 0)),
        (FAILED, {"state": "FAILED", "exit_code": 4}, ("FAILED", 4, 0)),
        (FAILED, {"state": "CANCELLED"}, ("CANCELLED", 3, 0)),
        (FAILED, {"state": None}, ("FAILED", 3, 0)),
        ({}, {"state": "DEADLINE"}, ("DEADLINE", 0, 0)),
        (FAILED, {"state": "RUNNING"}, ("FAILED", 3, 0)),
        (
            FAILED,
            {"state": ["COMPLETED"], "exit_code": "0", "signal": 10**30, "ended_ns": -1},
            ("FAILED", 3, 0),
        ),
        (FAILED, {"state": "FAILED", "exit_code": 10**30, "signal": True}, ("FAILED", None, 0)),
    ],
)
def test_slurms_word_counts_for_the_job(
    fake: FakeLoki,
    of_node: dict[str, Any],
    of_slurm: dict[str, Any],
    result: tuple[str, int | None, int],
) -> None:  # Any: JSON
    job = Pushing(fake)
    job.close(**of_node)
    end_job(fake, at_ns=job.began_ns + 51 * NS, **of_slurm)
    assert outcome(fake) == result
    store = open_store(fake)
    with store.open(JOB) as reader:
        (capture,) = reader.captures
    assert capture.state == of_node.get("state", "COMPLETED")


def test_a_step_that_failed_is_not_the_job(fake: FakeLoki) -> None:
    job = Pushing(fake, step="0")
    job.close(**FAILED)
    Pushing(fake, step="1", began_ns=job.began_ns).close()
    end_job(fake, "COMPLETED", job.began_ns + 51 * NS, exit_code=0)
    assert outcome(fake) == ("COMPLETED", 0, 0)


def test_a_node_that_died(fake: FakeLoki) -> None:
    """No agent closes its capture, which ends with the job. Followers end as well."""
    began_ns = time.time_ns() - 3600 * NS
    job = Pushing(fake, began_ns=began_ns)
    job.line(NS, "begun")
    job.event({"event": "heartbeat", "lines": 1}, 10 * NS)
    assert outcome(fake)[0] == "UNRESPONSIVE"
    end_job(fake, "NODE_FAIL", began_ns + 100 * NS)
    assert outcome(fake) == ("NODE_FAIL", None, 0)
    with open_store(fake).open(JOB) as reader:
        assert [(capture.state, capture.ended_ns) for capture in reader.captures] == [
            ("NODE_FAIL", began_ns + 100 * NS)
        ]
        assert (reader.is_over, reader.summary.lines, reader.status()) == (True, 1, {})
    before = len(fake.queries)
    open_store(fake).jobs()
    assert len(fake.queries) - before == 2  # without a search for its last sign of life


def test_lines_that_come_when_the_job_was_told_to_end_are_waited_for(fake: FakeLoki) -> None:
    job = Pushing(fake)
    end_job(fake, "TIMEOUT", time.time_ns() - NS)
    with open_store(fake).open(JOB) as reader:
        assert (reader.summary.state, reader.is_over) == ("TIMEOUT", False)
    job.close(60 * NS, **KILLED)
    assert outcome(fake) == ("TIMEOUT", None, 9)


def test_each_run_has_its_own_end(fake: FakeLoki) -> None:
    now_ns = time.time_ns()
    Pushing(fake, began_ns=now_ns - 600 * NS).close(**KILLED)
    end_job(fake, "REQUEUED", now_ns - 540 * NS)
    assert outcome(fake) == ("REQUEUED", None, 9)
    second = Pushing(fake, began_ns=now_ns - 30 * NS, attempt="2")
    assert outcome(fake)[0] == "RUNNING"
    second.close(20 * NS)
    end_job(fake, "COMPLETED", now_ns - 5 * NS, attempt=2, exit_code=0)
    assert outcome(fake) == ("COMPLETED", 0, 0)
    with open_store(fake).open(JOB) as reader:
        assert [event.attempt for event in reader.events()] == [1, 2]
        assert [event.attempt for event in reader.events(attempt=2)] == [2]
        assert {event.capture for event in reader.events()} == {0}


@pytest.mark.parametrize(
    ("states", "result"),
    [
        (("TIMEOUT", None), "TIMEOUT"),
        ((None, "TIMEOUT"), "TIMEOUT"),
        (("COMPLETED", "REQUEUED"), "COMPLETED"),
        (("REQUEUED", None), "REQUEUED"),
        (("CANCELLED", "NODE_FAIL"), "NODE_FAIL"),
    ],
)
def test_of_several_words_on_one_run_the_best_counts(
    fake: FakeLoki, states: tuple[str | None, ...], result: str
) -> None:
    """A node may have both hooks, and a job may restart after its end."""
    job = Pushing(fake)
    job.close()
    for number, state in enumerate(states):
        end_job(fake, state, job.began_ns + (51 + number) * NS)
    assert outcome(fake)[0] == result


def test_a_mere_end_is_no_job(fake: FakeLoki) -> None:
    end_job(fake, "FAILED", time.time_ns() - NS)
    assert open_store(fake).jobs() == []
    with pytest.raises(UnknownJob):
        open_store(fake).open(JOB)


def test_commands_show_it(fake: FakeLoki, ask: Ask) -> None:
    job = Pushing(fake)
    job.line(NS, "begun")
    job.close(**KILLED)
    note = f"[logshipper: killed: time limit (Slurm), job {JOB}, 2026-01-01T12:00:00+00:00]"
    end_job(fake, "TIMEOUT", job.began_ns + 51 * NS, note=note)
    assert json.loads(ask("ls", "--json", "--state", "timeout")[1])["jobs"][0]["job_id"] == JOB
    assert json.loads(ask("ls", "--json", "--state", "cancelled")[1])["jobs"] == []
    assert ask("logs", JOB)[1] == f"begun\n{note}\n"
    assert f"Slurm ended job {JOB}: TIMEOUT" in ask("show", JOB)[1]
    document = json.loads(ask("show", JOB, "--json")[1])
    assert (document["state"], document["signal"], document["captures"][0]["state"]) == (
        "TIMEOUT",
        9,
        "CANCELLED",
    )
    (event,) = document["events"]
    assert (event["event"], event["attempt"], event["capture"]) == (JOB_ENDED, 1, 0)


def test_since_when_it_was_queued_is_shown(fake: FakeLoki, ask: Ask) -> None:
    job = Pushing(fake)
    job.close(60 * NS)
    began_ns = job.began_ns // NS * NS
    end_job(
        fake,
        "COMPLETED",
        job.began_ns + 61 * NS,
        started_ns=began_ns,
        submitted_ns=began_ns - 300 * NS,
    )
    (info,) = json.loads(ask("info", JOB, "--json")[1])["jobs"]
    assert [change["state"] for change in info["history"]] == ["QUEUED", "RUNNING", "COMPLETED"]
    assert info["history"][0]["time"][:19] == utc(began_ns - 300 * NS)[:19]
    waits = json.loads(ask("analyze", "overheads", "--json")[1])["statistics"][
        "waited_in_the_queue"
    ]
    assert (waits["number"], waits["mean"]) == (1, 300)


def test_prometheus_does_not_know_the_controller(fake: FakeLoki) -> None:
    """Prometheus only names the job's nodes. The job's end comes from another host, maybe long
    ago."""
    began_ns = time.time_ns() - 20 * 86_400 * NS
    job = Pushing(fake, began_ns=began_ns, host="node7")
    job.line(NS, "begun")
    job.close(**KILLED)
    end_job(fake, "TIMEOUT", began_ns + 300 * NS, note="[ended]")

    def metrics(promql: str) -> Iterator[SeriesValue]:
        labels = {"cluster": "local", "job_id": JOB} | (
            {"host": "node7"} if "job_info" in promql else {}
        )
        yield SeriesValue(labels, 1.0 if "job_info" in promql else began_ns / NS)

    store = open_store(fake, metrics=metrics)
    with store.open(store.resolve(JOB)) as reader:
        assert reader.summary.state == "TIMEOUT"
        assert texts(list(reader.lines(streams=BOTH))) == ["begun", "[ended]"]
