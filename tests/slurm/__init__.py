"""A real Slurm cluster on one machine, for tests."""
