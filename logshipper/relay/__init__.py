"""Bytes from CMD to the job's own outputs, a copy to the sidecar; nothing is held back or changed.
Imports the top only."""
