"""Brings batches to Loki until each entry is acknowledged or refused for good. Nothing is dropped on the way.

Only 204 counts. What may be taken later is tried again, for as long as it takes, with growing pauses. A 400 means that
some entries were refused and the others stored: the batch is halved until the refused ones are alone; pushing the
others once more does no harm, as Loki drops exact repeats. Where somebody has to mend something first (401, 403, 404,
and all answers that nobody expects) everything waits and `status` tells.

Where users have tenants of their own, one's limits aren't the others': a delivery that fails isn't tried again here,
but given back to the caller (TenantWaits), who goes on with the others until `waiting_tenants` names it no more. Any
later push that it takes ends its trouble, and so does that nobody has anything for it: the stream that failed may never
come again.
"""

import random
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from ingest.agent_config import LokiSection
from ingest.backoff import Allowance, Backoff
from ingest.entries import Chunk, StreamKey
from ingest.loki_push import assemble, compress, encode_block, encode_metadata
from ingest.metrics_server import AgentMetrics
from ingest.quarantine import Refusal
from ingest.refusals import CERTAIN, reason_of
from ingest.server_clock import ServerClock
from logshipper.errors import PushError, RetryablePushError

_PROBE = b'{"event":"checked"}'
_PROBE_METADATA = encode_metadata(dict.fromkeys(("job_id", "user", "task", "attempt"), "checked"))
_MAX_TOLD = 100
_SPLITTING = (400, 413)  # something about these entries
_ALL_TENANTS = (0, 404)  # nothing about one of them
_BEHIND = re.compile(r"oldest acceptable timestamp is:? (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


class Stopped(Exception):
    """The agent ends: what is under way is sent again by the next one."""


class TenantWaits(Exception):
    """Nothing more of this tenant's is taken now."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant)
        self.tenant = tenant


class PushClient(Protocol):
    """The part of `ingest.loki.Client` that is needed here."""

    @property
    def answer_date_ns(self) -> int | None: ...

    def push_body(self, body: bytes, tenant: str = "") -> object: ...

    def ready(self) -> bool: ...


class SinkState(NamedTuple):
    """What the sink is at, for `status`. since_ns: 0 while all is well; words: what the server said last, or why
    nothing is sent; status: HTTP's."""

    since_ns: int = 0
    status: int = 0
    words: str = ""


class _Pause(NamedTuple):
    """Of a user's stream that failed. at, until: when, and when it is tried again, by the monotonic clock."""

    backoff: Backoff
    at: float
    until: float


class LokiSink:
    """One Loki. make_client: for each thread that delivers; labels: of a stream; stop: set when the agent ends; say:
    lines for the agent's log. clock: Loki's."""

    def __init__(
        self,
        make_client: Callable[[], PushClient],
        section: LokiSection,
        labels: Callable[[StreamKey], dict[str, str]],
        metrics: AgentMetrics,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self._make_client = make_client
        self._clients = threading.local()  # a connection is one thread's
        self._section = section
        self._labels = labels
        self._metrics = metrics
        self._stop = stop
        self._say = say
        self._lock = threading.Lock()
        self._troubles: dict[StreamKey, SinkState] = {}
        self._last = SinkState()
        self._allowances: dict[StreamKey, Allowance] = {}
        self._pauses: dict[StreamKey, _Pause] = {}
        self._wanted: dict[str, frozenset[str]] = {}
        self._told: set[tuple[str, int, str]] = set()  # of this outage: each thing once, not once a stream
        self.clock = ServerClock(self._ask_time)

    @property
    def state(self) -> SinkState:
        """The longest trouble of all streams, or that all is well."""
        with self._lock:
            return min(self._troubles.values(), key=lambda trouble: trouble.since_ns, default=SinkState())

    def waiting_tenants(self) -> set[str]:
        """Those that aren't to be sent to yet."""
        now = time.monotonic()
        with self._lock:
            return {key.tenant for key, pause in self._pauses.items() if pause.until > now}

    def failing_tenants(self) -> set[str]:
        """Those that didn't take what they were sent last, whether they are to be sent to again or not."""
        with self._lock:
            return {key.tenant for key in self._pauses}

    def want(self, party: str, tenants: Collection[str]) -> None:
        """All tenants that a party has something for, before it delivers that: others' trouble is over, where no party
        has anything for them."""
        with self._lock:
            self._wanted[party] = frozenset(tenants)
            wanted = frozenset[str]().union(*self._wanted.values())
            self._forget([key for key in self._failed() if key.tenant not in wanted])

    @property
    def last_refusal(self) -> SinkState:
        """The last answer that wasn't 204."""
        with self._lock:
            return self._last

    def deliver(self, batch: Sequence[Chunk]) -> list[Refusal]:
        """Returns when all entries of a batch (of one stream) are acknowledged, but for those it returns. Raises
        Stopped, TenantWaits."""
        refusals: list[Refusal] = []
        todo = [list(batch)]
        while todo:
            part = todo.pop()
            error = self._push(part)
            if error is None:
                continue
            if reason_of(error) not in CERTAIN and not self._takes_others(part[0].key):
                self._hold(part[0].key, error)
                todo.append(part)
                continue
            rest = self._take_known(part, error, refusals)
            left = sum(len(chunk.lines) for chunk in rest)
            if left < sum(len(chunk.lines) for chunk in part):
                todo += [rest] if rest else []  # nothing is known of these yet
            elif left > 1:
                todo += reversed(_halves(rest))  # the earlier half first
            else:
                reason = reason_of(error)
                refusals += [Refusal(chunk, reason, error.status, error.excerpt) for chunk in rest]
        return refusals

    def _takes_others(self, key: StreamKey) -> bool:
        """Whether an entry of our own is taken in this stream. If not, a 400 has nothing to do with the entries that
        were sent: a limit of Loki's is in the way, or a gateway before it."""
        probe = encode_block([_PROBE], time.time_ns(), _PROBE_METADATA)
        try:
            self._client().push_body(compress(assemble(self._labels(key), [probe])), key.tenant)
        except PushError:
            return False
        return True

    def _hold(self, key: StreamKey, error: PushError) -> None:
        """Everything waits: somebody has to mend something."""
        self._trouble(key, error)
        self._pause(key, self._backoff(key), self._section.retry_max_secs)

    def _take_known(self, part: list[Chunk], error: PushError, refusals: list[Refusal]) -> list[Chunk]:
        """Where Loki says from which time on it takes entries: those before it are refused at once. Returns the rest,
        which is pushed again; all of it where Loki says nothing that helps."""
        floor_ns = _floor_ns(error.excerpt) if reason_of(error) == "too_far_behind" else 0
        kept: list[Chunk] = []
        for chunk in part:
            late = bisect_left(chunk.times_ns, floor_ns)  # times rise within a chunk
            if late:
                told = Refusal(chunk.slice(0, late), "too_far_behind", error.status, error.excerpt)
                refusals.append(told)
            if late < len(chunk.lines):
                kept.append(chunk.slice(late, len(chunk.lines)) if late else chunk)
        return kept

    def _push(self, part: Sequence[Chunk]) -> PushError | None:
        """Pushes until there is an answer that says something about these entries; None: all are taken."""
        key = part[0].key
        body = compress(assemble(self._labels(key), [chunk.encoded() for chunk in part]))
        self._keep_to_rate(key, sum(chunk.size for chunk in part))
        backoff = self._backoff(key)
        client = self._client()
        while True:
            if self._stop.is_set():
                raise Stopped
            begin = time.monotonic()
            try:
                client.push_body(body, key.tenant)
            except PushError as error:
                self._note(key, error)
                if not isinstance(error, RetryablePushError) and error.status in _SPLITTING:
                    return error
                backoff = backoff.failed()
                self._metrics.retries.labels(str(error.status or "no_connection")).inc()
                secs = backoff.pause_secs(random.random(), error.retry_after_secs)  # noqa: S311  jitter
                self._pause(key, backoff, secs)
            else:
                self._metrics.pushes.labels("204").inc()
                self._metrics.push_seconds.observe(time.monotonic() - begin)
                self._metrics.pushed_bytes.inc(len(body))
                self._recovered(key, begin, client.answer_date_ns)
                return None

    def _backoff(self, key: StreamKey) -> Backoff:
        """As earlier deliveries of the stream left it."""
        with self._lock:
            known = self._pauses.get(key)
        return known.backoff if known else Backoff(self._section.retry_min_secs, self._section.retry_max_secs)

    def _ask_time(self) -> int | None:
        """Raises QueryError where it doesn't answer."""
        client = self._client()
        client.ready()
        return client.answer_date_ns

    def _client(self) -> PushClient:
        if not hasattr(self._clients, "own"):
            self._clients.own = self._make_client()
        own: PushClient = self._clients.own
        return own

    def _keep_to_rate(self, key: StreamKey, size: int) -> None:
        """Above some 1.5 MB/s Loki splits a stream into shards, and the refusal of one is hidden by another's 204."""
        now = time.monotonic()
        with self._lock:
            allowance = self._allowances.get(key) or Allowance.full(self._section.stream_max_bytes_per_sec, now)
            self._allowances[key], pause = allowance.take(size, now)
        if pause:
            self._wait(pause)

    def _pause(self, key: StreamKey, backoff: Backoff, secs: float) -> None:
        """Before the next try: here, or where the tenant is a user's, with whoever has others to go on with."""
        if not key.tenant:
            self._wait(secs)
            return
        now = time.monotonic()
        with self._lock:
            self._pauses[key] = _Pause(backoff, now, now + secs)
        raise TenantWaits(key.tenant)

    def _wait(self, secs: float) -> None:
        if self._stop.wait(secs):
            raise Stopped

    # ---- what is told

    def _note(self, key: StreamKey, error: PushError) -> None:
        self._metrics.pushes.labels(str(error.status or "no_connection")).inc()
        with self._lock:
            self._last = SinkState(time.time_ns(), error.status, error.excerpt)
        if error.status not in _SPLITTING:  # these are the entries' fault, not the sink's
            self._trouble(key, error)

    def _trouble(self, key: StreamKey, error: PushError) -> None:
        tenant = "" if error.status in _ALL_TENANTS else key.tenant
        with self._lock:
            known = self._troubles.get(key)
            since_ns = known.since_ns if known else time.time_ns()
            self._troubles[key] = SinkState(since_ns, error.status, error.excerpt)
            told = (tenant, error.status, error.excerpt)
            is_news = told not in self._told
            if is_news and len(self._told) < _MAX_TOLD:
                self._told.add(told)
        if is_news:
            self._say(f"{error}; {_mend(error.status, tenant)}")

    def _recovered(self, key: StreamKey, begin: float, date_ns: int | None) -> None:
        """begin: of the push that was taken; what failed after that, beside it, is still in trouble."""
        if date_ns is not None:
            self._metrics.clock_skew_seconds.set((time.time_ns() - date_ns) / 1e9)
            self.clock.note(date_ns)
        with self._lock:
            earlier = (one for one, pause in self._pauses.items() if one.tenant == key.tenant and pause.at <= begin)
            troubles = self._forget([key, *earlier])
            is_over = not self._troubles
        if troubles and is_over:
            since_ns = min(trouble.since_ns for trouble in troubles)
            self._say(f"Loki takes everything again, after {(time.time_ns() - since_ns) / 1e9:.0f} s")

    def _failed(self) -> list[StreamKey]:
        """Users' streams. The caller has the lock, here and below."""
        return [key for key in {**self._troubles, **self._pauses} if key.tenant]

    def _forget(self, keys: Iterable[StreamKey]) -> list[SinkState]:
        """Returns their troubles."""
        troubles: list[SinkState] = []
        for key in keys:
            self._pauses.pop(key, None)
            trouble = self._troubles.pop(key, None)
            troubles += [trouble] if trouble else []
        if troubles and not self._troubles:
            self._told.clear()
        return troubles


def _halves(part: Sequence[Chunk]) -> list[list[Chunk]]:
    """The earlier half of the entries, and the later one."""
    left = sum(len(chunk.lines) for chunk in part) // 2
    first: list[Chunk] = []
    second: list[Chunk] = []
    for chunk in part:
        count = len(chunk.lines)
        if left >= count:
            first.append(chunk)
        elif left > 0:
            first.append(chunk.slice(0, left))
            second.append(chunk.slice(left, count))
        else:
            second.append(chunk)
        left -= count
    return [first, second]


def _floor_ns(words: str) -> int:
    """The time before which Loki took nothing, as its words have it; 0 where they haven't."""
    found = _BEHIND.search(words)
    if found is None:
        return 0
    try:
        whole = datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(whole.timestamp()) * 10**9 + int((found[2] or "").ljust(9, "0"))


def _mend(status: int, tenant: str) -> str:
    waits = f"what is of the tenant {tenant} waits" if tenant else "everything waits"
    if status in (401, 403):
        return f"credentials or tenant are wrong: look at [loki] in the agent's configuration; {waits}"
    if status in _SPLITTING:
        return (
            "it refuses whatever it is sent: `logshipper-agent check` says which of Loki's settings is in the way, if "
            f"it is Loki that answers; {waits}"
        )
    if status == 404:
        return "there is no Loki at this address: look at [loki] url; everything waits"
    return f"{waits} in the spool, and is tried again"
