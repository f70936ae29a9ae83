"""The taking-in side: reads spooled segments and brings them to stores (local store, later Loki and Prometheus)."""
