"""Series of jobs and of the agent for Prometheus, scraped or by remote write; a Prometheus client."""
