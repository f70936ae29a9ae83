"""A capture's directory and its segments: framed records in, files that survive a kill out. Imports
the top only."""
