"""Sends what /metrics shows to Prometheus by remote write 1.0, for nodes that it can't scrape
(docs/metrics.md).

Strategy: every interval_secs a thread of its own encodes, compresses and queues a round, so that
none is missed while a server says nothing; the head of the queue is sent until it is taken or given
up. Nothing is tried for ever: Prometheus rolls a whole request back
for one sample that it doesn't take, by a 400, or (2.42, with an out-of-order window) by a 500 that
never ends. So where a sample of our own is taken next to it, the request is at fault: it is halved
until the samples at fault are alone, and these are dropped. Where none is taken, the server or its
configuration is at fault, and all wait, until they are older than max_age_secs.

A node whose clock is ahead would have Prometheus refuse what honest nodes send. So an empty request
asks for the server's time before any sample goes out, and again where the node's clock was set;
where the two differ by over MAX_OFF_SECS, the server's counts.

Limits: queue_max_bytes of compressed requests, the oldest go first; MAX_SPLITS halvings of a
request. What is dropped is counted by reason, and said, each reason once until a round has gone
well.
"""

import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import cramjam
from prometheus_client import CollectorRegistry, Counter, Gauge

from logshipper.errors import PushError
from logshipper_ingest.config.agent_config import RemoteWriteSection
from logshipper_ingest.console.service_log import Notice
from logshipper_ingest.metrics.remote_write_encoding import SeriesEncoder, encode_time, split
from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.servers.loki_push import compress
from logshipper_ingest.servers.server_calls import ServerClient

# of a request and its parts: some bad samples are found, a thousand aren't looked for
MAX_SPLITS = 64
TRIES = 3  # of a request that is answered by 500, before another one is tried next to it
MAX_ANSWER_BYTES = 64 << 10
MAX_OFF_SECS = 30.0  # by which the node's clock may differ from the server's
_SET_MS = 5000  # a clock that moved so far against the one that only rises was set
EMPTY = compress(b"")  # a request
PROBE = "logshipper_agent_remote_write_probe"
DROP_REASONS = ("too_old", "duplicate", "other", "queue_full", "expired", "ahead")
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_TAKEN = (200, 202, 204)
_REASONS = (  # Prometheus' words, and those of others that speak remote write
    ("duplicate", re.compile(r"duplicate sample|same timestamp|duplicate timestamp", re.I)),
    ("too_old", re.compile(r"out of bounds|too old|out of order|out-of-order|old sample", re.I)),
)


class RemoteWriteClient(ServerClient):
    """access: url is the whole address, such as http://prometheus.example.org:9090/api/v1/write."""

    kind = "Remote write"

    def push(self, body: bytes) -> int | None:
        """Sends a compressed request; returns the server's time in ns, to a second, None where it
        gives none. Raises PushError."""
        return self._push("", body, _HEADERS, _TAKEN).date_ns


def own_labels(cluster: str, host: str) -> dict[str, str]:
    """What every series of an agent gets, as a scrape would give it; hosts of two clusters may have
    one name."""
    return {"job": "logshipper-agent", "instance": f"{cluster}/{host}"}


def probe(labels: Mapping[str, str], time_ms: int) -> bytes:
    """A request with a sample of our own."""
    encoder = SeriesEncoder(labels)
    return compress(encoder.sample(encoder.head(PROBE), 1.0, encode_time(time_ms)))


class RemoteWriteMetrics:
    """The counters of remote write, in an agent's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "logshipper_agent_remote_write"
        self.samples = Counter(
            f"{name}_samples", "Samples that were taken by remote write.", registry=registry
        )
        self.dropped_samples = Counter(
            f"{name}_dropped_samples", "Samples that were given up.", ["reason"], registry=registry
        )
        self.retries = Counter(
            f"{name}_retries", "Requests that were tried again.", ["reason"], registry=registry
        )
        self.queue_bytes = Gauge(
            f"{name}_queue_bytes", "Bytes of requests that wait, compressed.", registry=registry
        )
        for reason in DROP_REASONS:
            self.dropped_samples.labels(reason)


@dataclass(slots=True)
class _Origin:
    """What the parts of one request share. splits: that are left; has_accepted_part: a part of it
    was taken; beside: a sample of our own was taken next to it."""

    splits: int = MAX_SPLITS
    has_accepted_part: bool = False
    beside: bool = False


@dataclass(slots=True)
class _Request:
    body: bytes
    samples: int
    time_ms: int
    origin: _Origin = field(default_factory=_Origin)
    tries: int = 0


def _request(series: Sequence[bytes], time_ms: int, origin: _Origin) -> _Request:
    return _Request(compress(b"".join(series)), len(series), time_ms, origin)


class WriteState(NamedTuple):
    """The state of remote write, for `status`."""

    taken_ns: int  # the node's time when a request was taken last, 0 where none was
    waiting_bytes: int  # of requests, compressed
    dropped: dict[str, int]  # samples by reason, since the agent's start
    # of the last answer that took no request (status 0: there was none), 0 and "" where all did
    refused_ns: int
    status: int
    words: str


class _Clocks(NamedTuple):
    """off_ms: the node's less the server's, 0 where that is little; rose_ms: what lay between the
    node's two clocks."""

    off_ms: int
    rose_ms: float


class RemoteWrite:
    """Sends rounds of samples. `run` is one thread's; tests call `turn` instead. labels: of every
    series; text: what /metrics shows now; clock: seconds that only rise; wall_ms: the node's clock;
    max_off_secs: what is no difference between that and the server's."""

    def __init__(
        self,
        section: RemoteWriteSection,
        labels: Mapping[str, str],
        text: Callable[[], str],
        metrics: RemoteWriteMetrics,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        max_off_secs: float = MAX_OFF_SECS,
    ) -> None:
        self._section = section
        self._text = text
        self._metrics = metrics
        self._say = say
        self._clock = clock
        self._wall_ms = wall_ms
        self._max_off_ms = max_off_secs * 1000
        self._clocks: _Clocks | None = None
        self._client = RemoteWriteClient(section.access, max_answer_bytes=MAX_ANSWER_BYTES)
        self._encoder = SeriesEncoder(labels)
        self._labels = labels
        self._lock = threading.RLock()  # of these three
        self._queue: deque[_Request] = deque()
        self._queued_bytes = 0
        self._is_sending = False  # the head, which nobody else takes away meanwhile
        self._arrival = threading.Event()  # of a round, or of the end
        self._backoff = Backoff(section.retry_min_secs, section.retry_max_secs)
        self._round_due = self._send_due = 0.0
        self._refused_ms = -1  # a round of which nothing was taken, though all else is
        self._subjects: set[str] = set()
        self._goes_well = True  # since the last round
        self._taken_ns = self._refused_ns = 0
        self._refusal: tuple[int, str] = (0, "")
        self._drop_counts = dict.fromkeys(DROP_REASONS, 0)

    @property
    def state(self) -> WriteState:
        """Any thread may ask."""
        drop_counts = {reason: count for reason, count in self._drop_counts.items() if count}
        return WriteState(
            self._taken_ns, self._queued_bytes, drop_counts, self._refused_ns, *self._refusal
        )

    def run(self, stop: threading.Event) -> None:
        """Until stop is set. Then what waits is tried once more; where nothing is left, all series
        end."""
        rounds = threading.Thread(
            target=self._make_rounds, args=(stop,), name="remote write: rounds", daemon=True
        )
        rounds.start()
        while not stop.is_set():
            pause = self._guarded(lambda: self._send(stop.is_set))
            self._arrival.wait(self._section.interval_secs if pause is None else pause)
            self._arrival.clear()
        rounds.join()
        self._guarded(self._end)
        self._client.close()

    def _make_rounds(self, stop: threading.Event) -> None:
        while not stop.wait(max(0.0, self._round_due - self._clock())):
            self._guarded(self._queue_round)
            self._arrival.set()
        self._arrival.set()

    def _guarded(self, action: Callable[[], float | None]) -> float | None:
        """Neither the agent's jobs nor the next round suffer from a fault of ours: None then."""
        try:
            return action()
        except Exception as error:
            self._tell(
                "fault", f"remote write: a fault of logshipper's own: {error!r}; tried again"
            )
            return None

    def _end(self) -> None:
        self._send_due = 0.0
        self._send(lambda: False)
        if self._queue:
            self.say_lost()
        elif self._known_clocks() is not None:
            self._end_series()

    def say_lost(self) -> None:
        """What waits, at the agent's end."""
        with self._lock:
            count = sum(request.samples for request in self._queue)
        if count:
            self._say(f"remote write: {count} samples that waited are lost with the agent's end")

    def _end_series(self) -> None:
        """As Prometheus itself does with a target that is gone. Nothing is tried again."""
        series = self._encoder.encode("", self._now_ms())
        try:
            for begin in range(0, len(series), self._section.max_samples):
                self._client.push(
                    compress(b"".join(series[begin : begin + self._section.max_samples]))
                )
        except PushError as error:
            self._say(f"{error}; its series end five minutes later")

    def turn(self, is_over: Callable[[], bool] = lambda: False) -> float:
        """Queues a round where one is due, sends what may be sent; returns the seconds until there
        is more to do. is_over: asked between two requests whether there should be no other."""
        if self._clock() >= self._round_due:
            self._queue_round()
        return min(self._round_due - self._clock(), self._send(is_over))

    # ---- the queue

    def _queue_round(self) -> None:
        self._round_due = self._clock() + self._section.interval_secs
        self._goes_well = True
        time_ms = self._now_ms()
        series = self._encoder.encode(self._text(), time_ms)
        max_samples = self._section.max_samples
        requests = [
            _request(series[begin : begin + max_samples], time_ms, _Origin())
            for begin in range(0, len(series), max_samples)
        ]
        with self._lock:
            self._queue += requests
            self._queued_bytes += sum(len(request.body) for request in requests)
            while self._queued_bytes > self._section.queue_max_bytes and (
                len(self._queue) > self._is_sending
            ):
                words = "[remote_write] queue_max_bytes are waiting: the oldest go"
                self._drop("queue_full", words, place=int(self._is_sending))
        self._metrics.queue_bytes.set(self._queued_bytes)

    def _pop(self, place: int = 0) -> _Request:
        with self._lock:
            request = self._queue[place]
            del self._queue[place]
            self._queued_bytes -= len(request.body)
            return request

    def _drop(self, reason: str, words: str, *, place: int = 0) -> None:
        """Gives the head up, or one behind it."""
        request = self._pop(place)
        self._metrics.dropped_samples.labels(reason).inc(request.samples)
        self._drop_counts[reason] += request.samples
        self._tell(
            reason, f"remote write: {request.samples} samples are dropped ({reason}): {words}"
        )

    def _halve(self) -> None:
        request = self._queue[0]
        request.origin.splits -= 1
        series = split(bytes(cramjam.snappy.decompress_raw(request.body)))
        middle = len(series) // 2
        with self._lock:
            self._pop()
            for half in (series[middle:], series[:middle]):
                part = _request(half, request.time_ms, request.origin)
                self._queue.appendleft(part)
                self._queued_bytes += len(part.body)

    # ---- sending

    def _send(self, is_over: Callable[[], bool]) -> float:
        """Sends what may be sent; returns the seconds until there is more to do, unless a round
        comes."""
        while self._queue and self._send_due <= self._clock() and not is_over():
            self._send_head()
        self._metrics.queue_bytes.set(self._queued_bytes)
        return (
            max(0.0, self._send_due - self._clock()) if self._queue else self._section.interval_secs
        )

    def _send_head(self) -> None:
        with self._lock:
            if not self._queue:  # it found no room
                return
            self._is_sending = True
            request = self._queue[0]
        try:
            self._try_to_send(request)
        finally:
            with self._lock:
                self._is_sending = False

    def _try_to_send(self, request: _Request) -> None:
        if self._known_clocks() is None:
            self._ask_time()
            return
        if request.time_ms < self._now_ms() - self._section.max_age_secs * 1000:
            self._drop("expired", "they have waited for [remote_write] max_age_secs")
            return
        if request.time_ms > self._now_ms() + self._max_off_ms:
            self._drop("ahead", "this node's clock was ahead of the server's")
            return
        try:
            date_ns = self._client.push(request.body)
        except PushError as error:
            self._note(error)
            request.tries += 1
            if error.status == 413 and request.samples > 1 and request.origin.splits:
                self._halve()
            elif self._is_at_fault(request, error):
                self._give_up_or_halve(request, error)
            else:
                self._wait(error)
            return
        self._compare_clocks(date_ns)
        self._pop()
        request.origin.has_accepted_part = True
        self._taken_ns = time.time_ns()
        self._metrics.samples.inc(request.samples)
        self._backoff = Backoff(self._section.retry_min_secs, self._section.retry_max_secs)
        if self._subjects and self._goes_well and not self._queue:
            self._subjects.clear()
            self._say(Notice("remote write: everything is taken again"))

    def _note(self, error: PushError) -> None:
        self._refusal = error.status, error.excerpt
        self._refused_ns = time.time_ns()

    # ---- whose time counts

    def _now_ms(self) -> int:
        """The server's time, where the node's is known to be another one."""
        clocks = self._known_clocks()
        return self._wall_ms() - (clocks.off_ms if clocks else 0)

    def _known_clocks(self) -> _Clocks | None:
        """None where nothing is known any more."""
        clocks = self._clocks
        return clocks if clocks and abs(self._rose_ms() - clocks.rose_ms) < _SET_MS else None

    def _rose_ms(self) -> float:
        return self._wall_ms() - self._clock() * 1000

    def _ask_time(self) -> None:
        try:
            self._compare_clocks(self._client.push(EMPTY))
        except PushError as error:
            self._note(error)
            self._wait(error)

    def _compare_clocks(self, date_ns: int | None) -> None:
        """date_ns: the server's time, of an answer that came just now."""
        off_ms = 0 if date_ns is None else self._wall_ms() - date_ns // 1_000_000
        if abs(off_ms) <= self._max_off_ms:
            off_ms = 0
        else:
            self._tell(
                "clock",
                f"remote write: this node's clock is {off_ms / 1000:.0f} s off; the server's counts",
            )
        self._clocks = _Clocks(off_ms, self._rose_ms())

    # ---- what can't be sent

    def _is_at_fault(self, request: _Request, error: PushError) -> bool:
        """Whether it is the request that is no good, and not the server, or how it is reached."""
        if error.status not in (400, 500):
            return False
        if error.status == 500:  # may be anything: asked again each time
            suspected = request.tries >= TRIES or request.origin.splits < MAX_SPLITS
            return suspected and self._takes_others()
        request.origin.beside = request.origin.beside or self._takes_others()
        return request.origin.beside

    def _takes_others(self) -> bool:
        try:
            self._client.push(probe(self._labels, self._now_ms()))
        except PushError:
            return False
        return True

    def _give_up_or_halve(self, request: _Request, error: PushError) -> None:
        origin = request.origin
        hopeless = request.time_ms == self._refused_ms
        if request.samples > 1 and origin.splits and not hopeless:
            self._halve()
            return
        if not origin.splits and not origin.has_accepted_part:
            self._refused_ms = request.time_ms
        reason = next(
            (reason for reason, words in _REASONS if words.search(error.excerpt)), "other"
        )
        self._drop(reason, str(error))

    def _wait(self, error: PushError) -> None:
        reason = str(error.status or "no_connection")
        self._metrics.retries.labels(reason).inc()
        self._backoff = self._backoff.failed()
        pause = self._backoff.pause_secs(random.random(), error.retry_after_secs)  # noqa: S311  jitter
        self._send_due = self._clock() + pause
        self._tell(f"waits {reason}", f"{error}; it waits, and is tried again")

    def _tell(self, subject: str, words: str) -> None:
        """Once, until a round has gone well."""
        self._goes_well = False
        if subject not in self._subjects:
            self._subjects.add(subject)
            self._say(words)
