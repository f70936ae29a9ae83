"""`grep`: like `grep -r` over the jobs, equal over both stores, besides Loki's times for numbers."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper.spool.segment import Kind
from logshipper.start.cli import main
from tests.observe.commands.reading.test_reading_terminal import HOSTILE, SGR, screen
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import asking
from tests.tools.stores.reading_store import SpooledCapture

Ask = Callable[..., tuple[int, str, str]]
TIME = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{9}Z")


def _write(store: Path) -> None:
    began_ns = time.time_ns() - 600 * NS
    for at in range(3):
        name = "other" if at == 2 else "sweep"
        with SpooledCapture(store, f"s{at}", name=name, started_ns=began_ns + at * NS) as job:
            job.lines("begin", f"loss: {at}.5 of [s{at}]")
            job.stderr("CUDA out of memory", "\x1b[31mred\x1b[0m alert")
            note = {0: {"repeat": 4}}
            job.lines("[repeated 4 times: CUDA out of memory]", kind=Kind.NOTE, attrs=note)
            job.metadata({"epoch": at, "loss": 0.5})
            if at == 1:
                job.lines("only in s1: nan")
            job.end(at)


@pytest.fixture(params=["local", "loki"])
def ask(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Ask:
    """Return a function that runs a command line; each time of Loki's becomes the line's number."""
    store = tmp_path / "store"
    _write(store)
    if request.param == "loki":
        fake = FakeLoki()
        push_spool(fake, store / "spool")
        ask_loki = asking(fake, monkeypatch, capsys)

        def run_loki(*words: str) -> tuple[int, str, str]:
            logs = {
                job: [json.loads(line) for line in ask_loki("logs", job, "--json")[1].splitlines()]
                for job in ("s0", "s1", "s2")
            }
            times = {
                re.sub("[-:]", "", line["time"]): str(number)
                for lines in logs.values()
                for number, line in enumerate(lines, start=1)
            }
            code, out, err = ask_loki(*words)
            return code, TIME.sub(lambda match: times[match[0]], out), err

        return run_loki
    monkeypatch.setenv("LOGSHIPPER_STORE", str(store))

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return code, *capsys.readouterr()

    return run


def test_lines(ask: Ask) -> None:
    memory = "{0}:3:CUDA out of memory\n{0}:5:[repeated 4 times: CUDA out of memory]\n"
    newest_first = "".join(map(memory.format, ("other s2", "sweep s1", "sweep s0")))
    assert ask("grep", "out of memory") == (0, newest_first, "")
    assert ask("grep", "-i", "^cuda OUT", "s1") == (0, memory.format("sweep s1"), ""), "notes, too"
    assert ask("grep", "memory$", "s1") == (0, memory.format("sweep s1"), "")
    assert ask("grep", "repeated", "s1") == (1, "", ""), "the searched line is the quoted one"
    assert ask("grep", r"red\s+alert", "s0")[:2] == (0, "sweep s0:4:red alert\n"), "without colours"
    assert ask("grep", "no such text") == (1, "", "")


def test_matching_options(ask: Ask) -> None:
    assert ask("grep", "-F", "of [s0]")[1] == "sweep s0:2:loss: 0.5 of [s0]\n"
    assert ask("grep", "of [s0]", "s0")[1] == "", "a class of characters"
    assert ask("grep", "-w", "na", "s1")[:2] == (1, "")
    assert ask("grep", "-w", "nan", "s1")[1] == "sweep s1:7:only in s1: nan\n"
    assert (
        ask("grep", "-e", "begin", "-e", "^red", "s0")[1]
        == "sweep s0:1:begin\nsweep s0:4:red alert\n"
    )
    assert ask("grep", "-v", "memory|loss", "s0")[1] == "sweep s0:1:begin\nsweep s0:4:red alert\n"
    assert (
        ask("grep", "--stream", "stdout", "memory|begin", "s0", "-m", "1")[1]
        == "sweep s0:1:begin\n"
    )
    assert (
        ask("grep", "--stream", "stderr", "memory|begin", "s0")[1]
        == "sweep s0:3:CUDA out of memory\n"
    )
    assert ask("grep", "begin\nred", "s0", "-c")[1] == "sweep s0:2\n", "a pattern a line, as grep"


def test_forms(ask: Ask) -> None:
    assert ask("grep", "-c", "out of memory", "sweep*") == (0, "sweep s1:5\nsweep s0:5\n", "")
    assert ask("grep", "-c", "nan")[1] == "sweep s1:1\n"
    assert ask("grep", "-l", "nan")[1] == "sweep s1\n"
    assert ask("grep", "-L", "nan") == (0, "other s2\nsweep s0\n", "")
    assert ask("grep", "-L", "begin") == (1, "", "")
    assert ask("grep", "-o", "[a-z]+ of|loss", "s0")[1] == (
        "sweep s0:2:loss\nsweep s0:3:out of\nsweep s0:5:out of\nsweep s0:6:loss\n"
    )
    document = json.loads(ask("grep", "--json", "repeated|out", "s0")[1].splitlines()[1])
    expected = {"schema": "logshipper.grep/1", "job_id": "s0", "name": "sweep", "stream": "stdout",
                "text": "[repeated 4 times: CUDA out of memory]", "printed": 4, "match": True}  # fmt: skip
    assert expected.items() <= document.items()
    assert document["time_ns"] > 0
    assert json.loads(ask("grep", "--json", "-c", "out", "s0")[1])["count"] == 5


def test_lines_around(ask: Ask) -> None:
    assert (
        ask("grep", "-A1", "begin", "s0")[1] == "sweep s0:1:begin\nsweep s0-2-loss: 0.5 of [s0]\n"
    )
    assert ask("grep", "-B1", "begin|alert", "s0")[1].replace("--\n", "") == (
        "sweep s0:1:begin\nsweep s0-3-CUDA out of memory\nsweep s0:4:red alert\n"
    )
    lines = [line.partition("s1")[2] for line in ask("grep", "-C1", "out", "s1")[1].splitlines()]
    assert [line[:3] for line in lines] == ["-2-", ":3:", "-4-", ":5:", "-6-"]


def test_a_mark_between_lines_that_are_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path)
    main(["grep", "--store", str(tmp_path), "-A1", "begin|alert", "s0"])
    assert [line[9:11] for line in capsys.readouterr().out.splitlines()] == [
        "1:",
        "2-",
        "",
        "4:",
        "5-",
    ]


def test_selection(ask: Ask) -> None:
    assert ask("grep", "-l", "begin", "--state", "failed")[1] == "other s2\nsweep s1\n"
    assert ask("grep", "-l", "begin", "--name", "swe")[1] == "sweep s1\nsweep s0\n"
    assert ask("grep", "-l", "begin", "--filter", "epoch>0")[1] == "other s2\nsweep s1\n"
    assert ask("grep", "-l", "begin", "--since", "1h")[1] == "other s2\nsweep s1\nsweep s0\n"
    assert ask("grep", "-l", "begin", "--since", "1m")[1] == ""
    code, out, err = ask("grep", "-l", "begin", "s0", "nobody")
    assert (code, out) == (2, "sweep s0\n")
    assert "'nobody'" in err


def test_errors(ask: Ask) -> None:
    code, out, err = ask("grep", "(?<=a)b")
    assert (code, out) == (2, "")
    assert "'(?<=a)b' isn't a regular expression" in err
    assert "-F" in err
    assert ask("grep")[0] == 2
    assert ask("grep", "-e", "a)(b")[0] == 2


def test_a_damaged_job_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    _write(store)
    monkeypatch.setenv("LOGSHIPPER_STORE", str(store))
    assert main(["grep", "-l", "begin"]) == 0
    (store / "jobs" / "s1.db").write_bytes(b"damaged" * 1000)
    capsys.readouterr()
    assert main(["grep", "-l", "begin"]) == 2
    out, err = capsys.readouterr()
    assert out == "other s2\nsweep s0\n"
    assert "s1.db: is damaged" in err


def test_a_terminal_gets_headings_and_colours(tmp_path: Path) -> None:
    _write(tmp_path / "store")
    words = ("grep", "-A1", "begin|hostile", "s0", "s1")
    text = screen(tmp_path / "store", *words)
    assert SGR.sub("", text) == (
        "sweep s1\n1:begin\n2-loss: 1.5 of [s1]\n\nsweep s0\n1:begin\n2-loss: 0.5 of [s0]\n"
    )
    assert "\x1b[1;31mbegin\x1b[0m" in text
    assert (
        screen(tmp_path / "store", "grep", "alert", "s0", NO_COLOR="1") == "sweep s0\n4:red alert\n"
    )


def test_lines_cannot_command_a_terminal(tmp_path: Path) -> None:
    with SpooledCapture(tmp_path / "store", "h0st", name=HOSTILE) as job:
        job.lines(f"{HOSTILE} found")
    text = screen(tmp_path / "store", "grep", "found")
    assert all(character.isprintable() or character == "\n" for character in SGR.sub("", text))
