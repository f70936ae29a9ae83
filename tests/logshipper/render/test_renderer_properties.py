"""Random streams: the output depends on bytes and clock alone, and nothing raises."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.render.renderer import FIRST_SECS, Block, Renderer
from tests.tools.stress.model_settings import examples

_PLAIN = (
    *("a", "hello world", " ", "   ", "\n", "\n", "\r\n", "\r\r\n", "\t", "x" * 13, "line\n" * 6),
    *(
        "é",
        "日本",
        "😀",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[K",
        "\x1b(B",
        "\udcff",
        "\udce2\udc96",
        "\udc88",
    ),
)
_CONTROLS = (
    *("\r", "\b", "\v", "\f", "\a", "\0", "\x7f", "\x18", "\x0e", "\x0f", "\x85", "\x9b"),
    *("⚠\ufe0f", "👩\u200d💻", "👍🏽", "e\u0301", "\u0301", "\u200d"),
    *(
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[J",
        "\x1b[1J",
        "\x1b[2J",
        "\x1b[H",
        "\x1b[2;2H",
        "\x1b[4;1H",
        "\x1bc",
        "\x1b#8",
    ),
    *(
        "\x1b[A",
        "\x1b[2A",
        "\x1b[B",
        "\x1b[C",
        "\x1b[D",
        "\x1b[G",
        "\x1b[3d",
        "\x1b7",
        "\x1b8",
        "\x1bM",
        "\x1bD",
        "\x1bE",
    ),
    *(
        "\x1b[L",
        "\x1b[M",
        "\x1b[P",
        "\x1b[@",
        "\x1b[X",
        "\x1b[3b",
        "\x1b[2S",
        "\x1b[T",
        "\x1b[2;3r",
        "\x1b[r",
        "\x1b[ @",
    ),
    *(
        "\x1b[?1049h",
        "\x1b[?1049l",
        "\x1b[?47h",
        "\x1b[?47l",
        "\x1b[?25l",
        "\x1b[?25h",
        "\x1b[?7l",
        "\x1b[4h",
        "\x1b[!p",
    ),
    *(
        "\x1b]0;t\x07",
        "\x1b]0;",
        "\x1b_bk;t=1\x07",
        '\x1b[1"q',
        '\x1b[0"q',
        "\x1b[?J",
        "\x1b[?1K",
        "\x1b^x",
        "\x1b\\",
        "\x1bP",
        "\x1b(0",
        "\x1b)0",
        "\x1bH",
        "\x1b[3g",
        "\x1b[6n",
        "\x1b[?6h",
        "\x1b[",
        "\x1b",
    ),
    *("\r 10%|#   |", "\r100%|####|", "\rab\rabcd\rxy\rz", "\router\n\rinner\x1b[A"),
)
_COMMANDS = ("/LOGCOMMAND {}\n", "\n/LOGCOMMAND x\n", "/LOG", "COMMAND y")

Timed: TypeAlias = list[tuple[bytes, float]]


class ScreenOnly(Renderer):
    has_plain_tier = False


def _bytes(words: Sequence[str]) -> bytes:
    return "".join(words).encode(errors="surrogateescape")


# vowels of conjoining Hangul
_VOWELS = "".join(map(chr, [*range(0x1160, 0x1200), *range(0xD7B0, 0xD800)]))
# characters that join no others
_OF_THEIR_OWN = st.characters(exclude_categories=["C", "M", "Zl", "Zp"], exclude_characters=_VOWELS)
_words = st.one_of(st.sampled_from(_PLAIN), st.sampled_from(_PLAIN + _CONTROLS))
_plain = st.lists(st.sampled_from(_PLAIN), max_size=40).map(_bytes)
_any = st.one_of(st.lists(_words, max_size=30).map(_bytes), st.binary(max_size=60))
_sizes = st.tuples(st.sampled_from([2, 5, 10, 160]), st.sampled_from([1, 2, 3, 5, 50]))
_first_secs = st.sampled_from([0.0, FIRST_SECS])


@st.composite
def _streams(draw: st.DrawFn) -> Timed:
    """Draw bytes with the times of their feeding, sometimes far enough apart to make rows final."""
    pieces = draw(
        st.lists(st.tuples(_any, st.sampled_from([0.0, 0.1, 2.0])), min_size=1, max_size=5)
    )
    now = 0.0
    stream = []
    for data, later in pieces:
        stream.append((data, now))
        now += later
    return stream


def _split(stream: Timed, sizes: Sequence[int]) -> Timed:
    """Return the same bytes at the same times, cut into pieces of these sizes in turn."""
    pieces = []
    turn = 0
    for data, now in stream:
        at = 0
        while at < len(data):
            size = sizes[turn % len(sizes)]
            pieces.append((data[at : at + size], now))
            at += size
            turn += 1
    return pieces


def _outcome(renderer: Renderer, stream: Timed) -> list[tuple[str, bool, bytes]]:
    """Return the output and its account, with every second command taken. Adjacent texts become
    one."""
    commands = 0
    out: list[tuple[str, bool, bytes]] = []
    for data, now in stream:
        begin = 0
        while begin < len(data):
            fed = renderer.feed(data, now, begin)
            begin = fed.consumed
            _add(out, fed.blocks)
            if fed.command is not None:
                out.append(("command", False, fed.command))
                commands += 1
                if commands % 2:
                    _add(out, renderer.keep_command())
                else:
                    renderer.take_command()
    state = renderer.status(), renderer.pending(), renderer.held_line_feeds(), renderer.line_feeds
    out.append(("shown", False, repr(state).encode()))
    fed = renderer.end_line(stream[-1][1] if stream else 0.0)
    _add(out, fed.blocks)
    if fed.command is not None:
        out.append(("command", False, fed.command))
        _add(out, renderer.keep_command())
    _add(out, renderer.flush())
    return out


def _add(out: list[tuple[str, bool, bytes]], blocks: list[Block]) -> None:
    for block in blocks:
        text = block.text.decode()
        assert text.endswith("\n")
        assert not any((c < " " and c != "\n") or "\x7f" <= c <= "\x9f" for c in text)
        if out and out[-1][:2] == (block.part, block.note) == ("", False):
            out[-1] = ("", False, out[-1][2] + block.text)
        else:
            out.append((block.part, block.note, block.text))


@given(_streams(), _sizes, st.lists(st.integers(1, 12), min_size=1, max_size=5), _first_secs)
@settings(max_examples=examples(80), deadline=None)
def test_tiers_and_splits_agree(
    stream: Timed, size: tuple[int, int], cuts: list[int], first_secs: float
) -> None:
    whole = _outcome(Renderer(*size, first_secs), stream)
    assert _outcome(Renderer(*size, first_secs), _split(stream, [1])) == whole
    assert _outcome(Renderer(*size, first_secs), _split(stream, cuts)) == whole
    assert _outcome(ScreenOnly(*size, first_secs), stream) == whole
    assert _outcome(ScreenOnly(*size, first_secs), _split(stream, cuts)) == whole


@given(
    st.lists(st.one_of(_words, st.sampled_from(_COMMANDS)), max_size=30),
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
)
@settings(max_examples=examples(50), deadline=None)
def test_commands_are_met_in_every_tier_and_split(words: list[str], cuts: list[int]) -> None:
    stream = [(_bytes(words), 0.0)]
    whole = _outcome(Renderer(), stream)
    assert _outcome(Renderer(), _split(stream, cuts)) == whole
    assert _outcome(ScreenOnly(), stream) == whole


@given(st.lists(_plain, min_size=1, max_size=4), _sizes, _first_secs)
@settings(max_examples=examples(50), deadline=None)
def test_plain_streams_alternate_with_bars(
    pieces: list[bytes], size: tuple[int, int], first_secs: float
) -> None:
    """Plain stretches longer than the screen between bars, at changes of the tier."""
    stretch = b"".join(b"stretch %d\n" % n for n in range(60))
    data = b"".join(piece + stretch + b"\rbar\n\x1b[A!\n" for piece in pieces)
    whole = _outcome(Renderer(*size, first_secs), [(data, 0.0)])
    assert _outcome(Renderer(*size, first_secs), _split([(data, 0.0)], [700])) == whole
    assert _outcome(ScreenOnly(*size, first_secs), [(data, 0.0)]) == whole


@given(st.lists(st.text(_OF_THEIR_OWN, max_size=30), max_size=30), st.integers(1, 50))
@settings(max_examples=examples(50), deadline=None)
def test_plain_lines_come_out_once_and_in_order(lines: list[str], piece_size: int) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    if b"\n/LOGCOMMAND" in b"\n" + data:
        return
    for renderer in (Renderer(20, 4), ScreenOnly(20, 4)):
        blocks = [
            block
            for at in range(0, len(data), piece_size)
            for block in renderer.feed(data[at : at + piece_size], 0.0).blocks
        ]
        text = b"".join(block.text for block in blocks)
        assert text == data


@given(_streams(), _streams(), _sizes, _first_secs)
@settings(max_examples=examples(60), deadline=None)
def test_discard_and_flush_forget_everything(
    before: Timed, after: Timed, size: tuple[int, int], first_secs: float
) -> None:
    """R11: later output equals that of a renderer without earlier input."""
    for forget in ("discard", "flush"):
        renderer, fresh = Renderer(*size, first_secs), Renderer(*size, first_secs)
        for data, now in before:
            begin = 0
            while begin < len(data):
                fed = renderer.feed(data, now, begin)
                begin = fed.consumed
                if fed.command is not None:
                    renderer.keep_command()
        getattr(renderer, forget)()
        renderer.line_feeds = 0
        later = [(data, now + 100.0) for data, now in after]
        assert _outcome(renderer, later) == _outcome(fresh, later)


@given(_streams(), _sizes, st.lists(_sizes, min_size=1, max_size=3))
@settings(max_examples=examples(50), deadline=None)
def test_resizing_raises_nothing_and_counts_stay_sane(
    stream: Timed, size: tuple[int, int], sizes: list[tuple[int, int]]
) -> None:
    renderer = Renderer(*size)
    for turn, (data, now) in enumerate(stream):
        fed = renderer.feed(data, now)
        if fed.command is not None:
            renderer.take_command()
        renderer.resize(*sizes[turn % len(sizes)])
        _add([], fed.blocks + renderer.tick(now + 0.5))
        assert 0 <= renderer.held_line_feeds() <= renderer.line_feeds
        assert renderer.pending() >= bool(renderer.status())
        renderer.next_tick()
    _add([], renderer.flush())
    assert (
        renderer.pending(),
        renderer.held_line_feeds(),
        renderer.status(),
        renderer.next_tick(),
    ) == (0, 0, b"", None)


@given(_streams(), _sizes, _first_secs)
@settings(max_examples=examples(50), deadline=None)
def test_tick_is_due_when_next_tick_says(
    stream: Timed, size: tuple[int, int], first_secs: float
) -> None:
    renderer = Renderer(*size, first_secs)
    for data, now in stream:
        if renderer.feed(data, now).command is not None:
            renderer.keep_command()
    due = [renderer.next_tick()]
    while due[-1] is not None and len(due) < 100:
        renderer.tick(due[-1])
        due.append(renderer.next_tick())
    assert due[-1] is None
    assert all(before is None or after is None or before < after for before, after in pairwise(due))
