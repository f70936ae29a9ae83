"""Memory of series: at most 4 MiB for both streams of a capture, whatever a job prints."""

import tracemalloc
from collections.abc import Iterator

from logshipper.classify.series.recogniser import MAX_KEYS, Recogniser

MAX_STREAM_BYTES = 2 << 20
LINE_BYTES = 2000


def word(number: int, length: int = 7) -> str:
    return "".join(chr(97 + number // 26**place % 26) for place in range(length))


def padded(text: str) -> str:
    return text + " , --- " + "-" * (LINE_BYTES - len(text))


def hostile() -> Iterator[str]:
    """Lines that fill the tables, blocks and shapes of a stream, each kind to its limit."""
    for value in range(1, 4):
        for at in range(240):  # long numbers in open blocks
            yield f"{word(at)}: {value}." + "1" * 350
    for at in range(20):  # confirmed shapes of many columns
        for value in range(1, 4):
            yield f"{word(at)} " + " ".join(f"{word(c, 3)}={value}.{c}" for c in range(100))
    for at in range(260):  # rejected shapes
        for value in range(3):
            yield padded(f"{word(at)} listen port {value} a b c d e f g h i")
    for at in range(20):  # tables that await more rows
        yield " ".join(word(at * 100 + c, 6) for c in range(99))
        for _ in range(7):
            yield " ".join(["123456789012"] * 99)
    for at in range(80):  # pending shapes
        for value in range(2):
            yield padded(f"{word(at)} loss=0.{value}")
    for _ in range(5):  # possible headers
        yield "a" * 100_000


def test_a_hostile_stream_has_a_limit() -> None:
    recogniser = Recogniser()
    tracemalloc.start()
    try:
        peak = 0
        for number, line in enumerate(hostile()):
            recogniser.feed([line.encode()], 1.0)
            if number % 10 == 0:
                peak = max(peak, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert MAX_STREAM_BYTES / 4 < peak < MAX_STREAM_BYTES


def test_keys_have_a_limit() -> None:
    recogniser = Recogniser()
    keys: set[str] = set()
    for first in range(0, 400, 50):
        names = [word(first + at) for at in range(50)]
        for value in range(1, 4):
            line = f"step {value} " + " ".join(f"{name}=0.{value}" for name in names)
            for record in recogniser.feed([line.encode()], 1.0):
                keys |= record.values.keys()
                assert len(record.values) > 1, "a record of counters alone says nothing"
    assert len(keys) == MAX_KEYS
    assert recogniser.take_over_limit() == {"keys": 3 * (400 + 1 - MAX_KEYS)}
