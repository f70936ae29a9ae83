"""Other projects' programs that tests run, each in its own environment: requirements/tool.sh."""

import sys
from pathlib import Path

import pytest

from tests.servers.setting import MUST_FETCHED

# for a test that runs one; such tests belong to `make test-all`, which installs the programs
needs_program_of_others = pytest.mark.usefixtures("program_of_others")


def python_of(program: str) -> Path:
    """Return the Python that has the program.

    Without it, skip the test, or fail it if all tests must run.
    """
    python = Path(sys.prefix) / program / "bin" / "python"
    if not python.exists():
        words = f"{program} isn't in {python}: requirements/tool.sh {program} installs it"
        if MUST_FETCHED:
            pytest.fail(words)
        pytest.skip(words)
    return python
