"""Parts of pages: panels, queries, variables, transformations, links; and rules for pages (`lint`).
Imports none of the others."""
