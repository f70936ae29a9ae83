"""Where modules come from: what users have next to their scripts, or on PYTHONPATH, isn't taken for
what we import."""

import os
import sys


def put_installed_first() -> None:
    """Looks for modules where people put their own after everywhere else; for our own programs,
    before their imports.

    They aren't left out: some sites have all that is installed on PYTHONPATH.
    """
    users = (
        set()
        if sys.flags.ignore_environment
        else set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    )
    users = {os.path.abspath(path) for path in users - {""}}
    if not sys.flags.safe_path:
        users.add(sys.path[0])  # of the script, or the current folder
    sys.path.sort(key=users.__contains__)
