"""The dashboards' queries, run as Grafana runs them on jobs that the product itself captured:
`tools.pages` resolves variables, asks real Loki and Prometheus and applies models of Grafana's
transformations; `tools.captured` makes the jobs."""
