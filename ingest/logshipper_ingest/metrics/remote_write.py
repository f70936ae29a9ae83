"""Sends the text of /metrics to Prometheus by remote write 1.0, from nodes that it can't scrape
(docs/metrics.md).

Every interval_secs a thread encodes, compresses and queues a round, even while the server is silent.
Another thread sends the head of the queue until the server accepts it or the sender drops it.

Nothing is retried for ever. Prometheus rolls back a whole request for one bad sample, by a 400, or
(2.42, with an out-of-order window) by a 500 that never ends. To find the culprit, the sender pushes
a probe, a sample of its own. If the server accepts the probe, the request is at fault: the sender
halves it until the bad samples are alone, and drops these. If not, the server or its configuration
is at fault, and all requests wait up to max_age_secs.

A node whose clock is ahead would make Prometheus refuse the samples of other nodes. So an empty
request asks for the server's time before the first sample, and again after the node's clock was set.
If the two clocks differ by over MAX_OFF_SECS, samples get the server's time.

Limits: queue_max_bytes of compressed requests, of which the oldest go first; MAX_SPLITS halvings of
a request. Dropped samples are counted by reason. Each reason is logged once until a round succeeds.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import cramjam
from prometheus_client import CollectorRegistry

from logshipper.errors import PushError
from logshipper_ingest.config.agent_config import RemoteWriteSection
from logshipper_ingest.console.service_log import Notice
from logshipper_ingest.metrics.agent_metrics import add_counter, add_gauge
from logshipper_ingest.metrics.remote_write_encoding import SeriesEncoder, encode_time, split
from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.servers.loki_push import compress
from logshipper_ingest.servers.refusals import first_match
from logshipper_ingest.servers.server_calls import ServerClient

MAX_SPLITS = 64  # of a request and its parts: enough for some bad samples, not for a thousand
TRIES = 3  # of a request that gets a 500, before a probe
MAX_ANSWER_BYTES = 64 << 10
MAX_OFF_SECS = 30.0  # tolerated difference between the node's clock and the server's
_SET_MS = 5000  # a larger step against the monotonic clock means that the clock was set
EMPTY = compress(b"")  # a request without samples
PROBE = "logshipper_agent_remote_write_probe"
DROP_REASONS = ("too_old", "duplicate", "other", "queue_full", "expired", "ahead")
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_TAKEN = (200, 202, 204)
_REASONS = {  # by the messages of Prometheus and other servers
    "duplicate": r"duplicate sample|same timestamp|duplicate timestamp",
    "too_old": r"out of bounds|too old|out of order|out-of-order|old sample",
}


class RemoteWriteClient(ServerClient):
    """A client of one URL, such as http://prometheus.example.org:9090/api/v1/write."""

    kind = "Remote write"

    def push(self, body: bytes) -> int | None:
        """Send a compressed request; return the server's time in ns, to a second, or None if the
        answer has none. Raises PushError."""
        return self._push("", body, _HEADERS, _TAKEN).date_ns


def own_labels(cluster: str, host: str) -> dict[str, str]:
    """Return the labels that a scrape would add to every series of an agent. Hosts of two clusters
    may share a name."""
    return {"job": "logshipper-agent", "instance": f"{cluster}/{host}"}


def probe(labels: Mapping[str, str], time_ms: int) -> bytes:
    """Return a request with one sample of the agent's own."""
    encoder = SeriesEncoder(labels)
    return compress(encoder.sample(encoder.head(PROBE), 1.0, encode_time(time_ms)))


class RemoteWriteMetrics:
    """The counters of remote write, in an agent's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(add_counter, registry)
        self.samples = counter("remote_write_samples", "Samples that the server accepted.")
        self.dropped_samples = counter(
            "remote_write_dropped_samples", "Dropped samples.", "reason", at_zero=DROP_REASONS
        )
        self.retries = counter("remote_write_retries", "Retried requests.", "reason")
        words = "Bytes of queued requests, compressed."
        self.queue_bytes = add_gauge(registry, "remote_write_queue_bytes", words)


@dataclass(slots=True)
class _Origin:
    """Common state of the parts of one request."""

    splits: int = MAX_SPLITS  # still allowed
    has_accepted_part: bool = False
    is_probe_accepted: bool = False


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

    taken_ns: int  # the node's time when the server accepted the last request, or 0
    waiting_bytes: int  # of requests, compressed
    dropped: dict[str, int]  # samples by reason, since the agent's start
    # of the last failed request (status 0: no answer), 0 and "" if none failed
    refused_ns: int
    status: int
    words: str


class _Clocks(NamedTuple):
    """Differences between clocks when the server last answered."""

    off_ms: int  # the node's less the server's, 0 if small
    offset_ms: float  # the node's less its monotonic clock


class RemoteWrite:
    """Sends rounds of samples."""

    def __init__(
        self,
        section: RemoteWriteSection,
        labels: Mapping[str, str],  # of every series
        text: Callable[[], str],  # returns the present text of /metrics
        metrics: RemoteWriteMetrics,
        log: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        max_off_secs: float = MAX_OFF_SECS,
    ) -> None:
        self._section = section
        self._text = text
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._wall_ms = wall_ms
        self._max_off_ms = max_off_secs * 1000
        self._clocks: _Clocks | None = None
        self._client = RemoteWriteClient(section.access, max_answer_bytes=MAX_ANSWER_BYTES)
        self._encoder = SeriesEncoder(labels)
        self._labels = labels
        self._lock = threading.RLock()  # of the next three
        self._queue: deque[_Request] = deque()
        self._queued_bytes = 0
        self._is_sending = False  # the head, which must stay meanwhile
        self._arrival = threading.Event()  # of a round, or of the end
        self._backoff = Backoff(section.retry_min_secs, section.retry_max_secs)
        self._round_due = self._send_due = 0.0
        self._refused_ms = -1  # time of a round whose samples the server refused one and all
        self._logged_troubles: set[str] = set()
        self._goes_well = True  # since the last round
        self._taken_ns = self._refused_ns = 0
        self._refusal: tuple[int, str] = (0, "")
        self._drop_counts = dict.fromkeys(DROP_REASONS, 0)

    @property
    def state(self) -> WriteState:
        """The state now, for any thread."""
        drop_counts = {reason: count for reason, count in self._drop_counts.items() if count}
        return WriteState(
            self._taken_ns, self._queued_bytes, drop_counts, self._refused_ns, *self._refusal
        )

    def run(self, stop: threading.Event) -> None:
        """Send until stop is set. Then send the queue once more and, if it empties, end all
        series."""
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
        """Call an action, and return None if it fails: a fault here must not harm jobs or the next
        round."""
        try:
            return action()
        except Exception as error:
            words = f"remote write: a fault of logshipper's own: {error!r}; the agent tries again"
            self._log_once("fault", words)
            return None

    def _end(self) -> None:
        self._send_due = 0.0
        self._send(lambda: False)
        if self._queue:
            self.log_unsent()
        elif self._known_clocks() is not None:
            self._end_series()

    def log_unsent(self) -> None:
        """Log how many samples the agent's end loses."""
        with self._lock:
            count = sum(request.samples for request in self._queue)
        if count:
            self._log(f"remote write: the agent's end loses {count} queued samples")

    def _end_series(self) -> None:
        """Send stale markers once, as Prometheus does for a vanished target."""
        try:
            for request in self._requests("", self._now_ms()):
                self._client.push(request.body)
        except PushError as error:
            self._log(f"{error}; its series end five minutes later")

    # ---- the queue

    def _queue_round(self) -> None:
        self._round_due = self._clock() + self._section.interval_secs
        self._goes_well = True
        requests = self._requests(self._text(), self._now_ms())
        with self._lock:
            self._queue += requests
            self._queued_bytes += sum(len(request.body) for request in requests)
            while self._queued_bytes > self._section.queue_max_bytes and (
                len(self._queue) > self._is_sending
            ):
                words = "[remote_write] queue_max_bytes is exceeded, so the oldest go"
                self._drop("queue_full", words, place=int(self._is_sending))
        self._metrics.queue_bytes.set(self._queued_bytes)

    def _requests(self, text: str, time_ms: int) -> list[_Request]:
        series = self._encoder.encode(text, time_ms)
        max_samples = self._section.max_samples
        return [
            _request(series[begin : begin + max_samples], time_ms, _Origin())
            for begin in range(0, len(series), max_samples)
        ]

    def _pop(self, place: int = 0) -> _Request:
        with self._lock:
            request = self._queue[place]
            del self._queue[place]
            self._queued_bytes -= len(request.body)
            return request

    def _drop(self, reason: str, words: str, *, place: int = 0) -> None:
        """Drop the head, or a request behind it."""
        request = self._pop(place)
        self._metrics.dropped_samples.labels(reason).inc(request.samples)
        self._drop_counts[reason] += request.samples
        dropped = f"remote write: {request.samples} samples are dropped ({reason})"
        self._log_once(reason, f"{dropped}: {words}")

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
        """Send due requests; return the seconds until more is due, unless a round comes."""
        while self._queue and self._send_due <= self._clock() and not is_over():
            self._send_head()
        self._metrics.queue_bytes.set(self._queued_bytes)
        if not self._queue:
            return self._section.interval_secs
        return max(0.0, self._send_due - self._clock())

    def _send_head(self) -> None:
        with self._lock:
            if not self._queue:  # a round dropped it
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
            self._drop("expired", "they are older than [remote_write] max_age_secs")
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
                self._drop_or_halve(request, error)
            else:
                self._wait(error)
            return
        self._compare_clocks(date_ns)
        self._pop()
        request.origin.has_accepted_part = True
        self._taken_ns = time.time_ns()
        self._metrics.samples.inc(request.samples)
        self._backoff = Backoff(self._section.retry_min_secs, self._section.retry_max_secs)
        if self._logged_troubles and self._goes_well and not self._queue:
            self._logged_troubles.clear()
            self._log(Notice("remote write: the server accepts everything again"))

    def _note(self, error: PushError) -> None:
        self._refusal = error.status, error.excerpt
        self._refused_ns = time.time_ns()

    # ---- clocks

    def _now_ms(self) -> int:
        """Return the server's time if the node's is known to differ, else the node's."""
        clocks = self._known_clocks()
        return self._wall_ms() - (clocks.off_ms if clocks else 0)

    def _known_clocks(self) -> _Clocks | None:
        """Return the clocks' differences, or None if the node's clock was set since."""
        clocks = self._clocks
        return clocks if clocks and abs(self._offset_ms() - clocks.offset_ms) < _SET_MS else None

    def _offset_ms(self) -> float:
        return self._wall_ms() - self._clock() * 1000

    def _ask_time(self) -> None:
        try:
            self._compare_clocks(self._client.push(EMPTY))
        except PushError as error:
            self._note(error)
            self._wait(error)

    def _compare_clocks(self, date_ns: int | None) -> None:
        """Note the server's time from an answer that has just come."""
        off_ms = 0 if date_ns is None else self._wall_ms() - date_ns // 1_000_000
        if abs(off_ms) <= self._max_off_ms:
            off_ms = 0
        else:
            words = f"remote write: this node's clock is {off_ms / 1000:.0f} s off"
            self._log_once("clock", f"{words}; the server's counts")
        self._clocks = _Clocks(off_ms, self._offset_ms())

    # ---- failures

    def _is_at_fault(self, request: _Request, error: PushError) -> bool:
        """Whether the request is at fault, rather than the server or the way to it."""
        if error.status not in (400, 500):
            return False
        origin = request.origin
        if error.status == 500:  # may mean anything: probe each time
            suspected = request.tries >= TRIES or origin.splits < MAX_SPLITS
            return suspected and self._accepts_probe()
        origin.is_probe_accepted = origin.is_probe_accepted or self._accepts_probe()
        return origin.is_probe_accepted

    def _accepts_probe(self) -> bool:
        try:
            self._client.push(probe(self._labels, self._now_ms()))
        except PushError:
            return False
        return True

    def _drop_or_halve(self, request: _Request, error: PushError) -> None:
        origin = request.origin
        hopeless = request.time_ms == self._refused_ms
        if request.samples > 1 and origin.splits and not hopeless:
            self._halve()
            return
        if not origin.splits and not origin.has_accepted_part:
            self._refused_ms = request.time_ms
        self._drop(first_match(_REASONS, error.excerpt), str(error))

    def _wait(self, error: PushError) -> None:
        reason = str(error.status or "no_connection")
        self._metrics.retries.labels(reason).inc()
        self._backoff = self._backoff.failed()
        pause = self._backoff.pause_secs(random.random(), error.retry_after_secs)  # noqa: S311  jitter
        self._send_due = self._clock() + pause
        self._log_once(f"waits {reason}", f"{error}; the agent tries again")

    def _log_once(self, trouble: str, words: str) -> None:
        """Log a trouble once until a round succeeds."""
        self._goes_well = False
        if trouble not in self._logged_troubles:
            self._logged_troubles.add(trouble)
            self._log(words)
