"""Numbers of many jobs: throughput, utilization, nodes, tasks."""
