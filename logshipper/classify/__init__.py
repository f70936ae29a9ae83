"""Turns final lines into lines of the log, records and events, and obeys commands. Pure. Imports
masks, render, spool and the top level."""
