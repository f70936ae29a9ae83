"""Reads the begin of small files."""

import os


def begin_of(path: str, max_bytes: int) -> str:
    """Return at most so many bytes of a file, as text; "" for an unreadable one."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(max_bytes))
    except OSError:
        return ""
