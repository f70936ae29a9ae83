"""Tests are compiled beside other checks (tests/tools/compiling.py), so their workers do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import compiling


def test_compiled_files_are_not_stale(tmp_path: Path) -> None:
    test = tmp_path / "part" / "test_one.py"
    test.parent.mkdir()
    test.write_text("def test() -> None:\n    assert 1 + 1 == 2\n")
    assert compiling.stale_files(tmp_path) == [str(test)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", test],
        cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL
    )  # fmt: skip
    assert compiling.stale_files(tmp_path) == []
    changed = test.stat().st_mtime + 5
    os.utime(test, (changed, changed))
    assert compiling.stale_files(tmp_path) == [str(test)]


def test_exit_code_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_FEW", 1_000_000)
    assert compiling.main([sys.executable, "-c", "exit(3)"]) == 3
