"""Who may read /metrics: TLS, certificates that clients must have, a password (docs/metrics.md).
Files are read again when they have changed; what can't be used then leaves what was there before,
and is said."""

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
)

if TYPE_CHECKING:
    import ssl

LOOK_SECS = 1.0  # between two looks whether files have changed
_SECRETS = ("password_file", "key_file")


@dataclass(frozen=True)
class MetricsAccess:
    """cert_file, key_file: PEM, of the server itself; without them there is no TLS; client_ca_file:
    PEM of the CA whose certificates clients must have; username, password_file: basic auth."""

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    username: str = ""
    password_file: str = ""

    @property
    def wants_credentials(self) -> bool:
        return bool(self.username or self.client_ca_file)

    def problems(self) -> list[str]:
        """What is wrong with these options of [metrics], a sentence each; files are looked at."""
        found = []
        if bool(self.username) != bool(self.password_file):
            found.append("username and password_file belong together")
        if ":" in self.username or not self.username.isprintable():
            found.append(
                f"username: {self.username!r} can't be sent: no `:`, and what can be printed only"
            )
        if not self.cert_file:
            options = ("key_file", "client_ca_file")
            found += [f"{option}: needs a cert_file" for option in options if getattr(self, option)]
        for option in ("cert_file", "key_file", "client_ca_file", "password_file"):
            found += file_problems(option, getattr(self, option), secret=option in _SECRETS)
        return [f"[metrics] {problem}" for problem in found]


class MetricsGuard:
    """Keeps what the files hold. say: told when changed files can't be used. For any thread. Raises
    ConfigError where they can't be used at the start."""

    def __init__(self, access: MetricsAccess, say: Callable[[str], None] | None = None) -> None:
        self._access = access
        self._say = say
        self._lock = threading.Lock()
        self._due = time.monotonic() + LOOK_SECS
        self._seen = self._signature()
        self._context, self._expected = self._load()

    @property
    def context(self) -> "ssl.SSLContext | None":
        """For connections that begin now; None where there is no TLS."""
        self._look()
        return self._context

    def admits(self, authorization: str) -> bool:
        """Whether a request's header is what it must be."""
        self._look()
        if not self._expected:
            return True
        scheme, _, credentials = authorization.strip().partition(" ")
        given = credentials.strip().encode("utf-8", "replace")
        return hmac.compare_digest(given, self._expected) and scheme.lower() == "basic"

    def _look(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._due:
                return
            self._due = now + LOOK_SECS
            signature = self._signature()
            if signature == self._seen:
                return
            self._seen = signature
            try:
                self._context, self._expected = self._load()
            except (
                ConfigError
            ) as error:  # in the middle of a renewal, perhaps: the next look sees the rest
                if self._say is not None:
                    self._say(f"{error}; /metrics goes on with what it had")

    def _signature(self) -> list[tuple[int, int, int] | None]:
        access = self._access
        paths = (access.cert_file, access.key_file, access.client_ca_file, access.password_file)
        return [_identity(path) for path in paths if path]

    def _load(self) -> "tuple[ssl.SSLContext | None, bytes]":
        access = self._access
        if problems := access.problems():
            raise ConfigError("/metrics", problems)
        expected = b""
        if access.username:
            password = read_secret(access.password_file, "[metrics] password_file")
            expected = base64.b64encode(f"{access.username}:{password}".encode())
        if not access.cert_file:
            return None, expected
        import ssl  # late, as it is for those who use it only

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found = [chain_problem(context, access.cert_file, access.key_file)]
        if access.client_ca_file:
            found.append(ca_problem(context, access.client_ca_file, "client_ca_file"))
            context.verify_mode = ssl.CERT_REQUIRED
        if problems := [f"[metrics] {problem}" for problem in found if problem]:
            raise ConfigError("/metrics", problems)
        return context, expected


def _identity(path: str) -> tuple[int, int, int] | None:
    """Another one after each change, and each renaming."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
