"""InfluxDB as a sink of the node agent: points, its write interface, what it refuses."""
