"""Files that appear whole or not at all: written next to their place under another name, moved
there at the end."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from logshipper.errors import LogshipperError, UsageError, os_words

_ENDING = re.compile(r"[^/]\.([A-Za-z][A-Za-z0-9]{0,7})\Z")


def ending_of(path: str) -> str:
    """The format that a file's name ends in, in lower case: `csv` of `x.CSV`; "" of `x`, `lr0.1`
    and `-`."""
    match = _ENDING.search(path)
    return match[1].lower() if match else ""


def check_ending(option: str, path: str, form: str) -> None:
    """Raises UsageError where a name's ending is of another format than the one that is written."""
    if ending_of(path) not in ("", form):
        raise UsageError(
            option,
            [f"writes {form.upper()}, and {path} ends in .{ending_of(path)}: call it .{form}"],
        )


def check_new(path: str, *, force: bool, option: str = "--output") -> None:
    """Raise LogshipperError if no file can be created at path: a file exists (force: it may be
    replaced), or something else."""
    if not os.path.lexists(path):
        return
    if os.path.isdir(path):
        raise LogshipperError(f"{option}: {path} is a folder")
    if os.path.exists(path) and not os.path.isfile(path):
        raise LogshipperError(
            f"{option}: {path} is no file; `logshipper metadata` and `logs` print to a pipe"
        )
    if not force:
        raise LogshipperError(f"{option}: {path} is there already; --force replaces it")


@contextmanager
def new_file(path: str, *, force: bool, option: str = "--output") -> Iterator[BinaryIO]:
    """Open a new file; it appears at path at the end of the context, but not after an exception.
    Creates its folders.

    option: that named the path. Raises LogshipperError as `check_new` does, also for a file that
    has appeared meanwhile, and for failed writes.
    """
    check_new(path, force=force, option=option)
    folder, name = os.path.split(os.path.abspath(path))
    part = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(4)}.part")
    try:
        os.makedirs(folder, exist_ok=True)
        file = open(part, "xb")  # noqa: SIM115  closed below, before it is moved
    except OSError as error:
        raise LogshipperError(f"{option}: {path} can't be made: {os_words(error)}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(part, path)
        else:
            _move_new(part, path, option)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise LogshipperError(f"{option}: {path} can't be written: {os_words(error)}") from None
        raise


def _move_new(part: str, path: str, option: str) -> None:
    """Move the file to a path, where no file may exist."""
    try:
        os.link(part, path)
    except FileExistsError:
        os.unlink(part)
        raise LogshipperError(
            f"{option}: {path} came while it was being written; --force replaces it"
        ) from None
    except OSError:  # a file system without links
        check_new(path, force=False, option=option)
        os.rename(part, path)
        return
    os.unlink(part)
