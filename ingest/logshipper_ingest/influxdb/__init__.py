"""InfluxDB as a sink of the node agent: points, write interface, refusals."""
