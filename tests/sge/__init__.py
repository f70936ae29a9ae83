"""A real Grid Engine of one node on this machine, for tests."""
