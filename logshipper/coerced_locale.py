"""Takes back what Python has put into the environment before its first line, so that CMD gets the
caller's.

In the C locale Python sets LC_CTYPE to one of UTF-8 (PEP 538), which programs that it starts would
inherit: they would sort, print and read otherwise than without logshipper. What the caller gave
stands in /proc/self/environ.
"""

import os

_VARIABLE = "LC_CTYPE"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def undo() -> None:
    """In os.environ, and so for all that this process starts or becomes; its own locale stays as it
    is."""
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
