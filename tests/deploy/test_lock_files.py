"""The lock files serve each Python that a distribution has."""

import re

from tests.tools.sources import ROOT


def test_markers_hold_for_a_release_candidate() -> None:
    """Ubuntu 22.04's Python 3.11 calls itself 3.11.0rc1, and its pip takes that to be neither below
    3.12 nor above: a package would be missing."""
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    markers = {
        marker for lock in locks for marker in re.findall(r"^\S+==\S+ ; (.*?) *\\$", lock.read_text(), re.MULTILINE)
    }  # fmt: skip
    assert "python_version < '3.12'" in markers
    assert not [marker for marker in markers if "python_full_version" in marker]
