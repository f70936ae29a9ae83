"""Output of commands in a terminal: tables, progress bars, times; start and end of programs."""
