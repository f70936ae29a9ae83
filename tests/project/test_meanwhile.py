"""`make test-all` gets servers and programs of others beside `make test` (tests/servers/meanwhile.py)."""

import sys
from pathlib import Path

import pytest

from tests.servers import meanwhile, setting
from tests.tools.captures.captured_runs import wait_until


@pytest.fixture(autouse=True)
def own_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOGSHIPPER_TEST_SERVERS", "off")
    monkeypatch.setattr(setting, "MUST_LOKI", False)
    monkeypatch.setattr(meanwhile, "ROOT", tmp_path)
    monkeypatch.setattr(meanwhile, "LOG", tmp_path / "servers.log")
    monkeypatch.setattr(meanwhile, "TOOLS_LOG", tmp_path / "tools.log")


def test_a_passed_command_waits_for_the_installations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command_ended = tmp_path / "ended"
    tools = f"until [ -e {command_ended} ]; do sleep 0.01; done; echo installed"
    monkeypatch.setattr(meanwhile, "TOOLS", ("sh", "-c", tools))
    assert meanwhile.main(["touch", str(command_ended)]) == 0
    assert (tmp_path / "tools.log").read_text() == "installed\n"


def test_a_failed_command_ends_the_installations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(meanwhile, "TOOLS", ("sh", "-c", "sleep 1000 & echo $!; wait"))
    pid = tmp_path / "tools.log"
    command = f"import os, sys, time\nwhile not os.path.getsize({str(pid)!r}): time.sleep(0.01)\nsys.exit(3)"
    assert meanwhile.main([sys.executable, "-c", command]) == 3
    wait_until(lambda: _has_ended(int(pid.read_text())), "the installation's own child ends")


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
