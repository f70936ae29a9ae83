"""Random terminal streams by seed, and their invariants, for tests.tools.stress.fuzz and its test.

There are several kinds of streams:

- grammar: text, and control functions with odd numbers
- bytes of a small alphabet
- output of a program with many escapes, cut, spliced and changed
- the same rows, drawn over and over

The same seed yields the same stream on each machine.
"""

import random
from typing import NamedTuple
from unittest import mock

from logshipper.render import carriage_returns, escape_parser, redraws
from logshipper.render.log_screen import LogScreen
from logshipper.render.renderer import Block, Renderer
from logshipper.render.row import MAX_JOINED

_TEXT = (
    *(
        "a",
        "b ",
        " ",
        "  ",
        "word",
        "hello world",
        "x" * 13,
        "line\nline\n",
        "é",
        "日本",
        "語",
        "😀",
        "█▌",
        "│",
    ),
    *(
        "⚠\ufe0f",
        "👩\u200d💻",
        "👍🏽",
        "e\u0301",
        "\u0301",
        "\u200d",
        "\u1112\u1161",
        "\xad",
        "\u200b",
        "ｱ",
        "\ufffd",
    ),
    *(
        "\udcff",
        "\udce2\udc96",
        "\udc88",
        "\udcf0\udc9f",
        "\x85",
        "\x9b",
        "\x9d",
        "{",
        '{"a": 1}',
        "/LOGCOMMAND x\n",
    ),
)
_LINE_ENDS = ("\n", "\n", "\n", "\r\n", "\r\r\n", "\r", "\r", "\v", "\f", "\x1bD", "\x1bE")
_C0 = "\0\a\b\b\b\t\t\x0e\x0f\x18\x1a\x7f\x05"
_CSI_LAST = "@ABCDEFGHIJKLMPSTXZ`abdefghlmnrstu^AAKKJJHmm"
_PRIVATE = (
    "?25l",
    "?25h",
    "?1049h",
    "?1049l",
    "?47h",
    "?47l",
    "?1047l",
    "?1048h",
    "?1048l",
    "?7l",
    "?7h",
    "?6h",
    "?6l",
)
_OTHER_CSI = (
    "4h",
    "4l",
    "!p",
    " @",
    "2 A",
    "'}",
    "2'~",
    "?J",
    "?2K",
    "3g",
    "0g",
    ">c",
    "6n",
    "38;2;1;2;3m",
    "1:2m",
)
_ESC = (*"7 8 M c #8 (0 (B )0 H = > [ ] P ^ _ X \\".split(), "", "\x1b", "%G")
_STRINGS = (
    "]0;title\x07",
    "]8;;http://x\x1b\\",
    "Pq#0;1;1\x1b\\",
    "^note\x1b\\",
    "_a\x1b\\",
    "]0;open",
    "]" + "x" * 70,
)
_NUMBERS = (
    "",
    "",
    "0",
    "1",
    "1",
    "2",
    "2",
    "3",
    "4",
    "5",
    "7",
    "9",
    "10",
    "49",
    "160",
    "9999",
    "99999999999",
    "-1",
    "1:2",
)
_ALPHABET = (
    b"\x1b\x1b\x1b[[[]?;;0123456789 ABCDHJKLMPSTXbcdfghlmru"
    b"\r\r\n\n\n\b\t\x07\x18\x0e\x0f\xc3\xa9\xe6\x97\xa5\xffxyz"
)
_MOVES = (
    *("\r", "\r", "\r", "\n", "\n", "\r\n"),
    *(f"\x1b[{last}" for last in "A A 2A B E F 2F G 2K 2K K 1K J 1J 31m m ?25l".split()),
)
_ODD_MOVES = ("\x1b[C", "\x1b[H", "\x1b[2J", "\x1b[5b", "\x1b7", "\b", "\t")
_CELLS = "aab  /lLO0%█│"
_SIZES = ((10, 3), (10, 3), (5, 2), (2, 1), (20, 5), (12, 4), (7, 8), (80, 6), (160, 50))
_LATER = (0.0, 0.0, 0.1, 0.9, 1.5, 3.0)
_END = 100.0

CORPUS = tuple(
    text.encode()
    for text in (
        "".join(
            f"\r{n:3d}%|{'█' * n}{' ' * (9 - n)}| {n}/9 [00:0{n}<00:01,  1.08it/s]"
            for n in range(10)
        )
        + "\n",
        "".join(f"\router {n}\n\r\x1b[Kinner {n}\x1b[A" for n in range(6)) + "\n\ndone\n",
        "\x1b[?25l"
        + "".join(f"\r\x1b[2Ktask {n}\n\x1b[2Kother {n}\r\x1b[1A\x1b[2K" for n in range(5))
        + "\x1b[?25h\n",
        "\x1b[31mred\x1b[0m\x1b[K\n\x1b[1;32mINFO\x1b[m text\n" * 4,
        "before\n\x1b[?1049h\x1b[H\x1b[2Jeditor\x1b[2;3Hmore\x1b[?1049lafter\n",
        "\x1b[2;3r\x1b[3;1Ha\nb\nc\x1bM\x1bMd\x1b[r\n\x1b[L\x1b[2M\x1b[3S\x1b[T",
        "col\tcol\tcol\n\ta\t\tb\x1b[3g\tc\x1bH\td\x1b[Ze\n",
        "日本語の行\r日本\b\b語\x1b[3P\x1b[2@\x1b[4Xé\n" * 3,
        "".join(f"{n}/20 [{'=' * n:<20}]" + "\b" * 27 for n in range(0, 21, 4)) + "\n",
        "".join(f"plain line {n}\n" for n in range(30)),
        "x" * 90 + "\n" + "y" * 33 + "\r" + "z" * 12 + "\x1b[Kend\n",
        "text\x1b7\x1b[5;5Hsaved\x1b8more\x1b[3bx\x1b[20b\n\x1b[s\n\x1b[u!",
        "".join(f"\r{'█' * (n % 8)}{'#' * (n % 5)} {n}\r│ab" for n in range(40)) + "\rend",
        "/LOGCOMMAND {}\nnext\n/LOGCOMMAND disabled\nlast\n",
    )
)


class Case(NamedTuple):
    """A stream. columns, rows: the terminal's size; pieces: bytes, and the clock at which they are
    fed; cuts: sizes, in turn."""

    columns: int
    rows: int
    pieces: list[tuple[bytes, float]]
    cuts: list[int]


class ScreenOnly(Renderer):
    """The tier that accepts everything."""

    has_plain_tier = False


def make_case(seed: int) -> Case:
    """Return the stream of this seed."""
    source = random.Random(seed)
    columns, rows = source.choice(_SIZES)
    now = 0.0
    pieces = []
    for _ in range(source.choice((1, 1, 2, 3))):
        pieces.append(
            (source.choice((_grammar, _mutated, _mutated, _noise, _redrawn, _redrawn))(source), now)
        )
        now += source.choice(_LATER)
    return Case(
        columns, rows, pieces, [source.randint(1, source.choice((3, 9, 40))) for _ in range(5)]
    )


def _word(source: random.Random) -> str:
    kind = source.random()
    if kind < 0.4:
        return source.choice(_TEXT)
    if kind < 0.55:
        return source.choice(_LINE_ENDS)
    if kind < 0.62:
        return source.choice(_C0)
    if kind < 0.84:
        numbers = ";".join(
            source.choice(_NUMBERS) for _ in range(source.choice((1, 1, 1, 2, 2, 3)))
        )
        return f"\x1b[{numbers}{source.choice(_CSI_LAST)}"
    if kind < 0.92:
        return "\x1b[" + source.choice((*_PRIVATE, *_OTHER_CSI))
    return "\x1b" + source.choice(_ESC if kind < 0.97 else _STRINGS)


def _grammar(source: random.Random) -> bytes:
    return "".join(_word(source) for _ in range(source.randint(0, 25))).encode(
        errors="surrogateescape"
    )


def _noise(source: random.Random) -> bytes:
    if source.random() < 0.2:
        return source.randbytes(source.randint(0, 60))
    return bytes(source.choices(_ALPHABET, k=source.randint(0, 80)))


def _mutated(source: random.Random) -> bytes:
    data = bytearray(source.choice(CORPUS))
    begin = source.randrange(len(data))
    data = data[begin : begin + source.randint(1, 150)]
    for _ in range(source.choice((0, 1, 2, 4, 8))):
        at = source.randrange(len(data) + 1)
        size = source.randint(1, 6)
        turn = source.randrange(5)
        if turn == 0:
            del data[at : at + size]
        elif turn == 1:
            data[at:at] = _word(source).encode(errors="surrogateescape")
        elif turn == 2:
            data[at : at + 1] = source.randbytes(1)
        elif turn == 3:
            data[at:at] = data[at : at + size] * source.randint(1, 4)
        else:
            second_input = source.choice(CORPUS)
            begin = source.randrange(len(second_input))
            data[at : at + size] = second_input[begin : begin + source.randint(1, 30)]
    return bytes(data)


def _redrawn(source: random.Random) -> bytes:
    """Return rows that are redrawn over and over, mostly by the same control functions and equally
    long."""
    moves = _MOVES if source.random() < 0.8 else _MOVES + _ODD_MOVES
    pattern = [
        (source.choice((0, 1, 2, 5, 11)), "".join(source.choices(moves, k=source.randint(1, 3))))
        for _ in range(source.randint(1, 4))
    ]
    if source.random() < 0.8:
        pattern[-1] = (pattern[-1][0], f"\r\x1b[{source.randint(1, len(pattern))}A")
    is_odd = source.choice((0.0, 0.05, 0.2))
    words = [_word(source)]
    for _ in range(source.randint(4, 12)):
        for size, run in pattern:
            if source.random() < is_odd:
                words.append(source.choice((_word(source), "/LOGCOMMAND"[:size], "/", run)))
            words += (*source.choices(_CELLS, k=size), run)
    return "".join(words).encode(errors="surrogateescape")


# ---- invariants


def check(case: Case) -> None:
    """Check all invariants; raises AssertionError, or any exception of the renderer."""
    with (
        mock.patch.multiple(carriage_returns, _MIN_BYTES=0),
        mock.patch.multiple(
            redraws, _MIN_FRAMES=4, _MIN_SIZE=0, _repeats=lambda text, columns: True
        ),
    ):
        _check_all(case, (case.columns, case.rows))


def _check_all(case: Case, size: tuple[int, int]) -> None:
    whole = _outcome(Renderer(*size), case.pieces)
    assert _outcome(Renderer(*size), _recut(case.pieces, case.cuts)) == whole, "cut"
    assert _outcome(Renderer(*size), _recut(case.pieces, [1])) == whole, "byte by byte"
    assert _outcome(ScreenOnly(*size), case.pieces) == whole, "by the screen alone"


def _recut(pieces: list[tuple[bytes, float]], sizes: list[int]) -> list[tuple[bytes, float]]:
    out = []
    turn = 0
    for data, now in pieces:
        at = 0
        while at < len(data):
            end = at + sizes[turn % len(sizes)]
            out.append((data[at:end], now))
            at = end
            turn += 1
    return out


def _outcome(renderer: Renderer, pieces: list[tuple[bytes, float]]) -> list[tuple[str, bytes]]:
    """Return the whole output by kind, with adjacent texts joined; takes out every second
    command."""
    out: list[tuple[str, bytes]] = []
    commands = 0
    for data, now in pieces:
        begin = 0
        while begin < len(data):
            fed = renderer.feed(data, now, begin)
            assert fed.consumed > begin
            begin = fed.consumed
            _add(out, fed.blocks)
            if fed.command is not None:
                out.append(("command", fed.command))
                commands += 1
                # after a wider one is taken out, the tiers may disagree on the cursor
                # (docs/rendering.md, Limits)
                if commands % 2 or len(fed.command) >= renderer._screen.columns:
                    _add(out, renderer.keep_command())
                else:
                    renderer.take_command()
    _check_caps(renderer)
    out.append(
        (
            "shown",
            repr(
                (
                    renderer.status(),
                    renderer.pending(),
                    renderer.held_line_feeds(),
                    renderer.line_feeds,
                )
            ).encode(),
        )
    )
    due = renderer.next_tick()
    if due is not None:
        _add(out, renderer.tick(due + 1.0))
    fed = renderer.end_line(_END)
    _add(out, fed.blocks)
    if fed.command is not None:
        out.append(("command", fed.command))
        _add(out, renderer.keep_command())
    _add(out, renderer.flush())
    assert (renderer.pending(), renderer.status(), renderer.next_tick()) == (0, b"", None)
    return out


def _add(out: list[tuple[str, bytes]], blocks: list[Block]) -> None:
    for block in blocks:
        text = block.text.decode()
        assert text.endswith("\n")
        assert not any((c < " " and c != "\n") or "\x7f" <= c <= "\x9f" for c in text), (
            "a control byte came out"
        )
        kind = f"part {block.part}" if block.part else "note" if block.note else "text"
        if out and out[-1][0] == kind == "text":
            out[-1] = ("text", out[-1][1] + block.text)
        else:
            out.append((kind, block.text))


def _check_caps(renderer: Renderer) -> None:
    screen: LogScreen = renderer._screen
    assert len(screen.rows) == screen.height
    assert 0 <= screen.x <= screen.columns
    assert 0 <= screen.y < screen.height
    for row in [*screen.rows, *(screen._hidden_rows or [])]:
        assert len(row.cells) <= screen.columns
        assert isinstance(row.cells, str) or max(map(len, row.cells), default=0) <= MAX_JOINED
    assert screen.tabs is None or len(screen.tabs) <= screen.columns
    assert len(renderer._parser._collected) <= escape_parser.MAX_PARAMETERS + 1
    assert len(renderer._rest) <= 512
    assert renderer._tail_lines - (renderer._tail[0][1] if renderer._tail else 0) <= screen.height
