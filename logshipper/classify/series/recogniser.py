"""Turns one stream's lines into records. Pure."""

from collections.abc import Iterable

from logshipper.classify.series import bars
from logshipper.classify.series.blocks import Blocks
from logshipper.classify.series.items import Item, Record
from logshipper.classify.series.numbers import NUMBER
from logshipper.classify.series.shapes import MARK, Shapes
from logshipper.classify.series.tables import Tables, may_be_row

MAX_LINE_BYTES = 2048


class Recogniser:
    """Finds the series of one stream."""

    def __init__(self) -> None:
        self._seq = 0
        self._shapes = Shapes()
        self._tables = Tables()
        self._blocks = Blocks()
        self._bar: dict[str, str] = {}
        self._redrawn = (b"", b"", 0)  # the last row without a bar, its shape and its place

    @property
    def shapes(self) -> int:
        """The number of confirmed shapes."""
        return len(self._shapes.confirmed)

    @property
    def pending(self) -> int:
        """The number of shapes that await confirmation."""
        return len(self._shapes.pending)

    @property
    def dropped(self) -> int:
        """The number of shapes over the limit."""
        return self._shapes.dropped

    def feed(self, lines: Iterable[bytes], time: float, number: int = 0) -> list[Record]:
        """Take final lines, drawn at a time. Return the records that they complete. number: of the
        first line; 0: the one after the last."""
        if number:
            self._seq = number - 1
        records: list[Record] = []
        sub, mark = NUMBER.sub, MARK
        confirmed, rejected = self._shapes.confirmed, self._shapes.rejected
        headers, take_row = self._tables.headers, self._tables.take_row
        for line in lines:
            self._seq += 1
            key = sub(mark, line) if len(line) <= MAX_LINE_BYTES else line
            if key == line:
                headers.append(line)
                continue
            key = b" ".join(key.split())
            shape = confirmed.get(key)
            if shape is not None:
                records += self._blocks.add(shape.item(self._seq, time, line), self._seq)
                continue
            if key in rejected and not self._shapes.is_due(key):
                headers.append(line)
                continue
            if (row := take_row(key, self._seq, time, line)) is not None:
                records += self._blocks.add(row, self._seq)
                continue
            for item in self._take_new(key, time, line, records):
                records += self._blocks.add(item, self._seq)
        return records

    def _take_new(self, key: bytes, time: float, line: bytes, records: list[Record]) -> list[Item]:
        """Take a line of an unknown shape. records: gets that of a bar."""
        if b"%|" in line or b"\xe2" in line or b"[=" in line:
            values = bars.read(line.decode("utf-8", "replace"))
            if values:
                records += self._take_bar(values, time)
                return []
            if values is not None:  # a bar without pairs, perhaps behind a row
                line = bars.without_bar(line)
                key = b" ".join(NUMBER.sub(MARK, line).split())
                if not key:
                    return []
        if may_be_row(key):
            items = self._tables.feed(key, self._seq, time, line)
            if items is not None:
                return items
        self._tables.note(line)
        self._tables.headers.append(line)
        return self._shapes.feed(key, self._seq, time, line)

    def tick(self, now: float) -> list[Record]:
        return self._blocks.flush(now)

    def next_tick(self) -> float | None:
        return self._blocks.next_flush()

    def flush(self) -> list[Record]:
        """Take all open groups."""
        return self._blocks.flush()

    def feed_bars(self, rows: Iterable[bytes], time: float) -> list[Record]:
        """Take the rows of running bars."""
        records = []
        for row in rows:
            values = bars.read(row.decode("utf-8", "replace"))
            if values:
                records += self._take_bar(values, time)
            elif values is None and row:
                records += self._take_redrawn(row, time)
        return records

    def _take_redrawn(self, row: bytes, time: float) -> list[Record]:
        """Take a row that changed in its place: `frame=  123 fps= 25`."""
        key = NUMBER.sub(MARK, row)
        last, self._redrawn = self._redrawn, (row, key, self._seq)
        if row == last[0] or (key.split(), self._seq) != (last[1].split(), last[2]):
            return []
        records = self.feed((row,), time)
        self._seq -= 1
        return records

    def _take_bar(self, values: dict[str, str], time: float) -> list[Record]:
        if not values or values == self._bar:
            return []
        self._bar = values
        return [Record(self._seq, time, dict(values))]
