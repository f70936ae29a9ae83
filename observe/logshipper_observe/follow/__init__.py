"""Logs that grow: of one job and of its nodes, from a place on."""
