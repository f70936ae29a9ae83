"""A gateway before Loki and Prometheus isolates users from each other (R32)."""
