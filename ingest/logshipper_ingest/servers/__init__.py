"""HTTP servers: how they are reached, what is sent and asked in their own formats, what went wrong,
when to try again."""
