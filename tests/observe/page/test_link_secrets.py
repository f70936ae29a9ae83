"""The link of a chosen port stays the same, and stays secret."""

import os
import stat
import time
from pathlib import Path

import pytest

from logshipper.errors import ConfigError
from logshipper_observe.page.access import (
    MAX_AGE_SECS,
    Access,
    forget_secrets,
    secrets_file,
    stored_secrets,
)
from logshipper_observe.page.server import PageServer
from tests.observe.page.conftest import options
from tests.observe.page.test_access import Client

PORT = 8090


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the port's secrets."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Path(secrets_file(PORT))


def test_the_link_stays_the_same(file: Path) -> None:
    first, second = Access(PORT), Access(PORT)
    assert first.link(PORT) == second.link(PORT)
    assert second.has_cookie(first.set_cookie().split(";")[0]), "tabs that are open go on"
    assert Access(PORT + 1).link(PORT) != first.link(PORT)
    assert Access().link(PORT) != first.link(PORT)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert sorted(os.listdir(file.parent)) == [file.name, f"port-{PORT + 1}.json"]


def test_it_is_given_up_after_some_time(file: Path) -> None:
    link = Access(PORT).link(PORT)
    recently = time.time() - MAX_AGE_SECS + 3600
    os.utime(file, (recently, recently))
    assert Access(PORT).link(PORT) == link
    os.utime(file, (recently - 7200, recently - 7200))
    assert Access(PORT).link(PORT) != link
    later = Access(PORT).link(PORT)
    forget_secrets(PORT)
    forget_secrets(PORT)
    assert Access(PORT).link(PORT) != later


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_what_others_may_know_is_refused(file: Path, mode: int) -> None:
    Access(PORT)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=r"port-8090\.json: isn't your own file.*remove it"):
        Access(PORT)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"token": "", "place": "", "cookie": "", "cookie_name": ""}',
             '{"token": 1, "place": "a/../b", "cookie": "x;y", "cookie_name": "a=b"}', "x" * 5000]
)  # fmt: skip
def test_what_holds_no_secrets_is_refused(file: Path, text: str) -> None:
    Access(PORT)
    file.write_text(text)
    with pytest.raises(ConfigError, match="remove it"):
        Access(PORT)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_is_refused(file: Path, tmp_path: Path, kind: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True)
    if kind == "link":
        Access(PORT + 1)
        file.symlink_to(secrets_file(PORT + 1))
    elif kind == "folder":
        file.mkdir()
    else:
        os.mkfifo(file, 0o600)
    with pytest.raises(ConfigError, match=r"port-8090\.json"):
        stored_secrets(PORT)


def test_a_server_at_its_port_again(file: Path, store: Path) -> None:
    with PageServer(options(store)) as server:
        port = server.port
    with PageServer(options(store), port) as server:
        first = Client(server)
        with pytest.raises(ConfigError, match="can't listen"):
            PageServer(options(store), port)
    with PageServer(options(store), port) as server:
        assert server.link() != first.server.link(), "given up: the port was found taken"
        second = Client(server)
    with PageServer(options(store), port) as server:
        assert server.link() == second.server.link()
        assert Client(server).ask("api/jobs", cookie=False, Cookie=second.cookie).status == 200
        assert Client(server).ask("api/jobs", cookie=False, Cookie=first.cookie).status == 403
