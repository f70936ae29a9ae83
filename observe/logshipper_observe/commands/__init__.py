"""The reading commands, imported at their call."""
