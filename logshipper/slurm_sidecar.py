"""The name by which the C relay of deploy/slurm/spank starts
logshipper/sidecar/slurm_sidecar.py."""

from logshipper.sidecar.slurm_sidecar import main

if __name__ == "__main__":
    main()
