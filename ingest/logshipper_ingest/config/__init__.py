"""Files of TOML into frozen dataclasses: the node agent's, a site's; every problem at once."""
