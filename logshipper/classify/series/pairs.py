"""Finds lines of `name: number` pairs that begin alike and differ in their further words. Pure."""

import re

from logshipper.classify.series.items import Item, Source
from logshipper.classify.series.names import is_counter
from logshipper.classify.series.numbers import SHORT_LITERAL, as_float, as_json
from logshipper.classify.series.shapes import CONFIRMING_LINES, named_numbers

MAX_SIGNATURES = 16
_LEAST_PAIRS = 3
_MAX_PAIRS = 50
_PAIR = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z_][\w./-]{0,40})\s?[:=]\s?"
    rf"(?P<number>{SHORT_LITERAL})(?=[,;\s]|$)"
)
# signs between a name and a number in a shape's key, unlike the colons in a time
_SIGNS = re.compile(rb"(?:[^\x01 ]|[\w./\x80-\xff-]\x01) ?[:=] ?\x01").findall
# without a sign, at a line's begin: `depth 9 nodes 149 nps 258 time 58 pv e7e6 b1c3`
_PLAIN_PAIRS = re.compile(
    rf"(?:[A-Za-z]\w{{0,20}}(?: [A-Za-z]\w{{0,20}})? {SHORT_LITERAL} ){{4,50}}".encode()
).match


class Pairs:
    """The lines of pairs of one stream, by the names of their first pairs."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str, ...], Source] = {}  # confirmed
        self._held: dict[tuple[str, ...], list[tuple[int, float, dict[str, str]]]] = {}

    def all(self) -> list[Source]:
        return list(self._sources.values())

    def feed(self, key: bytes, seq: int, time: float, line: bytes) -> list[Item] | None:
        """Take a line of a new shape; None if it is no line of pairs. The first pair must count."""
        if len(_SIGNS(key)) >= _LEAST_PAIRS:
            matches = _PAIR.finditer(line.decode("utf-8", "replace"))
            pairs = [(match["name"], as_json(match["number"])) for match in matches]
        elif (begin := _PLAIN_PAIRS(line)) is not None:
            pairs = named_numbers(begin[0])
        else:
            return None
        if not _LEAST_PAIRS <= len(pairs) <= _MAX_PAIRS or not is_counter(pairs[0][0]):
            return None
        signature = tuple(name for name, _ in pairs[:_LEAST_PAIRS])
        values = dict(pairs)
        source = self._sources.get(signature)
        if source is not None:
            source.count += 1
            return [Item(seq, time, values, source)]
        held = self._held.pop(signature, [])
        held.append((seq, time, values))
        if len(held) < CONFIRMING_LINES:
            if len(self._held) >= MAX_SIGNATURES:
                del self._held[next(iter(self._held))]
            self._held[signature] = held
            return None
        counter = signature[0]
        counts = [as_float(values[counter]) for _, _, values in held]
        if not counts[0] < counts[1] < counts[2] or len(self._sources) >= MAX_SIGNATURES:
            return None
        source = self._sources[signature] = Source(frozenset((counter,)))
        source.count = len(held)
        source.describe("line", " ".join(f"{name}: #" for name in signature), tuple(values), line)
        return [Item(*entry, source) for entry in held]
