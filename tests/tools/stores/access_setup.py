"""Set-up for tests of access: certificates for each case, secrets to look for, a plain
environment."""

import base64
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.fakes.tls_gateway import Authority, Pair

PASSWORD, PROXY_PASSWORD = "correct-hörse-battery", "let-me-through"
TOKEN, NEXT_TOKEN = "tok-5f4dcc3b5aa765d61d8327deb882cf99", "tok-the-next-one"
BASIC = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
SECRETS = (PASSWORD, TOKEN, BASIC, PROXY_PASSWORD)
PAGE = b"<html>\r\n<head><title>400 No required SSL certificate was sent</title></head>\r\n<body>nginx</body></html>"
LABELS = {"cluster": "access", "kind": "log"}


class Certificates(NamedTuple):
    """Certificates of two CAs. ca signed server, expired, misnamed and client; strange_ca signed
    strange_server and stranger."""

    ca: Path
    server: Pair
    expired: Pair
    misnamed: Pair
    client: Pair
    strange_ca: Path
    strange_server: Pair
    stranger: Pair


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    authority, strange = (
        Authority(tmp_path_factory.mktemp("certificates") / name) for name in ("own", "strange")
    )
    return Certificates(
        authority.ca,
        authority.issue("server", "IP:127.0.0.1"),
        authority.issue("expired", "IP:127.0.0.1", days=-1),
        authority.issue("misnamed", "DNS:loki.example.org"),
        authority.issue("node7"),
        strange.ca,
        strange.issue("server", "IP:127.0.0.1"),
        strange.issue("stranger"),
    )


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the machine's proxies and certificates from the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def secret(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return str(path)


def with_certificate(pair: Pair) -> dict[str, str]:
    return {"cert_file": str(pair.cert), "key_file": str(pair.key)}
