"""From the spool to Loki: rounds, entries, pushes below its limits, checkpoints, the quarantine."""
