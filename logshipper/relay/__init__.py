"""Passes CMD's bytes unchanged to the job's own outputs, and a copy to the sidecar. Imports the top
level only."""
