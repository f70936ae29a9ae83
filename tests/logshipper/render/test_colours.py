"""`colors: keep` from the job's bytes to the reader's terminal: only colours differ from
`strip`."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.config import Config
from logshipper.render.colours import stripped
from logshipper.sidecar import slurm_sidecar
from logshipper.spool.segment import Json, Kind, Stream
from logshipper.start import batch_output
from logshipper.start.cli import main
from logshipper_ingest.loki.lines import begins_alike, clean
from logshipper_ingest.shipping.entries import split
from logshipper_observe.base.words import safe_coloured
from tests.observe.commands.reading.test_reading_terminal import screen
from tests.tools.captures.captured_runs import Home
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.stress.model_settings import examples

OUT, ERR = Stream.STDOUT, Stream.STDERR
RED, GREEN, OFF = "\x1b[31m", "\x1b[32m", "\x1b[0m"
STOP = b'/LOGCOMMAND {"stop":"long-secret-token"}\n'

Ask = Callable[..., str]


def _items(
    data: bytes, *, keep: bool = True, mode: str = "enabled", piece_size: int = 1 << 20
) -> list[LoggedLines | LoggedEvent]:
    classifier = Classifier(mode, keep_colours=keep)
    for at in range(0, len(data), piece_size):
        classifier.feed(OUT, data[at : at + piece_size], 1.0)
    classifier.end(OUT, 2.0)
    return classifier.take()


def _logged(data: str, **options: bool | str) -> list[tuple[Kind, str]]:
    return [
        (item.kind, line)
        for item in _items(data.encode(), **options)  # type: ignore[arg-type]  # one of each
        if isinstance(item, LoggedLines)
        for line in item.text.decode().split("\n")[:-1]
    ]


def test_text_keeps_its_colours() -> None:
    assert _logged(f"a {RED}b{OFF}\n{GREEN}c\nd{OFF}  \n") == [
        (Kind.LOG, f"a {RED}b{OFF}"),
        (Kind.LOG, f"{GREEN}c{OFF}"),
        (Kind.LOG, f"{GREEN}d{OFF}"),
    ]


def test_blanks_at_the_end_go_whatever_their_colour() -> None:
    assert _logged(f"{RED}a   {OFF}  \x1b[44m   {OFF}\n\x1b[44m   {OFF}\n\nb\n") == [
        (Kind.LOG, f"{RED}a{OFF}"),
        (Kind.LOG, ""),
        (Kind.LOG, "b"),
    ]


def test_coloured_json_is_metadata_and_plain() -> None:
    """R18-R20: the same as with `strip`."""
    assert _logged(f'{RED}{{"epoch": {GREEN}1}}{OFF}\n') == [(Kind.METADATA, '{"epoch": 1}')]
    assert _logged(f'{RED}{{"epoch": 1}}{OFF}\n{RED}x{OFF}\n', mode="metadata") == [
        (Kind.METADATA, '{"epoch": 1}')
    ]
    assert _logged(f'{RED} {{"epoch": 1}}{OFF}\n') == [(Kind.LOG, f'{RED} {{"epoch": 1}}{OFF}')]


@pytest.mark.parametrize("piece_size", [1, 5, 1000])
def test_a_coloured_command_is_obeyed(piece_size: int) -> None:
    data = f'a\n{RED}/LOG{GREEN}COMMAND {{"mode":"disabled"}}{OFF}\n{RED}secret{OFF}\n'.encode()
    assert b"secret" not in b"".join(
        item.text for item in _items(data, piece_size=piece_size) if isinstance(item, LoggedLines)
    )
    kinds = [
        item.kind for item in _items(data, piece_size=piece_size) if isinstance(item, LoggedLines)
    ]
    assert kinds == [Kind.LOG, Kind.COMMAND]


def test_repeats_differ_in_text_not_in_colour() -> None:
    """R30: the log keeps the colours of the first line."""
    assert _logged(f"{RED}same{OFF}\nsame\n{GREEN}same{OFF}\nother\n") == [
        (Kind.LOG, f"{RED}same{OFF}"),
        (Kind.NOTE, "[repeated 2 times: same]"),
        (Kind.LOG, "other"),
    ]


def test_a_token_is_masked_though_colours_stand_in_it() -> None:
    data = STOP + f"{RED}x{OFF}\nlong-{RED}secret-token{OFF} here\n".encode()
    texts = [
        item.text
        for item in _items(data)
        if isinstance(item, LoggedLines) and item.kind is Kind.LOG
    ]
    assert b"".join(texts) == f"{RED}x{OFF}\n*** here\n".encode()


_WORDS = (
    *("a", " ", "  ", "\n", "\n", "b\n", "b\n", "\t", "\r", "\r 10%", "\x1b[A", "\x1b[?1049h"),
    *(RED, GREEN, OFF, "\x1b[44m", "{", '{"x": 1}', '{"x": 1}\n', '{"x": NaN}\n', "{'x': 1}\n"),
    *(
        '/LOGCOMMAND {"mode":"metadata"}\n',
        '/LOGCOMMAND {"mode":"enabled"}\n',
        '/LOGCOMMAND {"mode":"disabled"}\n',
    ),
    *("/LOGCOMMAND x\n", STOP.decode(), "long-secret-token"),
)


@given(st.lists(st.sampled_from(_WORDS), max_size=30), st.integers(1, 20))
@settings(max_examples=examples(100), deadline=None)
def test_all_else_is_as_with_strip(words: list[str], piece_size: int) -> None:
    """Kinds, order, attributes, events and the account are the same. So are the texts without their
    colours."""
    data = "".join(words).encode()
    accounts, entries, events = [], [], []
    for keep in (False, True):
        classifier = Classifier("enabled", keep_colours=keep)
        for at in range(0, len(data), piece_size):
            classifier.feed(OUT, data[at : at + piece_size], 1.0)
        classifier.end(OUT, 2.0)
        accounts.append(classifier.ledger())
        items = classifier.take()
        entries.append(
            [entry for item in items if isinstance(item, LoggedLines) for entry in _entries(item)]
        )
        events.append([item for item in items if isinstance(item, LoggedEvent)])
    without = [
        (kind, attrs, stripped(line) if kind is Kind.LOG else line)
        for kind, attrs, line in entries[1]
    ]
    assert (entries[0], events[0], accounts[0]) == (without, events[1], accounts[1])


def _entries(lines: LoggedLines) -> list[tuple[Kind, Json | None, bytes]]:
    return [(lines.kind, lines.attrs, line) for line in lines.text.split(b"\n")[:-1]]


# ---- through the store


def test_run_keeps_colours(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.opt_in(b"colors: keep\n")
    script = r"""printf 'a \033[1;31mred\033[0m word\n\033]0;title\007{"x": 1}\n'"""
    assert home.run("sh", "-c", script).returncode == 0
    assert home.logs() == ["a red word", '{"x": 1}']
    assert home.logs("last", "--color=always") == ["a \x1b[1;31mred\x1b[0m word", '{"x": 1}']
    assert home.logs("last", "--grep", "a red w") == ["a red word"]
    line, record = (json.loads(text) for text in home.logs("last", "--json"))
    assert (line["text"], line["ansi"]) == ("a red word", "a \x1b[1;31mred\x1b[0m word")
    assert record["kind"] == "metadata"
    assert "ansi" not in record
    job = home.show()
    account = job["ledger"]["stdout"]
    assert account["read"] == account["stored"] == 2


def test_whoever_starts_a_sidecar_reads_the_keys(tmp_path: Path) -> None:
    content = b"colors: keep\nsnapshots: 5m\ntty: false\n"
    settings = Config(tty=False, colors="keep", snapshots=300.0), ()
    words = slurm_sidecar.SidecarArguments._make([0] * len(slurm_sidecar.SidecarArguments._fields))
    assert slurm_sidecar.configure(words, content) == settings
    file = tmp_path / "file"
    file.write_bytes(content)
    with file.open() as reader:
        assert batch_output.configure(reader.fileno()) == settings


# ---- reading


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*words: str) -> str:
        assert main(["logs", "last", "--store", str(tmp_path / "store"), *words]) == 0
        return capsys.readouterr().out

    return run


def test_colours_on_a_terminal_and_nowhere_else(tmp_path: Path, ask: Ask) -> None:
    store = tmp_path / "store"
    with SpooledCapture(store) as job:
        job.lines(f"a {RED}red{OFF} b")
        job.stderr(f"c \x1b[1mbold{OFF} \x1b[32mgreen\x1b[0;1mbold{OFF}")
        job.end()
    plain = "a red b\nc bold greenbold\n"
    coloured = f"a {RED}red{OFF} b\n\x1b[31mc \x1b[1mbold\x1b[0;31m \x1b[32mgreen\x1b[0;31;1mbold\x1b[0;31m{OFF}\n"
    assert ask() == ask("--color=never") == plain
    assert ask("--color=always") == screen(store, "logs", "last") == coloured
    assert screen(store, "logs", "last", "--color=never") == plain
    assert screen(store, "logs", "last", NO_COLOR="1") == plain
    assert screen(store, "logs", "last", "--color=always", NO_COLOR="1") == coloured
    assert screen(store, "logs", "last", "--grep", "d b") == "a re\x1b[1;7md b\x1b[0m\n"


HOSTILE = [
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x1b[1;31",
    "\x1b[31;m\x1b[6n",
    "\x1b[>4;2m",
    "\x1b[?5h",
    "\x1b[31\x1b[32m",
    "\x1b\x1b[31m[2J",
    "\x1b[" + "1;" * 500 + "m",
    "\x9b31m\x9b2J",
    "\x1bc\x1b(0\x08\r\n",
    "\x1b[31m",
    "\x1b[8;7m",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_but_colours_reaches_the_terminal(text: str) -> None:
    """Segments may contain anything, and no colour continues after its line."""
    for style in ("", "31"):
        output = safe_coloured(f"a{text}b", style)
        assert not re.search("[\x00-\x1f\x7f-\x9f]", re.sub("\x1b\\[[0-9;]{0,64}m", "", output))
        assert "\x1b" not in output or output.endswith(OFF)
    assert not re.search("[\x00-\x1f\x7f-\x9f]", re.sub("\x1b\\[[0-9;]{0,64}m", "", clean(text)))


@given(st.text(st.sampled_from("\x1b[]0123;:mKJ?\x07\x9b\n\r\x00ab"), max_size=40))
def test_nothing_but_colours_reaches_the_terminal_whatever_is_written(text: str) -> None:
    for output in (safe_coloured(text), safe_coloured(text, "2"), clean(text)):
        assert not re.search("[\x00-\x1f\x7f-\x9f]", re.sub("\x1b\\[[0-9;]{0,64}m", "", output))


def test_what_loki_takes_in_pieces_tears_no_colours() -> None:
    line = b"".join(b"\x1b[38;5;%dm%d" % (n, n) for n in range(200)) + b"\x1b[0m"
    for size in range(20, 40):
        pieces = split(line, size)
        assert b"".join(pieces) == line
        assert max(map(len, pieces)) <= size
        assert all(stripped(piece).isdigit() or not stripped(piece) for piece in pieces)
    assert b"".join(split(b"\x1b[" + b"1" * 100, 10)) == b"\x1b[" + b"1" * 100


def test_a_coloured_line_is_known_as_a_bars_end() -> None:
    assert begins_alike("epoch 1:  40%|##   |", f"{RED}epoch 1: {GREEN}100%{OFF}|#####|")


def test_check_says_what_the_keys_mean(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for content, words in (
        (
            b"",
            (
                "colors: strip   colours and bold text are taken out",
                "snapshots: off  of a running bar, the log",
            ),
        ),
        (
            b"colors: keep\nsnapshots: 1.5m\n",
            ("colors: keep    colours and bold text stay", "logged every 90s"),
        ),
        (b"snapshots: 120m\n", ("snapshots: 2h   what a running bar shows is logged every 2h",)),
    ):
        home.opt_in(content)
        report = home.call("check").stdout.decode()
        assert all(word in report for word in words), report
    home.opt_in(b"snapshots: 5s\n")
    process = home.call("check")
    assert process.returncode == 1
    assert b"snapshots: `5s` is too short; from `10s` to `24h`" in process.stdout
