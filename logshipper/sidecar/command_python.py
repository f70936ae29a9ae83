"""Finds the Python that runs a command from files alone, without running anything."""

import os
import re

from logshipper.sidecar.small_files import begin_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_PYTHON = re.compile(r"python(?:w|[0-9][0-9.]*)?")
_VERSION = re.compile(r"(?m)^version(?:_info)?\s*=\s*([0-9][0-9.]*)")
_MAX_BYTES = 4096


def python_of(argv: "Sequence[str]", cwd: str, path: str) -> dict[str, str]:
    """Return prefix, and the version if known, of the interpreter of a command line, or of the
    first line of its script; empty for other programs. path: $PATH."""
    program = _find(argv[0], cwd, path) if argv else ""
    begin = begin_of(program, _MAX_BYTES)
    # a shim of pyenv's also has this name, and is no Python
    interpreter = _interpreter(begin, cwd, path) if begin[:2] == "#!" else program
    if _PYTHON.fullmatch(os.path.basename(interpreter)) is None:
        return {}
    prefix = os.path.dirname(os.path.dirname(interpreter))
    match = _VERSION.search(begin_of(os.path.join(prefix, "pyvenv.cfg"), _MAX_BYTES))
    if match is None:  # no virtual environment: `bin/python` leads to `python3.12`
        match = re.search(r"python([0-9]+\.[0-9.]+)$", os.path.realpath(interpreter))
    return {"prefix": prefix, **({"version": match[1]} if match else {})}


def _interpreter(script: str, cwd: str, path: str) -> str:
    """Return the program of a script's `#!` line, behind `env`; "" if missing."""
    words = script.partition("\n")[0].removeprefix("#!").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return _find(words[0], cwd, path) if words else ""


def _find(name: str, cwd: str, path: str) -> str:
    """Return the file that the kernel, or a search of path, runs for name; "" without one."""
    folders = [""] if "/" in name else path.split(os.pathsep)
    for folder in folders:
        file = os.path.join(cwd, folder, name)
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return os.path.normpath(file)
    return ""
