"""Ends of Slurm's jobs: records of the controller, shipped to the jobs' lines in Loki."""
