"""Reading commands on a terminal: tables, colours, widths, live following, prompts; and hostile
text."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest

from logshipper.spool.segment import Kind, Stream
from logshipper_observe.base.output import cells_wide
from tests.tools.captures.forked_commands import on_a_terminal
from tests.tools.sources import SOURCES
from tests.tools.stores.reading_store import SpooledCapture, training
from tests.tools.waiting import scaled

DEADLINE_SECS = scaled(30.0)
SGR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\x08e\x00f\u2028g"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def start(
    store: Path, *words: str, columns: int = 80, rows: int = 40, **environment: str
) -> "pexpect.spawn[str]":
    options: dict[str, Any] = {
        "encoding": "utf-8",
        "dimensions": (rows, columns),
        "timeout": DEADLINE_SECS,
    }  # Any: pexpect
    child = pexpect.spawn(
        sys.executable,
        ["-m", "logshipper", *words],
        env=environment_of(store, **environment),
        **options,
    )
    child.delaybeforesend = None
    return child


def environment_of(store: Path, **environment: str) -> dict[str, str]:
    """Return the environment of a user at a terminal."""
    base = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    base |= {
        "TERM": "xterm-256color",
        "LOGSHIPPER_STORE": str(store),
        "PYTHONPATH": SOURCES,
        "PYTHONUTF8": "1",
    }
    return {**base, **environment}


def screen(
    store: Path, *words: str, code: int = 0, columns: int = 80, rows: int = 40, **environment: str
) -> str:
    """Return everything that a command leaves on the screen, with LF at line ends."""
    output, exit_code = on_a_terminal(words, environment_of(store, **environment), rows, columns)
    text = output.decode().replace("\r\n", "\n")
    text = re.sub(r"[^\n]*\r\x1b\[K", "", text)  # a progress bar appears on a busy machine
    assert exit_code == code, text
    return text


COMMANDS = [["ls"], ["show", "last"], ["metadata", "last"], ["plot", "last"], ["info", "last"],
            ["metadata", "last", "--summary"], ["metadata", "last", "--by", "epoch"]]  # fmt: skip


def test_no_number_is_cut_off_where_the_terminal_is_narrow(store: Path) -> None:
    with SpooledCapture(store, "narrow", name="train.py") as job:
        job.metadata({"val/acc": 0.25}, {"val/acc": 0.75})
        job.end()
    text = SGR.sub("", screen(store, "metadata", "last", "--summary", columns=32))
    assert [line.split() for line in text.splitlines()[:6]] == [
        ["key", "val/acc"], ["last", "0.75"], ["min", "0.25"], ["max", "0.75"], ["mean", "0.5"], ["std", "0.25"],
    ]  # fmt: skip
    listing = SGR.sub("", screen(store, "ls", columns=36)).splitlines()
    assert listing[2].split() == ["narrow", "COMPLETED", "0", "train.py"]
    assert all(cells_wide(line) <= 36 for line in listing)


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_answers_fit_the_terminal(store: Path, words: list[str], columns: int) -> None:
    with SpooledCapture(store, name="a_rather_long_name_for_a_training_script.py") as job:
        for epoch in range(1, 9):
            values = {
                "note": "a long sentence " * 5,
                "nested": {"a": [epoch] * 30},
                "time": 16520,
                "size": "big",
            }
            job.metadata({"epoch": epoch, "loss": 1 / epoch, **values, "lr": 0.1**epoch})
        job.event(
            "json_hint",
            message="A line looks like metadata but holds NaN, which JSON doesn't know. " * 2,
        )
        job.end(1)
    text = screen(store, *words, columns=columns)
    assert max(cells_wide(SGR.sub("", line)) for line in text.splitlines()) <= columns
    assert "\x1b[" in text
    assert "─" in text or words[0] == "plot"


@pytest.mark.parametrize(
    "words", [*COMMANDS, ["logs", "last", "--times", "--grep", "lr"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"]
)
def test_no_colours_where_they_are_not_wanted(
    store: Path, words: list[str], environment: dict[str, str]
) -> None:
    training(store)
    assert "\x1b" not in screen(store, *words, **dict[str, Any](environment))


def test_metadata_says_what_it_leaves_out(store: Path) -> None:
    """R22, R23: values are complete, newest first; a note names the keys left out, never X."""
    with SpooledCapture(store) as job:
        for step in range(60):
            job.metadata({**{f"some_key_{at}": step for at in range(20)}, "step": step})
        job.end()
    text = SGR.sub("", screen(store, "metadata", "last", columns=80))
    header = text.splitlines()[0]
    assert header.split()[:2] == ["printed", "at"]
    assert "some_key_0" in header
    assert "keys left out, the terminal is too narrow: some_key_5" in text
    assert "The newest 50 of 60 records: --all shows every one" in text
    assert text.splitlines()[2].split()[1] == "59"
    assert len(screen(store, "metadata", "last", "--all").splitlines()) > 60
    selection = SGR.sub(
        "", screen(store, "metadata", "last", "--keys", "some_key_19,step", "--limit", "3")
    )
    assert selection.splitlines()[0].split() == ["printed", "at", "some_key_19", "step"]


def test_columns_that_do_not_fit_are_named(store: Path) -> None:
    with SpooledCapture(store, "wide") as job:
        job.metadata({f"some_key_{at}": at / 7 for at in range(20)})
        job.end()
    text = SGR.sub("", screen(store, "ls", "--columns", "id,*", columns=80))
    header, _, row, *note = text.splitlines()
    assert header.split() == ["id", *(f"some_key_{at}" for at in (0, 1, 10, 11, 12, 13))]
    assert row.split()[:3] == ["wide", "0", "0.142857"], "no number is folded"
    assert " ".join(note).startswith(
        "14 columns left out, the terminal is too narrow: some_key_14, some_key_15, "
    )


def test_events_of_many_words_get_the_room(store: Path) -> None:
    """On a narrow terminal the sentence includes the states."""
    words = "A line looks like metadata but holds NaN or Infinity, which JSON doesn't know."
    with SpooledCapture(store, "ev", name="train.py") as job:
        job.event("json_hint", message=words)
        job.end(1)
    text = SGR.sub("", screen(store, "events", "ev", columns=80))
    assert text.splitlines()[0].split() == ["time", "id", "event", "what"]
    assert "train.py: RUNNING -> FAILED, exit code 1" in text
    assert len(text.splitlines()) <= 8
    wide = SGR.sub("", screen(store, "events", "ev", columns=200))
    assert wide.splitlines()[0].split() == ["time", "id", "event", "from", "to", "name"]
    assert words in wide


def test_one_option_that_differs(store: Path) -> None:
    for job_id, lr in (("d1", 0.1), ("d2", 0.2)):
        with SpooledCapture(store, job_id) as job:
            job.metadata({"lr": lr})
            job.end()
    assert re.search(
        r"^1 of \d+ options differs$", SGR.sub("", screen(store, "diff", "d1", "d2")), re.MULTILINE
    )


def test_long_values_are_folded_not_cut(store: Path) -> None:
    value = " ".join(f"word{number}" for number in range(30))
    with SpooledCapture(store) as job:
        job.metadata({"epoch": 1, "text": value})
        job.end()
    text = SGR.sub("", screen(store, "metadata", "last"))
    assert all(f"word{number}" in text for number in range(30))


def test_hostile_text_never_reaches_the_terminal(store: Path) -> None:
    """Anyone can write anything into segments, and a terminal obeys control characters."""
    with SpooledCapture(store, name=HOSTILE) as job:
        job.lines(HOSTILE)
        job.stderr(HOSTILE, kind=Kind.NOTE)
        json_name = "".join(f"\\u{ord(char):04x}" for char in HOSTILE)
        for epoch in (1, 2):
            job.metadata(f'{{"epoch": {epoch}, "{json_name}": {epoch}, "s": "{json_name}"}}')
        job.event("odd", message=HOSTILE)
        job.status(HOSTILE)
        job.beat()
        for words in (
            ["ls"],
            ["show", "last"],
            ["logs", "last"],
            ["metadata", "last"],
            ["plot", "last"],
        ):
            text = SGR.sub("", screen(store, *words))
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), words
    assert "a�]0;title�b" in SGR.sub("", screen(store, "logs", "last"))


def test_logs_in_colours(store: Path) -> None:
    training(store)
    text = screen(store, "logs", "last", "--grep", "lr|COMMAND")
    assert "\x1b[31mUserWarning: \x1b[1;7mlr\x1b[0m\x1b[31m is high\x1b[0m\n" in text
    assert '\x1b[2m/LOG\x1b[1;7mCOMMAND\x1b[0m\x1b[2m {"mode":"metadata"}\x1b[0m\n' in text
    assert screen(store, "logs", "last", "--tail", "1", "--times").startswith("\x1b[2m20")


def test_follow_shows_a_running_bar_on_the_last_row(store: Path) -> None:
    with SpooledCapture(store) as job:
        job.lines("first")
        job.status("epoch 1:  10%|█         | " + "x" * 200)
        job.beat()
        child = start(store, "logs", "last", "--follow", columns=60)
        child.expect_exact("first\r\n")
        child.expect(r"\x1b\[2m(epoch 1:  10%\|█\| x+…)\x1b\[0m")
        assert isinstance(child.match, re.Match)
        assert cells_wide(child.match[1]) < 60, "a bar that wraps couldn't be cleared"
        job.status("epoch 1:  20%|██        |")
        child.expect_exact("\r\x1b[K\x1b[2mepoch 1:  20%|██        |\x1b[0m")
        job.lines("second")
        child.expect_exact("\r\x1b[Ksecond\r\n")
        child.expect_exact("epoch 1:  20%")
        job.live(f"epoch 1:  30%|{'█' * 30}{' ' * 70}| 30/100 [00:02<00:08, 9.90it/s]")
        child.expect(r"\x1b\[2m(epoch 1:  30%\|█+ +\| 30/100 \[00:02<00:08, 9.90it/s\])\x1b\[0m")
        assert cells_wide(child.match[1]) == 59
        job.status("")
        child.expect_exact("\r\x1b[K")
        job.end(3)
        child.expect_exact("train.py (k3f9x2) has ended: FAILED, exit code 3\r\n")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0


def test_follow_shows_each_of_several_bars_on_a_row(store: Path) -> None:
    """`logs --follow` also clears all of them."""
    with SpooledCapture(store) as job:
        job.status("epoch 1/3\nbatch 10/40")
        job.beat()
        child = start(store, "logs", "last", "--follow")
        child.expect_exact("\x1b[2mepoch 1/3\x1b[0m\r\n\x1b[2mbatch 10/40\x1b[0m")
        job.status("epoch 1/3")
        child.expect_exact("\r\x1b[K\x1b[A\x1b[K\x1b[2mepoch 1/3\x1b[0m")
        job.status("")
        child.expect_exact("\r\x1b[K")
        job.end()
        child.expect(pexpect.EOF)
        child.close()


def test_show_has_a_row_for_each_of_several_bars(store: Path) -> None:
    with SpooledCapture(store) as job:
        job.live("epoch 1/3\nbatch 10/40")
        job.beat()
        rows = SGR.sub("", screen(store, "show", "last")).splitlines()
        (first,) = (at for at, row in enumerate(rows) if row.startswith("Now on stderr  epoch 1/3"))
        assert rows[first + 1].strip() == "batch 10/40"


def test_show_has_a_running_bar_in_one_row(store: Path) -> None:
    """R29's arrow: `show` cuts the bar's blocks, but keeps its rate."""
    with SpooledCapture(store) as job:
        job.live(f" 30%|{'█' * 30}{' ' * 70}| 30/100 [00:02<00:08, 9.90it/s]")
        job.beat()
        rows = SGR.sub("", screen(store, "show", "last", columns=80)).splitlines()
        (row,) = (row for row in rows if row.startswith("Now on stderr"))
        assert " 30%|███" in row
        assert "| 30/100 [00:02<00:08, 9.90it/s]  (" in row
        assert "█" * 30 + " " * 70 + "| 30/100" in screen(store, "show", "last", columns=200)


def test_ctrl_c_leaves_a_followed_job(store: Path) -> None:
    with SpooledCapture(store) as job:
        job.lines("first")
        job.status("bar")
        job.beat()
        child = start(store, "logs", "last", "-f")
        child.expect_exact("bar")
        child.sendintr()
        child.expect(pexpect.EOF)
        child.close()
        assert "Traceback" not in str(child.before)
        assert str(child.before).endswith("\r\x1b[K^C\r\n") or "\r\x1b[K" in str(child.before), (
            "the bar is cleared"
        )
        assert child.exitstatus == 128 + signal.SIGINT


def test_follow_says_when_a_job_is_silent(store: Path) -> None:
    with SpooledCapture(store) as job:  # its last sign of life is a minute old
        job.lines("first", stream=Stream.STDERR)
        child = start(store, "logs", "last", "-f")
        child.expect_exact("the job gives no sign of life")
        job.beat()
        child.expect_exact("the job is back")
        job.end()
        child.expect_exact("has ended: COMPLETED, exit code 0")
        child.expect(pexpect.EOF)
        child.close()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("no", 1)])
def test_rm_asks(store: Path, answer: str, code: int) -> None:
    training(store)
    child = start(store, "rm", "last")
    child.expect_exact("train.py (k3f9x2), COMPLETED, started")
    child.expect_exact("8 lines, 5 metadata records")
    child.expect_exact("Remove it for good? [y/N] ")
    child.sendline(answer)
    child.expect_exact("Removed train.py (k3f9x2)" if code == 0 else "nothing was removed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == code
    listing = SGR.sub("", screen(store, "ls"))
    assert ("k3f9x2" in listing) == bool(code)


def test_an_empty_store_is_friendly(store: Path) -> None:
    text = " ".join(SGR.sub("", screen(store, "ls")).split())
    assert "yet; begin with: logshipper run -- COMMAND" in text


def _drawn_bar(columns: int) -> str:
    """Return the terminal output of a half-full bar and of the text printed after it. The script
    sets the bar's delay to 0."""
    script = (
        "import sys; from logshipper_ingest.console import progress_bar;"
        "from logshipper_observe.base.words import size; progress_bar._PATIENCE_SECS = 0;"
        "bar = progress_bar.Bar('Reading the spool', size);"
        "bar(5_000_000, 10_000_000); bar.clear(); print('done', file=sys.stderr)"
    )
    options: dict[str, Any] = {"encoding": "utf-8", "timeout": DEADLINE_SECS}  # Any: pexpect
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": SOURCES, "PYTHONUTF8": "1"}
    child = pexpect.spawn(
        sys.executable, ["-c", script], env=environment, dimensions=(5, columns), **options
    )
    text = str(child.read())
    child.close()
    assert child.exitstatus == 0
    return text


def test_a_long_ingesting_shows_a_bar() -> None:
    assert "━━━━━━━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄  50%  5.00 MB of 10.0 MB\r\x1b[Kdone" in _drawn_bar(columns=80)


@pytest.mark.parametrize("columns", [60, 50, 30])
def test_nothing_is_left_of_a_bar_on_a_narrow_terminal(columns: int) -> None:
    terminal = pyte.Screen(columns, 5)
    pyte.Stream(terminal).feed(_drawn_bar(columns))
    assert [row.rstrip() for row in terminal.display] == ["done", "", "", "", ""]
