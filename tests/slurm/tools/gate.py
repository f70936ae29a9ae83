"""LOGSHIPPER_TEST_SLURM decides whether tests of the Slurm parts run.

`off` leaves them out. `required` makes them fail if something is missing. Otherwise, they are
skipped with a reason.
"""

import os
from typing import NoReturn

import pytest

SETTING = "LOGSHIPPER_TEST_SLURM"
_WANTED = os.environ.get(SETTING, "")  # at import, because tests don't see the caller's settings


def skip_if_off() -> None:
    if _WANTED == "off":
        pytest.skip(f"{SETTING}=off: tests of the Slurm parts are left out")


def lacking(reason: str, part: str = "Slurm") -> NoReturn:
    """Skip a test because something is missing, or fail it if all tests must run."""
    if _WANTED == "required":
        pytest.fail(f"{part}: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")
