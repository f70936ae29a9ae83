"""Records as CSV, JSON lines and Parquet."""
