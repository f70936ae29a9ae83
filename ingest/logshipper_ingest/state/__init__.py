"""What the node agent remembers on disk: checkpoints, the quarantine's files, marks of a purge."""
