"""Measurements of the node's jobs, by Telegraf's protocol: whose each is, and to that job's own
port."""
