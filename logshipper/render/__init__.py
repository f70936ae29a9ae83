"""What a terminal would show: a stream's bytes in, final lines and the open one out. Pure. Imports
spool and the top."""
