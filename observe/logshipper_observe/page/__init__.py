"""The local page: jobs in a browser, served to nobody but who has the link (docs/page.md)."""
