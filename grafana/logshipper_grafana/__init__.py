"""Grafana's dashboards as code: plain dicts, rendered to grafana/dashboards (docs/grafana.md)."""
