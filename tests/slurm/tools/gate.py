"""Whether tests of the Slurm parts run: LOGSHIPPER_TEST_SLURM=off leaves them out, =required lets
them fail where something is missing; else they are skipped there and say why."""

import os
from typing import NoReturn

import pytest

SETTING = "LOGSHIPPER_TEST_SLURM"
_WANTED = os.environ.get(SETTING, "")  # at import: tests see no setting of the caller's


def skip_if_off() -> None:
    if _WANTED == "off":
        pytest.skip(f"{SETTING}=off: tests of the Slurm parts are left out")


def lacking(reason: str, part: str = "Slurm") -> NoReturn:
    """Skips a test for what is missing here, or fails it where all must run."""
    if _WANTED == "required":
        pytest.fail(f"{part}: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")
