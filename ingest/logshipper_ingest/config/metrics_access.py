"""Access to /metrics: TLS, client certificates, a password (docs/metrics.md). Changed files are
read again. If they are unusable, the previous content stays, and the agent logs the error."""

import base64
import hmac
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logshipper.errors import ConfigError
from logshipper_ingest.servers.server_access import (
    ca_problem,
    chain_problem,
    file_problems,
    read_secret,
    user_problems,
)

if TYPE_CHECKING:
    import ssl

LOOK_SECS = 1.0  # between two checks for changed files
_SECRETS = ("password_file", "key_file")


@dataclass(frozen=True)
class MetricsAccess:
    """TLS of /metrics and the credentials of its readers."""

    cert_file: str = ""  # PEM, of the server itself, as is key_file; without them there is no TLS
    key_file: str = ""  # of cert_file
    client_ca_file: str = ""  # PEM of the CA whose certificates clients must have
    username: str = ""  # of basic auth, as is password_file
    password_file: str = ""  # holds the password

    @property
    def wants_credentials(self) -> bool:
        return bool(self.username or self.client_ca_file)

    def problems(self) -> list[str]:
        """Return a sentence for each problem with these options of [metrics], files included."""
        problems = user_problems(self.username, self.password_file)
        if not self.cert_file:
            options = filter(lambda option: getattr(self, option), ("key_file", "client_ca_file"))
            problems += [f"{option}: needs a cert_file" for option in options]
        for option in ("cert_file", "key_file", "client_ca_file", "password_file"):
            problems += file_problems(option, getattr(self, option), secret=option in _SECRETS)
        return [f"[metrics] {problem}" for problem in problems]


class MetricsGuard:
    """Cache of the files' content, for any thread. say: logs unusable changes. Raises
    ConfigError for files that are unusable at the start."""

    def __init__(self, access: MetricsAccess, say: Callable[[str], None] | None = None) -> None:
        self._access = access
        self._say = say
        self._lock = threading.Lock()
        self._due = time.monotonic() + LOOK_SECS
        self._file_identities = self._identities()
        self._context, self._credentials = self._load()

    @property
    def context(self) -> "ssl.SSLContext | None":
        """Return the TLS context for new connections, or None without TLS."""
        self._look()
        return self._context

    def admits(self, authorization: str) -> bool:
        """Whether a request's header has the right credentials."""
        self._look()
        if not self._credentials:
            return True
        scheme, _, text = authorization.strip().partition(" ")
        credentials = text.strip().encode("utf-8", "replace")
        return hmac.compare_digest(credentials, self._credentials) and scheme.lower() == "basic"

    def _look(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._due:
                return
            self._due = now + LOOK_SECS
            identities = self._identities()
            if identities == self._file_identities:
                return
            self._file_identities = identities
            try:
                self._context, self._credentials = self._load()
            except ConfigError as error:
                # perhaps in the middle of a renewal: the next check sees the rest
                if self._say is not None:
                    self._say(f"{error}; /metrics goes on with what it had")

    def _identities(self) -> list[tuple[int, int, int] | None]:
        access = self._access
        paths = (access.cert_file, access.key_file, access.client_ca_file, access.password_file)
        return [_identity(path) for path in paths if path]

    def _load(self) -> "tuple[ssl.SSLContext | None, bytes]":
        access = self._access
        if problems := access.problems():
            raise ConfigError("/metrics", problems)
        credentials = b""
        if access.username:
            password = read_secret(access.password_file, "[metrics] password_file")
            credentials = base64.b64encode(f"{access.username}:{password}".encode())
        if not access.cert_file:
            return None, credentials
        import ssl  # late, as it is for those who use it only

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls_problems = [chain_problem(context, access.cert_file, access.key_file)]
        if access.client_ca_file:
            tls_problems.append(ca_problem(context, access.client_ca_file, "client_ca_file"))
            context.verify_mode = ssl.CERT_REQUIRED
        if problems := [f"[metrics] {problem}" for problem in tls_problems if problem]:
            raise ConfigError("/metrics", problems)
        return context, credentials


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return a value that differs after each change and each renaming."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
