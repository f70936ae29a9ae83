"""The node agent's state on disk: checkpoints, the quarantine's files, marks of a purge."""
