"""The reading side: what people and programs ask of captured jobs."""
