"""What Prometheus sees: learnt from frames, served at /metrics or written to it; and a client that asks it."""
