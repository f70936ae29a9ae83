"""The origin of an entry as OpenTelemetry's resource and scope. Pure.

Attributes follow the semantic conventions (host.name, process.owner, service.*), else they begin
with `logshipper.`. https://opentelemetry.io/docs/specs/semconv/resource/
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from logshipper_ingest.shipping.entries import SERVICE, Chunk, StreamKey

SCHEMA_URL = "https://opentelemetry.io/schemas/1.43.0"
# Without our version: a resend after an upgrade has the same bytes.
SCOPE = InstrumentationScope(name=SERVICE)
_IDENTITY = {
    "user": "process.owner",
    "job_id": "logshipper.job.id",
    "step": "logshipper.job.step",
    "attempt": "logshipper.job.attempt",
    "task": "logshipper.job.task",
}
_NUMBERS = frozenset({"attempt", "task", "n", "repeat"})
_MAX_INT = (1 << 63) - 1

Pairs = Mapping[str, str]


class Part(NamedTuple):
    """Entries of one resource.

    identity: the part of their metadata that identifies it; extra: the rest for each entry, empty
    if there is none.
    """

    identity: Pairs
    times_ns: Sequence[int]
    lines: Sequence[bytes]
    extra: Sequence[Pairs]


def parts(chunks: Iterable[Chunk]) -> Iterator[Part]:
    """Yield parts in order. Replayed entries carry all of their metadata, so each is a part."""
    for chunk in chunks:
        if not chunk.extra or chunk.common.pairs:
            yield Part(chunk.common.pairs, chunk.times_ns, chunk.lines, chunk.extra)
            continue
        for time_ns, line, pairs in zip(chunk.times_ns, chunk.lines, chunk.extra, strict=True):
            identity = {name: pairs[name] for name in _IDENTITY if name in pairs}
            extra = {name: value for name, value in pairs.items() if name not in identity}
            yield Part(identity, (time_ns,), (line,), (extra,))


def resource_of(identity: Pairs, key: StreamKey, cluster: str, host: str) -> Resource:
    """Return the resource of a stream.

    host: the agent's. The instance is a node's agent; a server may demand rising times from it, so
    late entries have their own instances (in Loki, a stream each).
    """
    host = key.host or host
    pairs = {
        "service.name": SERVICE,
        "service.namespace": cluster,
        "service.instance.id": f"{host}/{key.replay}" if key.replay else host,
        "host.name": host,
        "logshipper.cluster": cluster,
    }
    attributes = [attribute(name, value) for name, value in pairs.items() if value]
    attributes += [
        attribute(_IDENTITY.get(name, f"logshipper.{name}"), value, is_number=name in _NUMBERS)
        for name, value in identity.items()
    ]
    return Resource(attributes=attributes)


def attribute(name: str, value: str, *, is_number: bool = False) -> KeyValue:
    if is_number and value.isdecimal() and int(value) <= _MAX_INT:
        return KeyValue(key=name, value=AnyValue(int_value=int(value)))
    return KeyValue(key=name, value=AnyValue(string_value=value))


def extra_attributes(pairs: Pairs) -> list[KeyValue]:
    """Convert an entry's own metadata."""
    return [
        attribute(f"logshipper.{name}", value, is_number=name in _NUMBERS)
        for name, value in pairs.items()
    ]


def stream_digest(identity: Pairs, key: StreamKey, cluster: str, host: str) -> str:
    """Return a digest that identifies a stream of a capture, even if sent late or from the
    quarantine."""
    words = (
        cluster,
        key.host or host,
        key.stream,
        key.kind,
        *(identity.get(name, "") for name in _IDENTITY),
    )
    return hashlib.blake2b("\0".join(words).encode("utf-8", "replace"), digest_size=8).hexdigest()
