"""HTTP servers: how they are reached, what went wrong, when to try again."""
