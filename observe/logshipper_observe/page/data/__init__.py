"""State that the page's server keeps between requests: stores, lists, values and graphs of jobs."""
