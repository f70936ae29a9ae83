"""The man pages (docs/tools/manual.py) contain the help, and troff reads them without a warning."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.tools import manual
from tests.project.test_docs import commands, options, parsers
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

DATE = "2026-11-30"
RUN_SECS = 60.0


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(manual.pages(DATE))


def test_each_command_has_a_page_with_its_options(pages: dict[str, str]) -> None:
    named = {name.replace(" ", "-"): parser for name, parser in commands()}
    assert pages.keys() == parsers().keys() | named.keys()
    for name, parser in named.items():
        page = pages[name].replace(r"\-", "-")
        assert page.startswith(f'.TH {name.upper()} 1 {DATE} "logshipper ')
        for option in options(parser):
            assert f"\\fB{option}\\fR" in page, f"{name} {option}"
        for title in ("NAME", "SYNOPSIS", "OPTIONS", "SEE ALSO"):
            assert f"\n.SH {title}\n" in page, name
        assert f"\\fB{name}\\fR(1)" in pages[parser.prog.split()[0]].replace(r"\-", "-"), name


def test_help_stands_in_its_section(pages: dict[str, str]) -> None:
    page = pages["logshipper-import"].replace(r"\-", "-")
    assert "\n.SH EXIT STATUS\n0 done, 1 something was unreadable" in page
    assert "\n.SH EXAMPLES\n.RS 4\n.nf\nlogshipper import files \\(aqslurm" in page
    assert "\ncsv          tables with a header: each row is a record\n" in page
    assert not [name for name, text in pages.items() if "SUPPRESS" in text]
    assert '\n.SS "reading from Loki"\n' in pages["logshipper-ls"]
    assert '\n.SS "most used"\n.TP\n\\fBlogshipper\\-run\\fR(1)\n' in pages["logshipper"]


def test_no_text_becomes_a_request_of_troff() -> None:
    assert list(manual._text("a\\b\n.TH x\n\n  'quoted'\n  .SH y")) == [
        r"a\eb .TH x", ".PP", ".RS 4", ".nf", r"\(aqquoted\(aq", r"\&.SH y", ".fi", ".RE",
    ]  # fmt: skip


def write(folder: Path, **environment: str) -> dict[str, bytes]:
    command = [sys.executable, "-m", "docs.tools.manual", str(folder)]
    environment = {"SOURCE_DATE_EPOCH": "1790000000", **environment}
    subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, check=True, timeout=scaled(RUN_SECS)
    )
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_terminal_and_clock_have_no_influence(tmp_path: Path) -> None:
    first = write(tmp_path / "first")
    odd = {"COLUMNS": "40", "TZ": "Asia/Tokyo", "FORCE_COLOR": "1", "PYTHONHASHSEED": "7"}
    assert write(tmp_path / "second", **odd) == first
    assert b'LOGSHIPPER\\-RUN 1 2026-09-21 "' in gzip.decompress(first["logshipper-run.1.gz"])


@pytest.mark.parametrize("command", ["mandoc -Tlint -Wwarning", "man --warnings --local-file"])
def test_troff_has_no_warning(command: str, pages: dict[str, str], tmp_path: Path) -> None:
    program, *words = command.split()
    if shutil.which(program) is None or (program == "man" and shutil.which("groff") is None):
        pytest.skip(f"{program} isn't installed; requirements/system.sh installs mandoc")
    for name, text in pages.items():
        (tmp_path / f"{name}.1").write_text(text)
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run(
        [program, *words, *files], env=os.environ | {"LC_ALL": "C.UTF-8", "MANPAGER": "cat"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scaled(RUN_SECS),
    )  # fmt: skip
    messages = done.stdout if program == "mandoc" else ""
    assert (done.returncode, messages + done.stderr) == (0, "")
