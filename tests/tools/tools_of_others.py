"""Programs of others that tests run, each in an environment of its own: requirements/tool.sh."""

import sys
from pathlib import Path

import pytest

from tests.servers.setting import MUST_FETCHED

# a test that runs one asks for it, and is of `make test-all`, which installs them
needs_program_of_others = pytest.mark.usefixtures("program_of_others")


def python_of(program: str) -> Path:
    """The Python that has it. Skips the test where there is none, or fails it where all must
    run."""
    python = Path(sys.prefix) / program / "bin" / "python"
    if not python.exists():
        words = f"{program} isn't in {python}: requirements/tool.sh {program} installs it"
        if MUST_FETCHED:
            pytest.fail(words)
        pytest.skip(words)
    return python
