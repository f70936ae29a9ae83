"""Numbers of metadata records as points of one gauge. Pure.

A point's time is the record's, its attribute `logshipper.key` the number's key; nested ones are
`a.b`. Its attribute `logshipper.origin` is the record's origin, unless that is JSON. All numbers
are doubles: a key that is `0` in one record and `0.5` in the next has one type.
https://opentelemetry.io/docs/specs/otel/metrics/data-model/
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from logshipper.spool.segment import ORIGIN
from logshipper_ingest.model.metadata_keys import Path, leaves_of, names_of, parse_record
from logshipper_ingest.otlp.resource import SCHEMA_URL, SCOPE, attribute, parts, resource_of
from logshipper_ingest.shipping.entries import NO_METADATA, Chunk

METRIC = "logshipper.job.value"
MAX_POINTS = 256  # of a record


class Points(NamedTuple):
    """A request.

    body: its bytes; point_count: its points; left_out: numbers that no point can hold.
    """

    body: bytes
    point_count: int
    left_out: int


def encode_points(chunks: Sequence[Chunk], cluster: str, host: str) -> Points:
    """A request with the numbers of metadata records of one stream. cluster, host: the agent's."""
    request = ExportMetricsServiceRequest()
    key = chunks[0].key
    stream = [attribute("log.iostream", key.stream)] if key.stream else []
    points_by_key: dict[tuple[str, str], NumberDataPoint] = {}  # filled again and again
    count = left_out = 0
    for identity, group in groupby(parts(chunks), key=lambda part: part.identity):
        resource = request.resource_metrics.add(
            resource=resource_of(identity, key, cluster, host), schema_url=SCHEMA_URL
        )
        metric = resource.scope_metrics.add(scope=SCOPE, schema_url=SCHEMA_URL).metrics.add(
            name=METRIC, description="Numbers of the records that a job prints."
        )
        points = metric.gauge.data_points
        for part in group:
            extra = part.extra or repeat(NO_METADATA)
            for time_ns, line, pairs in zip(part.times_ns, part.lines, extra, strict=False):
                origin = pairs.get(ORIGIN, "")
                numbers, record_left_out = numbers_of(line)
                left_out += record_left_out
                count += len(numbers)
                for name, value in numbers:
                    point = points_by_key.get((name, origin))
                    if point is None:
                        attributes = [attribute("logshipper.key", name), *stream]
                        attributes += [attribute("logshipper.origin", origin)] if origin else []
                        point = NumberDataPoint(attributes=attributes)
                        points_by_key[name, origin] = point
                    point.time_unix_nano, point.as_double = time_ns, value
                    points.append(point)  # a copy
        if not points:
            del request.resource_metrics[-1]
    return Points(request.SerializeToString(), count, left_out)


def numbers_of(line: bytes) -> tuple[list[tuple[str, float]], int]:
    """Return the numbers of a printed record by name, and the number of omitted ones."""
    record = parse_record(line)
    if record is None:
        return [], 1
    leaves = leaves_of(record)
    left_out = len(leaves.gaps) + leaves.deeper + leaves.oversized + leaves.long_keys
    numbers = list(_doubles(leaves.numbers))
    left_out += len(leaves.numbers) - len(numbers)
    return numbers[:MAX_POINTS], left_out + max(0, len(numbers) - MAX_POINTS)


def _doubles(numbers: dict[Path, int | float]) -> Iterator[tuple[str, float]]:
    names = _names(tuple(numbers))
    for path, value in numbers.items():
        try:
            yield names[path], float(value)
        except OverflowError:  # an integer beyond all doubles
            continue


@lru_cache(maxsize=256)  # a job's records are alike
def _names(paths: tuple[Path, ...]) -> dict[Path, str]:
    return {
        path: name.encode("utf-8", "replace").decode() for path, name in names_of(paths).items()
    }
