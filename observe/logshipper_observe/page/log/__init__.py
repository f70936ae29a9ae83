"""Logs for the page: lines by number, searches, copies of logs from stores without line numbers."""
