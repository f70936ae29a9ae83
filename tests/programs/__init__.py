"""Recorded output of real programs. The log must have the lines that a terminal shows
(docs/rendering.md)."""
