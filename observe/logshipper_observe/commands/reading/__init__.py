"""Commands that print jobs: lists, logs, metadata, events, files."""
