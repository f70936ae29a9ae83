"""What a node or a user has of a capture: its folder, its segments, its account, and what its frames tell."""
