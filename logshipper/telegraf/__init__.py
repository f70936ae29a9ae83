"""Measurements at a job's own Telegraf port: datagrams and lines in, metadata records out. Imports
the top level only."""
