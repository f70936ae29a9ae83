"""Importers: what other systems wrote of their jobs, into the local store (docs/importing.md)."""
