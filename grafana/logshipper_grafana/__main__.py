"""The `logshipper-grafana` command."""

import sys

from logshipper.search_path import put_installed_first


def main() -> int:
    """Runs the command line; returns the exit code."""
    put_installed_first()
    from logshipper_grafana.tool.cli import main as cli_main

    return cli_main()


if __name__ == "__main__":
    sys.exit(main())
