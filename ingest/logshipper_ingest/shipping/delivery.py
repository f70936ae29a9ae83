"""Brings batches to a sink until each entry is acknowledged or refused for good. Nothing is dropped
on the way.

What may be taken later is tried again, for as long as it takes, with growing pauses. Where an
answer is about some of the entries, the batch is halved until the refused ones are alone. Where
somebody must fix something first (401, 403, 404, and all answers that nobody expects) everything
waits and `status` says so.

Where users have tenants of their own, one's limits aren't the others': a delivery that fails isn't
tried again here, but given back to the caller (TenantWaits), who goes on with the others until
`waiting_tenants` names it no more. Any later push that is taken ends its trouble, and so does that
nobody has anything for it: the stream that failed may never come again.

A stream that alone isn't taken while others of its tenant are (its own rate, Loki's limit of
streams, a part of Loki that is away) is given back in the same way (StreamWaits): the others of the
round don't wait for it.
"""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
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
_ALL_TENANTS = (0, 404)  # nothing about one of them
_ALONE = (STREAM_LIMIT, STREAM_RATE)  # 429s that say nothing about other streams
# Least and longest pause: Loki has no room before streams have been idle for long.
STREAM_LIMIT_SECS = (30.0, 600.0)
OUTAGE_SECS = 5.0  # after which others will come back at the same time
RESTART_SECS = 1.0  # without an answer: Loki may have been restarted
PART_SECS = 2.0  # of 5xx for one stream: others are tried then, as only a part of Loki may be away
SAY_AGAIN_SECS = 600.0  # the same trouble, while it lasts, or where it comes and goes
# How long after its pause a stream that nobody has anything for counts as failing.
STALE_SECS = 1200.0
_COUNTS = re.compile(r"[0-9]+|\{[^}]*+(?:\}|\Z)")  # in Loki's words: another one each time


class Stopped(Exception):
    """The agent ends: what is under way is sent again by the next one."""


class TenantWaits(Exception):
    """Nothing more of this tenant's is taken now."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant)
        self.tenant = tenant


class StreamWaits(Exception):
    """Nothing more of this stream is taken now; others of its tenant may go on."""

    def __init__(self, key: StreamKey) -> None:
        super().__init__(key)
        self.key = key


class DeliveryState(NamedTuple):
    """For `status`."""

    since_ns: int = 0  # 0 while all is well
    status: int = 0  # HTTP's
    words: str = ""  # what the server said last, or why nothing is sent


class _Pause(NamedTuple):
    """Of a stream that failed. Times are of the monotonic clock."""

    backoff: Backoff
    failed_at: float
    until: float  # when it is tried again
    alone: bool  # others of its tenant go on


class Delivery:
    """To one server. make_client: for each thread that delivers; stop: set when the agent ends;
    say: lines for the agent's log; clock: the server's."""

    def __init__(
        self,
        sink: Sink,
        make_client: Callable[[], PushClient],
        options: DeliveryOptions,
        metrics: SinkMetrics,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self.sink = sink
        self._make_client = make_client
        self._clients = threading.local()  # a connection is one thread's
        self._options = options
        self._metrics = metrics
        for reason in sink.reasons:  # at 0 from the start: rate() sees the first ones, too
            metrics.refused_entries.labels(reason)
        self._stop = stop
        self._say = say
        self._lock = threading.Lock()
        self._troubles: dict[StreamKey, DeliveryState] = {}
        self._last = DeliveryState()
        self.rates = Rates(options)
        self._failing_since: dict[StreamKey, float] = {}  # as _troubles, by the monotonic clock
        self._push_times: dict[str, float] = {}  # of the last one that was taken, by tenant
        self._pauses: dict[StreamKey, _Pause] = {}
        self._party_tenants: dict[str, frozenset[str]] = {}
        # When each message was logged, not once a stream or number.
        self._message_times: dict[tuple[str, int, str], float] = {}
        self._is_outage_logged = False
        self._is_away = False
        self._settled_at = 0.0  # by the monotonic clock
        self.clock = ServerClock(self._ask_time)

    @property
    def state(self) -> DeliveryState:
        """The longest trouble of all streams, or that all is well."""
        with self._lock:
            return min(
                self._troubles.values(),
                key=lambda trouble: trouble.since_ns,
                default=DeliveryState(),
            )

    def waiting_by_result(self) -> Counter[str]:
        """How many streams wait, by the last answer: HTTP's status, or `no_connection`."""
        with self._lock:
            return Counter(_result(trouble.status) for trouble in self._troubles.values())

    def waiting_tenants(self) -> set[str]:
        """Those that aren't to be sent to yet."""
        now = time.monotonic()
        with self._lock:
            return {
                key.tenant
                for key, pause in self._pauses.items()
                if pause.until > now and not pause.alone
            }

    def failing_tenants(self) -> set[str]:
        """Those that didn't take what they were sent last, whether they are to be sent to again or
        not."""
        with self._lock:
            return {key.tenant for key, pause in self._pauses.items() if not pause.alone}

    def waiting_streams(self) -> set[StreamKey]:
        """Those that aren't to be sent to yet, though others of their tenants are."""
        now = time.monotonic()
        with self._lock:
            alone = {key: pause for key, pause in self._pauses.items() if pause.alone}
            self._forget([key for key, pause in alone.items() if now > pause.until + STALE_SECS])
            return {key for key, pause in alone.items() if pause.until > now}

    def failing_streams(self) -> set[StreamKey]:
        """Those that didn't take what they were sent last, though others of their tenants did."""
        with self._lock:
            return {key for key, pause in self._pauses.items() if pause.alone}

    def want(self, party: str, tenants: Collection[str]) -> None:
        """All tenants that a party has something for, before it delivers that: others' trouble is
        over, where no party has anything for them."""
        with self._lock:
            self._party_tenants[party] = frozenset(tenants)
            tenant_names = frozenset[str]().union(*self._party_tenants.values())
            self._forget([key for key in self._failing_keys() if key.tenant not in tenant_names])
            self._push_times = {
                name: at
                for name, at in self._push_times.items()
                if not name or name in tenant_names
            }
        self.rates.forget(set(tenant_names))

    @property
    def last_refusal(self) -> DeliveryState:
        """The last answer that wasn't 204."""
        with self._lock:
            return self._last

    def deliver(self, batch: Sequence[Chunk]) -> list[Refusal]:
        """Returns when all entries of a batch (of one stream) are acknowledged, but for those it
        returns. Raises Stopped, TenantWaits, StreamWaits."""
        refusals: list[Refusal] = []
        todo = [list(batch)]
        while todo:
            part = todo.pop()
            error = self._push(part)
            if error is None:
                continue
            if throttle_of(error):  # in smaller pushes: many share what there is
                todo += reversed(_halves(part))
                continue
            if not self.sink.is_certain(error) and not self._takes_others(part[0].key):
                self._hold(part[0].key, error)
                todo.append(part)
                continue
            rest, known_refusals, drop_count = self.sink.judge(part, error)
            refusals += known_refusals
            if drop_count:
                self._note_drops(part[0].key, drop_count, error)
            rest_count = _count(rest)
            if rest_count < _count(part):
                todo += [rest] if rest else []  # nothing is known of these yet
            elif rest_count > 1:
                todo += reversed(_halves(rest))  # the earlier half first
            else:
                reason = self.sink.reason(error)
                refusals += [Refusal(chunk, reason, error.status, error.excerpt) for chunk in rest]
        return refusals

    def _takes_others(self, key: StreamKey) -> bool:
        """Whether a push of our own is taken in this stream. If not, a refusal has nothing to do
        with the entries that were sent: a limit of the server's is in the way, or a gateway."""
        try:
            self._client().push_body(self.sink.probe(key), key.tenant)
        except PushError:
            return False
        return True

    def _hold(self, key: StreamKey, error: PushError) -> None:
        """Everything waits: somebody must fix something."""
        self._trouble(key, error)
        self._pause(
            key, self._backoff(key), self._options.retry_max_secs, alone=self._is_alone(key)
        )

    def _push(self, part: list[Chunk]) -> PushError | None:
        """Pushes until there is an answer that says something about these entries, or that they are
        too many at once; None: all are taken."""
        key = part[0].key
        push = self.sink.push(part)
        weight = sum(chunk.weight for chunk in part)
        backoff = self._backoff(key)
        client = self._client()
        while True:
            self._wait_if(self.rates.take(key, weight))
            self._await_settled(client)
            if self._stop.is_set():
                raise Stopped
            begin = time.monotonic()
            try:
                client.push_body(push.body, key.tenant)
            except PushError as error:
                self._note(key, error)
                is_lasting = self._has_failed_for(key) > RESTART_SECS
                if (
                    is_lasting
                    and (not error.status or error.status >= 500)
                    and not self._is_alone(key)
                ):
                    self._is_away = True
                if error.status:
                    self._compare_clocks(client.answer_date_ns)
                if (
                    not isinstance(error, RetryablePushError)
                    and error.status in self.sink.split_statuses
                ):
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
        """Loki that was restarted has read its write-ahead log, and takes that for a rate: it
        splits streams for some seconds. What it had before, and is sent again then, would be there
        twice."""
        if self._is_away and self._answers(client):
            with self._lock:
                if self._is_away:
                    self._is_away, self._settled_at = (
                        False,
                        time.monotonic() + self._options.settle_secs,
                    )
        self._wait_if(max(0.0, self._settled_at - time.monotonic()))

    def _answers(self, client: PushClient) -> bool:
        """Also that it isn't ready yet is an answer, or that a gateway doesn't let such questions
        through."""
        try:
            client.ready()
        except QueryError as error:
            return error.status not in (0, 502, 504)
        return True

    def _is_too_much(
        self, key: StreamKey, weight: int, error: PushError, backoff: Backoff, sent_at: float
    ) -> bool:
        """Waits, here or elsewhere, until it may be tried again; whether it should be less at a
        time then."""
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
        """Seconds."""
        now = time.monotonic()
        with self._lock:
            return now - self._failing_since.get(key, now)

    def _is_alone(self, key: StreamKey) -> bool:
        """Whether other streams of the tenant were taken since this one began to fail."""
        with self._lock:
            return self._push_times.get(key.tenant, 0.0) > self._failing_since.get(
                key, float("inf")
            )

    def _backoff(self, key: StreamKey) -> Backoff:
        """As earlier deliveries of the stream left it; or of others of its tenant, where that failed:
        each time another one may be the first to be tried."""
        with self._lock:
            backoffs = [
                pause.backoff
                for stream, pause in self._pauses.items()
                if stream == key or (stream.tenant == key.tenant and not pause.alone)
            ]
        first = Backoff(self._options.retry_min_secs, self._options.retry_max_secs)
        return max(backoffs, key=lambda backoff: backoff.tries, default=first)

    def _ask_time(self) -> int | None:
        """Raises QueryError where it doesn't answer."""
        client = self._client()
        try:
            client.ready()
        except QueryError as error:
            if not error.status:
                raise
        return client.answer_date_ns  # a gateway that lets only pushes through has a clock, too

    def _client(self) -> PushClient:
        if not hasattr(self._clients, "client"):
            self._clients.client = self._make_client()
        client: PushClient = self._clients.client
        return client

    def _pause(self, key: StreamKey, backoff: Backoff, secs: float, *, alone: bool) -> None:
        """Before the next try: here, or where it is about a user's tenant or one stream only, with
        whoever has others to go on with."""
        if not key.tenant and not alone:
            self._wait(secs)
            return
        now = time.monotonic()
        with self._lock:
            self._pauses[key] = _Pause(backoff, now, now + secs, alone)
        if alone:
            raise StreamWaits(key)
        raise TenantWaits(key.tenant)

    def _wait_if(self, secs: float) -> None:
        if secs:
            self._wait(secs)

    def _wait(self, secs: float) -> None:
        if self._stop.wait(secs):
            raise Stopped

    # ---- what is logged

    def _note(self, key: StreamKey, error: PushError) -> None:
        self._metrics.pushes.labels(_result(error.status)).inc()
        with self._lock:
            self._last = DeliveryState(time.time_ns(), error.status, error.excerpt)
        if (
            error.status not in self.sink.split_statuses
        ):  # these are the entries' fault, not the sink's
            self._trouble(key, error)

    def _note_drops(self, key: StreamKey, count: int, error: PushError) -> None:
        """The others were taken."""
        self._metrics.left_out.labels(PARTIAL_SUCCESS).inc(count)
        self._say(LogLine(f"{error}; these are lost, as nobody knows which they are", Kind.REFUSED))
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
            self._message_times = {
                earlier: at
                for earlier, at in self._message_times.items()
                if now - at < SAY_AGAIN_SECS
            }
            is_news = (
                message not in self._message_times and len(self._message_times) < _MAX_MESSAGES
            )
            if is_news:
                self._message_times[message] = now
                self._is_outage_logged = True
        if is_news:
            self._say(LogLine(f"{error}; {self.sink.fix(error, tenant)}", Kind.SINK_AWAY))

    def _compare_clocks(self, date_ns: int | None) -> None:
        """date_ns: Loki's, of an answer that came just now: also of a refusal, which a clock that
        is off brings."""
        if date_ns is not None:
            self._metrics.clock_skew_seconds.set((time.time_ns() - date_ns) / 1e9)
            self.clock.note(date_ns)

    def _note_recovery(self, key: StreamKey, begin: float) -> None:
        """begin: of the push that was taken; what failed after that, next to it, is still in
        trouble."""
        with self._lock:
            self._push_times[key.tenant] = time.monotonic()
            tenant_pauses = [
                (stream, pause)
                for stream, pause in self._pauses.items()
                if stream.tenant == key.tenant
            ]
            earlier_streams = (
                stream
                for stream, pause in tenant_pauses
                if pause.failed_at <= begin and not pause.alone
            )
            troubles = self._forget([key, *earlier_streams])
            is_over = bool(troubles) and not self._troubles
            is_logged = self._is_outage_logged
            self._is_outage_logged = is_logged and not is_over
        if is_over and is_logged:
            since_ns = min(trouble.since_ns for trouble in troubles)
            secs = (time.time_ns() - since_ns) / 1e9
            words = f"{self.sink.kind} takes everything again, after {secs:.0f} s"
            self._say(Notice(words, Kind.SINK_BACK))

    def _failing_keys(self) -> list[StreamKey]:
        """Users' streams. The caller has the lock, here and below."""
        return [key for key in {**self._troubles, **self._pauses} if key.tenant]

    def _forget(self, keys: Iterable[StreamKey]) -> list[DeliveryState]:
        """Returns their troubles."""
        troubles: list[DeliveryState] = []
        for key in keys:
            self._pauses.pop(key, None)
            self._failing_since.pop(key, None)
            trouble = self._troubles.pop(key, None)
            troubles += [trouble] if trouble else []
        return troubles


def _result(status: int) -> str:
    """An answer's label in /metrics."""
    return str(status or "no_connection")


def _halves(part: Sequence[Chunk]) -> list[list[Chunk]]:
    """The earlier half of the entries, and the later one."""
    room = _count(part) // 2
    first: list[Chunk] = []
    second: list[Chunk] = []
    for chunk in part:
        count = len(chunk.lines)
        if room >= count:
            first.append(chunk)
        elif room > 0:
            first.append(chunk.slice(0, room))
            second.append(chunk.slice(room, count))
        else:
            second.append(chunk)
        room -= count
    return [first, second]


def _count(part: Iterable[Chunk]) -> int:
    return sum(len(chunk.lines) for chunk in part)
