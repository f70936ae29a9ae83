"""The local page: jobs in a browser, served only to holders of its link (docs/page.md)."""
