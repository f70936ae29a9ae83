"""A gateway before Loki and Prometheus keeps users apart (R32)."""
