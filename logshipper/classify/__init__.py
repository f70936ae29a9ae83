"""Final lines in; lines of the log, records, events and what a command switches off out. Pure.
Imports render, spool and the top."""
