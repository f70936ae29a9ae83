"""nginx in a folder of its own, as one process, with a test's configuration."""

import os
import shutil
import socket
from pathlib import Path

from tests.servers.places import ServerMissing
from tests.servers.running import READY_TIMEOUT_SECS, Server

_MAIN = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr {level};
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/{site};
}}
"""


class NginxServer(Server):
    """site: configuration file in its folder, written by the caller; level: of its log. Raises
    ServerMissing."""

    name = "nginx"
    ready_path = "/"

    def __init__(self, folder: Path | None, site: str, *, level: str = "warn") -> None:
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
        if program is None:
            raise ServerMissing(
                "there is no `nginx`; requirements/system.sh installs it (Debian: nginx)"
            )
        self._program = program
        super().__init__(folder, stay=False)
        main = _MAIN.format(folder=self.folder, site=site, level=level)
        (self.folder / "nginx.conf").write_text(main)

    def wait_ready(self, timeout_secs: float = READY_TIMEOUT_SECS) -> None:
        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self._wait(listens, "listen", timeout_secs)

    def _command(self) -> list[str]:
        return [self._program, "-p", str(self.folder), "-c", "nginx.conf", "-e", "stderr"]
