"""A model of Loki's pushes in memory: stored entries, refusals, and their messages.

The messages are those of 3.7.6; a test of tests/ingest/shipping/test_delivery.py compares them with
a real Loki's.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from logshipper.errors import PushError, RejectedPushError, RetryablePushError
from tests.tools.fakes.push_decoder import Pushed, decode, decompress

HOUR_NS = 3600 * 10**9
MAX_LINE_BYTES = 262_144
NAME = "Loki at http://modelled"


class Stored(NamedTuple):
    """An entry that a query would find. labels: in Loki's notation of a stream."""

    labels: str
    time_ns: int
    line: bytes
    metadata: tuple[tuple[str, str], ...]


class ModelledLoki:
    """The `push_body` of `logshipper_ingest.loki.client.LokiClient`, for several threads.

    - script: answers to the next pushes, in order. An error is raised; a function is called with
      the labels and may raise one; None stands for the usual answer.
    - stored: entries in the order of arrival, with exact repeats
    - requests: (labels, entries) of each push, stored or not
    - refusing: errors by tenant. A label that a real Loki does not have tells tenants apart.
    - ails: returns the answer to a push instead, by the push's labels
    - takes: returns whether a push is within the rate, by its number from 1
    - excess: returns the answer to a push above the rate
    - behind_ns: delay of its clock behind ours
    """

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.requests: list[tuple[str, list[Pushed]]] = []
        self.bodies: list[bytes] = []
        self.newest_ns: dict[str, int] = {}
        self.script: list[PushError | Callable[[str], None] | None] = []
        self.refusing: dict[str, PushError] = {}
        self.ails: Callable[[str], PushError | None] = lambda labels: None
        self.takes: Callable[[int], bool] = lambda number: True
        self.excess: Callable[[], PushError] = throttled
        self.answer_date_ns: int | None = None
        self.behind_ns = 0
        self._lock = threading.Lock()

    def push_body(self, body: bytes, tenant: str = "") -> None:
        with self._lock:
            labels, entries = decode(decompress(body))
            labels = labels.replace('",', '", ')  # in Loki's own notation
            if tenant:
                labels = f'{labels[:-1]}, tenant="{tenant}"}}'
            self.bodies.append(body)
            self.requests.append((labels, entries))
            self._tell_time()
            if tenant in self.refusing:
                raise self.refusing[tenant]
            ailing = self.ails(labels)
            if ailing is not None:
                raise ailing
            if not self.takes(len(self.requests)):
                raise self.excess()
            step = self.script.pop(0) if self.script else None
            if isinstance(step, PushError):
                raise step
            if step is not None:
                step(labels)
            self._take(labels, entries)

    def ready(self) -> bool:
        self._tell_time()
        return True

    def _tell_time(self) -> None:
        self.answer_date_ns = (time.time_ns() - self.behind_ns) // 10**9 * 10**9

    def _take(self, labels: str, entries: list[Pushed]) -> None:
        now_ns = time.time_ns() - self.behind_ns
        valid: list[Pushed] = []
        invalid: list[str] = []
        for entry in entries:
            words = self._invalid(labels, entry, now_ns)
            if words:
                invalid.append(words)
            else:
                valid.append(entry)
        behind = [words for entry in valid if (words := self._append(labels, entry))]
        if behind:
            counts = f"total ignored: {len(behind)} out of {len(valid)} for stream: {labels}"
            raise RejectedPushError(
                NAME, 400, ", ".join([*behind[:10], "user 'fake'", counts])[:1000]
            )
        if invalid:
            words = (
                invalid[0]
                if len(invalid) == 1
                else "; ".join(f"1 errors like: {words}" for words in invalid)
            )
            raise RejectedPushError(NAME, 400, words[:1000])

    def _invalid(self, labels: str, entry: Pushed, now_ns: int) -> str:
        oldest_ns = now_ns - 168 * HOUR_NS
        if entry.time_ns < oldest_ns:
            return (
                f"entry for stream '{labels}' has timestamp too old: {_moment(entry.time_ns)}, "
                f"oldest acceptable timestamp is: {_moment(oldest_ns)}"
            )
        if entry.time_ns > now_ns + 600 * 10**9:
            return f"entry for stream '{labels}' has timestamp too new: {_moment(entry.time_ns)}"
        if len(entry.line) > MAX_LINE_BYTES:
            return (
                f"max entry size '{MAX_LINE_BYTES}' bytes exceeded for stream '{labels}' while adding an entry with "
                f"length '{len(entry.line)}' bytes"
            )
        return ""

    def _append(self, labels: str, entry: Pushed) -> str:
        floor_ns = self.newest_ns.get(labels, 0) - HOUR_NS
        if entry.time_ns < floor_ns:
            when = datetime.fromtimestamp(entry.time_ns // 10**9, UTC)
            fraction = f".{entry.time_ns % 10**9:09d}".rstrip("0").rstrip(".")
            return (
                f"entry with timestamp {when:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC ignored, reason: "
                f"'entry too far behind, entry timestamp is: {_moment(entry.time_ns)}, "
                f"oldest acceptable timestamp is: {_moment(floor_ns)}'"
            )
        self.newest_ns[labels] = max(self.newest_ns.get(labels, 0), entry.time_ns)
        self.stored.append(Stored(labels, entry.time_ns, entry.line, tuple(sorted(entry.metadata))))
        return ""

    # ---- results of queries

    def find(self, *parts: str) -> list[Stored]:
        """Return entries of streams whose labels contain these parts, in order of time, without
        repeats."""
        matches = {entry for entry in self.stored if all(part in entry.labels for part in parts)}
        return sorted(matches, key=lambda entry: (entry.time_ns, entry.labels, entry.line))

    def lines(self, *parts: str) -> list[str]:
        return [entry.line.decode() for entry in self.find(*parts)]

    def doubles(self) -> list[tuple[int, bytes]]:
        """Return (time, line) of entries that a query of all streams would show twice."""
        counts = Counter(entry._replace(labels="") for entry in set(self.stored))
        return [(entry.time_ns, entry.line) for entry, count in counts.items() if count > 1]

    def streams(self) -> set[str]:
        return {entry.labels for entry in self.stored}


def throttled(
    retry_after_secs: float | None = None, words: str = "ingestion rate limit exceeded"
) -> PushError:
    return RetryablePushError(NAME, 429, words, retry_after_secs)


def rejection(status: int, words: str = "no") -> PushError:
    return RejectedPushError(NAME, status, words)


def unreachable() -> PushError:
    return RetryablePushError(NAME, 0, "connection refused")


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"
