"""Undoes Python's changes of the environment before its first line, so that CMD gets the caller's.

In the C locale Python sets LC_CTYPE to one of UTF-8 (PEP 538). Its children would inherit that, and
sort, print and read differently than without logshipper. /proc/self/environ has the caller's
values.
"""

import os

_VARIABLE = "LC_CTYPE"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def undo() -> None:
    """Restore os.environ for all children and executed programs; this process' own locale stays."""
    if os.environ.get(_VARIABLE) not in _COERCED:
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return
    prefix = f"{_VARIABLE}=".encode()
    values = [entry[len(prefix) :] for entry in entries if entry.startswith(prefix)]
    if values:
        os.environ[_VARIABLE] = os.fsdecode(values[0])
    else:
        del os.environ[_VARIABLE]
