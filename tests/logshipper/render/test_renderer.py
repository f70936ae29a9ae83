"""Lines from the renderer: their order, time and text (R11, R15, R17, R20, R29)."""

import tracemalloc

import pytest

from logshipper import line_feeds
from logshipper.render import final_lines
from logshipper.render import renderer as renderer_module
from logshipper.render.escape_parser import MAX_PARAMETERS
from logshipper.render.finality import ADDRESSED_QUIET_SECS, CALM_SCREENS, HOLD_SECS, QUIET_SECS
from logshipper.render.renderer import FIRST_SECS, Block, Renderer


class ScreenOnly(Renderer):
    has_plain_tier = False


@pytest.fixture(params=[Renderer, ScreenOnly], ids=["tiers", "screen"])
def make(request: pytest.FixtureRequest) -> type[Renderer]:
    """Return a renderer's class; each tier by itself must satisfy the tests."""
    tier: type[Renderer] = request.param
    return tier


def _text(blocks: list[Block]) -> str:
    return b"".join(block.text for block in blocks).decode()


def _feed(renderer: Renderer, data: str, now: float = 0.0) -> str:
    fed = renderer.feed(data.encode(), now)
    assert fed.consumed == len(data.encode())
    assert fed.command is None
    return _text(fed.blocks)


# ---- text (R20, R29)

LINES = {
    "plain": ("one\ntwo\n", "one\ntwo\n"),
    "blank lines": ("\n\none\n\n", "\n\none\n\n"),
    "no last LF": ("one\ntwo", "one\ntwo\n"),
    "CRLF and CR CR LF": ("one\r\ntwo\r\r\nthree\r\n", "one\ntwo\nthree\n"),
    "blanks at the end stay": ("one  \n  \r\n", "one  \n  \n"),
    "tab at the end": ("one\t\n", "one     \n"),
    "tabs": ("a\tb\n\tc\n", "a       b\n        c\n"),
    "a tab behind the last column": ("x" * 165 + "\ty\n", "x" * 165 + "   y\n"),
    "colours": ("\x1b[1;31mred\x1b[0m\x1b[K \x1b(B\x1b[m\n", "red \n"),
    "blanks from an erased bar are not text": (
        '\r 10%|##  |\r          \r{"a": 1}\n',
        '{"a": 1}\n',
    ),
    "blanks that were printed are": ('\r          \r{"a": 1} \n', '{"a": 1} \n'),
    "what a shorter text leaves": ("abcdef\rxyz\n", "xyzdef\n"),
    "erased": ("abcdef\r\x1b[Kxyz\n", "xyz\n"),
    "CRLF erases nothing": ("abc\r\x1b[0m\r\n", "abc\n"),
    "only the final state of a bar": ("\r 10%\r 20%\r100%\n", "100%\n"),
    "soft wraps are joined": (
        "x" * 500 + "\n" + "日" * 100 + "\n",
        "x" * 500 + "\n" + "日" * 100 + "\n",
    ),
    "soft wraps on the screen": (
        "\x1b[?25l" + "x" * 500 + "\n" + "日" * 161 + "\n",
        "x" * 500 + "\n" + "日" * 161 + "\n",
    ),
    "CR goes to the last row": ("x" * 170 + "\ry\n", "x" * 160 + "y" + "x" * 9 + "\n"),
    "invalid UTF-8": ("a\udcffb\udce2\udc96\n", "a\ufffdb\ufffd\n"),
    "C1 isn't text": ("a\x85b\x9bc\n", "abc\n"),
    "VS16": ("⚠\ufe0f Warning\n", "⚠\ufe0f Warning\n"),
    "cleared is kept": ("one\ntwo\x1b[2J\x1b[Hthree\n", "one\ntwo\nthree\n"),
    "cleared from the top is kept": ("one\ntwo\x1b[H\x1b[Jthree\n", "one\ntwo\nthree\n"),
    "reset": ("one\ntwo\x1bcthree\n", "one\ntwo\nthree\n"),
    "cleared by half is gone": ("\x1b[?25lone\ntwo\x1b[A\x1b[Jthree\n", "onethree\n"),
    "scroll region": ("\x1b[2;3r\x1b[1;1Htop\x1b[2;1Ha\nb\nc\nd\n", "top\na\nb\nc\nd\n"),
    "a bar that is gone": ("\r 10%\r    \rdone\n", "done\n"),
    "titles": ("\x1b]0;title\x07one\n", "one\n"),
    "Buildkite's times, which BEL ends": ("\x1b_bk;t=1\x07one\n\x1b_bk;t=2\x07two\n", "one\ntwo\n"),
    "BEL inside of DCS": ("\x1bPq\x07hidden\x1b\\one\n", "one\n"),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(name: str, make: type[Renderer]) -> None:
    data, output = (text.encode(errors="surrogateescape") for text in LINES[name])
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        renderer = make()
        blocks = [block for piece in pieces for block in renderer.feed(piece, 0.0).blocks]
        blocks += renderer.flush()
        assert _text(blocks) == output.decode()


FRAMES = {  # text before the frames, a frame, its way back to the first row, and the log
    "up by lines": ("", "{}\n", "\x1b[F\x1b[J", "3\n"),
    "up and CR": ("", "{}\nb\n", "\x1b[2A\r\x1b[J", "3\nb\n"),
    "CR in the first row": ("", "{}", "\r\x1b[J", "3\n"),
    "reverse index": ("", "{}\n", "\x1bM\x1b[0J", "3\n"),
    "to a saved cursor": ("\x1b7", "{}\nb\n", "\x1b8\x1b[J", "3\nb\n"),
    "below a line": ("above\n", "{}\n", "\x1b[F\x1b[J", "above\n3\n"),
    "on a cleared screen": ("old\n\x1b[2J\x1b[H", "{}", "\r\x1b[J", "old\n3\n"),
    "on a screen cleared at home": ("old\n\x1b[H\x1b[J", "{}", "\r\x1b[J", "old\n3\n"),
    "home": ("", "{}\n", "\x1b[H\x1b[J", "1\n2\n3\n"),
    "home by row": ("", "{}\n", "\x1b[1d\x1b[J", "1\n2\n3\n"),
    "to no saved cursor": ("", "{}\n", "\x1b8\x1b[J", "1\n2\n3\n"),
    "beyond the top": ("", "{}\n", "\x1b[99A\x1b[J", "1\n2\n3\n"),
    "all of the screen": ("", "{}\n", "\x1b[F\x1b[2J", "1\n2\n3\n"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_program_that_moves_up_and_erases_redraws(name: str, make: type[Renderer]) -> None:
    """Also in the first row, where programs that move home clear the screen."""
    begin, frame, way_back, output = FRAMES[name]
    data = begin + way_back.join(frame.format(number) for number in "123")
    for pieces in ([data], list(data)):
        renderer = make(first_secs=FIRST_SECS)
        text = "".join(_feed(renderer, piece) for piece in pieces)
        assert text + _text(renderer.flush()) == output


def test_plain_chunk_comes_out_as_one_block() -> None:
    data = b"a line of text\n" * 4000 + b"half"
    assert Renderer().feed(data, 0.0).blocks == [Block(data[:-4])]


def test_feed_from_a_place_in_the_data() -> None:
    fed = Renderer().feed(b"one\ntwo\nthree\n", 0.0, 4)
    assert (_text(fed.blocks), fed.consumed) == ("two\nthree\n", 14)


# ---- when a line is final


def test_plain_and_coloured_lines_are_final_at_once(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "one\n") == "one\n"
    assert _feed(renderer, "\x1b[32mtwo\x1b[0m\nhalf") == "two\n"
    assert renderer.next_tick() is None
    assert renderer.flush() == [Block(b"half\n")]


def test_outer_bar_is_not_logged_before_the_cursor_comes_back(make: type[Renderer]) -> None:
    """Nested tqdm: outer bar, LF, inner bar, up."""
    renderer = make()
    assert _feed(renderer, "\router 0%\n") == ""
    assert renderer.status() == b"outer 0%"
    assert _feed(renderer, "\rinner 0%\x1b[A") == ""
    for step in range(1, 9):  # the inner bar runs for a while
        assert _feed(renderer, f"\n\rinner {step}\x1b[A", step * 5.0) == ""
    assert (renderer.status(), renderer.status_drawn_at()) == (b"outer 0%\ninner 8%", 40.0)
    assert renderer.tick(100.0) == []
    assert _feed(renderer, "\router 100%\n\r        \rdone\n", 101.0) == ""
    assert _text(renderer.flush()) == "outer 100%\ndone\n"


def test_a_bar_that_has_ended_is_final_when_it_was_left_alone(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "\r 50%\r100%\n", 10.0) == ""
    assert renderer.next_tick() == 10.0 + QUIET_SECS
    assert renderer.tick(10.0 + QUIET_SECS / 2) == []
    assert (renderer.pending(), renderer.held_line_feeds(), renderer.line_feeds) == (1, 1, 1)
    assert renderer.tick(10.0 + QUIET_SECS) == [Block(b"100%\n", drawn_at=10.0)]
    assert (renderer.pending(), renderer.held_line_feeds(), renderer.next_tick()) == (0, 0, None)


def test_feed_settles_as_tick_does(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "\r100%\n", 1.0) == ""
    assert _feed(renderer, "x", 9.0) == "100%\n"


def test_hidden_cursor_holds_lines(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "\x1b[?25lone\ntwo\n") == ""
    assert _feed(renderer, "\x1b[2Axxx\n\n") == ""
    assert _text(renderer.flush()) == "xxx\ntwo\n"


def test_rows_out_of_reach_are_final_while_bars_run(make: type[Renderer]) -> None:
    renderer = make()
    _feed(renderer, "\ra\n\rb\x1b[A")
    for step in range(20):  # tqdm.write above two bars: a line each second
        _feed(renderer, f"\r\x1b[Kline {step}\n\ra{step}\n\rb{step}\x1b[A", 1.0 + step)
    assert renderer.pending() <= 5
    assert renderer.status() == b"a19\nb19", "and not what was printed above them"


def test_lines_that_scroll_off_are_final(make: type[Renderer]) -> None:
    renderer = make(160, 3)
    assert _feed(renderer, "\x1b[?25l1\n2\n\x1b[G3\n4\n") == "1\n2\n"
    assert renderer.pending() == 2


def test_nothing_is_live_any_more_after_screenfuls_of_lines(make: type[Renderer]) -> None:
    renderer = make(160, 5)
    _feed(renderer, "\ra\n\rb\x1b[A\n\n")
    out = "".join(_feed(renderer, f"{step}\n") for step in range(5 * CALM_SCREENS))
    out += _text(renderer.tick(HOLD_SECS))
    assert out == "a\nb\n" + "".join(f"{step}\n" for step in range(5 * CALM_SCREENS))


def test_a_blank_line_ends_no_bar(make: type[Renderer]) -> None:
    """It may hold the place of a bar that isn't drawn yet, as with tqdm's threads."""
    renderer = make()
    assert _feed(renderer, "\rbar 0\n\n\rbar 2\x1b[A\x1b[A") == ""
    assert _feed(renderer, "\rbar 0!\n\rbar 1\x1b[A") == ""
    assert _text(renderer.flush()) == "bar 0!\nbar 1\nbar 2\n"


def test_a_bar_holds_no_line_that_is_ended_below_it(make: type[Renderer]) -> None:
    """The cursor never moved up, so nothing suggests that it will."""
    renderer = make()
    assert _feed(renderer, "\r 50%\r100%\n", 1.0) == ""
    assert _feed(renderer, "half", 1.1) == ""
    assert _feed(renderer, " a line\nnext\n", 1.2) == "100%\nhalf a line\nnext\n"
    assert _feed(renderer, "at once\n", 1.3) == "at once\n"


def test_lines_of_a_stream_that_moved_up_are_held_for_a_moment(make: type[Renderer]) -> None:
    """The cursor may move up again without another sign. Each line comes once, in its last form."""
    renderer = make(160, 5)
    _feed(renderer, "\ra\n\rb\x1b[A\n\n" + "x\n" * 5 * CALM_SCREENS)
    renderer.tick(HOLD_SECS)
    assert _feed(renderer, "1 of 2\n2 of 2\n", 10.0) == ""
    assert (renderer.pending(), renderer.status()) == (2, b"")
    assert renderer.next_tick() == 10.0 + HOLD_SECS
    assert _feed(renderer, "\x1b[2Adone 1\ndone 2\n", 10.2) == ""
    assert _text(renderer.flush()) == "done 1\ndone 2\n"


def test_lines_of_the_first_second_are_held_for_a_moment(make: type[Renderer]) -> None:
    renderer = make(160, 50, FIRST_SECS)
    assert _feed(renderer, "bar 1\nbar 2\n", 5.0) == ""
    assert _feed(renderer, "\x1b[2Adone 1\ndone 2\n", 5.2) == ""
    assert _text(renderer.tick(5.2 + QUIET_SECS)) + _text(renderer.flush()) == "done 1\ndone 2\n"
    renderer = make(160, 50, FIRST_SECS)
    assert _feed(renderer, "one\n", 5.0) == ""
    assert renderer.next_tick() == 5.0 + HOLD_SECS
    assert _text(renderer.tick(5.0 + HOLD_SECS)) == "one\n"
    assert _feed(renderer, "two\n", 5.0 + FIRST_SECS) == "two\n"


@pytest.mark.parametrize("size", [1, 999, 100_000])
def test_of_what_is_held_there_is_a_screenful_at_most(size: int, make: type[Renderer]) -> None:
    renderer = make(160, 50, FIRST_SECS)
    data = b"".join(b"line %d\n" % n for n in range(3000))
    blocks = [
        block
        for at in range(0, len(data), size)
        for block in renderer.feed(data[at : at + size], 1.0).blocks
    ]
    assert (_text(blocks).count("\n"), renderer.pending()) == (2951, 49)
    assert _text(blocks) + _text(renderer.flush()) == data.decode()


def test_what_is_held_comes_before_a_command_that_is_taken_out(make: type[Renderer]) -> None:
    renderer = make(160, 50, FIRST_SECS)
    fed = renderer.feed(f"one\n{COMMAND}\n".encode(), 1.0)
    assert (_text(fed.blocks), fed.command) == ("", COMMAND.encode())
    assert _text(renderer.take_command()) == "one\n"


def test_a_live_table_taller_than_the_screen_is_logged_as_it_scrolls(make: type[Renderer]) -> None:
    renderer = make(160, 4)
    out = ""
    for rows in (5, 6, 7):
        out += _feed(
            renderer,
            "\x1b[A\x1b[2K" * 6 + "\r" + "".join(f"\r{rows}, row {row}\n" for row in range(rows)),
        )
    out += _text(renderer.flush())
    lines = [(5, 0), (5, 1), *((6, row) for row in range(3)), *((7, row) for row in range(7))]
    assert out == "".join(f"{rows}, row {row}\n" for rows, row in lines)


def test_a_screen_that_is_addressed_may_be_drawn_again_after_seconds(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "\x1b[?25l\x1b[H\x1b[2Jload 1\n\x1b[2;1Hprocess\n", 1.0) == ""
    assert _feed(renderer, "\x1b[Hload 2\n\n", 4.0) == ""
    assert renderer.tick(4.0 + ADDRESSED_QUIET_SECS / 2) == []
    assert (
        _text(renderer.tick(4.0 + ADDRESSED_QUIET_SECS)) + _text(renderer.flush())
        == "load 2\nprocess\n"
    )


def test_rows_below_the_alternate_screen_are_final_when_they_were_left_alone(
    make: type[Renderer],
) -> None:
    renderer = make()
    _feed(renderer, "\r 10%\r 50%\n\x1b[?1049h", 1.0)
    assert renderer.pending() == 1
    assert _text(renderer.tick(1.0 + QUIET_SECS)) == " 50%\n"
    renderer = make()
    _feed(renderer, "\r 10%\r 50%\n\x1b[?1049h\x1b[?1049l\x1b[A100%\n", 1.0)
    assert _text(renderer.flush()) == "100%\n"


def test_a_row_that_is_erased_is_no_part_of_the_line_above_it(make: type[Renderer]) -> None:
    renderer = make(10, 3)
    _feed(renderer, "\x1b[?25lpadded    bar 1     \r\x1b[2Kbar 2     ")
    assert _text(renderer.flush()) == "padded\nbar 2     \n"
    _feed(
        renderer, "\x1b[?25la\nb\npadded    bar 1     scrolls   off\x1b[1;1H\x1b[2Kbar 2\x1b[3;1H\n"
    )
    assert "bar 1" not in _text(renderer.flush()).replace("padded    bar 1     ", "")


def test_after_bars_lines_need_only_be_quiet(make: type[Renderer]) -> None:
    renderer = make()
    _feed(renderer, "\r1\n\r2\n\r3\n\r4\x1b[3A\n\n\n\n")
    _feed(renderer, "x\ny\nz\nend\n")
    assert _text(renderer.tick(2.0)) == "1\n2\n3\n4\nx\ny\nz\nend\n"


def test_changed_line_comes_out_again_and_unchanged_one_does_not(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "one\ntwo\nthree\n") == "one\ntwo\nthree\n"
    assert _feed(renderer, "\x1b[3Aone\nTWO\r\n") == ""
    assert _text(renderer.flush()) == "TWO\n"


def test_line_that_is_partly_overwritten_is_known_in_full(make: type[Renderer]) -> None:
    renderer = make()
    out = _feed(renderer, "".join(f"line {n}\n" for n in range(1000)))
    assert out.count("\n") == 1000
    _feed(renderer, "\x1b[2A\x1b[5Gs")
    assert renderer.status() == b"lines998"
    assert _text(renderer.flush()) == "lines998\n"


def test_line_that_was_erased_later_does_not_come_out_again(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed(renderer, "one\n") == "one\n"
    _feed(renderer, "\x1b[A\x1b[2K")
    assert renderer.flush() == []


def test_alternate_screen_is_left_out_with_one_note_per_stay(make: type[Renderer]) -> None:
    renderer = make()
    note = Block(b"[full-screen output left out]\n", note=True)
    fed = renderer.feed(b"before\n\x1b[?1049h\x1b[Hsecret\n\n\x1b[2Jmore\x1b[?1049lafter\n", 0.0)
    assert fed.blocks == [Block(b"before\n"), note, Block(b"after\n")]
    assert renderer.feed(b"\x1b[?1049h\x1b[?1049l", 0.0).blocks == []
    assert renderer.feed(b"prompt \x1b[?47hx", 0.0).blocks == [note]
    assert renderer.status() == b""
    assert renderer.flush() == [Block(b"prompt \n")]


def test_a_plain_stream_is_fast_again_after_a_bar() -> None:
    """Lines after a bar are handled by the chunk. Otherwise they would take minutes instead of a
    second."""
    renderer = Renderer()
    renderer.feed(b"\r 10%\r100%\n\x1b[?25h", 0.0)
    chunk = b"a plain line of text, and some more of it\n" * 1560
    count = sum(
        block.text.count(b"\n") for _ in range(400) for block in renderer.feed(chunk, 0.0).blocks
    )
    assert renderer.feed(chunk, 0.0).blocks == [Block(chunk)]
    assert count == 400 * 1560 + 1


# ---- commands (R15, R17)

COMMAND = '/LOGCOMMAND {"mode":"metadata"}'


def _feed_to_command(
    renderer: Renderer, data: str, now: float = 0.0
) -> tuple[str, int, str | None]:
    fed = renderer.feed(data.encode(), now)
    return (
        _text(fed.blocks),
        fed.consumed,
        fed.command.decode() if fed.command is not None else None,
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize(
    "before", ["", "one\n", "\x1b[?25l", "bar\r   \r", "\x1b[0m", "é\n", "\udcff\n"]
)
def test_stops_right_behind_a_command(before: str, end: str, make: type[Renderer]) -> None:
    renderer = make()
    start = (before + COMMAND + end).encode(errors="surrogateescape")
    fed = renderer.feed(start + b"secret\n", 0.0)
    assert (fed.command, fed.consumed) == (COMMAND.encode(), len(start))
    assert renderer.line_feeds == start.count(b"\n")
    assert b"LOGCOMMAND" not in b"".join(block.text for block in fed.blocks)
    renderer.take_command()
    rest = (
        fed.blocks + renderer.feed(start + b"more\n", 0.0, fed.consumed).blocks + renderer.flush()
    )
    assert _text(rest) == (
        "one\n"
        if before == "one\n"
        else "é\n"
        if "é" in before
        else "\ufffd\n"
        if "\n" in before
        else ""
    ) + ("more\n")


def test_command_that_is_kept_is_a_line_like_any_other(make: type[Renderer]) -> None:
    renderer = make()
    data = f"one\n{COMMAND}\ntwo\n"
    text, consumed, command = _feed_to_command(renderer, data)
    assert (text, command) == ("one\n", COMMAND)
    text += _text(renderer.keep_command()) + _text(
        renderer.feed(data.encode(), 0.0, consumed).blocks
    )
    assert text == data


def test_command_byte_by_byte_and_with_blanks(make: type[Renderer]) -> None:
    renderer = make()
    data = (COMMAND + "  \n").encode()
    for at in range(len(data) - 1):
        assert renderer.feed(data[at : at + 1], 0.0).command is None
    assert renderer.feed(b"\n", 0.0).command == COMMAND.encode() + b"  "


@pytest.mark.parametrize("before", ["x", " ", "\x1b[5C", "\t", "50%|███   |"])
@pytest.mark.parametrize("command", [COMMAND, COMMAND.lower()])
def test_anywhere_on_a_line(before: str, command: str, make: type[Renderer]) -> None:
    """The renderer reports the whole line, and waits for the caller's decision before it makes the
    line final."""
    renderer = make()
    fed = renderer.feed(f"a\n{before}{command}\nb\n".encode(), 0.0)
    line = before.replace("\x1b[5C", " " * 5).expandtabs(8) + command
    assert fed.command == line.encode()
    assert b"".join(block.text for block in fed.blocks) == b"a\n"
    assert b"".join(block.text for block in renderer.keep_command()) == line.encode() + b"\n"


def test_drawn_over_it_is_no_command(make: type[Renderer]) -> None:
    assert make().feed((COMMAND + "\x1b[1Gx\n").encode(), 0.0).command is None


def test_command_is_what_the_line_reads(make: type[Renderer]) -> None:
    """R15: the rendered line counts, whether drawn over a bar, wrapped, or edited."""
    assert _feed_to_command(make(), f"\r 10%\r    \r{COMMAND}\n")[2] == COMMAND
    assert _feed_to_command(make(), f"\r{'#' * 50}\r{COMMAND}\n")[2] == COMMAND + "#" * (
        50 - len(COMMAND)
    )
    assert _feed_to_command(make(20, 5), f"\x1b[1m{COMMAND}\n")[2] == COMMAND
    assert _feed_to_command(make(20, 2), f"a\nb\nc\n{COMMAND * 9}\n")[2] == COMMAND * 9
    assert _feed_to_command(make(), f"{COMMAND[1:]}\r\x1b[@/\n")[2] == COMMAND


def test_command_that_was_kept_is_not_met_again(make: type[Renderer]) -> None:
    renderer = make()
    assert _feed_to_command(renderer, COMMAND + "\n")[2] == COMMAND
    assert _text(renderer.keep_command()) == COMMAND + "\n"
    assert _feed_to_command(renderer, "\x1b[A\n")[2] is None


def test_taken_command_leaves_no_row(make: type[Renderer]) -> None:
    renderer = make()
    _feed(renderer, "\ra\n\rb\n")
    assert _feed_to_command(renderer, COMMAND + "\n")[2] == COMMAND
    renderer.take_command()
    _feed(renderer, "\x1b[2AA\nB\nc\n")
    assert _text(renderer.flush()) == "A\nB\nc\n"


def test_command_on_the_alternate_screen_stands_behind_other_text(make: type[Renderer]) -> None:
    fed = make().feed(f"\x1b[?1049h{COMMAND}\n".encode(), 0.0)
    assert (fed.command, fed.is_part) == (f"…{COMMAND}".encode(), True)


def test_end_line_reports_a_command_without_its_line_feed(make: type[Renderer]) -> None:
    """R15: a missing last newline makes no difference."""
    renderer = make()
    _feed(renderer, "one\n" + COMMAND)
    fed = renderer.end_line(0.0)
    assert (fed.command, fed.blocks) == (COMMAND.encode(), [])
    renderer.take_command()
    assert renderer.flush() == []
    _feed(renderer, COMMAND)
    assert renderer.end_line(0.0).command == COMMAND.encode()
    assert _text(renderer.keep_command() + renderer.flush()) == COMMAND + "\n"
    _feed(renderer, "half")
    fed = renderer.end_line(0.0)
    assert (fed.command, _text(fed.blocks + renderer.flush())) == (None, "half\n")
    assert (renderer.end_line(0.0).blocks, renderer.flush()) == ([], [])


# ---- flush, discard (R11, R17)

STATES = {
    "half line": "secret",
    "half character": "secret\udce2\udc96",
    "half sequence": "secret\x1b[3",
    "half string": "secret\x1b]0;secret",
    "CR": "secret\r",
    "bar": "\rsecret 1\r secret 2",
    "held line": "\rsecret\n",
    "nested bars": "\rsecret\n\rsecret\x1b[A",
    "scrolled": "\x1b[?25l" + "secret\n" * 60,
    "modes": "\x1b[4h\x1b[?7l\x1b[2;3r\x1b[?6h\x1b(0secret",
    "alternate screen": "secret\x1b[?1049hsecret",
    "saved cursor": "secret\n\x1b7secret",
    "tab stops": "\x1b[3gsecret",
    "plain lines": "secret\n" * 60 + "\x1b[2A",
    "command": COMMAND + "secret\n",
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize(
    "suffix",
    [
        "\n",
        "\x1b8x\n",
        "\x1b[A\x1b[5C.\n\n",
        "\ty\rz\n",
        "\x1b[?1049lq\n",
        "m\x07\udc96v\n",
        "\x1b[9b",
    ],
)
def test_nothing_from_before_has_any_effect(name: str, suffix: str, make: type[Renderer]) -> None:
    renderer, fresh = make(), make()
    after = suffix.encode(errors="surrogateescape")
    renderer.feed(STATES[name].encode(errors="surrogateescape"), 0.0)
    renderer.discard()
    assert (
        renderer.status(),
        renderer.pending(),
        renderer.next_tick(),
        renderer.held_line_feeds(),
    ) == (b"", 0, None, 0)
    assert renderer.feed(after, 9.0) == fresh.feed(after, 9.0)
    assert renderer.flush() == fresh.flush()
    renderer.feed(STATES[name].encode(errors="surrogateescape"), 9.0)
    renderer.flush()
    assert renderer.feed(after, 9.0) == fresh.feed(after, 9.0)
    assert renderer.flush() == fresh.flush()


def test_drop_half_line_keeps_what_is_ended(make: type[Renderer]) -> None:
    for before, output in (
        ("one\nhalf", ""),
        ("\rone\nhalf\udce2", "one\n"),
        ("\rone\n\rtwo\x1b[A", "one\n"),
        ("\x1b[2Bhalf", ""),
    ):
        renderer = make()
        renderer.feed(before.encode(errors="surrogateescape"), 0.0)
        renderer.drop_half_line()
        assert _text(renderer.flush()) == output


# ---- status and counts


def test_status_and_pending(make: type[Renderer]) -> None:
    renderer = make()
    _feed(renderer, "one\nPassword: ")
    assert (renderer.status(), renderer.pending()) == (b"Password:", 1)
    _feed(renderer, "\r\x1b[K")
    assert (renderer.status(), renderer.pending()) == (b"", 0)
    _feed(renderer, "\r 1\n\r 2\x1b[A")
    assert (
        renderer.status(),
        renderer.pending(),
        renderer.held_line_feeds(),
        renderer.line_feeds,
    ) == (b" 1\n 2", 2, 1, 2)


def test_resize(make: type[Renderer]) -> None:
    renderer = make(20, 4)
    assert _feed(renderer, "1\n2\n3\n") == "1\n2\n3\n"
    renderer.resize(10, 3)
    assert _feed(renderer, "x" * 15 + "\n") == "x" * 15 + "\n"
    _feed(renderer, "\x1b[?25l4\n\x1b[G5\n\x1b[G6")
    renderer.resize(10, 1)
    assert renderer.next_tick() is not None
    assert _text(renderer.tick(0.0) + renderer.flush()) == "4\n5\n6\n"


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"x" * 31 + b"\n", b"x" * 89 + b"\n", b"x" * 5000])
def test_line_feeds_are_counted(line: bytes) -> None:
    for data in (line, line * 3, line * 500, b"y" * 2000 + line * 20, b"\n" * 1000 + line * 9, b""):
        assert line_feeds.count(data) == data.count(b"\n")


# ---- bars by the chunk

BARS = {
    "ASCII": "".join(f"\r{n:3d}%|{'#' * (n // 10):10}| {n}/100 [00:{n:02d}]" for n in range(100)),
    "blocks, shrinking": "".join(f"\r{'█' * (n % 7)}▌{n} it/s" for n in reversed(range(200))),
    "other characters": "".join(f"\rGröße {n % 13} µs" for n in range(200)),
    "wide characters": "".join(f"\r日本{'語' * (n % 3)} {n}" for n in range(200)),
    "wider than the screen": "".join(f"\r{'=' * (n % 50)}>" for n in range(100)),
    "CR at the end": "".join(f"{'=' * (n % 30)} {n}\r" for n in range(100)),
    "nothing but CR": "abc" + "\r" * 600,
    "a mode before it": "\x1b[4hab\rc" + "\rxyz" * 200,
    "controls in it": "\rab\b\bxyz" * 100 + "\t" + "\rq" * 100,
    "half a sequence before it": "\x1b]0;title" + "\rbar" * 200 + "\x07\rend",
}


@pytest.mark.parametrize("before", ["", "text", "日本語\n日本語", "\x1b[?25l"])
@pytest.mark.parametrize("name", BARS)
def test_bars_by_the_chunk_show_what_each_character_by_itself_does(
    name: str, before: str, make: type[Renderer]
) -> None:
    data = (before + BARS[name]).encode()
    outs = []
    for pieces in ([data], [data[:700], data[700:]], [bytes([byte]) for byte in data]):
        renderer = make(40, 4)
        text = "".join(_text(renderer.feed(piece, 0.0).blocks) for piece in pieces)
        state = renderer.status(), renderer.pending()
        outs.append(
            (text + _text(renderer.feed(b"|\x1b[3b\n", 0.0).blocks + renderer.flush()), state)
        )
    assert outs[0] == outs[1] == outs[2]


# ---- caps


@pytest.mark.parametrize("start", ["", "\x1b[?25l"])
def test_long_line_comes_in_parts(
    start: str, make: type[Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (final_lines, renderer_module):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    renderer = make(40, 5)
    line = "é" + "x" * 997 + "é" + "y" * 1400
    blocks = renderer.feed((start + "a\n").encode(), 0.0).blocks
    for at in range(0, len(line), 77):
        blocks += renderer.feed(line[at : at + 77].encode(), 0.0).blocks
    assert renderer.status() == b""
    blocks += renderer.feed(b"\nb\n", 0.0).blocks + renderer.flush()
    parts = [(block.part, len(block.text), block.text[-2:-1]) for block in blocks if block.part]
    assert parts == [("1", 1000, b"x"), ("2", 1001, b"y"), ("3/3", 403, b"y")]
    assert (
        "".join(_text([block])[:-1] if block.part else _text([block]) for block in blocks)
        == f"a\n{line}b\n"
    )


FLOODS = {
    "CR updates": (b"", b"\r 10%|####      |" * 4000),
    "CR updates wider than the screen": (b"", b"\r" + b"#" * 200),
    "OSC": (b"\x1b]0;", b"x" * 65536),
    "CSI": (b"\x1b[", b"1;" * 32768),
    "ESC intermediates": (b"\x1b", b"(" * 65536),
    "CR": (b"", b"\r" * 4096),
    "combining": (b"x", "\u0301".encode() * 2048),
    "tabs": (b"", b"\t" * 4096),
    "alternate screen": (b"\x1b[?1049h", b"text\n" * 500),
    "nested bars": (b"", b"\router\n\rinner\x1b[A" * 100),
    "tab stops": (b"", b"\x1b[C\x1bH" * 500),
    "saved cursors": (b"", b"\x1b7\x1b[?1049h\x1b7\x1b[?1049l" * 50),
    "insertions": (b"", b"x\x1b[9999@\x1b[9999L\x1b[9999P" * 100),
    "blank rows": (b"", b"\x1b[9999S" * 5),
    "DCS": (b"\x1bPq", b"#0;1" * 16384),
    "CSI intermediates": (b"\x1b[", b" " * 65536),
    "sequences as long as may be": (b"", (b"\x1b[" + b"1;" * 128 + b"H") * 20),
    "ESC": (b"", b"\x1b" * 4096),
    "joined emoji": (b"", "👩\u200d".encode() * 600),
    "cursor movement": (b"", b"\x1b[A\x1b[B\x1b[5C\x1b[2D\x1b[5;7Hx\x1b[40;100Hy" * 100),
    "saved and restored cursors": (b"", b"\x1b7\x1b8\x1b[s\x1b[u" * 300),
    "scroll regions": (b"", b"\x1b[2;5r\x1b[5Hx\n\x1bM\x1b[3;9r\x1b[r" * 100),
    "tab stops, far": (b"", b"\x1b[9999Z\x1b[9999I\t" * 300),
    "alternate screen, drawn upon": (b"", b"\x1b[?1049hx\x1b[?1049l\x1b[?47hx\x1b[?47l" * 100),
    "REP": (b"", b"x\x1b[9999b\n" * 100),
    "cleared screens": (b"", b"x\x1b[2J" * 100),
    "alignment patterns": (b"", b"\x1b#8\x1b[2J" * 50),
    "half characters": (b"", b"\xe2\x96" * 2048),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_cost_little_memory(name: str, make: type[Renderer]) -> None:
    """A megabyte of one kind. The output is discarded, as the sidecar does after its writes."""
    start, piece = FLOODS[name]
    renderer = make()
    renderer.feed(start, 0.0)
    tracemalloc.start()
    try:
        for _ in range(-(-1_000_000 // len(piece)) if len(piece) > 30_000 else 20):
            renderer.feed(piece, 0.0)
            renderer.status(), renderer.pending(), renderer.next_tick()
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("start", [b"", b"\x1b[?25l"])
@pytest.mark.parametrize("piece", [b"x" * 65536, "é".encode() * 32768])
def test_a_line_without_end_costs_one_part_of_memory(start: bytes, piece: bytes) -> None:
    """Parts have 4 MiB, and a few copies of each exist during its output."""
    renderer = Renderer()
    renderer.feed(start, 0.0)
    parts = []
    tracemalloc.start()
    try:
        for _ in range(140):
            parts += [block.part for block in renderer.feed(piece, 0.0).blocks]
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert parts == ["1", "2"]


def test_huge_numbers_do_not_stall(make: type[Renderer]) -> None:
    renderer = make()
    for last in "@ABCDEFGHIJKLMPSTXZ`abdefghjklrsu":
        renderer.feed(b"\x1b[1000000000;1000000000" + last.encode() + b"x\n", 0.0)
    assert renderer.flush()


def test_scrollback_that_is_kept_is_capped() -> None:
    """Kept for a cursor that may rise: as many lines as the screen has rows, with at most 64 KiB
    per chunk."""
    renderer = Renderer(40, 5)
    tracemalloc.start()
    try:
        for piece in (b"short\n" * 10_000, b"x" * 60_000 + b"\n"):
            for _ in range(50):
                renderer.feed(piece, 0.0)
        assert tracemalloc.get_traced_memory()[0] < 1e6
    finally:
        tracemalloc.stop()


def test_parameters_beyond_the_cap_make_a_sequence_nothing(make: type[Renderer]) -> None:
    for count, row in ((MAX_PARAMETERS, "\nx"), (MAX_PARAMETERS + 1, "x")):
        renderer = make(20, 5)
        text = _feed(renderer, "\x1b[" + "2".rjust(count, "0") + "dx")
        assert text + _text(renderer.flush()) == row + "\n"


def test_the_alignment_pattern_is_no_text(make: type[Renderer]) -> None:
    renderer = make(20, 3)
    assert _feed(renderer, "a\n\x1b#8\x1b[2Jb\n") + _text(renderer.flush()) == "a\nb\n"


def test_a_stray_string_does_not_swallow_the_log(make: type[Renderer]) -> None:
    """An unterminated OSC ends at an LF after 4 KiB."""
    renderer = make()
    text = _feed(renderer, "\x1b]0;" + "x" * 3000 + "\n" + "y" * 3000 + "\nseen\n")
    assert text + _text(renderer.flush()) == "seen\n"
