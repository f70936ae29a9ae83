"""Renders a stream as a terminal would: bytes in, final lines and the open one out. Pure. Imports
spool and the top level."""
