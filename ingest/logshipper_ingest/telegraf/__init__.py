"""Measurements of the node's jobs by Telegraf's protocol: attribution, and delivery to each job's
port."""
