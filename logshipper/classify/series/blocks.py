"""Joins the values of several lines in one record. Pure.

A group of lines ends before its first line recurs. A line that only counts, such as `Time = 0.1`,
always begins a group. Its counter also stands in the records of later lines, once it has recurred.
"""

from logshipper.classify.series.items import Item, Record, Source

FLUSH_SECS = 1.0  # longest wait of a group for further lines
YOUNG_SECS = 60.0  # the same below one of a counter's first lines
YOUNG_LINES = 3  # of a counter: until then, lines below it may await confirmation
MAX_GROUPS = 8
MAX_KEYS = 256  # of a record
MAX_NUMBER_CHARACTERS = 64  # in a record of several lines
_NEVER = float("inf")


class _Group:
    """The values of consecutive lines."""

    __slots__ = (
        "counts", "created", "is_joined", "leader", "opened_at", "seq", "source", "time", "values",
    )  # fmt: skip

    def __init__(self, item: Item, counts: dict[str, str], *, leads: bool, created: int) -> None:
        self.seq = item.seq
        self.time = self.opened_at = item.time
        self.source = item.source
        self.leader = item.source if leads else None
        self.is_joined = False  # with further lines
        self.counts = counts  # of counters, the leader's among them
        self.values = {} if leads else dict(item.values)
        self.created = created  # number of the stream's newest line then

    def is_led(self) -> bool:
        """Return whether a line that only counts leads the group. One that stands once leads none."""
        return self.leader is not None and self.leader.count > 1

    def is_young(self) -> bool:
        """Return whether further lines of this group may be confirmed only below a later counter."""
        return self.leader is not None and 1 < self.leader.count <= YOUNG_LINES

    def due_at(self) -> float:
        return self.opened_at + (YOUNG_SECS if self.is_young() else FLUSH_SECS)

    def record(self) -> Record:
        is_known = self.leader is None or self.is_led()
        values = {**(self.counts if is_known else {}), **self.values}
        if self.is_joined and is_known:
            self.source.block_keys |= dict.fromkeys(values)
        return Record(self.seq, self.time, values)


class Blocks:
    """The open groups of one stream, in order."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._leaders = _Counters()  # of lines that only count
        self._latest = _Counters()  # of all lines

    def add(self, item: Item, newest: int) -> list[Record]:
        """Add a line's values; return the records that are complete. newest: number of the stream's
        newest line. A lower item awaited the confirmation of its shape."""
        source = item.source
        if source.counters and not source.only_counts:
            counts = self._leaders.before(item.seq)
            self._latest.add(item.seq, source, counts, item)
            return [Record(item.seq, item.time, {**counts, **item.values})]
        leads = source.only_counts and not source.is_boxed
        group = None if leads else self._group_at(item.seq)
        if group is None:
            return self._open(item, newest, leads=leads)
        if not group.is_led() and not group.values.keys().isdisjoint(item.values):
            return self._open(item, newest, leads=False)
        group.is_joined = True
        for name, value in item.values.items():
            if len(group.values) < MAX_KEYS and len(value) <= MAX_NUMBER_CHARACTERS:
                group.values.setdefault(name, value)
        return []

    def next_flush(self) -> float | None:
        """Return the time at which a group has waited long enough, or None."""
        return min((group.due_at() for group in self._groups if group.values), default=None)

    def flush(self, now: float = _NEVER) -> list[Record]:
        """Return the records of the groups that have waited long enough."""
        ready = [group for group in self._groups if now >= group.due_at()]
        self._groups = [group for group in self._groups if group not in ready]
        return [group.record() for group in ready if group.values]

    def _open(self, item: Item, newest: int, *, leads: bool) -> list[Record]:
        records = []
        if item.seq == newest:
            # the groups of this line's own confirmation await the confirmation of further lines
            complete = [
                group
                for group in self._groups
                if group.created < newest and group.values and not group.is_young()
            ]
            records = [group.record() for group in complete]
            self._groups = [group for group in self._groups if group not in complete]
        counts = item.counts() if leads else self._latest.before(item.seq)
        group = _Group(item, counts, leads=leads, created=newest)
        if leads:
            self._leaders.add(item.seq, item.source, counts)
            self._latest.add(item.seq, item.source, counts)
        self._groups.append(group)
        self._groups.sort(key=lambda entry: entry.seq)
        if len(self._groups) > MAX_GROUPS:
            first = self._groups.pop(0)
            if first.values:
                records.append(first.record())
        return records

    def _group_at(self, seq: int) -> _Group | None:
        return next((group for group in reversed(self._groups) if group.seq <= seq), None)


class _Counters:
    """The last values of counters, each with the number of its line."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Source, dict[str, str], Item | None]] = []

    def add(
        self, seq: int, source: Source, counts: dict[str, str], item: Item | None = None
    ) -> None:
        """Add a line. item: has further counters."""
        self._entries.append((seq, source, counts, item))
        if len(self._entries) > 1 and self._entries[-2][0] > seq:
            self._entries.sort(key=lambda entry: entry[0])
        del self._entries[:-MAX_GROUPS]

    def before(self, seq: int) -> dict[str, str]:
        """Return the counters of the last line before one. A counter that stands once counts
        nothing."""
        for begin, source, counts, item in reversed(self._entries):
            if begin <= seq and source.count > 1:
                return counts if item is None else {**counts, **item.counts()}
        return {}
