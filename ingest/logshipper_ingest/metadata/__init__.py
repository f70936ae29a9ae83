"""Metadata's keys, their courses, and the rules that choose an X axis."""
