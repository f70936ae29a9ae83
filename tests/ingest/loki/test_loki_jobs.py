"""Choice of the job in Loki, hints from Prometheus, and forged entries."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.errors import QueryError, UnknownJob
from logshipper.spool.segment import Json
from logshipper_ingest.loki.account import END_AHEAD_NS, JobAccount
from logshipper_ingest.loki.finding import SeriesValue
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import MARKS
from logshipper_ingest.servers.logql import any_of, quoted
from logshipper_ingest.servers.loki_push import Entry
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.captures.segment_factory import make_capture, make_ledger
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import BOTH, JOB, Ask, Pushing, asking, open_store, read, texts
from tests.tools.stress.model_settings import examples


@pytest.fixture
def fake() -> FakeLoki:
    return FakeLoki()


@pytest.fixture
def ask(fake: FakeLoki, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    return asking(fake, monkeypatch, capsys)


# ---- which job


def test_jobs_are_found_by_id_name_beginning_and_last(fake: FakeLoki) -> None:
    now_ns = time.time_ns()
    Pushing(fake, job_id="aaa111", began_ns=now_ns - 300 * NS)
    Pushing(fake, job_id="aaa222", began_ns=now_ns - 200 * NS)
    Pushing(fake, job_id="bbb333_7", began_ns=now_ns - 250 * NS)
    store = open_store(fake)
    assert [job.job_id for job in store.jobs()] == ["aaa222", "bbb333_7", "aaa111"]
    names = {"last": "aaa222", "train.py": "aaa222", "bbb": "bbb333_7", "aaa111": "aaa111"}
    assert {name: store.resolve(name) for name in names} == names
    with pytest.raises(UnknownJob, match="2 jobs have an id that begins with 'aaa'"):
        store.resolve("aaa")
    with pytest.raises(
        UnknownJob, match="in Loki in memory, where jobs of the last 7 days"
    ) as error:
        store.resolve("aaa223")
    assert "aaa222" in error.value.suggestions
    assert [job.job_id for job in open_store(fake, since_secs=240).jobs()] == ["aaa222"]


def test_what_began_before_the_time_that_is_looked_at_is_known_while_it_runs(
    fake: FakeLoki,
) -> None:
    now_ns = time.time_ns()
    began_ns = now_ns - 2 * 86_400 * NS
    job = Pushing(fake, began_ns=began_ns)
    facts = {"name": "train.py", "user": "me", "nodes": 2, "started_ns": began_ns}
    job.event({"event": "still_running", **facts}, 47 * 3600 * NS + 600 * NS)
    job.event({"event": "heartbeat", "mode": "enabled", "lines": 7}, 48 * 3600 * NS - 5 * NS)
    (listed,) = open_store(fake, since_secs=3600).jobs()
    assert (listed.name, listed.user, listed.nodes, listed.lines) == ("train.py", "me", 2, 7)
    assert (listed.started_ns, listed.state) == (began_ns, "RUNNING")
    with open_store(fake).open(JOB) as reader:
        assert not list(reader.events()), "it is none of the job's own"


@pytest.mark.parametrize(
    ("secs", "words"),
    [
        (1, "1 second"),
        (0.5, "0.5 seconds"),
        (5400, "90 minutes"),
        (43_200, "12 hours"),
        (86_400, "1 day"),
        (14 * 86_400, "14 days"),
    ],
)
def test_how_far_was_looked_is_said_as_it_was_given(
    secs: float, words: str, fake: FakeLoki
) -> None:
    with pytest.raises(UnknownJob, match=f"of the last {words} were looked for"):
        open_store(fake, since_secs=secs).resolve("nothing")


def test_one_id_in_two_clusters_needs_a_cluster(fake: FakeLoki, tmp_path: Path, ask: Ask) -> None:
    for cluster, line in (("alpha", "from alpha"), ("beta", "from beta")):
        make_capture(tmp_path / cluster, lines=[line], start_ns=time.time_ns() - 3600 * NS)
        push_spool(fake, tmp_path / cluster, cluster=cluster)
    code, out, err = ask("logs", JOB)
    assert (code, out) == (1, "")
    assert "job k3f9x2 is there in several clusters, alpha, beta: give --cluster NAME" in err
    assert "did you mean" not in err
    assert ask("logs", JOB, "--cluster", "beta") == (0, "from beta\n", "")
    assert ask("logs", "last", "--cluster", "alpha")[1] == "from alpha\n"
    assert ask("logs", JOB, "--cluster", 'x"} or {a="')[0] == 1


def test_prometheus_says_where_and_when_to_look(fake: FakeLoki) -> None:
    began_ns = time.time_ns() - 20 * 86_400 * NS
    job = Pushing(fake, began_ns=began_ns, host="node7")
    job.line(NS, "long ago")
    job.close(2 * NS)
    queries = []

    def metrics(promql: str) -> Iterator[SeriesValue]:
        queries.append(promql)
        labels = {"cluster": "local", "job_id": JOB} | (
            {"host": "node7"} if "job_info" in promql else {}
        )
        yield SeriesValue(labels, 1.0 if "job_info" in promql else began_ns / NS)

    store = open_store(fake, metrics=metrics)
    with store.open(store.resolve(JOB)) as reader:
        assert texts(list(reader.lines(streams=BOTH))) == ["long ago"]
    assert all(f'job_id="{JOB}"' in promql for promql in queries)
    of_lines = fake.queries[-1]
    assert 'host="node7"' in of_lines.logql
    assert 'cluster="local"' in of_lines.logql
    assert of_lines.begin_ns > began_ns - 3600 * NS
    assert of_lines.end_ns < began_ns + 3600 * NS
    with pytest.raises(UnknownJob):
        open_store(fake).resolve(JOB)


@pytest.mark.parametrize("fault", ["forgotten", "down"])
def test_without_prometheus_word_loki_has_it(fault: str, fake: FakeLoki) -> None:
    Pushing(fake).line(10, "x")
    messages: list[str] = []

    def metrics(promql: str) -> list[SeriesValue]:
        if fault == "down":
            raise QueryError("Prometheus at http://p", 0, "no connection")
        return []

    store = open_store(fake, metrics=metrics, say=messages.append)
    with store.open(store.resolve(JOB)) as reader:
        assert texts(list(reader.lines(streams=BOTH))) == ["x"]
    assert len(messages) == (fault == "down")


def test_a_node_that_prometheus_has_not_seen_yet_is_looked_at(fake: FakeLoki) -> None:
    Pushing(fake, host="node1", began_ns=time.time_ns() - 100 * NS).line(10, "seen")
    Pushing(fake, host="node2", task="1", began_ns=time.time_ns() - 90 * NS).line(10, "not yet")
    store = open_store(
        fake,
        metrics=lambda promql: [
            SeriesValue({"cluster": "local", "job_id": JOB, "host": "node1"}, 1.0)
        ],
    )
    with store.open(store.resolve(JOB)) as reader:
        assert texts(list(reader.lines(streams=BOTH))) == ["seen", "not yet"]


# ---- errors, hostile entries


def test_an_error_of_loki_is_one_sentence(fake: FakeLoki, ask: Ask) -> None:
    fake.broken = QueryError("Loki at http://loki:3100", 0, "no connection: refused")
    for words in (("ls",), ("show", JOB), ("logs", JOB), ("metadata", "last"), ("plot", JOB)):
        code, out, err = ask(*words)
        assert (code, out) == (1, "")
        assert err == "logshipper: Loki at http://loki:3100: no connection: refused\n"


def test_a_list_without_jobs_says_how_far_was_looked(ask: Ask) -> None:
    code, out, err = ask("ls")
    assert (code, out) == (0, "")
    assert "no jobs in http://loki.invalid in this time range" in err


HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("\x1b]0;x\x07"),
    st.lists(st.integers(), max_size=2), st.just({"stdout": {"read": -1, "lost": "9"}, "notes": []}),
)  # fmt: skip
FIELDS = (
    "name", "user", "host", "columns", "rows", "tty", "mode", "started_ns", "state", "exit_code", "signal", "reason",
    "ended_ns", "ledger", "lines", "records", "bytes_printed", "bytes_logged", "hosts", "message", "to", "event",
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*MARKS, "mode_changed", "odd"]),
            st.dictionaries(st.sampled_from(FIELDS), HOSTILE, max_size=12),
            st.dictionaries(
                st.sampled_from(["attempt", "task", "step", "user"]),
                st.text(max_size=12),
                max_size=4,
            ),
            st.integers(0, 50 * NS),
        ),
        max_size=6,
    ),
    st.sampled_from(
        ["", "[]", "null", '{"event":', '{"event":[]}', '{"event":1e999}', "[" * 5000, "1" * 5000]
    ),
)
def test_hostile_events_never_raise_and_never_forge(
    events: list[tuple[str, Json, dict[str, str], int]], odd_line: str
) -> None:
    fake = FakeLoki()
    job = Pushing(fake)
    job.push("event", 5, odd_line, stream="")
    for name, fields, metadata, at_ns in events:
        job.push("event", at_ns, json.dumps({"event": name, **fields}), stream="", **metadata)
    store = open_store(fake)
    [summary] = store.jobs()
    assert summary.job_id == JOB
    assert summary.lost >= 0
    assert type(summary.lines) is int
    assert summary.started_ns > 0
    with store.open(JOB) as reader:
        times = [event.time_ns for event in reader.events()]
        assert all(a <= b for a, b in pairwise(times))
        assert all(isinstance(capture.host, str) for capture in reader.captures)
        observe_everything(reader)


@settings(max_examples=examples(50), deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(random: Any) -> None:
    """A job's events arrive in any order, some of them twice."""
    began_ns = time.time_ns() - 60 * NS
    entries = []
    for at_ns, event in enumerate(
        [
            {
                "event": "started",
                "name": "train.py",
                "user": "me",
                "mode": "enabled",
                "started_ns": began_ns,
            },
            {
                "event": "heartbeat",
                "mode": "enabled",
                "lines": 4,
                "ledger": make_ledger({"stored": 4}),
            },
            {"event": "mode_changed", "message": "m", "from": "enabled", "to": "metadata"},
            {
                "event": "heartbeat",
                "mode": "metadata",
                "lines": 7,
                "ledger": make_ledger({"stored": 7}),
            },
            {
                "event": "ended",
                "state": "FAILED",
                "exit_code": 3,
                "mode": "metadata",
                "lines": 8,
                "ended_ns": began_ns,
            },
            {
                "event": "closed",
                "state": "FAILED",
                "exit_code": 3,
                "mode": "metadata",
                "lines": 9,
                "ended_ns": began_ns,
            },
        ]
    ):
        whose = {"job_id": JOB, "task": "0", "attempt": "1"}
        entries.append(
            Entry(began_ns + at_ns, json.dumps(event), whose, {"cluster": "local", "host": "node1"})
        )
    summaries = []
    for order in (entries, random.sample(entries * 2, 2 * len(entries))):
        account = JobAccount(JobKey(JOB, "local"))
        for entry in order:
            account.take(entry)
        assert len(list(account.events())) == 1
        summaries.append(account.summary(began_ns + 60 * NS))
    assert summaries[0] == summaries[1]
    assert summaries[0] is not None
    assert (summaries[0].lines, summaries[0].mode, summaries[0].state) == (9, "metadata", "FAILED")


def observe_everything(reader: Any) -> None:  # Any: a reader, of which everything is asked
    from logshipper_observe.base.output import to_json
    from logshipper_observe.commands.reading.show import _document
    from logshipper_observe.model.documents import capture_document, job_document
    from logshipper_observe.model.overlay import NO_MARKS

    json.loads(
        to_json(_document(reader, reader.summary, reader.keys(), "", time.time_ns(), NO_MARKS))
    )
    to_json([job_document(reader.summary, 0), *map(capture_document, reader.captures)])


@pytest.mark.parametrize(
    "line",
    ["no JSON", "[1]", '{"a":', '{"a": nan}', "", "{", '{"a":1}\n{"b":2}', '{"a":1} ', "{" * 9000],
)
def test_a_record_that_is_none_is_left_out(line: str, fake: FakeLoki, ask: Ask) -> None:
    job = Pushing(fake)
    job.push("metadata", 10, line, n="1")
    job.push("metadata", 11, '{"a": 3}', n="2")
    job.close(records=2)
    for words in (
        ("metadata", JOB),
        ("metadata", JOB, "--format", "csv"),
        ("show", JOB),
        ("plot", JOB, "--json"),
    ):
        ask(*words)
    assert ask("metadata", JOB, "--format", "jsonl") == (0, '{"a": 3}\n', "")


def test_a_record_with_nan_is_a_record(fake: FakeLoki, ask: Ask) -> None:
    """R18: graphs have a gap, and the text is exact."""
    lines = ['{"step": 1, "loss": 0.5}', '{"step": 2, "loss":  NaN}']
    job = Pushing(fake)
    for at, line in enumerate(lines, start=1):
        job.push("metadata", 9 + at, line, n=str(at))
    job.close(records=2)
    assert ask("metadata", JOB, "--format", "jsonl")[1].splitlines() == lines
    _, out, _ = ask("plot", JOB, "--y", "loss", "--json")
    (series,) = json.loads(out)["graphs"][0]["series"]
    assert series["x"] == [1]
    assert [(gap["value"], gap["from"]) for gap in series["gaps"]] == [("NaN", 2)]


def test_an_end_years_ahead_is_not_believed(fake: FakeLoki) -> None:
    """Neither a capture's own end nor a forged end of Slurm's counts."""
    began_ns = time.time_ns() - 60 * NS
    ahead_ns = began_ns + 10 * 366 * 86_400 * NS
    Pushing(fake, began_ns=began_ns).close(50 * NS, ended_ns=ahead_ns)
    slurm = Pushing(fake, job_id="j2", began_ns=began_ns)
    slurm.event({"event": "job_ended", "state": "TIMEOUT", "ended_ns": ahead_ns}, 50 * NS)
    ends = [job.ended_ns for job in open_store(fake).jobs()]
    assert ends == [began_ns + 50 * NS + END_AHEAD_NS] * 2


def test_control_characters_in_an_entry_make_no_second_line(fake: FakeLoki, ask: Ask) -> None:
    job = Pushing(fake)
    job.line(10, "one\ntwo\x1b[2J")
    assert ask("logs", JOB)[1] == "one\ufffdtwo\ufffd[2J\n"


def test_names_that_a_terminal_would_obey_are_made_safe(fake: FakeLoki, ask: Ask) -> None:
    began_ns = time.time_ns() - 60 * NS
    job = Pushing(fake, began_ns=began_ns)
    job.event({"event": "started", "name": "trian.py\x1b[31m", "started_ns": began_ns}, -1)
    job.event({"event": "odd", "message": "m\x1b[31m"}, 2)
    job.push("status", 3, "10%\x1b[31m")
    answers = [
        ask(*words)
        for words in (("ls",), ("show", JOB), ("logs", "train.pyx"), ("logs", "trian.py\x1b[3"))
    ]
    assert [answer[0] for answer in answers] == [0, 0, 1, 1]
    assert "did you mean trian.py\ufffd[31m?" in answers[2][2]
    assert not any("\x1b" in out + err for _, out, err in answers)


def test_entries_of_odd_streams_are_left_out(fake: FakeLoki) -> None:
    job = Pushing(fake)
    job.line(10, "x", stream="stdin")
    job.push("trace", 11, "y")
    job.line(12, "no host", attempt="١", task="-3")
    lines = read(fake)
    assert [(line.text, line.attempt) for line in lines] == [("no host", 1)]
    fake.push(
        {"service_name": "logshipper", "kind": "event"},
        [Entry(time.time_ns(), '{"event":"started"}', {"job_id": "../x"})],
    )
    assert [summary.job_id for summary in open_store(fake).jobs()] == [JOB]


def test_job_ids_that_can_be_none_never_reach_a_query(fake: FakeLoki) -> None:
    Pushing(fake)
    for name in ('x"} | {a="', "a`b", "", "\udc80", "x" * 70, "a\nb"):
        with pytest.raises(UnknownJob):
            open_store(fake).resolve(name)
        with pytest.raises(UnknownJob):
            open_store(fake).open(name)
    assert all(
        "job_id" not in query.logql or f'job_id="{JOB}"' in query.logql for query in fake.queries
    )


@given(st.text(max_size=30))
def test_any_text_stands_in_a_query_as_it_is(text: str) -> None:
    assert json.loads(quoted(text)) == text.encode("utf-8", "replace").decode()
    assert "\n" not in quoted(text)


def test_values_of_a_regular_expression_mean_themselves() -> None:
    assert any_of(["a.b", "c|d", "e-1"]) == r"a\.b|c\|d|e\-1"
