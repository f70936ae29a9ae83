"""Entries as OpenTelemetry's log records. Pure.

A record's `log.record.uid` is derived from its content and origin, so a resent record has the same:
"other log records with the same id will be considered duplicates and can be removed safely"
(semantic conventions). OTLP itself has no means against stored repeats.
https://opentelemetry.io/docs/specs/otel/logs/data-model/
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat

import orjson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import (
    SEVERITY_NUMBER_INFO,
    SEVERITY_NUMBER_WARN,
    LogRecord,
    ResourceLogs,
    ScopeLogs,
    SeverityNumber,
)

from logshipper_ingest.model.job import EVENT_KINDS
from logshipper_ingest.otlp.resource import (
    SCHEMA_URL,
    SCOPE,
    Pairs,
    Part,
    attribute,
    extra_attributes,
    parts,
    resource_of,
    stream_digest,
)
from logshipper_ingest.servers.loki_push import varint
from logshipper_ingest.shipping.entries import NO_METADATA, Chunk, Metadata, StreamKey

_LENGTH_DELIMITED = 2  # a wire type
_SCOPE = ScopeLogs(scope=SCOPE, schema_url=SCHEMA_URL).SerializeToString()
_PROBE = b'{"event":"checked"}'
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TROUBLE = re.compile(r"lost|damaged|left_out|refused|slowed|taken|missing|ignored")
_CALM = frozenset({"output_slowed_no_longer"})


def encode_logs(chunks: Sequence[Chunk], cluster: str, host: str) -> bytes:
    """A request with entries of one stream, in order. cluster, host: the agent's."""
    key = chunks[0].key
    encoder = _RecordEncoder(key.kind, key.stream)
    request = []
    for identity, group in groupby(parts(chunks), key=lambda part: part.identity):
        digest = stream_digest(identity, key, cluster, host)
        scope = [_SCOPE, *encoder.records(group, digest)]
        resource = ResourceLogs(
            resource=resource_of(identity, key, cluster, host), schema_url=SCHEMA_URL
        ).SerializeToString()
        resource += _field(ResourceLogs.SCOPE_LOGS_FIELD_NUMBER, b"".join(scope))
        request.append(_field(ExportLogsServiceRequest.RESOURCE_LOGS_FIELD_NUMBER, resource))
    return b"".join(request)


def probe(key: StreamKey, cluster: str, host: str, time_ns: int) -> bytes:
    """A request with one record of our own."""
    chunk = Chunk("", key, (time_ns,), (_PROBE,), Metadata({"job_id": "checked"}, b""))
    return encode_logs([chunk], cluster, host)


def _field(number: int, message: bytes) -> bytes:
    """Encode a message as a field of another.

    By hand, because protobuf takes twice the time for the whole message.
    """
    return _head(number, len(message)) + message


@lru_cache(maxsize=4096)
def _head(number: int, size: int) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(size)


class _RecordEncoder:
    """Fills one record again and again; common parts stay."""

    def __init__(self, kind: str, stream: str) -> None:
        self._is_event = kind in EVENT_KINDS
        self._record = LogRecord(attributes=[attribute("logshipper.kind", kind)])
        if stream:
            self._record.attributes.append(attribute("log.iostream", stream))
        self._uid = self._record.attributes.add(key="log.record.uid").value
        self._attribute_count = len(self._record.attributes)

    def records(self, group: Iterable[Part], digest: str) -> Iterator[bytes]:
        """Yield records as fields of a scope.

        digest: of their stream.
        """
        record, body, uid = self._record, self._record.body, self._uid
        for part in group:
            extra = part.extra or repeat(NO_METADATA)
            for time_ns, line, pairs in zip(part.times_ns, part.lines, extra, strict=False):
                checksum = zlib.crc32(line)
                record.time_unix_nano = record.observed_time_unix_nano = time_ns
                body.string_value = line.decode("utf-8", "replace")
                if pairs:
                    checksum = zlib.crc32(pairs.get("part", "").encode(), checksum)
                # 8 bytes of the origin, 8 of the time, 4 of the content
                uid.string_value = f"{digest}{time_ns:016x}{checksum:08x}"
                has_more = pairs or self._is_event
                encoded = self._with_more(line, pairs) if has_more else record.SerializeToString()
                yield _head(ScopeLogs.LOG_RECORDS_FIELD_NUMBER, len(encoded))
                yield encoded

    def _with_more(self, line: bytes, pairs: Pairs) -> bytes:
        """Return the record with the fields of this entry alone."""
        record = self._record
        record.attributes.extend(extra_attributes(pairs))
        if "note" in pairs:
            _set_severity(record, SEVERITY_NUMBER_INFO)
        if self._is_event:
            _fill_event(record, line)
        encoded: bytes = record.SerializeToString()
        del record.attributes[self._attribute_count :]
        for name in ("severity_number", "severity_text", "event_name"):
            record.ClearField(name)
        return encoded


def _fill_event(record: LogRecord, line: bytes) -> None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    name = event.get("event") if isinstance(event, dict) else None
    if not isinstance(name, str) or not _EVENT.fullmatch(name):
        name = ""
    if name:
        record.event_name = f"logshipper.{name}"
    is_trouble = bool(_TROUBLE.search(name)) and name not in _CALM
    _set_severity(record, SEVERITY_NUMBER_WARN if is_trouble else SEVERITY_NUMBER_INFO)


def _set_severity(record: LogRecord, number: "SeverityNumber.ValueType") -> None:
    record.severity_number = number
    record.severity_text = "WARN" if number == SEVERITY_NUMBER_WARN else "INFO"
