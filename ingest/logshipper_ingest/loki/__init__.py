"""Grafana Loki: a client, and jobs as it has them."""
