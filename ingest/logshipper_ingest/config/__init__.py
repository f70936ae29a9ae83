"""TOML files as frozen dataclasses, for the node agent and a site; reports all problems at once."""
