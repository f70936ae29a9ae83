"""The name by which deploy/slurm/hooks/batch-output starts logshipper/start/batch_output.py."""

from logshipper.start.batch_output import main

if __name__ == "__main__":
    main()
