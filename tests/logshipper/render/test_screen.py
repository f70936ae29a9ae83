"""Effects of control functions on the screen (R29): a table of them, and xterm's conformance
cases."""

import re
import unicodedata

import pytest

from logshipper.render import cell_width
from logshipper.render.cell_width import TWO_CELLS, not_one_cell, not_own_cells
from logshipper.render.escape_parser import EscapeParser
from logshipper.render.final_lines import FinalLines
from logshipper.render.log_screen import LogScreen
from logshipper.render.renderer import Renderer
from tests.tools.sources import ROOT

XTERM = ROOT.parent / "shared" / "conformance" / "xterm"
# Cases that xterm.js itself leaves out because terminals differ, with the reasons of their failure
# here (t0504-vim, the fifth, passes).
DIFFERENT = {
    "t0055-EL": "erasing to the right of a line that fills its row erases nothing, as in tmux: compilers do it",
    "t0084-CBT": "a back tab from behind the last column goes from the last column",
    "t0101-NLM": "LF always returns the carriage, VT and FF never do: no program sets the newline mode",
    "t0103-reverse_wrap": "BS stops at the left edge, as on most terminals",
}


def _screen(text: str, columns: int = 10, rows: int = 4) -> LogScreen:
    screen = LogScreen(columns, rows, FinalLines())
    assert EscapeParser(screen).feed(text) == -1
    return screen


def _lines(text: str, columns: int = 10, rows: int = 4) -> list[str]:
    lines = ["".join(row.cells).rstrip(" ") for row in _screen(text, columns, rows).rows]
    while lines and not lines[-1]:
        lines.pop()
    return lines


CONTROLS = {
    "DECSCA, DECSEL": ('a\x1b[1"qb\x1b[2"qc\x1b[1"qd\x1b[0"qe\x1b[?2K', [" b d"]),
    "DECSEL to the left, to the right": ('ab\x1b[1"qcd\x1b[0"qef\x1b[4D\x1b[?1K\x1b[?K', ["  cd"]),
    "EL erases what is protected": ('\x1b[1"qabc\x1b[2K', []),
    "DECSED": ('a\n\x1b[1"qb\x1b[0"qc\nd\x1b[?2J', ["", "b"]),
    "DECSED above, below": (
        'a\x1b[1"qA\x1b[0"q\nbc\nd\x1b[1"qD\x1b[0"q\x1b[2;2H\x1b[?J\x1b[?1J',
        [" A", "", " D"],
    ),
    "DECSED without protected cells": ("a\nb\x1b[?2J", []),
    "what is drawn over a protected cell isn't protected": (
        '\x1b[1"qab\x1b[0"q\rx\x1b[?2K',
        [" b"],
    ),
    "protected and wide, joined, wrapped": (
        'x\x1b[1"q日e\u0301\x1b[0"q\x1b[8Gx\x1b[1"qyz0\x1b[0"q1\x1b[?2K\x1b[A\x1b[?2K',
        [" 日e\u0301    yz", "0"],
    ),
    "protected cells are shifted": ('\x1b[1"qab\x1b[0"qc\r\x1b[2@\x1b[?2K', ["  ab"]),
    "DECSTR ends protecting": ('\x1b[1"qa\x1b[!pb\x1b[?2K', ["a"]),
    "text": ("ab", ["ab"]),
    "wrap": ("0123456789ab", ["0123456789", "ab"]),
    "no wrap before there is more": ("0123456789\r\nab", ["0123456789", "ab"]),
    "CR, shorter": ("abcdef\rxy", ["xycdef"]),
    "LF": ("ab\ncd", ["ab", "cd"]),
    "VT, FF keep the column": ("ab\vcd\fef", ["ab", "  cd", "    ef"]),
    "BS": ("abc\b\bx", ["axc"]),
    "BS at the edge": ("\b\bx", ["x"]),
    "BS behind the last column": ("0123456789\b\bx", ["0123456x89"]),
    "HT": ("a\tb\tc", ["a       bc"]),
    "HT at the last column": ("0123456789\tx", ["0123456789", "x"]),
    "HT moves over text": ("abcdefghij\r\tX", ["abcdefghXj"]),
    "HTS, TBC": ("   \x1bH\r\tx\r\x1b[3g\ty", ["   x     y"]),
    "TBC at the cursor": ("\t\x1b[g\r\tx", ["         x"]),
    "CHT, CBT": ("\x1b[Ix\x1b[2Zy", ["y       x"]),
    "NUL, BEL, DEL, ENQ": ("a\0\a\x7f\x05b", ["ab"]),
    "C1 is dropped": ("a\x85\x9bb", ["ab"]),
    "CUU, CUD, CUF, CUB": ("a\x1b[2Bb\x1b[Ac\x1b[3Cd\x1b[4De", ["a", "  ce  d", " b"]),
    "CUU, CUD stop at the edges": ("ab\x1b[9Ac\x1b[99Bd", ["abc", "", "", "   d"]),
    "CNL, CPL": ("ab\x1b[2Ec\x1b[Fd", ["ab", "d", "c"]),
    "CHA, HPA": ("abc\x1b[2Gx\x1b[5`y", ["axc y"]),
    "VPA, VPR": ("ab\x1b[3dc\x1b[ed", ["ab", "", "  c", "   d"]),
    "CUP, HVP": ("\x1b[2;3Ha\x1b[3;1fb\x1b[Hc", ["c", "  a", "b"]),
    "numbers too big": ("\x1b[99999999999999999999;99999999999Hx", ["", "", "", "         x"]),
    "ED 0": ("aaa\nbbb\nccc\x1b[2;2H\x1b[J", ["aaa", "b"]),
    "ED 1": ("aaa\nbbb\nccc\x1b[2;2H\x1b[1J", ["", "  b", "ccc"]),
    "ED 2": ("aaa\nbbb\x1b[2Jx", ["", "   x"]),
    "ED 3": ("aaa\x1b[3J", ["aaa"]),
    "EL 0": ("abcdef\x1b[3G\x1b[K", ["ab"]),
    "EL 0 behind the last column": ("0123456789\x1b[K", ["0123456789"]),
    "EL 1": ("abcdef\x1b[3G\x1b[1K", ["   def"]),
    "EL 2": ("abcdef\x1b[3G\x1b[2Kx", ["  x"]),
    "ECH": ("abcdef\x1b[2G\x1b[3X", ["a   ef"]),
    "ICH": ("abcdefghij\x1b[2G\x1b[3@", ["a   bcdefg"]),
    "DCH": ("abcdef\x1b[2G\x1b[3P", ["aef"]),
    "IRM": ("abcdefghij\x1b[2G\x1b[4hxy\x1b[4lz", ["axyzcdefgh"]),
    "IL": ("a\nb\nc\nd\x1b[2;1H\x1b[2L", ["a", "", "", "b"]),
    "DL": ("a\nb\nc\nd\x1b[2;1H\x1b[2M", ["a", "d"]),
    "SU": ("a\nb\nc\nd\x1b[2S", ["c", "d"]),
    "SD": ("a\nb\nc\nd\x1b[2T", ["", "", "a", "b"]),
    "SD with five numbers is about the mouse": ("a\x1b[1;2;3;4;5T", ["a"]),
    "SL, SR": ("abc\x1b[ @x\x1b[2 A", ["  bc x"]),
    "DECIC, DECDC": ("abc\ndef\x1b[1;2H\x1b['}\x1b[2;3H\x1b['~", ["a c", "d f"]),
    "REP": ("ab\x1b[3b", ["abbbb"]),
    "REP after a control": ("ab\r\x1b[3b", ["ab"]),
    "REP is capped": ("a\x1b[9999b", ["a" * 10, "a"]),
    "IND, NEL": ("ab\x1bDcd\x1bEef", ["ab", "  cd", "ef"]),
    "RI": ("a\nb\x1bM\x1bMc", [" c", "a", "b"]),
    "scrolling": ("a\nb\nc\nd\ne", ["b", "c", "d", "e"]),
    "DECSC, DECRC": ("ab\x1b7cd\n\n\x1b8x", ["abxd"]),
    "SCOSC, SCORC": ("ab\x1b[scd\n\n\x1b[ux", ["abxd"]),
    "DECSTBM": ("a\nb\nc\nd\x1b[2;3r\x1b[3;1Hx\ny\nz", ["a", "y", "z", "d"]),
    "DECSTBM, one row: refused": ("a\x1b[2;2rb", ["ab"]),
    "origin mode": ("\x1b[2;3r\x1b[?6hx\x1b[9;1Hy\x1b[?6lz", ["z", "x", "y"]),
    "no autowrap": ("\x1b[?7l0123456789abc", ["012345678c"]),
    "alternate screen": ("ab\x1b[?1049hxyz\n\nxyz\x1b[?1049lc", ["abc"]),
    "alternate screen, cursor not saved": ("ab\x1b[?47hx\x1b[?47lc", ["ab c"]),
    "left the alternate screen twice": ("a\x1b[?1049h\x1b[?1049l\x1b[?1049lb", ["ab"]),
    "the alternate screen's saved cursor is its own": (
        "ab\x1b7c\x1b[?47h\x1b[3;3H\x1b7\x1b[?47l\x1b8x",
        ["abx"],
    ),
    "a cursor behind the last column is so after the alternate screen": (
        "0123456789\x1b[?1049hx\x1b[?1049lab",
        ["0123456789", "ab"],
    ),
    "DECCOLM clears the screen": ("ab\ncd\x1b[?3lx", ["x"]),
    "left and right margins aren't there": ("ab\x1b[s\x1b[?69h\x1b[2;5scd\x1b[ux", ["abxd"]),
    "DECBI, DECFI": ("abcdefghij\x1b6x\r\x1b6y\x1b[10G\x1b9z", ["abcdefghxz"]),
    "HPB": ("abc\x1b[2jx", ["axc"]),
    "RIS": ("\x1b[2;3r\x1b[4habc\x1bcx", ["x"]),
    "DECSTR": ("\x1b[2;3r\x1b[4habc\x1b[!p\x1b[1;1Hx", ["xbc"]),
    "DECALN": ("\x1b#8\x1b[2;2Hx", ["E" * 10, "ExEEEEEEEE", "E" * 10, "E" * 10]),
    "line drawing, G0": ("\x1b(0lqk\x1b(Bx", ["┌─┐x"]),
    "line drawing, all": (
        "\x1b(0_`abcdefg\nhijklmno\npqrstuvw\nxyz{|}~",
        [" ◆▒␉␌␍␊°±", "␤␋┘┐┌└┼⎺", "⎻─⎼⎽├┤┴┬", "│≤≥π≠£·"],
    ),
    "line drawing, G1": ("\x1b)0l\x0el\x0fl", ["l┌l"]),
    "SGR": ("\x1b[1;38;2;1;2;3;48:5:1mab\x1b[m", ["ab"]),
    "titles and links": ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\c", ["abc"]),
    "DCS, SOS, PM, APC": (
        "a\x1bPq#0\x07\x1b\\b\x1bXx\x1b\\c\x1b^x\x1b\\d\x1b_Gx\x1b\\e",
        ["abcde"],
    ),
    "queries": ("a\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b[18t\x1bZ\x1b[>q\x1b[?2026$pb", ["ab"]),
    "unknown sequences": ("a\x1b[1;2y\x1b[?1;2z\x1b[ q\x1b%G\x1b=\x1b>\x1b[=1u\x1b[<5mb", ["ab"]),
    "controls in a sequence": ("abc\x1b[\b1\rCx", ["axc"]),
    "CAN and SUB end a sequence": ("a\x1b[3\x18b\x1b]0;x\x1ac", ["abc"]),
    "ESC begins another sequence": ("a\x1b[3\x1b[Cb", ["a b"]),
    "text ends a broken sequence": ("a\x1b[3éb\x1bé", ["aébé"]),
    "wide": ("日本語", ["日本語"]),
    "wide wraps as a whole": ("012345678日x", ["012345678", "日x"]),
    "half of a wide one is overwritten": ("日本\x1b[2Gx\x1b[3Gy", [" xy"]),
    "erased through a wide one": ("日本語\x1b[4G\x1b[K", ["日"]),
    "inserted into a wide one": ("日本\x1b[2G\x1b[@x", [" x 本"]),
    "combining": ("e\u0301x\b\by", ["yx"]),
    "combining at the edge": ("\u0301a", ["a"]),
    "combining behind the last column": ("012345678e\u0301x", ["012345678e\u0301", "x"]),
    "VS16, and text behind it": ("⚠\ufe0f Warning", ["⚠\ufe0f Warning"]),
    "ZWJ": ("👩\u200d💻x\x1b[3Gy", ["👩\u200d💻y"]),
    "skin tone": ("👍🏽x\x1b[3Gy", ["👍🏽y"]),
    "flag": ("🇫🇷x", ["🇫🇷x"]),
    "zero width space": ("a\u200bb\b\bc", ["cb"]),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_controls(name: str) -> None:
    text, lines = CONTROLS[name]
    assert _lines(text) == lines
    one_by_one = LogScreen(10, 4, FinalLines())
    parser = EscapeParser(one_by_one)
    for character in text:
        assert parser.feed(character) == -1
    assert ["".join(row.cells) for row in one_by_one.rows] == [
        "".join(row.cells) for row in _screen(text).rows
    ]


def _xterm_cases() -> list[object]:
    names = sorted(path.stem for path in XTERM.glob("*.in"))
    if not names:
        return [
            pytest.param(
                "", marks=pytest.mark.skip(reason=f"{XTERM.name}'s cases aren't in ../shared")
            )
        ]
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=DIFFERENT[name], strict=True))
        if name in DIFFERENT
        else name
        for name in names
    ]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", _xterm_cases())
def test_xterm_cases(name: str, whole: bool) -> None:
    """76 cases, screens of 80 x 25; bytes go through a tty first."""
    text = (XTERM / f"{name}.in").read_bytes().replace(b"\n", b"\r\n").decode(errors="replace")
    screen = LogScreen(80, 25, FinalLines())
    parser = EscapeParser(screen)
    for piece in [text] if whole else text:
        assert parser.feed(piece) == -1
    assert _rows_of(screen) == _expected_rows(name)


class _ScreenOnly(Renderer):
    has_plain_tier = False


def _rows_of(screen: LogScreen) -> list[str]:
    return ["".join(row.cells).rstrip() for row in screen.rows]


def _expected_rows(name: str) -> list[str]:
    lines = [line.rstrip() for line in (XTERM / f"{name}.text").read_text().split("\n")[:25]]
    return lines + [""] * (25 - len(lines))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("has_plain_tier", [True, False])
@pytest.mark.parametrize("name", _xterm_cases())
def test_xterm_cases_through_each_tier(name: str, has_plain_tier: bool, whole: bool) -> None:
    """The plain tier handles its share, as in a stream, and the screen learns the lines that
    bypassed it."""
    data = (XTERM / f"{name}.in").read_bytes().replace(b"\n", b"\r\n")
    renderer = Renderer(80, 25) if has_plain_tier else _ScreenOnly(80, 25)
    for piece in [data] if whole else [data[at : at + 1] for at in range(len(data))]:
        assert renderer.feed(piece, 0.0).consumed == len(piece)
    renderer.feed(b"\0", 0.0)  # has no effect, but the screen handles it
    assert _rows_of(renderer._screen) == _expected_rows(name)


def test_classes_of_characters_agree_with_the_unicode_tables() -> None:
    for code in range(0xA0, 0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cn", "Cs"):
            continue
        width = cell_width.cell_width(character)
        assert not_one_cell(character) is not None or width == 1, hex(code)
        assert not_own_cells(character) is not None or width > 0, hex(code)
        assert not TWO_CELLS.match(character) or width == 2, hex(code)


def test_characters_that_join_are_never_taken_for_others() -> None:
    joining = re.compile(
        "[\u0300-\u036f\u200b-\u200f\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\u0080-\u009f\x1b\r\b]"
    )
    for code in range(0x3000):
        if joining.match(chr(code)) and chr(code) not in "\x1b\r":
            assert not_own_cells(chr(code)) is not None, hex(code)


def test_text_with_joined_characters_shows_as_it_is_where_they_have_one_before() -> None:
    for text in ("⚠\ufe0f a", "x\ne\u0301", "👩\u200d💻", "👍🏽\n", "日本", "é"):
        assert cell_width.shows_as_it_is(text), text
    for text in (
        "\u0301a",
        "x\n\u0301",
        "x\n\ufe0f",
        "e" + "\u0301" * 17,
        "👩" + "\u200d💻" * 9,
        "a\u200b",
        "a\x85",
        "a\x1b\u0301b",
    ):
        assert not cell_width.shows_as_it_is(text), text


def test_sizes_are_bounded() -> None:
    assert (LogScreen(0, 0, FinalLines()).columns, LogScreen(0, 0, FinalLines()).height) == (2, 1)
    assert LogScreen(10**9, 1, FinalLines()).columns == 4096
    assert LogScreen(2, 10**9, FinalLines()).height == 1024


def test_characters_joined_in_a_cell_are_capped() -> None:
    screen = _screen("e" + "\u0301" * 10_000)
    assert len("".join(screen.rows[0].cells)) == 32


def test_resize_keeps_text() -> None:
    screen = _screen("one\ntwo\nthree\nfour, more\x1b[2;2H")
    screen.resize(6, 2)
    assert ["".join(row.cells) for row in screen.rows] == [
        "two",
        "three",
    ]  # the cursor's line stays
    screen.resize(20, 6)
    assert ["".join(row.cells) for row in screen.rows] == ["two", "three", "", "", "", ""]
    assert (screen.x, screen.y, screen.bottom) == (1, 0, 5)
