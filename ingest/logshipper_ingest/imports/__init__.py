"""Importers of other systems' job files into the local store (docs/importing.md)."""
