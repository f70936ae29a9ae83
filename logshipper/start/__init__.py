"""The command line of `run` and `check`, and all that is settled before CMD starts. Imports all
others."""
