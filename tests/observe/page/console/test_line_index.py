"""The index of lines and the search in them, compared with the simplest method: sort all lines and
check each one."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import LogLine, Position
from logshipper_ingest.store.line_reader import BlockHead
from logshipper_observe.page.log import line_index
from logshipper_observe.page.log import search as search_module
from logshipper_observe.page.log.line_index import LineIndex, Slice
from logshipper_observe.page.log.search import Search, SearchQuery

Lines = list[tuple[int, int, int]]  # time, block, place in the block

block_shapes = st.tuples(
    st.integers(0, 60), st.integers(1, 9), st.sampled_from([1, 2]), st.integers(1, 3)
)


def heads(shapes: list[tuple[int, int, int, int]]) -> list[BlockHead]:
    return [BlockHead(number, *shape) for number, shape in enumerate(shapes, start=1)]


def plain(blocks: list[BlockHead]) -> Lines:
    return sorted(
        (block.time_ns + at, block.id, at) for block in blocks for at in range(block.lines)
    )


def lines_of(group: Slice) -> Lines:
    return plain(group.blocks)


def lines_between(index: LineIndex, first: int, end: int) -> Lines:
    lines: Lines = []
    for group in index.slices(first, end):
        lines += lines_of(group)[max(first - group.first, 0) : end - group.first]
    return lines


@given(st.lists(st.lists(block_shapes, max_size=6), max_size=5), st.data())
def test_lines_by_their_numbers(
    parts: list[list[tuple[int, int, int, int]]], data: st.DataObject
) -> None:
    blocks = heads([shape for part in parts for shape in part])
    index, block_count = LineIndex(), 0
    for part in parts:
        before = lines_between(index, 0, index.total)
        generation = index.generation
        index.add(blocks[block_count : block_count + len(part)])
        block_count += len(part)
        after = plain(blocks[:block_count])
        assert index.total == len(after)
        assert lines_between(index, 0, index.total) == after
        change = index.changed_since(generation)
        stable = len(before) if change is None else min(change.line, len(before))
        assert after[:stable] == before[:stable]
    first = data.draw(st.integers(0, index.total + 2))
    end = data.draw(st.integers(first, index.total + 5))
    assert lines_between(index, first, end) == plain(blocks)[first:end]


@given(st.lists(block_shapes, max_size=12))
def test_only_some_streams_and_captures(shapes: list[tuple[int, int, int, int]]) -> None:
    blocks = heads(shapes)
    index = LineIndex(streams=(2,))
    index.see(captures=(1, 3))
    index.add(blocks)
    stream_blocks = [block for block in blocks if block.stream == 2 and block.capture != 2]
    assert lines_between(index, 0, index.total) == plain(stream_blocks)
    assert index.newest == len(blocks)


@given(st.lists(block_shapes, max_size=8), st.integers(0, 80))
def test_a_time(shapes: list[tuple[int, int, int, int]], time_ns: int) -> None:
    """The result is the first line at or after the time, up to lines printed at the same
    nanosecond."""
    blocks = heads(shapes)
    index = LineIndex()
    index.add(blocks)
    number = index.number_at(time_ns)
    lines = plain(blocks)
    group = next((group for group in index.slices(max(number - 1, 0), number + 1)), None)
    first = sum(line[0] < time_ns for line in lines)
    near = len(lines_of(group)) if group else 0
    assert abs(number - first) <= near
    assert 0 <= number <= len(lines)


def test_old_changes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "_MAX_CHANGES", 3)
    index = LineIndex()
    index.add([BlockHead(1, 0, 5, 1, 1), BlockHead(2, 1000, 1, 1, 1)])
    for number in range(3, 9):
        index.add([BlockHead(number, 1000 - number, 1, 1, 1)])
    assert index.generation == 6
    assert index.changed_since(0) == (0, 0)  # the index no longer has these changes
    assert index.changed_since(3) == (1, 5)
    assert index.changed_since(6) is None


@given(st.lists(block_shapes, max_size=12), st.integers(1, 5))
def test_blocks_that_overlap_none(shapes: list[tuple[int, int, int, int]], limit: int) -> None:
    index = LineIndex()
    index.add(heads(shapes))
    at = 0
    while at < len(index):
        end = index.alone(at, limit)
        if end == at:
            end, group = next(index.groups(at))
            assert len(group.blocks) > 1
        else:
            assert end - at <= limit
            lone_ids = [[index.block(block_number).id] for block_number in range(at, end)]
            assert [[block.id for block in group.blocks] for _, group in index.groups(at)][
                : end - at
            ] == lone_ids
            assert list(index.ids(at, end)) == [number for (number,) in lone_ids]
        assert index.first(end) == index.first(at) + sum(
            index.block(block_number).lines for block_number in range(at, end)
        )
        at = end


# ---- search

TEXTS = st.lists(
    st.lists(st.text("abAB \u00e9\u00c9\u0130\u00df", max_size=6), min_size=1, max_size=12),
    min_size=1,
    max_size=8,
)


class Texts:
    """Consecutive blocks and their lines."""

    def __init__(self, blocks: list[list[str]]) -> None:
        self.blocks = blocks
        self.read: list[int] = []

    def heads(self) -> list[BlockHead]:
        starts = [sum(map(len, self.blocks[:at])) for at in range(len(self.blocks))]
        return [
            BlockHead(at + 1, 10 * starts[at], len(lines), 1, 1)
            for at, lines in enumerate(self.blocks)
        ]

    def __call__(self, at: int) -> tuple[int, bytes]:
        self.read.append(at + 1)
        return at + 1, "".join(f"{line}\n" for line in self.blocks[at]).encode()


def line_numbers_with(lines: Collection[str], text: str, *, exact: bool) -> list[int]:
    if exact:
        return [number for number, line in enumerate(lines) if text in line]
    if text.isascii():
        return [
            number
            for number, line in enumerate(lines)
            if text.encode().lower() in line.encode().lower()
        ]
    return [number for number, line in enumerate(lines) if text.lower() in line.lower()]


@given(TEXTS, st.text("abAB \u00e9\u00c9\u0130", min_size=1, max_size=3), st.booleans())
def test_search_finds_what_is_there(blocks: list[list[str]], text: str, exact: bool) -> None:
    texts = Texts(blocks)
    index = LineIndex()
    search = Search(SearchQuery(text, exact=exact))
    for head in texts.heads():
        index.add([head])
        assert search.scan(index, texts)
    lines = [line for block in blocks for line in block]
    assert list(search.hits) == line_numbers_with(lines, text, exact=exact)
    assert texts.read == list(range(1, len(blocks) + 1))  # each block once


def test_a_search_goes_on_where_its_time_was_up() -> None:
    texts = Texts([[f"line {at} {number}" for number in range(3)] for at in range(500)])
    index = LineIndex()
    index.add(texts.heads())
    search = Search(SearchQuery("line 499", exact=True))
    rounds = 1
    while not search.scan(index, texts, secs=0.0):
        rounds += 1
        assert 0 < search.scanned(index) < 1
    assert rounds > 2
    assert list(search.hits) == [1497, 1498, 1499]
    assert texts.read == list(range(1, 501))


def test_a_search_after_late_lines() -> None:
    """Late lines shift the lines behind them; the search repeats only that part."""
    index = LineIndex()
    texts = {1: b"hit\n", 2: b"no\nhit\n", 3: b"hit\nhit\n"}

    def read(at: int) -> tuple[int, bytes]:
        return at + 1, texts[index.block(at).id]

    search = Search(SearchQuery("hit", exact=True))
    index.add([BlockHead(1, 0, 1, 1, 1), BlockHead(2, 100, 2, 1, 1)])
    search.scan(index, read)
    assert list(search.hits) == [0, 2]
    index.add([BlockHead(3, 50, 2, 1, 1)])
    search.scan(index, read)
    assert list(search.hits) == [0, 1, 2, 4]


def test_an_expression_goes_on_after_its_time_limit() -> None:
    """Each call takes at least one block. Blocks whose numbers changed meanwhile are taken again."""
    index = LineIndex()
    texts = {number: f"line {number}8\nline {number}9\n".encode() for number in range(1, 5)}
    texts[9] = b"late 8\n"

    def read(at: int) -> tuple[int, bytes]:
        return at + 1, texts[index.block(at).id]

    index.add([BlockHead(number, number * 1000, 2, 1, 1) for number in range(1, 5)])
    search = Search(SearchQuery("[1-4]8$", exact=True, is_expression=True))
    for at in range(3):
        assert not search.scan(index, read, secs=-1.0)
        assert list(search.hits) == list(range(0, 2 * at + 1, 2))
    assert search.scan(index, read, secs=-1.0)
    assert list(search.hits) == [0, 2, 4, 6]
    index.add([BlockHead(9, 0, 1, 1, 1)])
    assert search.scan(index, read)
    assert list(search.hits) == [1, 3, 5, 7]


def test_a_search_ends_where_it_has_very_many_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MAX_HITS", 6)
    texts = Texts([["hit", "hit"] for _ in range(9)])
    index = LineIndex()
    index.add(texts.heads())
    search = Search(SearchQuery("hit"))
    assert search.scan(index, texts)
    assert search.is_full
    assert list(search.hits) == list(range(6))


def _line(text: str, kind: Kind, **attrs: int) -> LogLine:
    return LogLine(Position(0, 0, 0, 0), 0, Stream.STDOUT, kind, text, attrs, 1, 1)


@pytest.mark.parametrize("text", ["w", "W"])
@pytest.mark.parametrize("filler_lines", [0, 100])
def test_a_note_of_repeats_counts_as_the_lines_that_it_stands_for(
    text: str, filler_lines: int
) -> None:
    """R30: only the note's attributes count, and only if the line that it quotes has the text."""
    lines = [
        _line("w", Kind.LOG),
        _line("[repeated 7 times: w]", Kind.NOTE, repeat=7),
        _line("[repeated 9 times: w]", Kind.LOG),
        _line("[repeated 5 times: v]", Kind.NOTE, repeat=5),
        *[_line("x", Kind.LOG)] * filler_lines,
    ]
    index = LineIndex()
    index.add([BlockHead(1, 0, len(lines), 1, 1)])
    data = "".join(f"{line.text}\n" for line in lines).encode()
    search = Search(SearchQuery(text, exact=text == "w"))
    assert search.scan(index, lambda at: (1, data))
    assert search.count_repeats(lambda number: (0, lines))
    assert (list(search.hits), search.printed) == ([0, 1, 2], 9)
    note_search = Search(SearchQuery("repeated", exact=True))
    assert note_search.scan(index, lambda at: (1, data))
    assert not note_search.count_repeats(lambda number: (0, lines), secs=-1.0)
    assert note_search.count_repeats(lambda number: (0, lines))
    assert (list(note_search.hits), note_search.printed) == ([1, 2, 3], 3)


def test_colours_are_no_text() -> None:
    index = LineIndex()
    index.add([BlockHead(1, 0, 2, 1, 1)])
    search = Search(SearchQuery("red1", exact=False))
    search.scan(index, lambda at: (1, b"\x1b[31mRE\x1b[1mD\x1b[0m1\n31m\n"))
    assert list(search.hits) == [0]


@pytest.mark.parametrize(
    ("number", "back", "hit"), [(0, False, 0), (3, False, 0), (4, False, 1), (9, False, 2), (10, False, 0),
                                (9, True, 2), (8, True, 1), (3, True, 0), (2, True, 2)],
)  # fmt: skip
def test_the_nearest_hit(number: int, back: bool, hit: int) -> None:
    search = Search(SearchQuery("x", exact=True))
    assert search.near(number, back=back) is None
    search.hits.extend([3, 7, 9])
    assert search.near(number, back=back) == hit
