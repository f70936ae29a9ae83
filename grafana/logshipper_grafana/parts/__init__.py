"""Parts of pages: panels, queries, variables, transformations, links. Imports none of the others."""
