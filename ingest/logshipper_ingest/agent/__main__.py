"""The agent of one user as a process: `python -m logshipper_ingest.agent DIR [IDLE_SECS]`."""

import gc
import sys

from logshipper.search_path import put_installed_first

_UNCOLLECTED = 50_000  # objects: more than the imports make

if __name__ == "__main__":
    put_installed_first()
    gc.set_threshold(_UNCOLLECTED)
    from logshipper_ingest.agent.user_agent import main

    sys.exit(main(*sys.argv[1:]))
