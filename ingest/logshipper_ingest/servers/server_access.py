"""Access to a server (Loki, Prometheus): address, credentials, tenant, TLS, and the HTTP session."""

import base64
import os
import re
import stat
import urllib.parse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logshipper import __version__
from logshipper.errors import ConfigError, os_words

if TYPE_CHECKING:
    import ssl

    import requests

MAX_SECRET_BYTES = 64 << 10
TENANT_HEADER = "X-Scope-OrgID"
_TENANT = re.compile(r"[A-Za-z0-9!_.*'()-]{1,150}")  # Loki answers other tenants with 400
_USER_INFO = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.I | re.S)


@dataclass(frozen=True)
class ServerAccess:
    """Access to a server.

    A session reads secrets once, and certificates at each connection.
    """

    url: str = ""  # includes any path before `/loki/api` or `/api`
    tenant: str = ""  # X-Scope-OrgID, several to read from with `|` between
    username: str = ""  # basic auth, with password_file
    password_file: str = ""  # holds the password
    token_file: str = ""  # a bearer token
    # PEM of the CA that signed the server's certificate, the only one that is trusted then
    ca_file: str = ""
    cert_file: str = ""  # our own, with key_file
    key_file: str = ""  # of cert_file
    timeout_secs: float = 10.0  # for connecting, and for each wait for the answer

    def problems(self, where: str) -> list[str]:
        """Return the faults of these settings, a sentence each that names the option; reads the
        files.

        where: the TOML table.
        """
        problems = []
        if self.url and (problem := _url_problem(self.url)):
            problems.append(f"url: {problem}")
        if self.tenant and not all(map(_is_tenant, self.tenant.split("|"))):
            words = "isn't a tenant's id: letters, digits and !-_.*'(), at most 150"
            problems.append(f"tenant: {self.tenant!r} {words}")
        problems += user_problems(self.username, self.password_file)
        if self.username and self.token_file:
            problems.append("token_file: not together with username and password_file")
        if self.key_file and not self.cert_file:
            problems.append("key_file: needs a cert_file")
        if not 0 < self.timeout_secs <= 600:
            problems.append("timeout_secs: must be more than 0 and at most 600")
        for option in ("password_file", "token_file", "ca_file", "cert_file", "key_file"):
            secret = option not in ("ca_file", "cert_file")
            problems += file_problems(option, getattr(self, option), secret=secret)
        return [f"[{where}] {problem}" for problem in problems]

    def session(self) -> "requests.Session":
        """Open a session with credentials, certificates and tenant.

        Raises ConfigError for an unusable file.
        """
        import ssl  # late: only agents with TLS need it

        import requests  # late: it takes a tenth of a second to import

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        problems = [
            self.ca_file and ca_problem(context, self.ca_file, "ca_file"),
            self.cert_file and chain_problem(context, self.cert_file, self.key_file),
        ]
        if any(problems):
            raise ConfigError("TLS", list(filter(None, problems)))
        session = requests.Session()
        session.headers["User-Agent"] = f"logshipper/{__version__}"
        if self.tenant:
            session.headers[TENANT_HEADER] = self.tenant
        if self.username:
            password = read_secret(self.password_file, "password_file")
            pair = base64.b64encode(f"{self.username}:{password}".encode()).decode()
            session.auth = Credentials(f"Basic {pair}", (pair, password))
        elif self.token_file:
            token = read_secret(self.token_file, "token_file")
            session.auth = Credentials(f"Bearer {token}", (token,))
        else:
            session.auth = Credentials()
        session.verify = self.ca_file or True
        if self.cert_file:
            session.cert = (self.cert_file, self.key_file) if self.key_file else self.cert_file
        return session


@dataclass(frozen=True)
class Credentials:
    """Authorization of a session; "" for none, although requests would read ~/.netrc.

    secrets: texts to hide, in each form that an answer may echo.
    """

    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __call__(self, request: "requests.PreparedRequest") -> "requests.PreparedRequest":
        if self.header:
            # UTF-8, as RFC 7617 has it
            request.headers["Authorization"] = self.header.encode().decode("latin-1")
        return request


def read_secret(path: str, option: str = "") -> str:
    """A secret's text, without the line's end. option: that names the file, for errors. Raises
    ConfigError."""
    source = f"{option}: {path}" if option else path
    text = read_secret_file(path, source)
    secret = text.decode("utf-8", "replace").strip("\r\n")
    if not secret or len(text) > MAX_SECRET_BYTES or not secret.isprintable():
        raise ConfigError(source, ["holds no secret: one line of text is expected"])
    return secret


def read_secret_file(path: str, source: str) -> bytes:
    """Read at most one byte more than MAX_SECRET_BYTES.

    source: the file's name in errors. Raises ConfigError.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            return file.read(MAX_SECRET_BYTES + 1) or b""
    except (OSError, ValueError) as error:
        raise ConfigError(source, [f"can't be read: {os_words(error)}"]) from None


def _open_at_once(path: str, flags: int) -> int:
    # opening a pipe without a writer would block
    return os.open(path, flags | os.O_NONBLOCK)


def _url_problem(url: str) -> str:
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        url_text = _USER_INFO.sub(r"\1...@", url)  # no password in a log
        return f"{url_text!r} isn't an address; it looks like http://loki.example.org:3100"
    if "/loki/api" in parts.path:
        return "ends before /loki/api"
    if parts.query or parts.fragment:
        return "ends before `?` and `#`"
    if parts.username or parts.password:
        return "credentials go to username and password_file, not into the address"
    return ""


def user_problems(username: str, password_file: str) -> list[str]:
    """Return the faults of the options for basic auth."""
    problems = []
    if bool(username) != bool(password_file):
        problems.append("username and password_file belong together")
    if ":" in username or not username.isprintable():
        words = "can't be sent: no `:`, and what can be printed only"
        problems.append(f"username: {username!r} {words}")
    return problems


def _is_tenant(tenant: str) -> bool:
    return _TENANT.fullmatch(tenant) is not None and tenant not in (".", "..")


def ca_problem(context: "ssl.SSLContext", path: str, option: str) -> str:
    """Let the context trust a file's certificates; return the fault, or ""."""
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        return f"{option}: {path}: {_pem_words(error, 'holds no certificate in PEM')}"
    return ""


def chain_problem(context: "ssl.SSLContext", cert_file: str, key_file: str) -> str:
    """Load our certificate into the context; return the fault, or "".

    key_file: "" if cert_file contains the key.
    """
    try:
        # an agent has nobody to ask for a passphrase
        context.load_cert_chain(cert_file, key_file or None, password=lambda: "")
    except (OSError, ValueError) as error:
        option = "key_file" if key_file and os.access(cert_file, os.R_OK) else "cert_file"
        usual = "cert_file must be a certificate in PEM, and this its key, without a passphrase"
        return f"{option}: {key_file if option == 'key_file' else cert_file}: {_pem_words(error, usual)}"
    return ""


def _pem_words(error: Exception, usual: str) -> str:
    if hasattr(error, "reason") or not isinstance(error, OSError):  # OpenSSL's
        reason = str(getattr(error, "reason", None) or "").replace("_", " ").lower()
        return f"{usual} ({reason})" if reason else usual
    return os_words(error)


def split_url(url: str) -> "urllib.parse.SplitResult | None":
    """Split an address; None if it is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        return None
    return parts


def file_problems(option: str, path: str, *, secret: bool) -> list[str]:
    """Return the faults of an option's file: unreadable, or readable by everybody although it is
    secret or holds a key."""
    if not path:
        return []
    if not os.path.isabs(path):
        return [f"{option}: {path!r} must be an absolute path"]
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = secret or b"PRIVATE KEY" in (file.read(MAX_SECRET_BYTES) or b"")
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        path_text = path if path.isprintable() else repr(path)
        return [f"{option}: {path_text}: {os_words(error)}"]
    if secret and stat.S_IMODE(mode) & 0o007:
        return [f"{option}: {path}: everybody may read it; `chmod o= {path}`"]
    return []
