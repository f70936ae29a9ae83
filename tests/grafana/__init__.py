"""The dashboards' queries, run as Grafana runs them on jobs captured by logshipper itself.

`tools.pages` resolves variables, queries real Loki and Prometheus, and applies models of Grafana's
transformations. `tools.captured` makes the jobs.
"""
