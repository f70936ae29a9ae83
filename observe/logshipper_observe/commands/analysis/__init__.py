"""Commands that compute over jobs: graphs, analytics, allocations."""
