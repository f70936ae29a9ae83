"""Names and ids of jobs by the names of their output files. Pure.

Patterns have the letters of `sbatch --output`. Without one, these names are known: Slurm's
`slurm-4711.out`, `slurm-4711_3.out`, `NAME-4711.out` and `4711.out`, and `NAME.o4711` of Grid Engine
and PBS. All others name a job after the file.
"""

import os
import re
from typing import NamedTuple

from logshipper.errors import UsageError
from logshipper_ingest.imports.values import slug_of

OUT_ENDINGS = (".out", ".log", ".txt", ".stdout", "")
ERR_ENDINGS = (".err", ".stderr")
_JOB = "(?P<job>[0-9]+(?:_[0-9]+)?)"
_LETTERS = {
    "x": "(?P<name>.+?)", "j": _JOB, "J": _JOB, "A": "(?P<array>[0-9]+)", "a": "(?P<task>[0-9]+)", "u": ".+?",
    "N": ".+?", "n": "[0-9]+", "t": "[0-9]+", "s": ".+?", "b": "[0-9]+", "%": "%",
}  # fmt: skip
_ID = re.compile(r"(?:(?P<name>slurm)-)?(?P<job>[0-9]+(?:_[0-9]+)?)")
_NAME_AND_ID = re.compile(r"(?P<name>.+)[-_.](?P<job>[0-9]{3,20}(?:_[0-9]{1,20})?)")
_GRID_ENGINE = re.compile(r"(?P<name>.+)\.(?P<stream>[oe])(?P<job>[0-9]+(?:\.[0-9]+)?)")
_MAX_ID_CHARS = 50


class OutputName(NamedTuple):
    """A job by its file's name. name: "" if only the id is known."""

    name: str
    job_id: str


def name_pattern(text: str) -> "re.Pattern[str]":
    """A pattern such as `%x-%j.out`. Raises UsageError."""
    parts = re.split(r"%(?:[0-9]*)(.)", text)
    unknown = [letter for letter in parts[1::2] if letter not in _LETTERS]
    if unknown or "%" in "".join(parts[::2]) or not {"x", "j", "J", "A"} & set(parts[1::2]):
        letters = ", ".join(f"%{letter}" for letter in _LETTERS)
        words = f"{text!r} is no pattern: it has %x, %j or %A, and may have {letters}"
        raise UsageError("--name-pattern", [words])
    regex = "".join(_LETTERS[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    try:
        return re.compile(regex)
    except re.error:
        words = f"{text!r} has a letter twice; each may stand there once"
        raise UsageError("--name-pattern", [words]) from None


def output_name(path: str, pattern: "re.Pattern[str] | None" = None) -> OutputName:
    """The job of a file. Files without the pattern's form have their own names."""
    base, stem = os.path.basename(path), stem_of(path)
    match = pattern.fullmatch(base) if pattern is not None else None
    if match is None:
        match = _GRID_ENGINE.fullmatch(base) or _ID.fullmatch(stem) or _NAME_AND_ID.fullmatch(stem)
    if match is None:
        return OutputName(stem, as_id(stem))
    groups = match.groupdict()
    job_id = groups.get("job") or "_".join(filter(None, (groups.get("array"), groups.get("task"))))
    name = groups.get("name") or ""
    return OutputName("" if name == "slurm" else name, as_id(job_id or name))


def is_stderr(path: str) -> bool:
    match = _GRID_ENGINE.fullmatch(os.path.basename(path))
    return path.endswith(ERR_ENDINGS) or (match is not None and match["stream"] == "e")


def stdout_beside(path: str) -> str:
    """The stdout file beside a file with stderr, which names the job; "" without one."""
    match = _GRID_ENGINE.fullmatch(os.path.basename(path))
    folder = os.path.dirname(path)
    if match is not None:
        names = [os.path.join(folder, f"{match['name']}.o{match['job']}")]
    else:
        names = [os.path.join(folder, stem_of(path)) + ending for ending in OUT_ENDINGS]
    return next((name for name in names if os.path.isfile(name)), "")


def stem_of(path: str) -> str:
    """The file's name without the ending of an output file."""
    base = os.path.basename(path)
    endings = (*ERR_ENDINGS, *OUT_ENDINGS)
    return base.removesuffix(next(ending for ending in endings if base.endswith(ending))) or base


def as_id(text: str) -> str:
    """A text as a job's id."""
    return slug_of(text)[:_MAX_ID_CHARS].rstrip("-._") or "output"
