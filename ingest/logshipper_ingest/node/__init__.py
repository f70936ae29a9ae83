"""The node agent: wiring, the node's spool, and whose a job is."""
