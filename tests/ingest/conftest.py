import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import TIMEOUT_SECS


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield a datagram socket in the place of systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "systemd"))
        listener.settimeout(TIMEOUT_SECS)
        yield listener
