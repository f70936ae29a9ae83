"""Small files, of which the begin is enough."""

import os


def begin_of(path: str, max_bytes: int) -> str:
    """At most so many bytes of a file, as text; "" where it can't be read."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(max_bytes))
    except OSError:
        return ""
