"""The dashboards' queries, run as Grafana runs them on jobs that the product itself captured:
`pages` resolves variables, asks real Loki and Prometheus and applies models of Grafana's
transformations; `captured` makes the jobs."""
