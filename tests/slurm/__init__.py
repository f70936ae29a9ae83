"""Tests with a real Slurm cluster on one machine."""
