"""Selection of jobs, keys and columns: selectors, conditions, and the store that has them."""
