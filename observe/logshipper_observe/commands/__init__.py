"""The reading commands. Each is imported when it is called."""
