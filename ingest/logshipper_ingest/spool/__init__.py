"""Reading of what captures wrote: directories, segments, what may be removed or purged of them."""
