"""Shared parts of reading: words for times, sizes and states, output to a terminal or as JSON, the
frame of a command."""
