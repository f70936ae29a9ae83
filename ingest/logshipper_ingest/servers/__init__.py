"""HTTP servers: access, calls, wire formats, refusals and back-off."""
