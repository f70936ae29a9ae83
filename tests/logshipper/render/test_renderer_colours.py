"""`colors: keep`: lines hold colours in one normal form, and otherwise equal those of `strip`
(docs/rendering.md)."""

import re
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.render import coloured_renderer, coloured_screen, final_lines
from logshipper.render import renderer as renderer_module
from logshipper.render.coloured_renderer import ColouredRenderer
from logshipper.render.colours import PLAIN, SGR, beginning, normalised, stripped, styled
from logshipper.render.renderer import Block, Renderer
from tests.tools.stress.model_settings import examples

_TEXT = (
    "a",
    "hello world",
    " ",
    "  ",
    "\n",
    "\n",
    "\r\n",
    "\r\r\n",
    "\t",
    "x" * 13,
    "line\n" * 6,
    "é",
    "日本",
    "\udcff",
)
_STYLES = (
    *(
        "\x1b[31m",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[m",
        "\x1b[1m",
        "\x1b[22m",
        "\x1b[4;7m",
        "\x1b[27m",
        "\x1b[42m",
        "\x1b[49m",
    ),
    *(
        "\x1b[38;5;200m",
        "\x1b[48;2;1;2;3m",
        "\x1b[38:2::9:8:7m",
        "\x1b[39m",
        "\x1b[4:0m",
        "\x1b[38;5m",
        "\x1b[0;;1m",
    ),
    *(
        "\x1b[" + "1;" * 200 + "m",
        "\x1b[>4;2m",
        "\x1b[1 m",
        "\x1b[5;8m",
        "\x1b[K",
        "\x1b(B",
        "\x1b[",
    ),
)
_CONTROLS = (
    *(
        "\r",
        "\r 10%|#   |",
        "\r100%|####|",
        "\b",
        "\x1b[A",
        "\x1b[2D",
        "\x1b[C",
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[2J",
        "\x1b[H",
    ),
    *(
        "\x1b7",
        "\x1b8",
        "\x1bc",
        "\x1b[!p",
        "\x1b[X",
        "\x1b[P",
        "\x1b[@",
        "\x1b[L",
        "\x1b[3b",
        "\x1b[?25l",
        "\x1b[4h",
    ),
    *(
        "\x1b[?1049h",
        "\x1b[?1049l",
        "\x1b[2;3r",
        "\x1b[r",
        "e\u0301",
        "\u0301",
        "👩\u200d",
        "👍🏽",
        "⚠\ufe0f",
        "\x85",
    ),
    *("/LOGCOMMAND x\n", "/LOG", "COMMAND", "{"),
)
_NORMAL = re.compile(rb"(?:[^\x00-\x1f\x7f]|\x1b\[[0-9;]+m)*")

Timed: TypeAlias = list[tuple[bytes, float]]


class ScreenOnly(ColouredRenderer):
    has_plain_tier = False


def _bytes(words: Sequence[str]) -> bytes:
    return "".join(words).encode(errors="surrogateescape")


_words = st.one_of(
    st.sampled_from(_TEXT),
    st.sampled_from(_STYLES),
    st.sampled_from(_TEXT + _STYLES),
    st.sampled_from(_CONTROLS),
)
_easy_words = st.one_of(st.sampled_from(_TEXT), st.sampled_from(_STYLES))
_sizes = st.tuples(st.sampled_from([2, 5, 10, 160]), st.sampled_from([1, 2, 3, 5, 50]))
_data = st.one_of(st.lists(_easy_words, max_size=30), st.lists(_words, max_size=30)).map(_bytes)
_streams = st.lists(st.tuples(_data, st.sampled_from([0.0, 0.1, 2.0])), min_size=1, max_size=5)


def _outcome(
    renderer: Renderer, stream: Timed, piece_size: int = 1 << 20
) -> tuple[list[bytes], list[tuple[object, ...]]]:
    """Return the lines and their account, with every second command taken."""
    out: list[Block] = []
    account: list[tuple[object, ...]] = []
    now = 0.0
    command_count = 0
    for data, later in stream:
        now += later
        for at in range(0, len(data), piece_size):
            piece = data[at : at + piece_size]
            begin = 0
            while begin < len(piece):
                fed = renderer.feed(piece, now, begin)
                begin = fed.consumed
                out += fed.blocks
                if fed.command is not None:
                    account.append(("command", fed.command))
                    command_count += 1
                    out += renderer.keep_command() if command_count % 2 else []
                    if not command_count % 2:
                        renderer.take_command()
    account.append(
        (renderer.status(), renderer.pending(), renderer.held_line_feeds(), renderer.line_feeds)
    )
    fed = renderer.end_line(now)
    out += fed.blocks
    if fed.command is not None:
        account.append(("command", fed.command))
        out += renderer.keep_command()
    out += renderer.flush()
    return b"".join(block.text for block in out).split(b"\n"), account


@given(_streams, _sizes, st.integers(1, 12))
@settings(max_examples=examples(100), deadline=None)
def test_tiers_and_cuts_agree_and_strip_is_the_same_without_colours(
    stream: Timed, size: tuple[int, int], piece_size: int
) -> None:
    lines, account = _outcome(ColouredRenderer(*size), stream)
    assert _outcome(ColouredRenderer(*size), stream, piece_size) == (lines, account)
    assert _outcome(ScreenOnly(*size), stream) == (lines, account)
    assert _outcome(ScreenOnly(*size), stream, piece_size) == (lines, account)
    assert ([stripped(line) for line in lines], account) == _outcome(Renderer(*size), stream)
    for line in lines:
        assert _NORMAL.fullmatch(line)
        assert normalised(line + b"\n") == (line + b"\n", PLAIN, PLAIN), (
            "begins and ends plain, says nothing twice"
        )


@given(st.lists(_easy_words, max_size=20).map(_bytes), _sizes)
@settings(max_examples=examples(50), deadline=None)
def test_coloured_stretches_alternate_with_bars(piece: bytes, size: tuple[int, int]) -> None:
    """At changes of the tier, the screen learns the lines that bypassed it, including their
    colours."""
    stretch = b"".join(b"\x1b[3%dmstretch\x1b[0m %d\n" % (n % 8, n) for n in range(100))
    data = (piece + stretch + b"\rbar\n\x1b[A!\n\x1b[2Aagain") * 2
    whole = _outcome(ColouredRenderer(*size), [(data, 0.0)])
    assert _outcome(ColouredRenderer(*size), [(data, 0.0)], 700) == whole
    assert _outcome(ScreenOnly(*size), [(data, 0.0)]) == whole


LINES = {
    "plain text": ("one\n", "one\n"),
    "a run": ("a \x1b[31mred\x1b[0m one\n", "a \x1b[31mred\x1b[0m one\n"),
    "said twice": ("\x1b[31m\x1b[31ma\x1b[31mb\x1b[m\x1b[m\n", "\x1b[31mab\x1b[0m\n"),
    "on over several lines": ("\x1b[32ma\nb\n\nc\x1b[m\n", "\x1b[32ma\x1b[0m\n\x1b[32mb\x1b[0m\n\n\x1b[32mc\x1b[0m\n"),
    "only what is new": ("\x1b[31ma\x1b[1mb\x1b[42mc\x1b[0m\n", "\x1b[31ma\x1b[1mb\x1b[42mc\x1b[0m\n"),
    "off and on": ("\x1b[1;31ma\x1b[22mb\x1b[39mc\n", "\x1b[1;31ma\x1b[0;31mb\x1b[0mc\n"),
    "256 colours": ("\x1b[38;5;208ma\x1b[48:5:17mb\x1b[m\n", "\x1b[38;5;208ma\x1b[48;5;17mb\x1b[0m\n"),
    "truecolour": ("\x1b[38;2;1;2;3ma\x1b[38:2::1:2:3mb\x1b[m\n", "\x1b[38;2;1;2;3mab\x1b[0m\n"),
    "nothing of no colour": ("\x1b[38;5;999ma\x1b[38;2;1mb\x1b[99mc\x1b[58;5;1md\n", "abcd\n"),
    "no blinking and no hiding": ("\x1b[5ma\x1b[8mb\x1b[0m\n", "ab\n"),
    "other sequences that end with m": ("\x1b[>4;2ma\x1b[?4mb\x1b[1 mc\n", "abc\n"),
    "titles, links": ("\x1b]0;t\x07\x1b[1mone\x1b[0m \x1b]8;;http://x\atwo\x1b]8;;\a\n", "\x1b[1mone\x1b[0m two\n"),
    "a bar's last state": ("\r\x1b[31m 10%\x1b[0m\r\x1b[32m100%\x1b[0m\n", "\x1b[32m100%\x1b[0m\n"),
    "drawn over in part": ("\x1b[31mabcdef\x1b[0m\rxyz\n", "xyz\x1b[31mdef\x1b[0m\n"),
    "erased with a background": ("\x1b[44mab\x1b[K\x1b[0m\n", "\x1b[44mab\x1b[0m\n"),
    "erased in the middle": ("\x1b[44mabcdef\x1b[3D\x1b[X\x1b[0m\n", "\x1b[44mabc\x1b[0m \x1b[44mef\x1b[0m\n"),
    "skipped cells": ("\x1b[44ma\x1b[3Cb\x1b[0m\n", "\x1b[44ma\x1b[0m   \x1b[44mb\x1b[0m\n"),
    "tabs": ("\x1b[44ma\tb\x1b[0m\n", "\x1b[44ma\x1b[0m       \x1b[44mb\x1b[0m\n"),
    "wide characters": ("\x1b[31m日本\x1b[32m語\x1b[0m\r\x1b[1m日\n", "\x1b[1m日\x1b[0;31m本\x1b[32m語\x1b[0m\n"),
    "an accent has its character's style": ("\x1b[31me\x1b[32m\u0301x\x1b[0m\n", "\x1b[31me\u0301\x1b[32mx\x1b[0m\n"),
    "saved with the cursor": ("\x1b[31m\x1b7\x1b[0m\x1b8a\x1b[0m\n", "\x1b[31ma\x1b[0m\n"),
    "reset": ("\x1b[31ma\x1b[!pb\n", "\x1b[31ma\x1b[0mb\n"),
    "soft wraps are joined": ("\x1b[?25l\x1b[31m" + "x" * 200 + "\x1b[0m\n", "\x1b[31m" + "x" * 200 + "\x1b[0m\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("renderer_class", [ColouredRenderer, ScreenOnly])
def test_lines(name: str, renderer_class: type[ColouredRenderer]) -> None:
    data, output = LINES[name]
    for piece_size in (1, 1 << 20):
        lines, _ = _outcome(renderer_class(), [(data.encode(), 0.0)], piece_size)
        assert b"\n".join(lines).decode() == output


@pytest.mark.parametrize("renderer_class", [ColouredRenderer, ScreenOnly])
@pytest.mark.parametrize("piece_size", [7, 1 << 20])
def test_colours_count_towards_the_cap(
    monkeypatch: pytest.MonkeyPatch, renderer_class: type[ColouredRenderer], piece_size: int
) -> None:
    cap = 100
    for module in (final_lines, renderer_module, coloured_screen, coloured_renderer):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", cap)
    text = (
        b"".join(b"\x1b[3%dm%03dabc\xc3\xa9" % (n % 7 + 1, n) for n in range(60))
        + b"\x1b[0m plain"
        + b"x" * 130
    )
    renderer = renderer_class(10, 3)
    blocks: list[Block] = []
    for at in range(0, len(text), piece_size):
        blocks += renderer.feed(text[at : at + piece_size], 0.0).blocks
    blocks += renderer.feed(b"\nnext\n", 0.0).blocks + renderer.flush()
    parts = [block for block in blocks if block.part]
    count = len(parts)
    assert [block.part for block in parts] == [
        *(str(n + 1) for n in range(count - 1)),
        f"{count}/{count}",
    ]
    assert all(
        len(block.text) <= cap + 1 and normalised(block.text)[0] == block.text for block in parts
    )
    assert stripped(b"".join(block.text[:-1] for block in parts)) == stripped(text)
    assert blocks[-1].text == b"next\n"
    whole = ScreenOnly(10, 3).feed(text + b"\n", 0.0).blocks
    assert [block.text for block in whole if block.part] == [block.text for block in parts]


@given(st.lists(st.one_of(_easy_words, st.sampled_from(["\x1b[3m", "plain"])), max_size=20))
def test_normal_form_is_one(words: list[str]) -> None:
    text = re.sub("\x1b(?!\\[[0-9;:]*m)", "", "".join(words).replace("\r", "")).encode(
        errors="replace"
    )
    once, style, _ = normalised(text)
    assert normalised(once) == (once, style, style)
    assert SGR.sub(b"", once) == SGR.sub(b"", text)
    for line in once.split(b"\n")[:-1]:
        for size in range(len(stripped(line)) + 1):
            assert stripped(beginning(line, size)) == stripped(line)[:size]
            assert normalised(beginning(line, size))[2] == PLAIN


def test_parameters_are_bounded() -> None:
    assert styled(PLAIN, "1;" * 127 + "1").attributes == 1
    assert styled(PLAIN, "1;" * 200) == PLAIN
    assert styled(PLAIN, "38;2;" + "9" * 240) == PLAIN
