"""A limit on the whole time of a server's answer, its head included. Imports requests.

requests limits single waits only, so a server that sends a byte per second could hold a caller
forever.
"""

import io
import math
import socket
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.cookies import extract_cookies_to_jar
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_NO_RETRIES = urllib3.Retry(0, read=False)
_ERRORS = (  # the first that matches
    (urllib3.exceptions.NewConnectionError, requests.ConnectionError),
    (urllib3.exceptions.ConnectTimeoutError, requests.ConnectTimeout),
    (urllib3.exceptions.ReadTimeoutError, requests.ReadTimeout),
    (urllib3.exceptions.ProxyError, requests.exceptions.ProxyError),
)


class Deadline:
    """Deadline of the current call.

    at: by the monotonic clock.
    """

    def __init__(self) -> None:
        self.at = math.inf

    def shorten(self, sock: socket.socket) -> None:
        """Let the socket's next wait end by the deadline.

        Raises TimeoutError after the deadline.
        """
        rest_secs = self.at - time.monotonic()
        if rest_secs <= 0:
            raise TimeoutError("no whole answer in time")
        usual = sock.gettimeout()
        if usual is None or usual > rest_secs:
            sock.settimeout(rest_secs)


class _TimedReader(io.RawIOBase):
    """Reads an answer under a deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # Any: Python 3.11 has no type for buffers
        self._deadline.shorten(self._sock)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def limited(session: requests.Session, deadline: Deadline) -> requests.Session:
    """Return the session with a deadline for its answers.

    Use it in one thread.
    """
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(deadline))
    return session


class RepeatedPush:
    """A request that goes to the server again and again, with other bodies.

    It uses the session's pool of connections directly: all that requests does for each request
    takes longer than the rest of a push. request: as sent; settings: of `session.send`.
    """

    def __init__(
        self,
        session: requests.Session,
        request: requests.PreparedRequest,
        settings: Mapping[str, Any],  # Any: as in requests
        timeout_secs: float,
    ) -> None:
        self._session, self._request, self._settings = session, request, settings
        self._headers = dict(request.headers)
        self._timeout = urllib3.Timeout(connect=timeout_secs, read=timeout_secs)

    @cached_property
    def _route(self) -> tuple[HTTPConnectionPool, str]:
        """Return the pool, whose certificates the first request has set, and the address there.
        Pushes of alternate tenants never need them."""
        adapter = cast(HTTPAdapter, self._session.get_adapter(str(self._request.url)))
        verify, cert, proxies = (self._settings[name] for name in ("verify", "cert", "proxies"))
        pool = adapter.get_connection_with_tls_context(self._request, verify, proxies, cert)
        return cast(HTTPConnectionPool, pool), adapter.request_url(self._request, proxies)

    def send(self, body: bytes) -> urllib3.BaseHTTPResponse:
        """Send a body. Raises the same errors as requests."""
        self._headers["Content-Length"] = str(len(body))
        pool, url = self._route
        try:
            response = pool.urlopen(
                str(self._request.method),
                url,
                body=body,
                headers=self._headers,
                retries=_NO_RETRIES,
                redirect=False,
                assert_same_host=False,
                timeout=self._timeout,
                preload_content=False,
                decode_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            reason = getattr(error, "reason", None) or error
            kind = next((ours for theirs, ours in _ERRORS if isinstance(reason, theirs)), None)
            raise (kind or requests.ConnectionError)(error) from error
        if "Set-Cookie" in response.headers:  # a gateway's, for the next push
            extract_cookies_to_jar(  # type: ignore[no-untyped-call]  # requests has no types for it
                self._session.cookies, self._request, response
            )
        return response


class _Adapter(HTTPAdapter):
    def __init__(self, deadline: Deadline) -> None:
        self._pools = _pools(deadline)
        super().__init__()

    # Any: as in the base, here and below
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> urllib3.ProxyManager:
        manager: urllib3.ProxyManager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(deadline: Deadline) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pools by scheme, whose connections read answers under a deadline."""
    import http.client

    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            super().__init__(sock, *args, **kwargs)
            self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock, deadline))

    class Plain(HTTPConnection):
        response_class = Answer

    class Secure(HTTPSConnection):
        response_class = Answer

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
