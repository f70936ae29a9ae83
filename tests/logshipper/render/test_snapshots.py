"""`snapshots`: states of a running bar as lines of the log, and its live status, up to a reader's
terminal."""

import json
import re
import sys
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pexpect
import pyte
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.spool.segment import Kind, Stream
from tests.observe.commands.reading.test_reading_terminal import start
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.stress.model_settings import examples
from tests.tools.waiting import scaled

OUT, ERR = Stream.STDOUT, Stream.STDERR
COUNTS = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")


def _texts(classifier: Classifier, *kinds: Kind) -> list[bytes]:
    return [
        item.text[:-1]
        for item in classifier.take()
        if isinstance(item, LoggedLines) and item.kind in kinds
    ]


def test_a_running_bar_is_logged_now_and_then() -> None:
    classifier = Classifier("enabled", snapshot_secs=30.0)
    classifier.feed(OUT, b"\r10%|#  |", 100.0)
    classifier.tick(100.5)
    classifier.tick(130.0)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [], "not yet"
    classifier.feed(OUT, b"\r20%|## |", 130.0)
    classifier.tick(130.5)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [b"[so far] 20%|## |"]
    classifier.feed(OUT, b"\r30%|###|", 131.0)
    classifier.tick(160.0)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [], "once in that time"
    classifier.tick(160.5)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [b"[so far] 30%|###|"]
    classifier.tick(200.0)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [], "it hasn't changed"
    classifier.end(OUT, 201.0)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [b"30%|###|"], (
        "the last state is logged all the same"
    )
    ledger = classifier.ledger()
    assert (ledger["stdout"]["read"], ledger["stdout"]["stored"], ledger["notes"]) == (1, 1, 2)


def test_snapshots_are_off_by_default() -> None:
    classifier = Classifier("enabled")
    for second in range(0, 200, 5):
        classifier.feed(OUT, b"\r%d%%" % second, float(second))
        classifier.tick(second + 1.0)
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == []


def test_a_snapshot_is_no_repeat_and_ends_one() -> None:
    """R30: a note of repeats stands after its line."""
    classifier = Classifier("enabled", snapshot_secs=30.0)
    classifier.feed(OUT, b"same\nsame\nsame\n10%", 100.0)
    classifier.tick(101.0)
    classifier.tick(132.0)
    classifier.feed(OUT, b"\rsame\n", 133.0)
    classifier.end(OUT, 134.0)
    notes = [b"[repeated 2 times: same]", b"[so far] 10%"]
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [b"same", *notes, b"same"]


def test_no_snapshot_of_what_is_not_logged() -> None:
    """R11: this includes text shown before the switch."""
    classifier = Classifier("disabled", snapshot_secs=10.0)
    classifier.feed(OUT, b"secret 10%", 100.0)
    classifier.tick(101.0)
    classifier.tick(120.0)
    classifier.feed(OUT, b'\n/LOGCOMMAND {"mode":"enabled"}\npublic 1%', 121.0)
    classifier.feed(ERR, b"secret", 121.0)
    for second in range(122, 150):
        classifier.tick(float(second))
    assert _texts(classifier, Kind.NOTE, Kind.LOG) == [b"[so far] public 1%"]


def test_tokens_are_masked() -> None:
    classifier = Classifier("enabled", snapshot_secs=10.0)
    classifier.feed(OUT, b'/LOGCOMMAND {"stop":"long-secret"}\nlong-secret 1%', 100.0)
    classifier.tick(101.0)
    classifier.tick(120.0)
    assert _texts(classifier, Kind.NOTE) == [b"[so far] *** 1%"]


_steps = st.lists(
    st.tuples(
        st.sampled_from([OUT, ERR]),
        st.sampled_from(
            [
                b"\r 10%",
                b"\r 20%",
                b"\n",
                b"line %d\n",
                b'{"x": 1}\n',
                b"\x1b[A",
                b"\x1b[?25l",
                b"  ",
            ]
        ),
        st.sampled_from([0.0, 1.0, 6.0, 11.0, 40.0]),
    ),
    max_size=30,
)


@given(_steps)
@settings(max_examples=examples(60), deadline=None)
def test_lines_and_account_are_as_without(steps: list[tuple[Stream, bytes, float]]) -> None:
    results = []
    for secs in (0.0, 10.0):
        classifier = Classifier("enabled", snapshot_secs=secs)
        now = 100.0
        notes = 0
        lines: list[bytes] = []
        for number, (stream, data, later) in enumerate(steps):
            classifier.feed(stream, data % number if b"%d" in data else data, now)
            now += later
            classifier.tick(now)
            ledger = classifier.ledger()
            for name in ("stdout", "stderr"):
                assert ledger[name]["read"] == sum(ledger[name][count] for count in COUNTS)
        for stream in (OUT, ERR):
            classifier.end(stream, now)
        for item in classifier.take():
            if isinstance(item, LoggedLines):
                notes += item.lines * (item.kind is Kind.NOTE)
                lines += [item.text] if item.kind in (Kind.LOG, Kind.METADATA) else []
        ledger = classifier.ledger()
        assert ledger["notes"] == notes
        results.append(
            (b"".join(lines), {name: ledger[name]["read"] for name in ("stdout", "stderr")})
        )
    assert sorted(set(results[0][0].split(b"\n"))) == sorted(set(results[1][0].split(b"\n")))
    assert results[0][1] == results[1][1]


def test_status_is_withdrawn_when_the_bar_is_over() -> None:
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"\r 10%|#  |", 100.0)
    classifier.tick(100.5)
    classifier.feed(OUT, b"\r100%|###|\n", 101.0)
    due = classifier.next_tick()
    assert due is not None
    assert due <= 101.5
    classifier.tick(102.5)
    assert _texts(classifier, Kind.STATUS) == [b" 10%|#  |", b""]
    classifier.feed(OUT, b"\r  5%|   |", 103.0)
    classifier.tick(104.0)
    assert _texts(classifier, Kind.STATUS) == [], "the next one has to wait: at most one in 10 s"
    classifier.tick(110.6)
    assert _texts(classifier, Kind.STATUS) == [b"  5%|   |"]


# ---- real bars

WAIT = f"""
import pathlib, sys, time
def await_word(word):
    deadline = time.monotonic() + {scaled(60)}
    while not (pathlib.Path(sys.argv[1]) / word).exists():
        assert time.monotonic() < deadline, word
        time.sleep(0.01)
"""
WORDS = ("line", "over", "end")
BARS = {
    "tqdm": """
from tqdm import tqdm
print("begin", flush=True)
bar = tqdm(total=10, desc="epoch 1", ncols=150, mininterval=0, file=sys.stdout)
bar.update(5)
await_word("line")
tqdm.write("a line above")
await_word("over")
bar.update(5)
bar.close()
await_word("end")
""",
    "rich": """
from rich.console import Console
from rich.progress import Progress
console = Console(force_terminal=True, width=150)
console.print("begin")
with Progress(console=console, auto_refresh=False) as progress:
    task = progress.add_task("epoch 1", total=10)
    progress.update(task, advance=5, refresh=True)
    await_word("line")
    progress.console.print("a line above")
    await_word("over")
    progress.update(task, advance=5, refresh=True)
for number in range(60):
    print("epoch 1 was done", number)
sys.stdout.flush()
await_word("end")
""",
}


class Bar:
    """A job that draws a bar, in a store of its own."""

    def __init__(self, folder: Path, name: str, stack: ExitStack) -> None:
        folder.mkdir()
        self.home = Home(folder)
        self._words = folder / "words"
        self._words.mkdir()
        code = WAIT + BARS[name]
        started = self.home.start(
            "run", "--name", "bar", "--", sys.executable, "-c", code, str(self._words)
        )
        self.job = stack.enter_context(started)
        stack.callback(self.let_go, *WORDS)

    def let_go(self, *words: str) -> None:
        for word in words:
            (self._words / word).touch()

    def status(self) -> str:
        process = self.home.call("show", "bar", "--json")
        status = json.loads(process.stdout)["live_status"] if process.returncode == 0 else {}
        return str(status["stdout"]["text"]) if status else ""

    def follow(self) -> None:
        """Follow the job on a terminal."""
        self.reader = start(self.home.store, "logs", "bar", "--follow", columns=60, rows=30)
        self._terminal_output = self.reader.logfile_read = StringIO()

    def screen_lines(self) -> list[str]:
        """Return the terminal's lines, including those scrolled off, without messages about
        following."""
        terminal = pyte.HistoryScreen(60, 30, history=1000)
        text = re.sub(r"logshipper: following [^\r\n]*\r?\n", "", self._terminal_output.getvalue())
        pyte.Stream(terminal).feed(text)
        above = ["".join(row[x].data for x in range(60)) for row in terminal.history.top]
        rows = [row.rstrip() for row in [*above, *terminal.display]]
        while rows and not rows[-1]:
            rows.pop()
        return rows


def test_real_bars_live(tmp_path: Path) -> None:
    """Both bars run at once, because a status comes at most once in 10 s."""
    with ExitStack() as stack:
        bars = [Bar(tmp_path / name, name, stack) for name in BARS]
        for bar in bars:
            wait_until(lambda bar=bar: "50%" in bar.status(), "the bar's status")  # type: ignore[misc]
            bar.follow()
            bar.reader.expect_exact("50%")
            row = bar.screen_lines()[-1]
            assert row.startswith("epoch 1")
            assert row.endswith("…") or len(row) < 60, "one row, or it couldn't be cleared any more"
            bar.let_go("line")
            bar.reader.expect_exact("a line above")
            bar.reader.expect_exact("50%")
            # the line may first appear as the bar's state; then the bar appears again below it
            while bar.screen_lines()[:2] != ["begin", "a line above"]:
                bar.reader.expect_exact("50%")
            assert len(bar.screen_lines()) == 3
            bar.let_go("over")
        for bar in bars:
            wait_until(lambda bar=bar: not bar.status(), "the status withdrawn")  # type: ignore[misc]
            bar.let_go("end")
            bar.reader.expect_exact("has ended: COMPLETED")
            bar.reader.expect(pexpect.EOF)
            bar.reader.close()
            bar.job.communicate(timeout=scaled(60))
            rows = bar.screen_lines()
            assert rows[:2] == ["begin", "a line above"]
            assert not [row for row in rows if "50%" in row], (
                "no running bar is left in what has scrolled by"
            )
            lines = bar.home.logs("bar")
            # one, or more if the program paused for long between two drawings of it
            assert sum("100%" in row for row in rows) == sum("100%" in line for line in lines) > 0
            assert lines[:2] == ["begin", "a line above"]
