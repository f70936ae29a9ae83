"""Remote write: requests, also to a real Prometheus. It finds and drops refused samples, and
retries nothing for ever."""

import email.utils
import struct
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from logshipper_ingest.config.agent_config import RemoteWriteSection
from logshipper_ingest.metrics.prometheus import PrometheusClient
from logshipper_ingest.metrics.remote_write import (
    MAX_SPLITS,
    PROBE,
    TRIES,
    RemoteWrite,
    RemoteWriteMetrics,
)
from logshipper_ingest.metrics.remote_write_encoding import (
    MAX_TIME_MS,
    STALE,
    SeriesEncoder,
    encode_time,
    split,
)
from logshipper_ingest.model.ranks import escape
from logshipper_ingest.servers.loki_push import compress
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.push_decoder import Written, decode_write, decompress
from tests.tools.stores.access_setup import PASSWORD, secret
from tests.tools.stores.node_agents import NodeAgent

RECEIVER = ("--web.enable-remote-write-receiver",)
TAKEN = Said(204)
HOUR_MS = 3_600_000


class Sender:
    """A remote write with manual clocks. series: the content of /metrics, by name with labels."""

    def __init__(
        self,
        url: str,
        *,
        max_off_secs: float = inf,
        access: Mapping[str, str | float] | None = None,
        **options: float | int,
    ) -> None:
        section = RemoteWriteSection(
            ServerAccess(**{"url": url, "timeout_secs": 5.0, **(access or {})}),  # type: ignore[arg-type]  # of several types
            **{"interval_secs": 15.0, **options},  # type: ignore[arg-type]  # of several types
        )
        self.now = 1000.0
        self.wall_ms = time.time_ns() // 10**6
        self.series: dict[str, float] = {}
        self.messages: list[str] = []
        self.job = f"job-{uuid.uuid4()}"
        self.registry = CollectorRegistry()
        self.write = RemoteWrite(
            section,
            {"job": self.job, "instance": "c1/n1"},
            lambda: (
                "# HELP x y\n"
                + "".join(f"{name} {value!r}\n" for name, value in self.series.items())
            ),
            RemoteWriteMetrics(self.registry),
            self.messages.append,
            clock=lambda: self.now,
            wall_ms=lambda: self.wall_ms,
            max_off_secs=max_off_secs,
        )

    def turn(self) -> float:
        """Queue a round if one is due, send due requests; return the seconds until more is due."""
        if self.now >= self.write._round_due:
            self.write._queue_round()
        return min(self.write._round_due - self.now, self.write._send(lambda: False))

    def go_on(self, secs: float) -> None:
        self.now += secs
        self.wall_ms += int(secs * 1000)

    def until(self, now: float) -> None:
        """Make each turn when it is due."""
        while self.now < now:
            self.go_on(min(self.turn(), now - self.now))

    def one_round(self) -> None:
        """Complete a round, however long its rest takes, before the next one."""
        self.turn()
        end = self.now + 600.0
        while self.write._queue and self.now < end:
            self.write._round_due = end
            self.go_on(self.turn())
        self.write._round_due = self.now

    def metric(self, name: str, **labels: str) -> float:
        return (
            self.registry.get_sample_value(f"logshipper_agent_remote_write_{name}", labels) or 0.0
        )

    def drops(self) -> dict[str, float]:
        """Return drops by reason, without zeros."""
        return {
            sample.labels["reason"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "logshipper_agent_remote_write_dropped_samples_total" and sample.value
        }


def written_to(server: FaultyServer) -> list[list[Written]]:
    """Return all requests, without those that only ask for the time or probe a sample."""
    requests = [decode_write(decompress(request.body)) for request in server.requests]
    return [
        request for request in requests if request and dict(request[0].labels)["__name__"] != PROBE
    ]


def names(request: list[Written]) -> list[str]:
    return [dict(series.labels)["__name__"] for series in request]


# ---- requests


def test_a_round_is_what_metrics_shows_with_labels_in_order_and_gone_series_end() -> None:
    with FaultyServer(TAKEN) as server:
        sender = Sender(f"{server.url}/api/v1/write")
        sender.series = {'b{le="+Inf",a="x y",Z="",m="q\\"\\\\\\n"}': 1.5, "a": float("inf")}
        assert sender.turn() == 15.0
        sender.go_on(15.0)
        del sender.series["a"]
        sender.turn()
        sender.go_on(15.0)
        sender.turn()
        first, second, third = written_to(server)
        (request, *_) = server.requests
    assert (request.method, request.path) == ("POST", "/api/v1/write")
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
              "X-Prometheus-Remote-Write-Version": "0.1.0"}  # fmt: skip
    assert headers.items() <= request.headers.items()
    own_labels = [("instance", "c1/n1"), ("job", sender.job)]
    b = [("__name__", "b"), ("a", "x y"), *own_labels, ("le", "+Inf"), ("m", 'q"\\\n')]
    began = sender.wall_ms - 30_000
    assert first == [
        Written(b, struct.pack("<d", 1.5), began),
        Written([("__name__", "a"), *own_labels], struct.pack("<d", float("inf")), began),
    ]
    assert second[1] == Written([("__name__", "a"), *own_labels], STALE, began + 15_000)
    assert third == [Written(b, struct.pack("<d", 1.5), began + 30_000)]
    assert (sender.metric("samples_total"), sender.metric("queue_bytes")) == (5, 0)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=300), max_size=5
    ),
    st.floats(),
    st.integers(0, MAX_TIME_MS),
)
def test_any_labels_numbers_and_times_come_back(
    labels: dict[str, str], value: float, time_ms: int
) -> None:
    escaped = ",".join(f'{name}="{escape(text)}"' for name, text in labels.items())
    text = f"x{{{escaped}}} {value!r}\ny 1\n"
    encoded = SeriesEncoder({"own": "1"}).encode(text, time_ms)
    assert split(b"".join(encoded)) == encoded
    series, second = decode_write(b"".join(encoded))
    (family,) = text_string_to_metric_families(text.partition("\n")[0])
    all_labels = {"__name__": "x", "own": "1", **family.samples[0].labels}
    assert series.labels == sorted((name, value) for name, value in all_labels.items() if value)
    assert series.value == struct.pack("<d", float(repr(value)))
    assert (series.time_ms, second.time_ms) == (time_ms, time_ms)


@pytest.mark.parametrize("time_ms", [-1, MAX_TIME_MS + 1])
def test_times_that_no_sample_has(time_ms: int) -> None:
    with pytest.raises(ValueError, match="is no time for a sample"):
        encode_time(time_ms)


# ---- a server in trouble


@pytest.mark.parametrize("status", [429, 503, 500, 401, 404, 302])
def test_all_waits_while_nothing_is_taken_then_comes_in_order(status: int) -> None:
    with FaultyServer(
        TAKEN, Said(status, b"dear me", {"Retry-After": "7"} if status == 429 else {})
    ) as server:
        sender = Sender(server.url, retry_min_secs=1.0, retry_max_secs=4.0)
        for number in range(3):
            sender.series = {"a": float(number)}
            sender.until(1015.0 + 15 * number)
        pauses = len(written_to(server))
        assert (pauses <= 7) if status == 429 else (9 <= pauses <= 25), (
            "not sooner than it asks, nor at once"
        )
        assert sender.drops() == {}
        assert sender.metric("retries_total", reason=str(status)) == pauses
        assert sender.metric("queue_bytes") > 0
        server.answer(TAKEN)
        sender.series = {"a": 3.0}
        before = len(server.requests)
        sender.until(1060.0)
        assert [
            struct.unpack("<d", request[0].value)[0] for request in written_to(server)[-4:]
        ] == [0.0, 1.0, 2.0, 3.0]
        assert len(server.requests) == before + 4
    assert len([words for words in sender.messages if "the agent tries again" in words]) == 1
    assert sender.messages[-1] == "remote write: the server accepts everything again"


def test_what_has_waited_too_long_is_dropped_and_the_queue_has_a_cap() -> None:
    with FaultyServer(TAKEN, Said(503)) as server:
        sender = Sender(
            server.url, max_age_secs=100.0, queue_max_bytes=100_000, retry_min_secs=30.0
        )
        sender.series = {f'a{{b="{uuid.uuid4()}"}}': 1.0 for _ in range(1000)}
        for _ in range(4):
            sender.turn()
            assert sender.metric("queue_bytes") <= 100_000
            sender.go_on(15.0)
        assert sender.drops() == {"queue_full": 2000}
        sender.go_on(1000.0)
        sender.series = {"a": 1.0}
        sender.turn()
        # the thousand series that are gone end with a sample each, which needs the room of another
        # thousand
        assert sender.drops() == sender.write.state.dropped == {"queue_full": 3000, "expired": 1000}
        assert (sender.write.state.taken_ns, sender.write.state.status) == (0, 503)
        assert sender.write.state.waiting_bytes == sender.metric("queue_bytes") > 0
        server.answer(TAKEN)
        sender.go_on(40.0)
        sender.one_round()
        assert (sender.write.state.waiting_bytes, sender.write.state.taken_ns > 0) == (0, True)
    assert next(words for words in sender.messages if "(queue_full)" in words).startswith(
        "remote write: 1000 samples are dropped (queue_full): [remote_write] queue_max_bytes"
    )
    assert len([words for words in sender.messages if "dropped" in words]) == 2


def test_rounds_go_on_while_a_server_says_nothing_and_the_end_says_what_is_lost() -> None:
    with FaultyServer(TAKEN, Said(hang=True)) as server:
        sender = Sender(
            server.url, access={"timeout_secs": 600.0}, interval_secs=0.02, max_samples=1
        )
        sender.write._clock = time.monotonic
        sender.write._wall_ms = lambda: time.time_ns() // 10**6
        sender.series = {"a": 1.0, "b": 2.0}
        stop = threading.Event()
        thread = threading.Thread(target=sender.write.run, args=(stop,))
        thread.start()
        wait_until(lambda: len(sender.write._queue) >= 20, "ten rounds of two requests")
        assert len(server.requests) == 2, "the time, and a push that nobody answers"
        head = sender.write._queue[0]
        room = sender.write._queued_bytes // 2
        sender.write._section = replace(sender.write._section, queue_max_bytes=room)
        wait_until(lambda: sender.write.state.waiting_bytes <= room, "the oldest go")
        assert sender.write._queue[0] is head, "and what is under way stays"
        stop.set()
    thread.join()
    assert sender.drops()["queue_full"] == sender.write.state.dropped["queue_full"] > 0
    waiting = sum(request.samples for request in sender.write._queue)
    assert sender.messages[-1] == (f"remote write: the agent's end loses {waiting} queued samples")


def test_what_waits_at_the_end_is_tried_once_more_and_series_end() -> None:
    with FaultyServer(TAKEN, Said(503), TAKEN) as server:
        sender = Sender(server.url, retry_min_secs=300.0, retry_max_secs=300.0)
        sender.series = {"a": 1.0}
        sender.turn()
        sender.write._round_due = inf
        stop = threading.Event()
        stop.set()
        sender.write.run(stop)
        values = [request[0].value for request in written_to(server)]
    assert values == [struct.pack("<d", 1.0)] * 2 + [STALE]


def test_requests_that_are_too_large_are_halved() -> None:
    with FaultyServer(TAKEN, Said(413, b"too large"), Said(413, b"too large"), TAKEN) as server:
        sender = Sender(server.url)
        sender.series = {f"a{number}": 1.0 for number in range(8)}
        sender.one_round()
        assert [len(request) for request in written_to(server)] == [8, 4, 2, 2, 4]
        assert names(written_to(server)[2]) == ["a0", "a1"]
    assert (sender.metric("samples_total"), sender.drops()) == (8, {})


def test_a_new_token_counts_without_a_restart(tmp_path: Path) -> None:
    with FaultyServer(Said(401, b"who are you?"), TAKEN) as server:
        sender = Sender(server.url, access={"token_file": secret(tmp_path, "token", "the old one")})
        sender.series = {"a": 1.0}
        pause = sender.turn()
        secret(tmp_path, "token", PASSWORD)
        sender.go_on(pause)
        sender.one_round()
        assert server.requests[0].headers["Authorization"] == "Bearer the old one"
        assert (
            server.requests[-1].headers["Authorization"].encode("latin-1").decode()
            == f"Bearer {PASSWORD}"
        )
    assert "look at token_file" in sender.messages[0]


def test_a_400_for_everything_holds_all_and_drops_nothing() -> None:
    """The answer comes from a gateway, or from a server without remote write."""
    with FaultyServer(TAKEN, Said(400, b"dear me")) as server:
        sender = Sender(server.url)
        sender.series = {"a": 1.0, "b": 2.0}
        sender.one_round()
        assert {len(request) for request in written_to(server)} == {2}
    assert sender.drops() == {}


# ---- clocks


def dated(secs: float) -> Said:
    """Return an answer of a server whose clock is ahead by some seconds."""
    return Said(204, headers={"Date": email.utils.formatdate(time.time() + secs, usegmt=True)})


@pytest.mark.parametrize(("off_secs", "reason"), [(3 * 3600, "ahead"), (-3 * 3600, "expired")])
def test_the_server_s_time_counts_where_the_node_s_is_off(off_secs: int, reason: str) -> None:
    """The correction also covers samples that were queued before the first answer."""
    with FaultyServer(Said(503), dated(-off_secs)) as server:
        sender = Sender(server.url, max_off_secs=30.0)
        true_ms = sender.wall_ms - off_secs * 1000
        sender.series = {"a": 1.0}
        for _ in range(3):
            sender.until(sender.now + 15.0)
        assert decompress(server.requests[0].body) == b"", "no sample before the time is known"
        times = [request[0].time_ms - true_ms for request in written_to(server)]
    assert len(times) == 2
    assert all(abs(time_ms) < 60_000 for time_ms in times), times
    assert sender.drops() == {reason: 1}
    (message,) = (words for words in sender.messages if "clock is" in words)
    assert int(message.split("clock is ")[1].split()[0]) == pytest.approx(off_secs, abs=60)


def test_a_small_difference_is_none() -> None:
    with FaultyServer(dated(-20)) as server:
        sender = Sender(server.url, max_off_secs=30.0)
        sender.series = {"a": 1.0}
        sender.one_round()
        assert [request[0].time_ms for request in written_to(server)] == [sender.wall_ms]
    assert sender.messages == []


def test_a_clock_that_was_set_is_compared_again() -> None:
    with FaultyServer(dated(0)) as server:
        sender = Sender(server.url, max_off_secs=30.0)
        sender.series = {"a": 1.0}
        sender.one_round()
        sender.wall_ms += 3 * HOUR_MS  # forward, without any request since then
        sender.now += 15.0
        sender.one_round()
        assert [decompress(request.body) == b"" for request in server.requests] == [
            True,
            False,
            True,
        ]
        assert sender.drops() == {"ahead": 1}
        sender.now += 15.0
        sender.wall_ms += 15_000
        sender.one_round()
        assert abs(written_to(server)[-1][0].time_ms - time.time() * 1000) < 60_000


# ---- real Prometheus


@pytest.fixture(scope="module", params=["", "10m"], ids=["in order", "out-of-order window"])
def receiver(
    request: pytest.FixtureRequest, prometheuses: None
) -> Iterator[tuple[PrometheusServer, bool]]:
    """Yield a Prometheus that accepts remote write, and whether it has an out-of-order window."""
    window = (
        {"storage": {"tsdb": {"out_of_order_time_window": request.param}}} if request.param else {}
    )
    with PrometheusServer(config=window, flags=RECEIVER) as server:
        yield server, bool(request.param)


def sender_to(prometheus: PrometheusServer) -> Sender:
    return Sender(f"{prometheus.url}/api/v1/write")


def stored(prometheus: PrometheusServer, sender: Sender) -> dict[str, list[float]]:
    """Return the values of each of a sender's series, by name, in order of time."""
    result = PrometheusClient(prometheus.url).query(
        f'{{job="{sender.job}",__name__!="{PROBE}"}}[3h]'
    )
    return {
        series.labels["__name__"]: [sample.value for sample in series.samples] for series in result
    }


def test_prometheus_has_what_was_sent_and_series_end(
    receiver: tuple[PrometheusServer, bool],
) -> None:
    prometheus, _ = receiver
    sender = sender_to(prometheus)
    sender.wall_ms -= 60_000
    sender.series = {'a{b="\\"x\\\\\\n"}': 1.0, "c": 2.5}
    sender.turn()
    sender.go_on(15.0)
    del sender.series["c"]
    sender.turn()
    now = PrometheusClient(prometheus.url).query(
        f'{{job="{sender.job}"}}', time_ns=sender.wall_ms * 10**6
    )
    assert [dict(series.labels) for series in now] == [
        {"__name__": "a", "b": '"x\\\n', "instance": "c1/n1", "job": sender.job}
    ]
    assert stored(prometheus, sender) == {"a": [1.0, 1.0], "c": [2.5]}
    assert sender.messages == []


def test_a_resend_is_taken(receiver: tuple[PrometheusServer, bool]) -> None:
    prometheus, _ = receiver
    sender = sender_to(prometheus)
    sender.series = {"a": 1.0}
    for _ in range(2):
        sender.turn()
        sender.now += 15.0
    assert stored(prometheus, sender) == {"a": [1.0]}
    assert (sender.drops(), sender.messages) == ({}, [])


def test_another_value_for_the_same_time_is_dropped_and_nothing_else(
    receiver: tuple[PrometheusServer, bool],
) -> None:
    prometheus, has_window = receiver
    sender = sender_to(prometheus)
    sender.series = {f"a{number}": 0.0 for number in range(20)}
    sender.turn()
    sender.now += 15.0
    sender.series = {**sender.series, "a7": 5.0, **{f"b{number}": 1.0 for number in range(20)}}
    sender.one_round()
    assert stored(prometheus, sender) == {
        name: [value if name != "a7" else 0.0] for name, value in sender.series.items()
    }
    assert sender.drops() == {"duplicate": 1}, has_window


def test_samples_that_are_too_old_are_dropped_and_nothing_else(
    receiver: tuple[PrometheusServer, bool],
) -> None:
    """Another sender's clock put three series ahead. A window of 10 minutes doesn't help them."""
    prometheus, has_window = receiver
    sender = sender_to(prometheus)
    ahead = {"a3": 1.0, "a11": 1.0, "a17": 1.0}
    sender.series = dict(ahead)
    sender.wall_ms += HOUR_MS // 2
    sender.turn()
    sender.now += 15.0
    sender.wall_ms -= HOUR_MS // 2
    sender.series = {f"a{number}": 2.0 for number in range(20)}
    sender.one_round()
    last_values = {name: [2.0] for name in sender.series if name not in ahead}
    result = stored(prometheus, sender)
    assert {name: values for name, values in result.items() if name not in ahead} == last_values
    assert sender.drops() == {"too_old": 3}
    assert sender.metric("retries_total", reason="500") == (TRIES - 1 if has_window else 0)
    assert len(sender.messages) >= 1


def test_a_round_of_which_nothing_is_taken_is_not_looked_through_for_ever(
    receiver: tuple[PrometheusServer, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock went back by half an hour. The server accepts the agent's own probe, since that is
    a new series."""
    prometheus, has_window = receiver
    sender = Sender(f"{prometheus.url}/api/v1/write", max_samples=200)
    sender.series = {f"a{number}": 1.0 for number in range(600)}
    sender.one_round()
    push = sender.write._client.push
    pushes: list[int] = []
    monkeypatch.setattr(sender.write._client, "push", lambda body: pushes.append(1) or push(body))  # type: ignore[func-returns-value]
    sender.wall_ms -= HOUR_MS // 2
    sender.go_on(15.0)
    sender.one_round()
    assert sender.drops() == {"too_old": 600}
    # each 500 causes a probe
    assert len(pushes) <= (4 if has_window else 2) * MAX_SPLITS + 30


@pytest.mark.parametrize("receiver", [""], ids=["in order"], indirect=True)
def test_an_agent_whose_node_nobody_scrapes(
    loki: LokiServer, receiver: tuple[PrometheusServer, bool], tmp_path: Path
) -> None:
    prometheus, _ = receiver
    cluster = f"c-{uuid.uuid4().hex[:8]}"
    options: dict[str, Mapping[str, object]] = {
        "remote_write": {"url": f"{prometheus.url}/api/v1/write", "interval_secs": 1.0},
        "metrics": {"listen": "", "expire_secs": 3.0},
    }
    client = PrometheusClient(prometheus.url)
    with NodeAgent(tmp_path, loki.url, cluster=cluster, host="n1", **options) as agent:
        assert agent.run("sh", "-c", 'echo \'{"step": 1, "loss": 0.5}\'; exit 3').returncode == 3
        ended = f'logshipper_job_exit_code{{cluster="{cluster}"}}'
        wait_until(lambda: bool(client.query(ended)), f"its end is known: {agent.log.read_text()}")
        (exit_code,) = client.query(ended)
        assert exit_code.samples[0].value == 3
        assert (exit_code.labels["instance"], exit_code.labels["job"]) == (
            f"{cluster}/n1",
            "logshipper-agent",
        )
        join_query = (
            "logshipper_agent_lag_seconds * on(instance, job) group_left(cluster, host) "
            f'logshipper_agent_build_info{{cluster="{cluster}"}}'
        )
        assert [series.labels["host"] for series in client.query(join_query)] == ["n1"]
        wait_until(lambda: not client.query(ended), "its series end")
        (series,) = client.query(
            f'logshipper_agent_remote_write_samples_total{{instance="{cluster}/n1"}}'
        )
        assert series.samples[0].value > 0
        start_query = f'logshipper_agent_start_time_seconds{{instance="{cluster}/n1"}}'
        assert client.query(start_query)
        assert agent.stop() == 0
        assert not client.query(start_query), "its series end with it"
        assert "remote write" not in agent.log.read_text()


def test_status_tells_of_it_without_secrets(loki: LokiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret-t0ken\n")
    token.chmod(0o600)
    with FaultyServer(Said(204)) as server:
        section = {
            "url": f"{server.url}/write",
            "token_file": str(token),
            "interval_secs": 1.0,
            "retry_max_secs": 1.0,
        }
        with NodeAgent(
            tmp_path / "node", loki.url, cluster="c-told", host="n1", remote_write=section
        ) as agent:
            wait_until(lambda: agent.status()["remote_write"]["last_success"], "a success is told")
            assert agent.status()["remote_write"]["last_refusal"] is None
            server.answer(Said(401, b"nobody knows s3cret-t0ken"))
            wait_until(lambda: agent.status()["remote_write"]["last_refusal"], "a refusal is told")
            wait_until(
                lambda: agent.status()["remote_write"]["waiting_bytes"] > 0, "what waits is told"
            )
            status = agent.status()["remote_write"]
            output = agent.call("status").stdout
    assert (status["url"], status["dropped"], status["last_refusal"]["status"]) == (
        f"{server.url}/write",
        {},
        401,
    )
    assert "nobody knows [hidden]" in status["last_refusal"]["words"]
    assert f"remote {server.url}/write: last taken 20" in output
    assert "       its last refusal: since 20" in output
    assert "s3cret" not in output


def test_a_server_that_hangs_does_not_hold_up_the_agent_s_end(
    loki: LokiServer, tmp_path: Path
) -> None:
    with FaultyServer(Said(hang=True)) as server:
        options: dict[str, Mapping[str, object]] = {
            "remote_write": {"url": server.url, "timeout_secs": 300.0}
        }
        with NodeAgent(tmp_path, loki.url, cluster="c-hangs", host="n1", **options) as agent:
            wait_until(lambda: bool(server.requests), "it is asked")
            assert agent.stop() == 0
        log = agent.log.read_text()
    assert "the agent's end loses" in log
    assert "stopped" in log


def test_snappy_is_the_block_format() -> None:
    assert decompress(compress(b"abc" * 100)) == b"abc" * 100
