"""`logshipper-agent check`: compares a configuration with its servers and the node."""
