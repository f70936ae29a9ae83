"""Searches the lines of many jobs."""
