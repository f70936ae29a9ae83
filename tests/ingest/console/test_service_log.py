"""The agent's lines: with a priority if the journal gets them, else with the time."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logshipper_ingest.agent import sink_course
from logshipper_ingest.cli import main
from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.console import service_log
from logshipper_ingest.console.journal import Journal
from logshipper_ingest.console.service_log import Notice, write_error, write_line

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@contextmanager
def stderr(path: Path, monkeypatch: pytest.MonkeyPatch, *, journal: bool) -> Iterator[None]:
    """Replace stderr by a file. journal: whether JOURNAL_STREAM names this file; otherwise stderr
    was redirected."""
    with path.open("a") as file, monkeypatch.context() as patch:
        about = path.stat()
        patch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino + (not journal)}")
        patch.setattr(sys, "stderr", file)
        yield


@pytest.fixture(autouse=True)
def no_journal_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_log, "_JOURNAL", Journal(str(tmp_path / "nothing")))


def test_the_journal_gets_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stderr"
    with stderr(path, monkeypatch, journal=True):
        write_line(Notice("ready"))
        write_line("Loki is away\nand stays so")
        write_error("logshipper-agent: no url")
    assert path.read_text() == (
        "<6>ready\n<4>Loki is away\n<4>and stays so\n<3>logshipper-agent: no url\n"
    )


def test_a_line_chooses_no_priority_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stderr"
    with stderr(path, monkeypatch, journal=True):
        write_line("a job is called \x1b\n<0>panic")
    assert path.read_text() == "<4>a job is called �\n<4><0>panic\n"


def test_others_get_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stderr"
    with stderr(path, monkeypatch, journal=False):
        write_line(Notice("ready"))
        write_error("logshipper-agent: no url")
    assert re.fullmatch(f"{TIME} ready\nlogshipper-agent: no url\n", path.read_text())


def test_a_wrong_configuration_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stderr"
    (tmp_path / "agent.toml").write_text("[agent]\nspol_dir = 1\n")
    with stderr(path, monkeypatch, journal=True):
        assert main(["validate", "--config", str(tmp_path / "agent.toml")]) == 1
    lines = path.read_text().splitlines()
    assert lines
    assert all(line.startswith("<3>logshipper-agent: ") for line in lines)


def test_a_sinks_notice_stays_one() -> None:
    lines: list[str] = []
    config = SinkConfig[LokiSection | InfluxdbSection](
        LokiSection(), "", "loki", "c", "h", "/s", ""
    )
    say = sink_course._of_sink(config, lines.append)
    say(Notice("takes everything again"))
    say("refuses")
    assert [isinstance(line, Notice) for line in lines] == [True, False]


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not service_log._stderr_is_journal()
    assert not service_log.is_journal(-1, os.environ)
