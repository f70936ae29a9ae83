"""Messages about a job: its end, a failure, an approaching time limit, NaN, silence.

`watch` runs in the sidecar, `sender` in a process of its own for each message."""
