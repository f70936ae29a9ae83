"""OTLP by HTTP as a sink of the node agent: log records and points of a metric.

Only agents with such a server import this package, because it needs protobuf.
"""
