"""A client of InfluxDB's write interface: 1.x (`/write`) and 2.x (`/api/v2/write`, also in 1.8).

Use one object per thread. Raises PushError and QueryError, as the clients of Loki and Prometheus
do. https://docs.influxdata.com/influxdb/v1/tools/api/, https://docs.influxdata.com/influxdb/v2/api/
"""

import gzip
import re
import urllib.parse
from typing import TYPE_CHECKING

from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.servers.server_access import Credentials, ServerAccess
from logshipper_ingest.servers.server_calls import ServerClient

if TYPE_CHECKING:
    import requests

_HEADERS = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"}
NOTHING = b"# logshipper\n"  # a comment: it asks for the right to write, and writes nothing


class InfluxdbClient(ServerClient):
    """section: its access, and where in InfluxDB points go."""

    kind = "InfluxDB"
    _ready_path = "/ping"
    _ready_statuses = (200, 204)
    # proxies' and gateways' own 400s; a wrong address answers 404, a missing database, too
    _not_about_pushes = re.compile(
        rb"Client sent an HTTP request to an HTTPS|The plain HTTP request was sent", re.I
    )

    def __init__(self, section: InfluxdbSection) -> None:
        super().__init__(_access(section), max_answer_bytes=1 << 20)
        if section.bucket:
            path, place = "/api/v2/write", {"org": section.org, "bucket": section.bucket}
        else:
            path, place = "/write", {"db": section.database, "rp": section.retention_policy}
        parameters = {name: value for name, value in place.items() if value}
        self._path = f"{path}?{urllib.parse.urlencode({**parameters, 'precision': 'ns'})}"

    def push_body(self, body: bytes, tenant: str = "") -> None:
        """Writes points, compressed by `compress`. Only 204 counts. After a 400 or 422 that speaks
        of a partial write the others are stored; writing the same again overwrites them with
        themselves. tenant: InfluxDB has none."""
        self._push(self._path, body, _HEADERS, (204,))


class _TokenAccess(ServerAccess):
    """InfluxDB's own scheme in place of `Bearer`, which is for its 1.x JWTs."""

    def session(self) -> "requests.Session":
        session = super().session()
        auth = session.auth
        if isinstance(auth, Credentials) and auth.header.startswith("Bearer "):
            session.auth = Credentials(f"Token {auth.header[len('Bearer ') :]}", auth.secrets)
        return session


def _access(section: InfluxdbSection) -> ServerAccess:
    return _TokenAccess(**vars(section.access)) if section.bucket else section.access


def compress(body: bytes) -> bytes:
    return gzip.compress(body, 1, mtime=0)
