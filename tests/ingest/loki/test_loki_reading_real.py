"""Jobs in a real Loki: commands give the same output as from the local store."""

import json
import select
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import logshipper_observe.commands.reading.log_reading
from logshipper.spool.segment import Kind, Stream
from logshipper.start.cli import main
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.loki.store import LokiStore
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.reading_store import SpooledCapture, training

BOTH = (Stream.STDOUT, Stream.STDERR)

Ask = Callable[..., str]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that runs a command line successfully and returns its output."""

    def run(*words: str) -> str:
        code = main(list(words))
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return str(out)

    return run


@pytest.fixture(scope="module")
def client(loki: LokiServer) -> LokiClient:
    return LokiClient(loki.url)


def asked_of_both(ask: Ask, loki: LokiServer, store: Path, *words: str) -> tuple[str, str]:
    return ask(*words, "--from", "loki", "--loki-url", loki.url), ask(*words, "--store", str(store))


def test_all_commands_say_the_same(
    loki: LokiServer, client: LokiClient, tmp_path: Path, ask: Ask
) -> None:
    """Two attempts have text, a bar, records, notes, long lines, umlauts, a command and an
    event."""
    store, job = tmp_path / "store", "real-same"
    training(store, job_id=job, name="same.py")
    with SpooledCapture(
        store, job, 2, name="same.py", started_ns=time.time_ns() - 20 * NS
    ) as second:
        second.metadata(
            {"epoch": 1, "loss": 0.25, "size": 2**80},
            {"epoch": 2, "größe": 1e-9, "text": "z" * 3000},
        )
        second.lines("x" * 2500, "ü😀" * 900, "  a  b", "{'epoch': 1}", '"quoted" \\ `tick`')
        second.lines("part one", "part two", attrs={0: {"part": "1"}, 1: {"part": "2/2"}})
        second.stderr("Warnung: größer")
        second.lines("[the line above 12 times more]", kind=Kind.NOTE, attrs={0: {"repeat": 12}})
        second.event("lines_lost", "3 lines are lost", lines=3)
        second.printed(9000, 20)
        second.end(3)
    push_spool(client, store / "spool", max_line_bytes=1000)
    for words in (
        ["logs", job], ["logs", job, "--json"], ["logs", job, "--tail", "5"], ["logs", job, "--attempt", "2"],
        ["logs", job, "--stream", "stderr"], ["metadata", job, "--format", "jsonl"], ["metadata", job, "--json"],
        ["metadata", job], ["metadata", job, "--limit", "3"], ["plot", job, "--json"], ["plot", "same.py"],
    ):  # fmt: skip
        from_loki, from_store = asked_of_both(ask, loki, store, *words)
        assert from_loki == from_store, words
        assert from_loki
    documents = [
        json.loads(answer) for answer in asked_of_both(ask, loki, store, "show", job, "--json")
    ]
    assert (documents[0].pop("store"), documents[1].pop("store")) == (loki.url, str(store))
    assert (documents[0].pop("cluster"), documents[1].pop("cluster")) == ("local", "")
    assert documents[0] == documents[1]
    lists = [
        json.loads(answer)["jobs"]
        for answer in asked_of_both(ask, loki, store, "ls", "--json", "--all")
    ]
    assert [entry.pop("differs") for entry in lists[1]] == [{}], "not asked of Loki"
    assert [entry | {"cluster": ""} for entry in lists[0] if entry["job_id"] == job] == lists[1]


def test_records_beside_their_lines(
    loki: LokiServer, client: LokiClient, tmp_path: Path, ask: Ask
) -> None:
    """Their lines aren't JSON. Tables show the record and logs show the line, also in Grafana."""
    store, job, began_ns = tmp_path / "store", "real-copies", time.time_ns() - 20 * NS
    with SpooledCapture(store, job, started_ns=began_ns) as capture:
        capture.lines("loss: 0.50", "end")
        attrs = {"n": 1, "origin": "pairs", "copy": 1}
        capture.lines('{"loss": 0.50}', kind=Kind.METADATA, attrs={0: attrs})
        capture.metadata({"epoch": 1})
        capture.end()
    push_spool(client, store / "spool")
    for words in (["logs", job], ["logs", job, "--json"], ["metadata", job, "--json"]):
        from_loki, from_store = asked_of_both(ask, loki, store, *words)
        assert from_loki == from_store, words
    assert ask("logs", job, "--store", str(store)) == 'loss: 0.50\nend\n{"epoch": 1}\n'
    selector = f'{{cluster="local", kind=~"log|metadata"}} | job_id="{job}"'
    lines = [
        [entry.line for entry in client.entries(logql, began_ns, time.time_ns())]
        for logql in (f'{selector} | copy=""', f'{selector} | origin="pairs"')
    ]
    assert sorted(lines[0]) == ["end", "loss: 0.50", '{"epoch": 1}']
    assert lines[1] == ['{"loss": 0.50}']


def test_pages_of_lines_are_whole_and_in_order(client: LokiClient, loki: LokiServer) -> None:
    """12,000 lines of three ranks, printed at the same nanoseconds, need more than two of Loki's
    answers."""
    began_ns, job = time.time_ns() - 60 * NS, "real-pages"
    for task in range(3):
        where = {"cluster": "local", "host": f"node{task}", "service_name": "logshipper"}
        whose = {"job_id": job, "user": "me", "task": str(task), "attempt": "1"}
        started = json.dumps(
            {"event": "started", "name": "x", "user": "me", "started_ns": began_ns + task}
        )
        client.push({**where, "kind": "event"}, [Entry(began_ns + task, started, whose)])
        lines = [Entry(began_ns + 1000 + at, f"{at} {task}", whose) for at in range(4000)]
        for stream, which in (("stdout", lines[::2]), ("stderr", lines[1::2])):
            client.push({**where, "kind": "log", "stream": stream}, which)
    ordered_texts = [f"{at} {task}" for at in range(4000) for task in range(3)]
    with LokiStore(client) as store, store.open(store.resolve(job)) as reader:
        lines_read = list(reader.lines(streams=BOTH))
        assert [line.text for line in lines_read] == ordered_texts
        assert [line.text for line in reader.lines(streams=BOTH, tail=7)] == ordered_texts[-7:]
        assert list(reader.lines(streams=BOTH, after=lines_read[-1].position)) == []


def test_odd_values_are_quoted_for_loki(client: LokiClient, loki: LokiServer) -> None:
    """Without quotes, these names of hosts and clusters would change the query."""
    began_ns, job = time.time_ns() - 30 * NS, "real-odd"
    cluster, host = 'a"b\\c|`d`{}', 'no.de"|.*'
    where = {"cluster": cluster, "host": host, "service_name": "logshipper"}
    whose = {"job_id": job, "user": "me", "task": "0", "attempt": "1"}
    started = json.dumps({"event": "started", "name": "x", "started_ns": began_ns})
    client.push({**where, "kind": "event"}, [Entry(began_ns, started, whose)])
    client.push({**where, "kind": "log", "stream": "stdout"}, [Entry(began_ns + 1, "mine", whose)])
    second_labels = {**where, "host": "node"}
    client.push(
        {**second_labels, "kind": "log", "stream": "stdout"},
        [Entry(began_ns + 2, "forged", {**whose, "job_id": "x"})],
    )
    for cluster_filter in (None, cluster):
        store = LokiStore(client, cluster=cluster_filter)
        with store.open(store.resolve(job)) as reader:
            assert [line.text for line in reader.lines(streams=BOTH)] == ["mine"]


def test_follow_prints_what_comes_and_ends_with_the_job(
    client: LokiClient, loki: LokiServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job continues each time that the follower has printed all lines."""
    began_ns, job = time.time_ns() - 10 * NS, "real-follow"
    where = {"cluster": "local", "host": "node1", "service_name": "logshipper"}
    whose = {"job_id": job, "user": "me", "task": "0", "attempt": "1"}

    def event(at_ns: int, **fields: object) -> None:
        client.push({**where, "kind": "event"}, [Entry(at_ns, json.dumps(fields), whose)])

    def line(at_ns: int, text: str, stream: str = "stdout") -> None:
        client.push({**where, "kind": "log", "stream": stream}, [Entry(at_ns, text, whose)])

    def finish() -> None:
        line(began_ns + 8 * NS, "late", "stderr")
        line(began_ns + 10 * NS, "third")
        event(
            began_ns + 10 * NS + 1,
            event="closed",
            state="COMPLETED",
            exit_code=0,
            ended_ns=began_ns + 10 * NS,
        )

    event(began_ns, event="started", name="x", user="me", started_ns=began_ns)
    event(began_ns + 8 * NS, event="heartbeat", mode="enabled", lines=1)
    line(began_ns + 7 * NS, "first")
    steps = iter([lambda: line(began_ns + 9 * NS, "second"), finish])
    pause = logshipper_observe.commands.reading.log_reading._pause

    def go_on(poll: "select.poll", secs: float) -> None:
        next(steps, lambda: pause(poll, secs))()

    monkeypatch.setattr(logshipper_observe.commands.reading.log_reading, "_pause", go_on)
    out = ask("logs", job, "--follow", "--from", "loki", "--loki-url", loki.url)
    assert out.split() == ["first", "second", "late", "third"]


def test_a_loki_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["ls"], ["logs", "x"]):
        assert main([*words, "--from", "loki", "--loki-url", "http://127.0.0.1:9"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("logshipper: Loki at http://127.0.0.1:9: ")
        assert len(err.splitlines()) == 1


def test_prometheus_may_have_forgotten_the_job(
    client: LokiClient, loki: LokiServer, prometheus: PrometheusServer, ask: Ask, tmp_path: Path
) -> None:
    """Prometheus answers the queries without data, and Loki has the whole job."""
    training(tmp_path / "store", job_id="real-forgotten")
    push_spool(client, tmp_path / "store" / "spool")
    servers = ("--from", "loki", "--loki-url", loki.url, "--prometheus-url", prometheus.url)
    assert len(ask("metadata", "real-forgotten", "--format", "jsonl", *servers).splitlines()) == 5
