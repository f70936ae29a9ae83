"""Reading: what people and programs ask of captured jobs, from a local store or from Loki and
Prometheus.

Imports `logshipper_ingest` and `logshipper`. As a library it is imported from `logshipper`
(docs/python-api.md).
"""
