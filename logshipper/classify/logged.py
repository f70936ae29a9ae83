"""The classifier's results: logged lines and events, and the counts of lines."""

from logshipper.named_tuple import NamedTuple
from logshipper.spool.segment import Json, Kind, Stream


class LoggedLines(NamedTuple):
    """Lines of one stream and kind."""

    stream: Stream
    kind: Kind
    text: bytes  # each line ended by LF
    lines: int  # number of lines
    attrs: Json | None = None  # of a single line
    # last time of drawing, by the clock of `Classifier.feed`; None: the present time
    drawn_at: float | None = None


class LoggedEvent(NamedTuple):
    """An event of the capture."""

    record: Json  # without its `type`


class Tally:
    """Counts of one stream's lines (docs/segment-format.md)."""

    def __init__(self) -> None:
        self.blank = self.collapsed = self.commands = self.dropped = self.lost = self.stored = 0
