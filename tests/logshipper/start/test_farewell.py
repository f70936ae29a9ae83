"""Messages of `run` about itself: one line at the end on a terminal, and one for a named run that
is no job of its own. The job's output stays unchanged."""

import os
import pty
import sys
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def on_terminal(home: Home, *words: str, out: Path) -> str:
    """Return the text of `run` on a terminal as its stderr. Its stdout goes into a file."""
    master, slave = pty.openpty()
    with out.open("wb") as file:
        home.call("run", *words, stdout=file, stderr=slave)
    os.close(slave)
    text = b""
    while True:
        try:
            text += os.read(master, 4096)
        except OSError:  # EIO: everything has been read
            break
    os.close(master)
    return text.decode().replace("\r\n", "\n")


def test_a_line_names_the_run(home: Home, tmp_path: Path) -> None:
    text = on_terminal(home, "--job-id", "a7", "--", "echo", "hi", out=tmp_path / "out")
    assert text == "logshipper: echo is a7: logshipper show a7\n"
    assert (tmp_path / "out").read_bytes() == b"hi\n"
    assert home.logs("a7") == ["hi"]


def test_it_names_the_store_that_was_given(home: Home, tmp_path: Path) -> None:
    store = str(tmp_path / "a store")
    options = ("--store", store, "--job-id", "a7", "--name", "first")
    text = on_terminal(home, *options, "--", "true", out=tmp_path / "out")
    assert text == f"logshipper: first is a7: logshipper show a7 --store '{store}'\n"


def test_it_begins_a_line(home: Home, tmp_path: Path) -> None:
    script = "printf open >&2; exit 3"
    text = on_terminal(home, "--job-id", "a7", "--", "sh", "-c", script, out=tmp_path / "out")
    assert text == "open\nlogshipper: sh is a7: logshipper show a7\n"


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (("-q",), {}),
        (("--quiet",), {}),
        (("--if-opted-in",), {}),
        ((), {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}),
    ],
    ids=str,
)
def test_who_gets_none(
    home: Home, tmp_path: Path, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    home.opt_in()
    home.environment |= environment
    assert on_terminal(home, *options, "--", "true", out=tmp_path / "out") == ""


def test_none_into_a_pipe_or_file(home: Home) -> None:
    done = home.run("sh", "-c", "echo a; echo b >&2")
    assert (done.stdout, done.stderr) == (b"a\n", b"b\n")


def test_a_named_run_inside_of_a_run(home: Home) -> None:
    inner = f"exec {sys.executable} -m logshipper run --name inner"
    done = home.run("sh", "-c", f"{inner} -- echo x", options=("--job-id", "outer"))
    words = (
        "logshipper: inner is no job of its own: what it prints is in the log of the run around it, outer "
        "(--job-id ID captures it by itself, too)"
    )
    assert done.stderr.decode().splitlines() == [words]
    assert done.stdout == b"x\n"
    assert sorted(home.logs("outer")) == [words, "x"]
    assert home.call("status", "inner").returncode == 1
    for quiet in ("-q --name inner", ""):
        script = f"exec {sys.executable} -m logshipper run {quiet} -- echo x"
        done = home.run("sh", "-c", script)
        assert done.stderr == b""


def test_a_run_of_its_own_inside_of_a_run_adds_nothing_to_its_log(home: Home) -> None:
    """The inner run's terminal belongs to the outer run."""
    inner = f"exec {sys.executable} -m logshipper run --job-id inner"
    done = home.run("sh", "-c", f"{inner} -- echo x", options=("--job-id", "outer"))
    assert (done.stdout, done.stderr) == (b"x\n", b"")
    assert home.logs("outer") == home.logs("inner") == ["x"]
