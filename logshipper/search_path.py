"""Order of module folders: users' modules beside scripts, or on PYTHONPATH, never replace our
imports."""

import os
import sys


def put_installed_first() -> None:
    """Search users' folders last; our own programs call this before their imports.

    The folders stay, because some sites have all installed packages on PYTHONPATH.
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
