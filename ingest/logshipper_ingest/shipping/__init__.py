"""From the spool to sinks: rounds, entries, pushes below limits, retries, the quarantine."""
