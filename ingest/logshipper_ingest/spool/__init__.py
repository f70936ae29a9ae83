"""Reading, removal and purging of captures' directories and segments."""
