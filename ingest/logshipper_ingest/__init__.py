"""The taking-in side: reads spooled segments and brings them to stores: the local one, or Loki and
Prometheus."""
