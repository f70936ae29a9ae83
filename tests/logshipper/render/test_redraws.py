"""Rows drawn over and over: the renderer skips frames that later ones cover, and its output stays
the same."""

import pytest

from logshipper.render.coloured_renderer import ColouredRenderer
from logshipper.render.log_screen import LogScreen
from logshipper.render.redraws import stretches, without_colours
from logshipper.render.renderer import Renderer
from logshipper.render.row import Row
from tests.tools.stress.fuzz_streams import Case, check

COUNT = 60
# drawing of programs: the text before the first frame, and a frame
FRAMES = {
    "rich": ("\x1b[?25lone\ntwo", "\r\x1b[2K\x1b[1A\x1b[2Kone ━━╸━ %02d/60\ntwo ━━━━ %02d/60"),
    "tqdm, nested": ("\r 0/60", "\n\r %02d/60| █▌ |\x1b[A\r %02d/60"),
    "docker compose": ("\n\n", "\x1b[2A\x1b[0G\x1b[?25l%02d one\x1b[K\n%02d two\x1b[K\n\x1b[?25h"),
    "with colours": ("\n", "\x1b[F\x1b[2K\x1b[32mone\x1b[0m %02d\x1b[1m%%\x1b[0m\n\x1b[2Ktwo %02d"),
    "one line, erased behind": ("", "\r%02d/60 of %02d\x1b[K"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_others_cover_are_not_drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    draw = LogScreen.draw

    def note(screen: LogScreen, text: str) -> None:
        drawn.append(text)
        draw(screen, text)

    monkeypatch.setattr(LogScreen, "draw", note)
    before, frame = FRAMES[name]
    text = before + "".join(frame % (n, n) for n in range(COUNT)) + "\nend\n"
    Renderer(80, 6).feed(text.encode(), 0.0)
    shown = "".join(drawn)
    assert "00" in shown
    assert f"{COUNT - 1}" in shown
    assert f"{COUNT // 2}" not in shown
    check(Case(80, 6, [(text.encode(), 0.0), (text.encode(), 2.0)], [7, 300]))


@pytest.mark.parametrize("colour", ["", "\x1b[32m"])
def test_bars_that_others_cover_are_not_drawn(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CR redraws the bar, with lines between, as tqdm.write prints them."""
    drawn: list[str] = []
    put = Row.put

    def note(row: Row, x: int, text: str) -> None:
        drawn.append(text)
        put(row, x, text)

    monkeypatch.setattr(Row, "put", note)
    bars = [f"\r{colour}{n:4}/1000 |█▌{' ' * (n % 5)}|" for n in range(1000)]
    bars[100::100] = [f"\r{' ' * 20}\rline {n}\n" for n in range(100, 1000, 100)]
    data = "".join(bars).encode()
    Renderer(80, 6).feed(data, 0.0)
    assert len(drawn) < 100
    check(Case(80, 6, [(data, 0.0)], [7, 300]))


@pytest.mark.parametrize("name", FRAMES)
def test_colours_stay(name: str) -> None:
    before, frame = FRAMES[name]
    data = (before + "".join(frame % (n, n) for n in range(COUNT)) + "\nend\n").encode()
    whole, in_pieces = ColouredRenderer(80, 6), ColouredRenderer(80, 6)
    lines = b"".join(block.text for block in (*whole.feed(data, 0.0).blocks, *whole.flush()))
    blocks = [block for byte in data for block in in_pieces.feed(bytes([byte]), 0.0).blocks]
    assert lines == b"".join(block.text for block in (*blocks, *in_pieces.flush()))
    assert (b"\x1b[32m" in lines) == ("\x1b[32m" in frame)


ODD = {  # most have the length of the row's other texts
    "a command": "/LOGCOMMAND x",
    "a command in small letters": "/logcommand y",
    "a command of two texts": "/\x1b[KLOGCOMMAND x",
    "a tab": "12345\tabcdefg",
    "wide characters": "日本語の行日本語の行日本語",
    "characters that join": "12e\u03013456789012",
    "a title": "123\x1b]0;x\x07456",
    "one that repeats": "123\x1b[3b",
    "cells inserted": "1234\b\x1b[@56",
    "a full screen": "\x1b[?1049hx\x1b[?1049l",
    "all cleared": "\x1b[2J",
    "another length": "123456789abcdefg",
    "a line that is ended": "text of\na line",
}


@pytest.mark.parametrize("at", [2, COUNT // 2, COUNT - 2])
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("moves", ["\r\x1b[2K\x1b[A\x1b[2K", "\r\x1b[A"])
def test_frames_that_are_odd_are_drawn(moves: str, name: str, at: int) -> None:
    frames = [f"{moves}row {n:09}\nrow 2 {n:09}" for n in range(COUNT)]
    frames[at] = f"{moves}{ODD[name]}\nrow 2 {at:09}"
    text = "\n" + "".join(frames) + "\nend\n"
    check(Case(30, 5, [(text.encode(), 0.0)], [5, 200]))


@pytest.mark.parametrize(
    ("before", "frame"),
    [
        ("\n", "\r\x1b[A/x\ny\x1b[A{}\n"),
        ("\n", f"\r\x1b[A{'x' * 29}/y\r{{}}\n\x1b[A\x1b[2Kz"),
        ("\n", f"\r\x1b[A{'x' * 9}\x1b[K{'x' * 20}/y\r{{}}\n\x1b[A\x1b[2Kz"),
        ("\n", "\r\x1b[A/\x1b[K{}\n"),
    ],
    ids=[
        "upon another row",
        "in a line of two rows",
        "in such a line, of three texts",
        "in one row",
    ],
)
def test_a_command_that_two_texts_make_is_found(before: str, frame: str) -> None:
    words = ["LOGARITHMUS"] * COUNT
    words[COUNT // 2] = "LOGCOMMAND "
    text = before + "".join(map(frame.format, words))
    assert Renderer(30, 5).feed(text.encode(), 0.0).command is not None
    check(Case(30, 5, [(text.encode(), 0.0)], [5, 200]))


@pytest.mark.parametrize("modes", ["\x1b[4h", "\x1b[?7l", "\x1b[1;2r\n", '\x1b[1"q', "\x1b(0"])
def test_frames_in_odd_modes_are_drawn(modes: str) -> None:
    """Insert mode, no autowrap, a scroll region, protected cells, line drawing characters."""
    text = f"\n{modes}" + "".join(f"\r\x1b[Arow {n:09}\nrow 2 {n:09}" for n in range(COUNT))
    check(Case(39, 5, [(text.encode(), 0.0)], [5, 200]))


def test_rows_that_scroll_are_drawn() -> None:
    text = "".join(f"\x1b[A\x1b[2K{n:02}\n\n" for n in range(COUNT))
    assert list(stretches(text, 80)) != []
    check(Case(80, 6, [(text.encode(), 0.0)], [5, 200]))


@pytest.mark.parametrize(
    ("text", "reduced"),
    [
        ("\x1b[1ma\x1b[0;32mb\x1b[K\x1b[mc", "ab\x1b[Kc"),
        ("a\x1b[m", "a\x18"),  # REP may follow
        ("a\x1b[m\x1b[3", "a\x18\x1b[3"),
        ("a\x1b[m\x1b[3b", "a\x18\x1b[3b"),
        ("\x1b[3\x1b[31m1m", "\x1b[3\x181m"),
        ("\x1b]0;title\x1b[31mtext\x07", "\x1b]0;title\x18text\x07"),
        ("\x1b]0;title\x07\x1b[31mtext", "\x1b]0;title\x07text"),
        ("\x1b[>4;1m\x1b[ma", "\x1b[>4;1ma"),
    ],
)
def test_without_colours(text: str, reduced: str) -> None:
    assert without_colours(text) == reduced
    check(Case(30, 5, [(f"begin\r{text}".encode(), 0.0), (b"x\x1b[2b\n", 0.0)], [4]))
