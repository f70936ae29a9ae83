"""The lock files work for each distribution's Python."""

import re

from tests.tools.sources import ROOT


def test_markers_hold_for_a_release_candidate() -> None:
    """Ubuntu 22.04's Python 3.11 reports the version 3.11.0rc1. Its pip treats that as neither
    below nor above 3.12, so it would leave out a package."""
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    markers = {
        marker for lock in locks for marker in re.findall(r"^\S+==\S+ ; (.*?) *\\$", lock.read_text(), re.MULTILINE)
    }  # fmt: skip
    assert "python_version < '3.12'" in markers
    assert not [marker for marker in markers if "python_full_version" in marker]
