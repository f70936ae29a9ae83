"""What pages are made of: panels, queries, variables, transformations, links; and what is wrong
with a page (`lint`). Imports none of the others."""
