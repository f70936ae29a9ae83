"""How Slurm's jobs ended: records of its controller, brought to where the jobs' lines are."""
