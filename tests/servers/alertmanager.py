"""Debian's Alertmanager, and amtool. It needs the templates that its package installs."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.servers.places import ServerMissing
from tests.servers.running import Server
from tests.tools.waiting import scaled


def alertmanager_program() -> str:
    """Return Alertmanager's path. Raises ServerMissing."""
    program = shutil.which("prometheus-alertmanager")
    if program is None or shutil.which("amtool") is None:
        words = "there is no Alertmanager; requirements/system.sh installs it"
        raise ServerMissing(f"{words} (Debian: prometheus-alertmanager)")
    return program


def run_amtool(*words: str) -> "subprocess.CompletedProcess[str]":
    command = ["amtool", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=scaled(60))


class AlertmanagerServer(Server):
    """config: as in its configuration file. Raises ServerMissing."""

    name = "alertmanager"
    ready_path = "/-/ready"

    def __init__(self, config: dict[str, Any]) -> None:  # Any: YAML
        self.program = alertmanager_program()
        super().__init__(None, stay=False)
        self._config: Path = self.folder / "alertmanager.yml"
        self._config.write_text(yaml.safe_dump(config))

    def silence(self, *matchers: str) -> None:
        """Silence the alerts of these matchers for an hour."""
        words = ("silence", "add", "--duration=1h", "--comment=test", "--author=test", *matchers)
        done = run_amtool(f"--alertmanager.url={self.url}", *words)
        assert done.returncode == 0, done.stderr

    def alerts(self) -> list[dict[str, Any]]:
        """Return its present alerts. Any: JSON."""
        alerts: list[dict[str, Any]] = json.loads(self._get("/api/v2/alerts").text)
        return alerts

    def _command(self) -> list[str]:
        return [
            self.program,
            f"--config.file={self._config}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]
