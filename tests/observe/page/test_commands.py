"""`logshipper open` and `logshipper serve` as commands: the link, the browser, ssh, and their
end."""

import os
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logshipper.start.cli import main
from tests.observe.page.jobs import TRAINED
from tests.tools.sources import SOURCES
from tests.tools.stores.reading_store import training
from tests.tools.waiting import scaled

SECS = scaled(30.0)
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/[\w-]{16}/\?token=[\w-]{43}(&view=\S+)?\n")


@contextmanager
def command(*words: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process of its own; terminate it afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "logshipper", *words],
        env={**os.environ, "PYTHONPATH": SOURCES, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def link_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert LINK.fullmatch(line), line or (process.stderr and process.stderr.read())
    return line.strip()


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_serve(tmp_path: Path, stop_signal: signal.Signals) -> None:
    with command("serve", "--store", str(tmp_path / "none")) as process:
        with urllib.request.urlopen(link_of(process), timeout=SECS) as answer:  # noqa: S310  as LINK says
            assert answer.headers["Set-Cookie"]
        process.send_signal(stop_signal)
        out, err = process.communicate(timeout=SECS)
    assert (process.returncode, out) == (0, "")
    assert "keep the link secret" in err
    assert "ssh" not in err


def test_through_ssh(tmp_path: Path) -> None:
    ssh = {
        "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22",
        "DISPLAY": ":0",
        "BROWSER": "false",
        "USER": "ada",
    }
    with command("open", "--store", str(tmp_path / "none"), **ssh) as process:
        match = LINK.fullmatch(link_of(process) + "\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECS)
    port = match[1] if match else ""
    host = os.uname().nodename
    assert f"from your own machine, first: ssh -N -L {port}:127.0.0.1:{port} ada@{host}\n" in err
    assert "browser" not in err  # no browser opens there


def test_the_browser_gets_a_file_of_the_users_own(tmp_path: Path) -> None:
    training(tmp_path / "store", job_id=TRAINED)
    arguments_file = tmp_path / "told"
    os.mkfifo(arguments_file)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >{arguments_file}\n')
    browser.chmod(0o755)
    desktop = {
        "DISPLAY": ":0",
        "BROWSER": f"{browser} %s",
        "XDG_RUNTIME_DIR": str(tmp_path),
        "SSH_CONNECTION": "",
    }
    with command("open", "train.py", "--store", str(tmp_path / "store"), **desktop) as process:
        link = link_of(process)
        assert link.endswith(f"&view=job/{TRAINED}")
        arguments = arguments_file.read_text().strip()  # other users can read the arguments
        assert "token" not in arguments
        path = Path(arguments.removeprefix("file://"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert link.replace("&", "&amp;") in path.read_text()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECS)
    assert process.returncode == 0
    assert not path.exists()


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with command("serve", "--store", str(tmp_path / "none")) as process:
        match = LINK.fullmatch(link_of(process) + "\n")
        assert match is not None
        assert main(["serve", "--store", str(tmp_path / "none"), "--port", match[1]]) == 1
        assert f"can't listen on 127.0.0.1:{match[1]}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["65536", "-1", "x", ""])
def test_ports_that_are_none(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", f"--port={port}"])
    assert "--port" in capsys.readouterr().err


def test_a_job_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training(tmp_path / "store")
    assert main(["open", "trian.py", "--store", str(tmp_path / "store")]) == 1
    assert "did you mean train.py?" in capsys.readouterr().err
