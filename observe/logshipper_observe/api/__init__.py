"""The library: stores, jobs, columns of records, events (docs/python-api.md)."""
