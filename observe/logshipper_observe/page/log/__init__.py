"""Logs for the page: lines by number, searches, and a copy of a log from a store without line
numbers."""
