"""A module per page, or part of one: panels, queries and links in, a dashboard's JSON out. Imports
`parts` only."""
