"""Commands that lead to pages: the local page, Grafana's."""
