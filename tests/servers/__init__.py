"""Real Loki and Prometheus for tests, demonstrations and measurements: `build` gets the programs,
`running` starts and stops them, `fixtures` provides them to tests."""
