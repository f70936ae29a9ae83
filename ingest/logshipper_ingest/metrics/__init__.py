"""What Prometheus sees: series of jobs and of the agent, served at /metrics or written to it; and a
client that asks it."""
