"""The process next to the job: the relay's copy in, a spooled capture out. Imports all but process
and start."""
