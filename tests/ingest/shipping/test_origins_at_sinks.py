"""Points of a series and of JSON with the same key stay apart in InfluxDB and at OTLP servers."""

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from logshipper_ingest.influxdb.points import encode_all
from logshipper_ingest.otlp.points import encode_points
from logshipper_ingest.shipping.entries import Chunk, Metadata, StreamKey

KEY = StreamKey("stdout", "metadata", host="node1")
CHUNK = Chunk(
    "capture",
    KEY,
    (1, 2),
    (b'{"loss": 0.5}', b'{"loss": 0.50}'),
    Metadata({"job_id": "4711"}, b""),
    ({"n": "1"}, {"n": "1", "origin": "auto", "copy": "1"}),
)


def test_influxdb_has_a_tag() -> None:
    lines, _ = encode_all([CHUNK], "logshipper", "c1", "node1")
    assert lines.decode().splitlines() == [
        "logshipper,cluster=c1,host=node1,job_id=4711 loss=0.5 1",
        "logshipper,cluster=c1,host=node1,job_id=4711,origin=auto loss=0.5 2",
    ]


def test_otlp_has_an_attribute() -> None:
    request = ExportMetricsServiceRequest.FromString(encode_points([CHUNK], "c1", "node1").body)
    (metric,) = request.resource_metrics[0].scope_metrics[0].metrics
    attributes = [
        {one.key: one.value.string_value for one in point.attributes}
        for point in metric.gauge.data_points
    ]
    loss = {"logshipper.key": "loss", "log.iostream": "stdout"}
    assert attributes == [loss, {**loss, "logshipper.origin": "auto"}]
