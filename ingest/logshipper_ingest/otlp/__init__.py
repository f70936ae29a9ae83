"""OTLP as a sink of the node agent: log records and points of a metric, by HTTP. Imported only where
the configuration has such a server: it brings protobuf."""
