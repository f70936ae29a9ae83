"""Loki as a sink. A 400 means that Loki refused some entries and stored the others. Pushing these
again is harmless, since Loki drops exact repeats."""

import re
import time
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime

from logshipper.errors import PushError
from logshipper_ingest.servers.loki_push import assemble, compress, encode_block, encode_metadata
from logshipper_ingest.servers.refusals import CERTAIN, REASONS, SPLITTING, fix_of, reason_of
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.shipping.sink import Push, Verdict

_PROBE = b'{"event":"checked"}'
_PROBE_METADATA = encode_metadata(dict.fromkeys(("job_id", "user", "task", "attempt"), "checked"))
_BEHIND = re.compile(
    r"oldest acceptable timestamp is:? (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z"
)


class LokiSink:
    """A Loki. All streams have the labels cluster and host."""

    kind = "Loki"
    split_statuses = SPLITTING
    reasons = REASONS

    def __init__(self, cluster: str, host: str) -> None:
        self._node = cluster, host

    def takes(self, key: StreamKey) -> bool:
        return True

    def push(self, chunks: Sequence[Chunk]) -> Push:
        labels = chunks[0].key.labels(*self._node)
        return Push(compress(assemble(labels, [chunk.encoded() for chunk in chunks])))

    def probe(self, key: StreamKey) -> bytes:
        """Return a push of one entry of the agent's own."""
        block = encode_block([_PROBE], time.time_ns(), _PROBE_METADATA)
        return compress(assemble(key.labels(*self._node), [block]))

    def reason(self, error: PushError) -> str:
        return reason_of(error)

    def is_certain(self, error: PushError) -> bool:
        return reason_of(error) in CERTAIN

    def judge(self, chunks: list[Chunk], error: PushError) -> Verdict:
        return late_verdict(chunks, error)

    def fix(self, error: PushError, tenant: str) -> str:
        return fix_of(error, tenant)


def late_verdict(chunks: list[Chunk], error: PushError) -> Verdict:
    """Refuse the entries before the oldest acceptable time, if the error names one."""
    floor_ns = _floor_ns(error.excerpt) if reason_of(error) == "too_far_behind" else 0
    verdict = Verdict([], [])
    for chunk in chunks:
        late = bisect_left(chunk.times_ns, floor_ns)  # times rise within a chunk
        if late:
            refused_chunk = chunk.slice(0, late)
            verdict.refusals.append(
                Refusal(refused_chunk, "too_far_behind", error.status, error.excerpt)
            )
        if late < len(chunk.lines):
            verdict.rest.append(chunk.slice(late, len(chunk.lines)) if late else chunk)
    return verdict


def _floor_ns(words: str) -> int:
    """Return the oldest acceptable time of an error message, or 0."""
    match = _BEHIND.search(words)
    if match is None:
        return 0
    try:
        second = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(second.timestamp()) * 10**9 + int((match[2] or "").ljust(9, "0"))
