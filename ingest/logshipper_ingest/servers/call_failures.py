"""Messages about servers that do not answer, or refuse a request.

The messages name the option to check. They contain no secrets.
"""

import re
import ssl
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logshipper_ingest.servers.server_access import ServerAccess

MAX_EXCERPT_CHARS = 1000
_LEAST_SECRET_CHARS = 4  # shorter ones are in half of all words
_HIDDEN = b"[hidden]"
_PLACE = re.compile(r" \(_ssl\.c:\d+\)")
_OWN_CERTIFICATE = (
    "the server refuses our certificate, or requires one: check cert_file and key_file"
)
_FIXES = (  # the first that matches
    (r"alert .*(certificate|unknown ca|handshake failure|access denied|decrypt)", _OWN_CERTIFICATE),
    (r"(hostname|ip address) mismatch", "url must name the server as its certificate does"),
    (r"certificate has expired", "renew the server's certificate, or correct this node's clock"),
    (r"certificate is not yet valid", "check this node's clock"),
    (r"self.signed|unable to (get|verify)", "ca_file must hold the certificate of the CA that signed the server's"),
    (r"wrong version number|record layer failure|packet length too long|http request", "is no TLS spoken there? "
     "Then url begins with http://"),
    (r"tunnel connection failed: 407", "https_proxy needs a user and a password, http://USER:PASSWORD@PROXY:PORT"),
)  # fmt: skip


def words_of(error: BaseException, access: "ServerAccess", proxies: Mapping[str, str]) -> str:
    """Explain a missing answer: the innermost error in the system's words, and the remedy.

    proxies: the environment's proxies for this request.
    """
    import requests

    exceptions = requests.exceptions
    if isinstance(error, (exceptions.InvalidProxyURL, exceptions.InvalidURL)) and proxies:
        return "https_proxy, http_proxy or all_proxy in the environment is no proxy's address"  # may hold a password
    if isinstance(error, exceptions.ConnectTimeout):
        words = f"no connection within {access.timeout_secs:g} s"
    elif isinstance(error, exceptions.Timeout):
        return f"no answer within {access.timeout_secs:g} s"
    else:
        words = clean(_PLACE.sub("", _innermost(error))).rstrip(".")
    if isinstance(error, exceptions.ProxyError):
        words = f"by way of the environment's proxy: {words}"
    fix = next((fix for pattern, fix in _FIXES if re.search(pattern, words, re.I)), "")
    if isinstance(error, exceptions.InvalidSchema) and "SOCKS" in words:
        words = f"{words}: https_proxy and all_proxy must be http:// here"
    hang_ups = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
    if isinstance(_chain(error)[-1], hang_ups) or "EOF occurred" in words:
        fix = "if it speaks TLS, url is https://"
        if access.url.lower().startswith("https:"):
            fix = "a server that wants a certificate hangs up, too: cert_file"
    return f"{words}; {fix}" if fix else words


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, at most 20, because chains can be loops."""
    chain = [error]
    while len(chain) < 20 and (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    return chain


def _innermost(error: BaseException) -> str:
    import requests
    import urllib3

    inner = ""
    for cause in _chain(error):
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException):
            inner = getattr(cause, "verify_message", "") or cause.strerror or str(cause) or inner
        elif isinstance(cause, urllib3.exceptions.SSLError):  # behind a proxy, it hides its cause
            inner = str(cause)
    return inner or str(error) or type(error).__name__


def refusal_fix(status: int, words: str, access: "ServerAccess") -> str:
    """Name the options to check after a refusal; "" if none explains it."""
    if status == 400 and re.search(r"SSL certificate", words, re.I):
        return _OWN_CERTIFICATE
    if status == 400 and re.search(r"HTTP request.* to (an )?HTTPS", words, re.I):
        return "url must begin with https://"
    if re.search(r"\borg ids?\b|\btenant id\b", words, re.I) and status in (400, 401, 403):
        return "look at tenant"
    if status not in (401, 403):
        return ""
    options = ("username", "password_file", "token_file", "headers_file", "cert_file", "tenant")
    used_options = [name for name in options if getattr(access, name, "")]
    if used_options:
        return "look at " + ", ".join(used_options)
    return "none of username and password_file, token_file, tenant is set"


def hidden(text: bytes, secrets: Iterable[str]) -> bytes:
    """Replace secrets in a text: some gateways echo the request."""
    for secret in secrets:
        if len(secret) >= _LEAST_SECRET_CHARS:
            text = text.replace(secret.encode(), _HIDDEN)
    return text


def clean(text: str) -> str:
    """Printable characters, blanks run together, cut to MAX_EXCERPT_CHARS."""
    chars = (char if char.isprintable() else " " for char in text[: 8 * MAX_EXCERPT_CHARS])
    words = " ".join("".join(chars).split())
    return words if len(words) <= MAX_EXCERPT_CHARS else f"{words[: MAX_EXCERPT_CHARS - 3]}..."
