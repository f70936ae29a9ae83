"""Delivery of batches to a sink, until it acknowledges or refuses each entry for good.

Temporary failures are retried for as long as they last, with growing pauses. If an answer is about
some of the entries, the batch is halved until the refused ones are alone. If somebody must fix
something first (401, 403, 404 and all unexpected answers), everything waits and `status` reports it.

A user's tenant has its own limits. So a failed delivery to one is not retried here: the caller gets
TenantWaits, and goes on with other tenants until `waiting_tenants` no longer names it. The trouble
also ends when the tenant accepts any later push, or when nobody has entries for it: the failed
stream may never come again.

A single stream may fail while others of its tenant succeed, by its own rate, Loki's limit of streams
or the outage of a part of Loki. Then the caller gets StreamWaits, and the round's other streams go on.
"""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from logshipper.errors import PushError, QueryError, RetryablePushError
from logshipper_ingest.config.delivery_options import DeliveryOptions
from logshipper_ingest.console.service_log import Kind, LogLine, Notice
from logshipper_ingest.metrics.agent_metrics import PARTIAL_SUCCESS, SinkMetrics
from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.servers.refusals import STREAM_LIMIT, STREAM_RATE, throttle_of
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.shipping.rates import Rates
from logshipper_ingest.shipping.server_clock import ServerClock
from logshipper_ingest.shipping.sink import PushClient, Sink

_MAX_MESSAGES = 100
_ALL_TENANTS = (0, 404)  # failures that concern all tenants
_ALONE = (STREAM_LIMIT, STREAM_RATE)  # 429s that concern one stream
# Least and longest pause: Loki has no room until streams have been idle for long.
STREAM_LIMIT_SECS = (30.0, 600.0)
OUTAGE_SECS = 5.0  # after a longer outage, many agents come back at the same time
RESTART_SECS = 1.0  # without an answer: Loki may have been restarted
PART_SECS = 2.0  # of 5xx for one stream: maybe only a part of Loki is down, so try others
LOG_AGAIN_SECS = 600.0  # between two lines about the same trouble
STALE_SECS = 1200.0  # after its pause, a failing stream without entries is forgotten
_COUNTS = re.compile(r"[0-9]+|\{[^}]*+(?:\}|\Z)")  # in Loki's messages: parts that vary


class Stopped(Exception):
    """The agent ends; the next one sends the current entries again."""


class TenantWaits(Exception):
    """The tenant accepts nothing now."""


class StreamWaits(Exception):
    """The stream accepts nothing now, but others of its tenant may go on."""


class DeliveryState(NamedTuple):
    """The state of a delivery, for `status`."""

    since_ns: int = 0  # 0 while all is well
    status: int = 0  # HTTP's
    words: str = ""  # the server's last message, or why nothing is sent


class _Pause(NamedTuple):
    """The pause of a failed stream, by the monotonic clock."""

    backoff: Backoff
    failed_at: float
    until: float  # time of the retry
    alone: bool  # others of its tenant go on


class Delivery:
    """Delivery to one server, for several threads."""

    def __init__(
        self,
        sink: Sink,
        make_client: Callable[[], PushClient],  # called once per thread
        options: DeliveryOptions,
        metrics: SinkMetrics,
        stop: threading.Event,  # set when the agent ends
        log: Callable[[str], None],
    ) -> None:
        self.sink = sink
        self._make_client = make_client
        self._clients = threading.local()  # a connection is one thread's
        self._options = options
        self._metrics = metrics
        for reason in sink.reasons:  # at 0 from the start, so that rate() counts the first ones
            metrics.refused_entries.labels(reason)
        self._stop = stop
        self._log = log
        self._lock = threading.Lock()
        self._troubles: dict[StreamKey, DeliveryState] = {}
        self._last = DeliveryState()
        self.rates = Rates(options)
        self._failing_since: dict[StreamKey, float] = {}  # like _troubles, by the monotonic clock
        self._push_times: dict[str, float] = {}  # of the last accepted one, by tenant
        self._pauses: dict[StreamKey, _Pause] = {}
        self._party_tenants: dict[str, Collection[str]] = {}
        # when each message was logged, whatever its stream and numbers
        self._message_times: dict[tuple[str, int, str], float] = {}
        self._is_outage_logged = False
        self._is_down = False
        self._settled_at = 0.0  # by the monotonic clock
        self.clock = ServerClock(self._ask_time)

    @property
    def state(self) -> DeliveryState:
        """The longest present trouble of any stream."""
        with self._lock:
            return min(self._troubles.values(), default=DeliveryState())

    def waiting_by_result(self) -> Counter[str]:
        """Count waiting streams by the last answer: HTTP's status, or `no_connection`."""
        with self._lock:
            return Counter(_result(trouble.status) for trouble in self._troubles.values())

    def waiting_tenants(self) -> set[str]:
        """Return tenants whose retry is not due yet."""
        now = time.monotonic()
        with self._lock:
            return {
                key.tenant
                for key, pause in self._pauses.items()
                if pause.until > now and not pause.alone
            }

    def failing(self) -> set[str | StreamKey]:
        """Return tenants whose last push failed, and streams that failed while others of their
        tenants succeeded, whether or not a retry is due."""
        with self._lock:
            return {key if pause.alone else key.tenant for key, pause in self._pauses.items()}

    def waiting_streams(self) -> set[StreamKey]:
        """Return streams that failed alone and whose retry is not due yet."""
        now = time.monotonic()
        with self._lock:
            alone = {key: pause for key, pause in self._pauses.items() if pause.alone}
            self._forget([key for key, pause in alone.items() if now > pause.until + STALE_SECS])
            return {key for key, pause in alone.items() if pause.until > now}

    def want(self, party: str, tenants: Collection[str]) -> None:
        """Note all tenants for which a party has entries, before it delivers these. The trouble of
        tenants for which no party has entries is over."""
        with self._lock:
            self._party_tenants[party] = tenants
            names = {"", *chain.from_iterable(self._party_tenants.values())}
            self._forget(
                [key for key in {**self._troubles, **self._pauses} if key.tenant not in names]
            )
            self._push_times = {name: at for name, at in self._push_times.items() if name in names}
        self.rates.forget_others(names)

    @property
    def last_refusal(self) -> DeliveryState:
        """The last failed push."""
        with self._lock:
            return self._last

    def deliver(self, batch: Sequence[Chunk]) -> list[Refusal]:
        """Deliver a batch of one stream; return refused entries after the sink has acknowledged all
        others. Raises Stopped, TenantWaits, StreamWaits."""
        refusals: list[Refusal] = []
        todo = [list(batch)]
        while todo:
            part = todo.pop()
            error = self._push(part)
            if error is None:
                continue
            if throttle_of(error):  # in smaller pushes: many share the limit
                todo += reversed(_halves(part))
                continue
            key = part[0].key
            if not self.sink.is_certain(error) and not self._accepts_probe(key):
                self._trouble(key, error)  # until somebody fixes the problem
                secs = self._options.retry_max_secs
                self._pause(key, self._backoff(key), secs, alone=self._is_alone(key))
                todo.append(part)
                continue
            rest, known_refusals, drop_count = self.sink.judge(part, error)
            refusals += known_refusals
            if drop_count:
                self._note_drops(key, drop_count, error)
            rest_count = _count(rest)
            if rest_count < _count(part):
                todo += [rest] if rest else []  # the answer did not concern these
            elif rest_count > 1:
                todo += reversed(_halves(rest))  # the earlier half first
            else:
                reason = self.sink.reason(error)
                refusals += [Refusal(chunk, reason, error.status, error.excerpt) for chunk in rest]
        return refusals

    def _accepts_probe(self, key: StreamKey) -> bool:
        """Whether the sink accepts a probe in this stream. If not, its refusal does not concern the
        entries: a limit of the server or a gateway is in the way."""
        try:
            self._client().push_body(self.sink.probe(key), key.tenant)
        except PushError:
            return False
        return True

    def _push(self, part: list[Chunk]) -> PushError | None:
        """Push until an answer concerns these entries, or says that they are too many at once.
        Return None once all are accepted."""
        key = part[0].key
        push = self.sink.push(part)
        weight = sum(chunk.weight for chunk in part)
        backoff = self._backoff(key)
        client = self._client()
        while True:
            self._wait(self.rates.take(key, weight))
            self._await_settled(client)
            if self._stop.is_set():
                raise Stopped
            begin = time.monotonic()
            try:
                client.push_body(push.body, key.tenant)
            except PushError as error:
                self._note(key, error)
                is_outage = not error.status or error.status >= 500
                is_lasting = self._has_failed_for(key) > RESTART_SECS
                if is_outage and is_lasting and not self._is_alone(key):
                    self._is_down = True
                if error.status:
                    self._compare_clocks(client.answer_date_ns)
                is_retryable = isinstance(error, RetryablePushError)
                if error.status in self.sink.split_statuses and not is_retryable:
                    return error
                backoff = backoff.failed()
                self._metrics.retries.labels(_result(error.status)).inc()
                if self._is_too_much(key, weight, error, backoff, begin) and _count(part) > 1:
                    return error
            else:
                self._metrics.pushes.labels("204").inc()
                self._metrics.push_seconds.observe(time.monotonic() - begin)
                self._metrics.pushed_bytes.inc(len(push.body))
                if push.values_left_out:
                    self._metrics.values_left_out.inc(push.values_left_out)
                self._compare_clocks(client.answer_date_ns)
                self.rates.note_push(key.tenant, weight)
                self._note_recovery(key, begin)
                return None

    def _await_settled(self, client: PushClient) -> None:
        """Wait for settle_secs after a restart of Loki. It counts its write-ahead log as a rate and
        splits streams for some seconds; entries repeated then would be stored twice."""
        if self._is_down and self._answers(client):
            with self._lock:
                if self._is_down:
                    self._is_down = False
                    self._settled_at = time.monotonic() + self._options.settle_secs
        self._wait(max(0.0, self._settled_at - time.monotonic()))

    def _answers(self, client: PushClient) -> bool:
        """Whether Loki or a gateway answers, even if only by an error."""
        try:
            client.ready()
        except QueryError as error:
            return error.status not in (0, 502, 504)
        return True

    def _is_too_much(
        self, key: StreamKey, weight: int, error: PushError, backoff: Backoff, sent_at: float
    ) -> bool:
        """Pause until the retry, and return whether it should be in smaller pushes."""
        limit = throttle_of(error)
        is_apart = not key.tenant and error.status >= 500 and self._has_failed_for(key) > PART_SECS
        alone = limit in _ALONE or (not limit and (is_apart or self._is_alone(key)))
        if limit:
            self._metrics.throttled.labels(limit).inc()
            if not alone:
                self.rates.note_refusal(key.tenant, weight, sent_at)
        elif self._has_failed_for(key) > OUTAGE_SECS:
            self.rates.note_outage(key.tenant)
        paced = Backoff(*STREAM_LIMIT_SECS, backoff.tries) if limit == STREAM_LIMIT else backoff
        secs = paced.pause_secs(random.random(), error.retry_after_secs)  # noqa: S311  jitter
        self._pause(key, backoff, secs, alone=alone)
        return bool(limit) and weight > self.rates.batch_bytes(key.tenant)

    def _has_failed_for(self, key: StreamKey) -> float:
        """Return the seconds since its first failure."""
        now = time.monotonic()
        with self._lock:
            return now - self._failing_since.get(key, now)

    def _is_alone(self, key: StreamKey) -> bool:
        """Whether the tenant accepted other streams since this one began to fail."""
        with self._lock:
            since = self._failing_since.get(key, float("inf"))
            return self._push_times.get(key.tenant, 0.0) > since

    def _backoff(self, key: StreamKey) -> Backoff:
        """Return the longest backoff of this stream, or of its tenant's streams if the tenant
        fails: any of them may be the next to try."""
        with self._lock:
            backoffs = [
                pause.backoff
                for stream, pause in self._pauses.items()
                if stream == key or (stream.tenant == key.tenant and not pause.alone)
            ]
        first = Backoff(self._options.retry_min_secs, self._options.retry_max_secs)
        return max(backoffs, key=lambda backoff: backoff.tries, default=first)

    def _ask_time(self) -> int | None:
        """Return the server's time. Raises QueryError if it doesn't answer."""
        client = self._client()
        try:
            client.ready()
        except QueryError as error:
            if not error.status:
                raise
        # the answer of a gateway that admits only pushes has a time, too
        return client.answer_date_ns

    def _client(self) -> PushClient:
        if not hasattr(self._clients, "client"):
            self._clients.client = self._make_client()
        client: PushClient = self._clients.client
        return client

    def _pause(self, key: StreamKey, backoff: Backoff, secs: float, *, alone: bool) -> None:
        """Wait for the retry if all are concerned. For a user's tenant or a single stream, note the
        pause and raise, so that the caller goes on with others."""
        if not key.tenant and not alone:
            self._wait(secs)
            return
        now = time.monotonic()
        with self._lock:
            self._pauses[key] = _Pause(backoff, now, now + secs, alone)
        if alone:
            raise StreamWaits
        raise TenantWaits

    def _wait(self, secs: float) -> None:
        if secs and self._stop.wait(secs):
            raise Stopped

    # ---- troubles and their log lines

    def _note(self, key: StreamKey, error: PushError) -> None:
        self._metrics.pushes.labels(_result(error.status)).inc()
        with self._lock:
            self._last = DeliveryState(time.time_ns(), error.status, error.excerpt)
        if error.status not in self.sink.split_statuses:  # else the entries may be at fault
            self._trouble(key, error)

    def _note_drops(self, key: StreamKey, count: int, error: PushError) -> None:
        """Count entries that the sink dropped while it accepted the others."""
        self._metrics.left_out.labels(PARTIAL_SUCCESS).inc(count)
        self._log(
            LogLine(f"{error}; these are lost, as the server does not name them", Kind.REFUSED)
        )
        self._note_recovery(key, time.monotonic())

    def _trouble(self, key: StreamKey, error: PushError) -> None:
        tenant = "" if error.status in _ALL_TENANTS else key.tenant
        with self._lock:
            trouble = self._troubles.get(key)
            since_ns = trouble.since_ns if trouble else time.time_ns()
            self._failing_since.setdefault(key, time.monotonic())
            self._troubles[key] = DeliveryState(since_ns, error.status, error.excerpt)
            message = (tenant, error.status, throttle_of(error) or _COUNTS.sub("0", error.excerpt))
            now = time.monotonic()
            times = {
                earlier: at
                for earlier, at in self._message_times.items()
                if now - at < LOG_AGAIN_SECS
            }
            self._message_times = times
            is_news = message not in times and len(times) < _MAX_MESSAGES
            if is_news:
                times[message] = now
                self._is_outage_logged = True
        if is_news:
            self._log(LogLine(f"{error}; {self.sink.fix(error, tenant)}", Kind.SINK_AWAY))

    def _compare_clocks(self, date_ns: int | None) -> None:
        """Note the server's time from an answer that has just come, even a refusal: a wrong clock
        causes these."""
        if date_ns is not None:
            self._metrics.clock_skew_seconds.set((time.time_ns() - date_ns) / 1e9)
            self.clock.note(date_ns)

    def _note_recovery(self, key: StreamKey, begin: float) -> None:
        """End the troubles of a stream and its tenant after a push that began at `begin`. Streams
        that failed later, in other threads, stay in trouble."""
        with self._lock:
            self._push_times[key.tenant] = time.monotonic()
            earlier_streams = [
                stream
                for stream, pause in self._pauses.items()
                if stream.tenant == key.tenant and pause.failed_at <= begin and not pause.alone
            ]
            troubles = self._forget([key, *earlier_streams])
            is_over = bool(troubles) and not self._troubles
            is_logged = self._is_outage_logged
            self._is_outage_logged = is_logged and not is_over
        if is_over and is_logged:
            secs = (time.time_ns() - min(troubles).since_ns) / 1e9
            words = f"{self.sink.kind} takes everything again, after {secs:.0f} s"
            self._log(Notice(words, Kind.SINK_BACK))

    def _forget(self, keys: Iterable[StreamKey]) -> list[DeliveryState]:
        """Forget streams; return their troubles. The caller holds the lock."""
        keys = list(keys)
        for key in keys:
            self._pauses.pop(key, None)
            self._failing_since.pop(key, None)
        return [self._troubles.pop(key) for key in keys if key in self._troubles]


def _result(status: int) -> str:
    """Return an answer's label in /metrics."""
    return str(status or "no_connection")


def _halves(part: Sequence[Chunk]) -> list[list[Chunk]]:
    """Split entries into an earlier and a later half."""
    room = _count(part) // 2
    first: list[Chunk] = []
    second: list[Chunk] = []
    for chunk in part:
        count = min(room, len(chunk.lines))
        if count:
            first.append(chunk.slice(0, count))
        if count < len(chunk.lines):
            second.append(chunk.slice(count, len(chunk.lines)))
        room -= count
    return [first, second]


def _count(part: Iterable[Chunk]) -> int:
    return sum(len(chunk.lines) for chunk in part)
