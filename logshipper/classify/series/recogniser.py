"""Turns one stream's lines into records. Pure."""

import re
from collections import deque
from collections.abc import Iterable

from logshipper.classify.series import bars
from logshipper.classify.series.blocks import Blocks
from logshipper.classify.series.items import Item, ListedShape, Record, Source
from logshipper.classify.series.key_rules import KeyRules, only_counts
from logshipper.classify.series.line_reader import MARK, LineReader
from logshipper.classify.series.numbers import NUMBER
from logshipper.classify.series.pairs import Pairs
from logshipper.classify.series.rows import LEAST_ALIGNED, may_be_row
from logshipper.classify.series.shapes import Shape, Shapes, shape_key
from logshipper.classify.series.tables import MAX_TABLES, Table, Tables

MAX_LINE_BYTES = 2048
MAX_KEYS = 256
MAX_ROWS = 16  # that run at once, or ended lately
# `[rank0]`, and `[default0]:` of torchrun
_RANK = re.compile(rb"\s{0,99}\[(?:rank([0-9]{1,9})\]|[A-Za-z]{1,16}([0-9]{1,7})\](?=:))").match


class Recogniser:
    """Finds the series of one stream. key_rules: the user's corrections."""

    def __init__(self, key_rules: KeyRules | None = None) -> None:
        self._numbers_over_limit = 0  # of keys beyond MAX_KEYS
        self._key_rules = key_rules or KeyRules()
        self._keys: set[str] = set()
        self._seq = 0
        self._reader = LineReader()
        self._shapes = Shapes()
        self._pairs = Pairs()
        self._tables = Tables()
        self._blocks = Blocks()
        self._newest_bars: deque[dict[str, str]] = deque(maxlen=MAX_ROWS)  # with a record
        self._live = Shapes()  # of redrawn rows
        self._redrawn: deque[bytes] = deque(maxlen=MAX_ROWS)  # the newest ones
        # since which line, with the first row of each shape until another one follows
        self._redrawn_firsts: tuple[int, dict[bytes, list[tuple[float, bytes]]]] = (0, {})
        self._bars: dict[tuple[str, ...], Source] = {}  # by keys

    @property
    def shapes(self) -> int:
        """The number of confirmed shapes."""
        return len(self._shapes.confirmed)

    @property
    def pending(self) -> int:
        """The number of shapes that await confirmation."""
        return len(self._shapes.pending)

    def take_over_limit(self) -> dict[str, int]:
        """Return the numbers of dropped items since the last call, by reason."""
        counts = {"shapes": self._shapes.dropped, "keys": self._numbers_over_limit}
        self._shapes.dropped = self._numbers_over_limit = 0
        return {reason: count for reason, count in counts.items() if count}

    def list_shapes(self) -> list[ListedShape]:
        """List the shapes with records, those with the most lines first."""
        lines = [*self._shapes.confirmed.values(), *self._pairs.all()]
        redrawn = self._live.confirmed.values()
        sources = [*lines, *redrawn, *self._tables.all(), *self._bars.values()]
        shapes = [shape for source in sources if (shape := source.listed()) is not None]
        return sorted(shapes, key=lambda shape: -shape.lines)

    def feed(self, lines: Iterable[bytes], time: float, number: int = 0) -> list[Record]:
        """Take final lines, drawn at a time. Return the records that they complete. number: of the
        first line; 0: the one after the last."""
        if number:
            self._seq = number - 1
        records: list[Record] = []
        read, count = self._reader.read, self._reader.count
        confirmed, rejected = self._shapes.confirmed, self._shapes.rejected
        headers, row_table = self._tables.headers, self._tables.row_table
        for line in lines:
            self._seq += 1
            if len(line) > MAX_LINE_BYTES:
                headers.append(b"")  # no header is that long
                continue
            if b"[" in line[:100] and (rank := _RANK(line)) is not None:
                number_text = rank[1] or rank[2]
                line = b"[rank %b]%b" % (number_text, line[rank.end() :])  # noqa: PLW2901
            key, numbers = read(line)
            if not key:
                headers.append(line)
                continue
            source: Shape | Table | None = confirmed.get(key)
            is_rejected = source is None and key in rejected
            if is_rejected and numbers is None:
                count(key, line)
            if is_rejected and not self._shapes.is_due(key):
                headers.append(line)
                continue
            source = source or row_table(key)
            if source is not None:
                if numbers is None:
                    count(key, line)
                    numbers = NUMBER.findall(line)
                item = source.item(self._seq, time, numbers)
                records += self._blocks.add(item, self._seq)
                continue
            for item in self._take_new(key, time, line, records):
                records += self._blocks.add(item, self._seq)
        return self._corrected(records)

    def _take_new(self, key: bytes, time: float, line: bytes, records: list[Record]) -> list[Item]:
        """Take a line of an unknown shape. records: gets that of a bar."""
        if b"%|" in line or b"\xe2" in line or b"[=" in line:
            values = bars.read(line.decode("utf-8", "replace"))
            if values:
                records += self._take_bar(values, time, line)
                return []
            if values is not None:  # a bar without pairs, perhaps behind a row
                line = bars.without_bar(line)
                key = shape_key(line)
                if not key:
                    return []
        if may_be_row(key):
            items = self._tables.feed(key, self._seq, time, line)
            if items is not None:
                return items
        if key.count(MARK) < LEAST_ALIGNED:  # a row is no header
            self._tables.headers.append(line)
        if key not in self._shapes.pending:
            items = self._pairs.feed(key, self._seq, time, line)
            if items is not None:
                return items
        return self._shapes.feed(key, self._seq, time, line)

    def tick(self, now: float) -> list[Record]:
        return self._corrected(self._blocks.flush(now))

    def next_tick(self) -> float | None:
        return self._blocks.next_flush()

    def flush(self) -> list[Record]:
        """Take all open groups."""
        return self._corrected(self._blocks.flush())

    def feed_bars(self, rows: Iterable[bytes], time: float, *, is_still: bool) -> list[Record]:
        """Take the rows of running bars. is_still: no line has ended lately, so a row that is no
        bar is one that the program redraws."""
        records = []
        for row in rows:
            values = bars.read(row.decode("utf-8", "replace"))
            if values:
                records += self._take_bar(values, time, row)
            elif values is None and is_still and len(row) <= MAX_LINE_BYTES:
                records += self._take_redrawn(row.strip(), time)
        return self._corrected(records)

    def _corrected(self, records: list[Record]) -> list[Record]:
        """Return the records by the user's rules, without keys beyond MAX_KEYS."""
        records = self._key_rules.apply(records)
        for record in records:
            if not self._keys.issuperset(record.values):
                self._limit_keys(record.values)
        return [record for record in records if record.values]

    def _limit_keys(self, values: dict[str, str]) -> None:
        for key in [key for key in values if key not in self._keys]:
            if len(self._keys) < MAX_KEYS:
                self._keys.add(key)
            else:
                del values[key]
                self._numbers_over_limit += 1
        if all(map(only_counts, values)):
            values.clear()

    def _take_redrawn(self, row: bytes, time: float) -> list[Record]:
        """Take a row that the program redraws: `frame= 47 fps=25 size=256kB`."""
        key = shape_key(row)
        if row in self._redrawn or MARK not in key:
            return []
        self._redrawn.append(row)
        begin, firsts = self._redrawn_firsts
        if begin != self._seq or len(firsts) >= MAX_ROWS:
            firsts = {}
            self._redrawn_firsts = self._seq, firsts
        if key not in firsts:
            firsts[key] = [(time, row)]
            return []  # perhaps a line whose end comes later, as with `python -u`
        rows = [*firsts[key], (time, row)]
        firsts[key] = []
        items: list[Item] = []
        for drawn_at, text in rows:
            shape = self._live.confirmed.get(key)
            if shape is not None:
                items.append(shape.item(self._seq, drawn_at, NUMBER.findall(text)))
            else:
                items += self._live.feed(key, self._seq, drawn_at, text)
        return [Record(item.seq, item.time, item.values) for item in items]

    def _take_bar(self, values: dict[str, str], time: float, row: bytes) -> list[Record]:
        if not values or values in self._newest_bars:
            return []
        self._newest_bars.append(values)
        keys = tuple(values)
        if keys not in self._bars and len(self._bars) < MAX_TABLES:
            bar = self._bars[keys] = Source(frozenset())
            bar.describe("bar", " ".join(f"{key}=#" for key in keys), keys, row)
        if keys in self._bars:
            self._bars[keys].count += 1
        return [Record(self._seq, time, dict(values))]
