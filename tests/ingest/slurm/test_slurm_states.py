"""The agent on Slurm's controller: it ships records of jobs' ends from the hook's folder to Loki,
despite faults and restarts."""

import json
import os
import pwd
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from logshipper import fault_points
from logshipper.errors import QueryError, StoreError
from logshipper_ingest.config.agent_config import parse
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition, utc_hour
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.job_series import SLURM_END, SLURM_START
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.shipping.delivery import Delivery
from logshipper_ingest.shipping.loki_sink import LokiSink
from logshipper_ingest.shipping.quarantine import Quarantine
from logshipper_ingest.slurm import captured as slurm_captured
from logshipper_ingest.slurm import intake as slurm_intake
from logshipper_ingest.slurm import run_search
from logshipper_ingest.slurm import states as slurm_states
from logshipper_ingest.slurm.end_entries import SETTLE_SECS
from logshipper_ingest.slurm.states import ASKED_AFTER_SECS, SlurmStates
from logshipper_ingest.slurm.waiting import FILE, WaitingEnds, read_counts
from logshipper_ingest.state.checkpoints import Checkpoints
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.fakes.modelled_loki import ModelledLoki, Stored, throttled, unreachable
from tests.tools.stores.loki_pushing import Pushing

NS = 10**9
HOUR_NS = 3600 * NS
JOB = "4711"
OF_EVENTS, OF_LOG = 'kind="event"', 'kind="log"'
_IDS = re.compile(r' \| job_id=~("(?:[^"\\]|\\.)*")')


class AskedLoki(FakeLoki):
    """A fake Loki with the filter for several jobs."""

    def entries(
        self,
        logql: str,
        begin_ns: int,
        end_ns: int,
        *,
        direction: Literal["forward", "backward"] = "forward",
        page: int = 5000,
    ) -> Iterator[Entry]:
        ids = _IDS.search(logql)
        rest = _IDS.sub("", logql)
        for entry in super().entries(rest, begin_ns, end_ns, direction=direction, page=page):
            if ids is None or re.fullmatch(json.loads(ids[1]), entry.metadata["job_id"]):
                yield entry


class Controller:
    """The controller's part of an agent in this process. Its clock only moves by `shift_ns`.
    source_loki: for its queries; loki: for its pushes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        # Any: of [loki]
        self.ended = folder / "ended"
        self.ended.mkdir(mode=0o700)
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        agent = {
            "cluster": "local",
            "host": "ctl",
            "spool_dir": str(folder / "spool"),
            "state_dir": str(self.state),
        }
        loki = {
            "url": "http://modelled",
            "retry_min_secs": 0.001,
            "retry_max_secs": 0.002,
            **options,
        }
        self.config, problems = parse(
            {"agent": agent, "loki": loki, "slurm": {"ended_dir": str(self.ended)}}
        )
        assert problems == []
        self.source_loki = AskedLoki()
        self.loki = ModelledLoki()
        self.messages: list[str] = []
        self.shift_ns = 0
        begin_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: begin_ns + self.shift_ns)
        self.begin()

    def begin(self) -> None:
        self.metrics = AgentMetrics("local", "ctl")
        self.jobs = JobMetrics(self.config.metrics, "local", "ctl")
        self.stop = threading.Event()
        self.checkpoints = Checkpoints(str(self.state / "state.db"))
        self.delivery = Delivery(
            LokiSink("local", "ctl"),
            lambda: self.loki,
            self.config.loki,
            self.metrics,
            self.stop,
            self.messages.append,
        )
        quarantine = Quarantine(str(self.state / "quarantine"), 1 << 20)
        self.states = SlurmStates(
            self.config.lokis[0],
            self.checkpoints,
            self.delivery,
            quarantine,
            self.metrics,
            self.stop,
            self.messages.append,
            self.jobs,
            self.source_loki,
        )

    def end(self) -> None:
        self.states.close()
        self.checkpoints.close()

    def restart(self) -> None:
        self.end()
        self.begin()

    def now_ns(self) -> int:
        return time.time_ns()

    def write(
        self, job_id: str = JOB, *, by: str = "jobcomp", name: str = "", **fields: Any
    ) -> Path:
        """Write a record like the hook's. Any: a field's value."""
        now = self.now_ns() // NS
        values = {"by": by, "job_id": job_id, "state": "CANCELLED", "exit": "0:15", "start": now - 60, "end": now,
                "restarts": "", "user": "ann", "nodes": "n1", **fields}  # fmt: skip
        place = self.ended / (name or f"{job_id}.{values['end'] or 0}.{by}.17")
        lines = "".join(f"{field}={value}\n" for field, value in values.items())
        place.write_text(f"logshipper-ended 1\n{lines}.\n")
        place.chmod(0o600)
        return place

    def captured(
        self, job_id: str = JOB, *, ago_secs: int = 60, attempt: int = 1, host: str = "n1"
    ) -> Pushing:
        """Return a capture in Loki that began some seconds ago."""
        began_ns = self.now_ns() - ago_secs * NS
        return Pushing(
            self.source_loki, job_id=job_id, host=host, began_ns=began_ns, attempt=str(attempt)
        )

    def turn(self, after_secs: float = 0) -> None:
        """Do all work that is due after some seconds."""
        self.shift_ns += int(after_secs * NS)
        self.states.take()
        while self.states.round():
            pass

    def counts(self) -> dict[str, int]:
        """Return counts other than 0, which are the same in /metrics."""
        counts = read_counts(str(self.state / FILE))
        return {name: count for name, count in counts.items() if count}

    def in_loki(self, *parts: str) -> list[Stored]:
        return self.loki.find(*parts)


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    controller = Controller(tmp_path, monkeypatch)
    yield controller
    controller.end()


def event(entry: Stored) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = json.loads(entry.line)
    return {**document, **dict(entry.metadata)}


# ---- entries


def test_a_captured_job(controller: Controller) -> None:
    capture = controller.captured(ago_secs=60)
    capture.close(62 * NS)  # its last line came after Slurm's end
    file = controller.write()
    controller.turn()
    assert not file.exists()
    assert controller.in_loki() == []
    controller.turn(3)
    (entry,) = controller.in_loki(OF_EVENTS)
    (note,) = controller.in_loki(OF_LOG)
    assert (
        event(entry).items()
        >= {"event": "job_ended", "state": "CANCELLED", "attempt": "1", "user": "ann"}.items()
    )
    assert note.metadata == (("attempt", "1"), ("job_id", JOB), ("note", "1"), ("user", "ann"))
    assert note.line.decode().startswith(f"[logshipper: cancelled (Slurm), job {JOB}, ")
    assert note.line.decode().endswith(", signal 15]")
    assert all(
        label in note.labels
        for label in ('host="ctl"', 'cluster="local"', 'stream="stdout"', "logshipper")
    )
    assert "stream" not in entry.labels
    assert entry.time_ns == note.time_ns > capture.began_ns + 62 * NS
    assert controller.counts() == {"taken": 1, "shipped": 1}
    controller.turn(3600)
    assert len(controller.loki.stored) == 2


def test_a_job_that_completed_has_no_line(controller: Controller) -> None:
    controller.captured().close()
    controller.write(state="COMPLETED", exit="0:0")
    controller.turn()
    controller.turn(3)
    assert [len(controller.in_loki(kind)) for kind in (OF_EVENTS, OF_LOG)] == [1, 0]


def test_the_state_of_a_captured_job_is_shown(controller: Controller) -> None:
    """/metrics shows the state of the right run, and of captured jobs only."""
    now = controller.now_ns() // NS
    controller.captured(ago_secs=500, attempt=1).close(100 * NS)
    controller.captured(ago_secs=100, attempt=2).close(90 * NS)
    controller.write(start=now - 501, end=now - 400, state="PENDING", exit="0:0", restarts="0")
    controller.write(start=now - 101, end=now - 5, state="TIMEOUT", exit="0:0")
    controller.write("4712", state="TIMEOUT")
    controller.turn()
    assert controller.jobs.text() == ""
    controller.turn(60)
    text = exposition(controller.metrics, controller.jobs)[0].decode()
    samples = re.findall(r"^(\w+)\{(.*)\} (\d+)$", text, re.M)
    assert sorted(sample for sample in samples if sample[0].startswith("logshipper_job_")) == [
        *(
            (
                SLURM_END,
                f'cluster="local",job_id="{JOB}",attempt="{attempt}",state="{state}"',
                str(end),
            )
            for attempt, state, end in ((1, "REQUEUED", now - 400), (2, "TIMEOUT", now - 5))
        ),
        *(
            (SLURM_START, f'cluster="local",job_id="{JOB}",attempt="{attempt}"', str(start))
            for attempt, start in ((1, now - 501), (2, now - 101))
        ),
    ]
    jobs = re.findall(r'^logshipper_agent_slurm_jobs_total\{state="(\w+)"\} (\S+)$', text, re.M)
    assert {state: count for state, count in jobs if count != "0.0"} == {
        "REQUEUED": "1.0",
        "TIMEOUT": "2.0",
    }, "the one that wasn't captured, too"


def test_hours_of_all_jobs_survive_the_agent_and_waits_are_counted(controller: Controller) -> None:
    """Jobs without capture count as well. The better hook's record counts, and each record once."""
    hour = (controller.now_ns() // NS - 600) // 3600 * 3600
    controller.write("1", start=hour, end=hour + 60, nodes="n[1-3]", submit=hour - 100)
    controller.write("2", start=hour - 1800, end=hour + 30, submit=hour - 1800)
    controller.turn()
    controller.write("2", by="epilog", start=hour - 1800, end=hour + 30)
    controller.turn()
    controller.restart()
    controller.write("3", start=hour, end=hour + 10)
    controller.turn()
    text = exposition(controller.metrics, controller.jobs)[0].decode()

    def samples(name: str) -> dict[str, float]:
        pairs = re.findall(rf'^logshipper_agent_slurm_{name}\{{hour="(.*)"\}} (\S+)$', text, re.M)
        return {at: float(value) for at, value in pairs}

    before, during = utc_hour(hour // 3600 - 1), utc_hour(hour // 3600)
    assert samples("hour_node_seconds") == {before: 1800, during: 3 * 60 + 30 + 10}
    assert samples("hour_jobs") == {before: 0, during: 3}
    assert "logshipper_agent_slurm_wait_seconds_count 0.0" in text, "a counter of this agent's life"


def test_waits_of_all_jobs(controller: Controller) -> None:
    now = controller.now_ns() // NS
    controller.write("1", start=now - 60, submit=now - 160)
    controller.write("2", start=now - 60, submit=now - 60)
    controller.write("3", start=now - 60, submit="")
    controller.turn()
    text = exposition(controller.metrics, controller.jobs)[0].decode()
    samples = dict(
        re.findall(
            r"^logshipper_agent_slurm_wait_seconds_(\w+(?:\{le=\"\S+\"\})?) (\S+)$", text, re.M
        )
    )
    assert (samples["count"], samples["sum"]) == ("2.0", "100.0")
    assert [samples[f'bucket{{le="{secs}"}}'] for secs in ("1.0", "60.0", "300.0")] == [
        "1.0",
        "1.0",
        "2.0",
    ]


def test_every_loki_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sink keeps its own records. The hook's file stays until all sinks have its record, and
    none sends it earlier."""
    controller = Controller(tmp_path, monkeypatch, other={"url": "http://other"})
    _, config = controller.config.lokis
    Path(config.folder).mkdir(parents=True)
    second_source, loki, metrics = AskedLoki(), ModelledLoki(), AgentMetrics()
    checkpoints = Checkpoints(f"{config.folder}/state.db")
    say, stop = controller.messages.append, controller.stop
    sink = LokiSink("local", "ctl")
    delivery = Delivery(sink, lambda: loki, config.delivery, metrics, stop, say)
    quarantine = Quarantine(f"{config.folder}/quarantine", 1 << 20)
    jobs = JobMetrics(controller.config.metrics, "local", "ctl")
    second_states = SlurmStates(
        config, checkpoints, delivery, quarantine, metrics, stop, say, jobs, second_source
    )
    controller.states.give(second_states)
    for source in (controller.source_loki, second_source):
        Pushing(
            source, job_id=JOB, host="n1", began_ns=controller.now_ns() - 60 * NS, attempt="1"
        ).close(62 * NS)
    place = controller.write()

    def no_room(*_: object) -> dict[str, int]:
        raise StoreError("slurm.db", "no room")

    with monkeypatch.context() as patch:
        patch.setattr(slurm_states, "TAKE_AGAIN_SECS", 0.0)
        patch.setattr(second_states._waiting_ends, "put", no_room)
        controller.turn(5)
        assert place.exists()
        assert (controller.in_loki(), loki.find()) == ([], [])
    controller.turn(5)
    controller.turn(5)
    while second_states.round():
        pass
    assert not place.exists()
    assert [len(server.find(OF_EVENTS)) for server in (controller.loki, loki)] == [1, 1]
    assert read_counts(f"{config.folder}/{FILE}")["shipped"] == controller.counts()["shipped"] == 1
    second_states.close()
    checkpoints.close()
    controller.end()


def test_nothing_of_a_job_that_was_not_captured(controller: Controller) -> None:
    controller.captured("4712").close()
    controller.write()
    for secs in (0, *ASKED_AFTER_SECS):
        controller.turn(secs + 1)
    assert controller.loki.requests == []
    assert controller.counts() == {"taken": 1, "not_captured": 1}
    assert any("1 Slurm jobs ended without capture" in line for line in controller.messages)
    assert 5 <= len(controller.source_loki.queries) <= len(ASKED_AFTER_SECS) + 1


def test_a_node_that_lags(controller: Controller) -> None:
    controller.write()
    controller.turn()
    controller.turn(5)
    controller.turn(600)
    controller.captured(ago_secs=660).close(60 * NS)
    controller.turn(3600)
    (entry,) = controller.in_loki(OF_EVENTS)
    assert event(entry)["ended_ns"] < entry.time_ns < controller.now_ns() - HOUR_NS
    assert controller.counts() == {"taken": 1, "shipped": 1}


def test_it_waits_for_the_last_lines_but_not_for_long(controller: Controller) -> None:
    controller.captured()
    file_end = controller.now_ns() // NS
    controller.write(end=file_end)
    controller.turn()
    for _ in range(10):
        controller.turn(5)
    assert controller.in_loki() == []
    controller.turn(SETTLE_SECS)
    (entry,) = controller.in_loki(OF_EVENTS)
    assert entry.time_ns == (file_end + SETTLE_SECS) * NS


def test_hundreds_of_jobs_in_a_few_questions(controller: Controller) -> None:
    for number in range(500):
        controller.write(str(5000 + number))
    controller.captured("5321").close()
    controller.turn()
    controller.turn(3)
    assert len(controller.source_loki.queries) == 3
    assert [event(entry)["job_id"] for entry in controller.in_loki(OF_EVENTS)] == ["5321"]
    assert controller.counts() == {"taken": 500, "shipped": 1, "waiting": 499}


def test_a_job_with_too_many_events_costs_no_other(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_captured, "MAX_ENTRIES", 20)
    for step in range(30):
        Pushing(
            controller.source_loki,
            job_id="5003",
            began_ns=controller.now_ns() - 50 * NS,
            host="n1",
            step=str(step),
        )
    ids = [str(number) for number in range(5000, 5008)]
    for job_id in ids:
        controller.captured(job_id).close()
        controller.write(job_id, start=controller.now_ns() // NS - 61)
    controller.turn()
    controller.turn(3)
    job_ids = {event(entry)["job_id"] for entry in controller.in_loki(OF_EVENTS)}
    assert job_ids == {*ids} - {"5003"}  # one of its captures is still open
    controller.turn(SETTLE_SECS)
    assert len(controller.in_loki(OF_EVENTS)) == len(ids)


def test_only_its_nodes_are_asked(controller: Controller) -> None:
    controller.captured(host="n1.example.org").close()
    controller.captured("4712", host="n17").close()
    controller.write(nodes="n[1-2]")
    controller.write("4712", nodes="n[1-2]")
    controller.turn()
    controller.turn(3)
    assert [event(entry)["job_id"] for entry in controller.in_loki(OF_EVENTS)] == [JOB]
    assert 'host=~"(n1|n2)([.].+)?"' in controller.source_loki.queries[0].logql


# ---- choice of the run


def test_runs_are_told_apart_by_their_times(controller: Controller) -> None:
    now = controller.now_ns() // NS
    controller.captured(ago_secs=500, attempt=1).close(100 * NS)
    controller.captured(ago_secs=100, attempt=2).close(90 * NS)
    controller.write(start=now - 501, end=now - 400, state="PENDING", exit="0:0")
    controller.write(start=now - 101, end=now - 10, state="FAILED", exit="1:0")
    controller.turn()
    controller.turn(3)
    states = {
        event(entry)["attempt"]: event(entry)["state"] for entry in controller.in_loki(OF_EVENTS)
    }
    assert states == {"1": "REQUEUED", "2": "FAILED"}


def test_a_run_that_was_not_captured_gets_no_other_runs_captures(controller: Controller) -> None:
    """The user opted out or in before the restart of the job."""
    now = controller.now_ns() // NS
    controller.captured(ago_secs=500, attempt=2).close(100 * NS)
    controller.write(start=now - 900, end=now - 700)
    controller.write(start=now - 300, end=now)
    controller.turn()
    controller.turn(3)
    assert controller.in_loki() == []


def test_a_run_whose_captures_lag_is_not_taken_for_the_one_before(controller: Controller) -> None:
    """The runs are only seconds apart, which is as much as clocks may differ."""
    now = controller.now_ns() // NS
    controller.captured(ago_secs=12).close(2 * NS)
    controller.write(start=now - 8, end=now)
    controller.turn()
    controller.turn(4)
    assert controller.in_loki() == []
    controller.captured(ago_secs=11, attempt=2).close(5 * NS)
    controller.turn(10)
    assert [event(entry)["attempt"] for entry in controller.in_loki(OF_EVENTS)] == ["2"]


def test_a_node_whose_clock_is_behind(controller: Controller) -> None:
    now = controller.now_ns() // NS
    controller.captured(ago_secs=12).close(2 * NS)
    controller.write(start=now - 8, end=now)
    controller.turn()
    controller.turn(5)
    controller.turn(55)
    assert len(controller.in_loki(OF_EVENTS)) == 1


def test_a_resized_job(controller: Controller) -> None:
    """The record's start is the time of the resize."""
    now = controller.now_ns() // NS
    controller.captured(ago_secs=500).close(490 * NS)
    controller.write(start=now - 100, end=now - 5)
    controller.turn()
    controller.turn(60)
    assert len(controller.in_loki(OF_EVENTS)) == 1


@pytest.mark.parametrize(
    ("restarts", "closed_ago_secs", "event_count"),
    [(0, 300, 1), (1, 300, 0), (1, 10, 1), (2, 10, 1)],
)
def test_an_epilog_without_times(
    controller: Controller, restarts: int, closed_ago_secs: int, event_count: int
) -> None:
    controller.captured(ago_secs=500).close((500 - closed_ago_secs) * NS)
    file = controller.write(by="epilog", start="", end="", state="", restarts=restarts)
    now = controller.now_ns()
    os.utime(file, ns=(now, now))
    controller.turn()
    controller.turn(60)
    assert len(controller.in_loki(OF_EVENTS)) == event_count


# ---- faults


@pytest.mark.parametrize("point", ["slurm_told", "slurm_sent"])
def test_killed_in_between_it_sends_the_same_bytes(
    point: str, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.captured().close()
    controller.write()
    controller.turn()

    class Killed(BaseException):
        pass

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(fault_points, "on_reached", kill)
        with pytest.raises(Killed):
            controller.turn(3)
    controller.restart()
    controller.captured(ago_secs=30).close(29 * NS)  # Loki has more captures by now
    controller.turn(50)
    assert len(controller.in_loki()) == 2
    assert controller.loki.doubles() == []
    assert controller.counts() == {"taken": 1, "shipped": 1}


def test_killed_before_the_file_is_removed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent sends nothing of a record that it may find again."""
    controller.captured().close()
    file = controller.write()

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", killed)
        with pytest.raises(Killed):
            controller.states.take()
    assert file.exists()
    controller.restart()
    controller.shift_ns += 60 * NS
    controller.states.round()
    assert controller.in_loki() == []
    controller.turn()
    assert not file.exists()
    assert controller.counts() == {"taken": 1, "shipped": 1}
    controller.turn(3600)
    assert controller.loki.doubles() == []


def test_a_file_that_cannot_be_removed_is_sent_by_nobody(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.captured().close()
    controller.write()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", denied)
        for _ in range(5):
            controller.turn(10)
    assert controller.in_loki() == []
    assert len([line for line in controller.messages if "can't remove it" in line]) == 1


def test_loki_throttles_and_goes_away(controller: Controller) -> None:
    controller.captured().close()
    controller.write()
    controller.turn()
    controller.loki.script = [throttled(), unreachable(), throttled()]
    controller.turn(3)
    assert len(controller.in_loki()) == 2
    assert controller.counts() == {"taken": 1, "shipped": 1}


def test_loki_does_not_answer_questions(controller: Controller) -> None:
    controller.captured().close()
    controller.write()
    controller.source_loki.broken = QueryError("Loki at http://x", 403, "no")
    controller.turn()
    with pytest.raises(QueryError):
        controller.turn(3)
    assert controller.counts() == {"taken": 1, "waiting": 1}
    controller.source_loki.broken = None
    controller.turn(30)
    assert controller.counts() == {"taken": 1, "shipped": 1}


def test_its_thread_goes_on_after_errors(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_states, "_MAX_RETRY_SECS", 0.01)
    monkeypatch.setattr(slurm_states, "POLL_SECS", 0.01)
    monkeypatch.setattr(slurm_states, "Backoff", lambda least, longest: shorter(longest))
    errors: list[Exception] = [QueryError("Loki at http://x", 403, "no")] * 3 + [
        ValueError("a fault")
    ]

    def round_() -> bool:
        if errors:
            raise errors.pop(0)
        controller.stop.set()
        return False

    monkeypatch.setattr(controller.states, "round", round_)
    controller.states.run()
    assert (
        len([line for line in controller.messages if "HTTP 403: no; everything waits" in line]) == 1
    )
    assert len([line for line in controller.messages if "ValueError('a fault')" in line]) == 1


def shorter(longest: float) -> Any:  # Any: a Backoff
    from logshipper_ingest.servers.backoff import Backoff

    return Backoff(longest, longest)


def test_what_is_far_behind_goes_to_replay_streams(controller: Controller) -> None:
    """The agent knows of newer lines, or learns it from Loki's refusal."""
    now = controller.now_ns() // NS
    controller.captured().close()
    controller.write()
    controller.turn()
    controller.turn(3)
    for number, is_captured in ((5001, True), (5002, False)):
        if not is_captured:
            controller.checkpoints.commit([], {})
            controller.checkpoints._connection.execute("DELETE FROM stream")
        controller.captured(str(number), ago_secs=5 * 3600).close(3600 * NS)
        controller.write(str(number), start=now - 5 * 3600, end=now - 4 * 3600)
        controller.turn()
        controller.turn(3)
        controller.turn(1)
    assert len(controller.in_loki("replay=")) == 4
    assert controller.counts() == {"taken": 3, "shipped": 3}
    assert controller.loki.doubles() == []


def test_too_old_for_loki(controller: Controller) -> None:
    now = controller.now_ns() // NS
    controller.captured(ago_secs=165 * 3600).close(3600 * NS)
    controller.write(start=now - 165 * 3600, end=now - 164 * 3600)
    controller.turn()
    controller.turn(3)
    assert controller.loki.requests == []
    assert controller.counts() == {"taken": 1, "refused": 1}
    (file,) = (controller.state / "quarantine").iterdir()
    assert "job_ended" in file.read_text()


# ---- a tenant for each user


class Tenants:
    """A Loki for each tenant. requests: tenants of the controller's queries, in order."""

    def __init__(self) -> None:
        self.of: dict[str, AskedLoki] = defaultdict(AskedLoki)
        self.requests: list[str] = []

    def client(self, access: ServerAccess) -> AbstractContextManager[AskedLoki]:
        self.requests.append(access.tenant)
        return nullcontext(self.of[access.tenant])


@pytest.fixture
def tenants(monkeypatch: pytest.MonkeyPatch) -> Tenants:
    fake_tenants = Tenants()
    monkeypatch.setattr(run_search, "LokiClient", fake_tenants.client)
    return fake_tenants


@pytest.fixture
def by_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenants: Tenants
) -> Iterator[Controller]:
    controller = Controller(tmp_path, monkeypatch, tenant_by="user", retry_max_secs=30.0)
    yield controller
    controller.end()


def captured_by(tenants: Tenants, tenant: str, controller: Controller, job_id: str) -> None:
    began_ns = controller.now_ns() - 60 * NS
    Pushing(tenants.of[tenant], job_id=job_id, host="n1", began_ns=began_ns).close()


def broken(status: int) -> QueryError:
    return QueryError("Loki at http://x", status, "no")


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 504])
def test_a_tenant_that_gives_no_answer_holds_up_no_other(
    by_user: Controller, tenants: Tenants, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(slurm_states, "BATCH", 4)
    for number in range(3):
        by_user.write(str(100 + number), user="ann")
        captured_by(tenants, "ann", by_user, str(100 + number))
    for number in range(3):
        by_user.write(str(200 + number), user="ben")
        captured_by(tenants, "ben", by_user, str(200 + number))
    tenants.of["ann"].broken = broken(status)
    by_user.turn()
    by_user.turn(3)
    assert by_user.counts() == {"taken": 6, "shipped": 3, "waiting": 3}
    assert len(by_user.in_loki('tenant="ben"', OF_EVENTS)) == 3
    before = len(tenants.requests)
    by_user.turn(3)
    assert len(tenants.requests) == before, "put off"
    by_user.write("203", user="ben")
    captured_by(tenants, "ben", by_user, "203")
    by_user.states.take()
    by_user.turn(31)
    assert tenants.requests[before:].count("ann") == 1
    assert len([line for line in by_user.messages if "those of the tenant ann wait" in line]) == 1
    tenants.of["ann"].broken = None
    by_user.turn(31)
    assert by_user.counts() == {"taken": 7, "shipped": 7}
    assert len(by_user.in_loki('tenant="ann"', OF_EVENTS)) == 3


def test_a_batch_of_one_user_s_that_is_at_its_limits_lets_others_pass(
    by_user: Controller, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_states, "BATCH", 2)
    for number in range(5):
        by_user.write(str(100 + number), user="ann")
    tenants.of["ann"].broken = broken(429)
    by_user.turn()
    by_user.shift_ns += NS // 10
    captured_by(tenants, "ben", by_user, "200")
    by_user.write("200", user="ben")
    by_user.turn()
    by_user.turn(3)
    assert by_user.counts() == {"taken": 6, "shipped": 1, "waiting": 5}


@pytest.mark.parametrize("status", [403, 500])
def test_what_is_never_answered_for_a_tenant_is_dropped_in_the_end(
    by_user: Controller, tenants: Tenants, status: int
) -> None:
    by_user.write(user="ann")
    tenants.of["ann"].broken = broken(status)
    by_user.turn()
    by_user.turn(ASKED_AFTER_SECS[-1] - 60)
    assert by_user.counts() == {"taken": 1, "waiting": 1}
    by_user.turn(61)
    assert by_user.counts() == {"taken": 1, "not_captured": 1}


def test_where_loki_answers_for_nobody_one_tenant_s_records_are_kept(
    by_user: Controller, tenants: Tenants
) -> None:
    by_user.write(user="ann")
    tenants.of["ann"].broken = by_user.source_loki.broken = broken(500)
    by_user.turn()
    with pytest.raises(QueryError):
        by_user.turn(ASKED_AFTER_SECS[-1] + 60)
    assert by_user.counts() == {"taken": 1, "waiting": 1}


@pytest.mark.parametrize("statuses", [{"ann": 0}, {"ben": 0}, {"ann": 403, "ben": 429}])
def test_a_loki_that_answers_nobody_is_an_error_and_nothing_is_dropped(
    by_user: Controller, tenants: Tenants, statuses: dict[str, int]
) -> None:
    for job_id, user in (("100", "ann"), ("200", "ben")):
        by_user.write(job_id, user=user)
        captured_by(tenants, user, by_user, job_id)
    for user, status in statuses.items():
        tenants.of[user].broken = broken(status)
    by_user.turn()
    with pytest.raises(QueryError):
        by_user.turn(ASKED_AFTER_SECS[-1] + 60)
    assert by_user.counts() == {"taken": 2, "waiting": 2}
    queue = WaitingEnds(str(by_user.state / FILE))
    heads = [end.record.user for end in queue.due(by_user.now_ns(), 100)]
    queue.close()
    assert not statuses.keys() & set(heads), "others' turn comes"
    for user in statuses:
        tenants.of[user].broken = None
    by_user.turn(31)
    by_user.turn(31)
    assert by_user.counts() == {"taken": 2, "shipped": 2}


class Directory:
    """Replaces the machine's users. requests: users, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **uids: int) -> None:
        self.requests: list[str] = []
        self._uids = uids
        monkeypatch.setattr(pwd, "getpwnam", self._look_up)

    def _look_up(self, user: str) -> Any:  # Any: as pwd's
        self.requests.append(user)
        return SimpleNamespace(pw_uid=self._uids[user])


def test_a_user_is_looked_up_where_the_name_is_no_tenant_and_once_a_round(
    by_user: Controller, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(monkeypatch, Ann=1007)
    for job_id, user, tenant in (("1", "ben", "ben"), ("2", "1009", "uid!1009"), ("3", "Ann", "uid!1007"),
                                 ("4", "Ann", "uid!1007")):  # fmt: skip
        by_user.write(job_id, user=user)
        captured_by(tenants, tenant, by_user, job_id)
    by_user.turn()
    by_user.turn(3)
    assert by_user.counts() == {"taken": 4, "shipped": 4}
    assert directory.requests == ["Ann"]
    assert len(by_user.in_loki('tenant="uid!1007"', OF_EVENTS)) == 2
    assert len(by_user.in_loki('tenant="uid!1009"', OF_EVENTS)) == 1


def test_a_job_whose_node_did_not_know_the_name_is_found_by_number(
    by_user: Controller, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(monkeypatch, ann=1007)
    by_user.write(user="ann")
    captured_by(tenants, "uid!1007", by_user, JOB)
    by_user.turn()
    by_user.turn(3)
    assert directory.requests == []
    by_user.loki.refusing = {"uid!1007": throttled()}
    by_user.turn(run_search.BY_UID_AFTER_SECS)
    by_user.loki.refusing = {}
    by_user.turn(31)
    assert by_user.counts() == {"taken": 1, "shipped": 1}
    assert len(by_user.in_loki('tenant="uid!1007"', OF_EVENTS)) == 1
    assert by_user.in_loki('tenant="ann"') == []


def test_trouble_with_a_tenant_lasts_as_long_as_a_record_waits_for_it(
    by_user: Controller, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lasts even if the shipper reports that it has nothing for the tenant."""
    monkeypatch.setattr(
        fault_points, "on_reached", lambda _: by_user.delivery.want("captures", set())
    )
    by_user.write(user="ann")
    captured_by(tenants, "ann", by_user, JOB)
    by_user.loki.refusing = {"ann": throttled()}
    by_user.turn()
    by_user.turn(3)
    assert by_user.delivery.state.status == 429
    by_user.loki.refusing = {}
    by_user.turn(31)
    assert by_user.counts() == {"taken": 1, "shipped": 1}
    assert by_user.delivery.state.since_ns == 0


# ---- hostile folders and records


def garbage(place: Path) -> None:
    place.write_bytes(b"\xff\0 garbage")


def empty(place: Path) -> None:
    place.touch()


def huge(place: Path) -> None:
    place.write_bytes(b"logshipper-ended 1\n" + b"x" * (2 << 20))


def link(place: Path) -> None:
    place.symlink_to("/etc/passwd")


def pipe(place: Path) -> None:
    os.mkfifo(place)


@pytest.mark.parametrize("make", [garbage, empty, huge, link, pipe])
def test_what_is_no_record_is_removed_and_counted(
    make: Callable[[Path], None], controller: Controller
) -> None:
    place = controller.ended / "4711.1700000000.jobcomp.1"
    make(place)
    controller.captured("4712").close()
    controller.write("4712")
    controller.turn()
    controller.turn(3)
    assert list(controller.ended.iterdir()) == []
    assert controller.counts() == {"taken": 1, "shipped": 1, "malformed": 1}
    assert len([line for line in controller.messages if "counts it as malformed" in line]) == 1


def test_files_that_are_not_the_hooks_are_left_alone(controller: Controller) -> None:
    """An admin may configure another program's folder by mistake."""
    names = [
        "passwd",
        "4711",
        "4711.1.jobcomp",
        "4711.1.jobcomp.x",
        ".new.passwd",
        "x.1.jobcomp.1",
        "\udcff",
    ]
    for name in names:
        (controller.ended / name).touch()
        os.utime(controller.ended / name, (0, 0))
    controller.write("4712")
    controller.turn()
    assert sorted(os.listdir(controller.ended)) == sorted(names)
    assert controller.counts() == {"taken": 1, "waiting": 1}


def test_what_the_hook_did_not_finish_is_removed_in_the_end(controller: Controller) -> None:
    young, old = (controller.ended / f".new.4711.1.jobcomp.{number}" for number in (1, 2))
    for place in (young, old):
        place.touch()
    os.utime(old, (0, 0))
    controller.turn()
    assert list(controller.ended.iterdir()) == [young]


def test_a_directory_in_the_way(controller: Controller) -> None:
    (controller.ended / "4711.1.jobcomp.1").mkdir()
    for _ in range(3):
        controller.turn(20)
    assert len([line for line in controller.messages if "can't remove it" in line]) == 1


@needs_root  # only root can give a file away
def test_a_record_of_somebody_elses(controller: Controller) -> None:
    os.chown(controller.write(), 65534, 65534)
    controller.turn()
    assert controller.counts() == {"malformed": 1}
    os.chown(controller.ended, 64064, 0)  # SlurmUser owns the folder, so its records count
    os.chown(controller.write("4712"), 64064, 0)
    controller.turn(1)
    assert controller.counts() == {"malformed": 1, "taken": 1, "waiting": 1}


def test_a_folder_where_others_may_write_or_that_is_missing(controller: Controller) -> None:
    controller.write()
    controller.ended.chmod(0o770)
    controller.turn()
    assert controller.counts() == {}
    assert (
        len(
            [
                line
                for line in controller.messages
                if "run `chmod 700` on it ([slurm] ended_dir)" in line
            ]
        )
        == 1
    )
    controller.ended.rename(controller.ended.with_name("away"))
    controller.states._take_due = 0.0
    controller.turn()
    assert "no such file or directory ([slurm] ended_dir)" in controller.messages[-1]


def test_too_many_records(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_intake, "MAX_WAITING", 10)
    for number in range(14):
        controller.write(str(5000 + number))
        controller.turn(0.1)
    assert controller.counts() == {"taken": 14, "waiting": 10, "too_many": 4}
    queue = WaitingEnds(str(controller.state / FILE))
    due = {end.record.job_id for end in queue.due(1 << 62, 100)}
    queue.close()
    assert due == {str(number) for number in range(5004, 5014)}
    assert any("drops the oldest 1" in line for line in controller.messages)


def test_as_many_at_once_as_one_turn_should_take(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_intake, "MAX_AT_ONCE", 10)
    for number in range(25):
        controller.write(str(5000 + number))
    file_counts = []
    for _ in range(3):
        controller.states.take()
        file_counts.append(len(list(controller.ended.iterdir())))
    assert file_counts == [15, 5, 0]
