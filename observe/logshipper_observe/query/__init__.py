"""Which jobs, keys and columns are meant: selectors, conditions, and the store that has them."""
