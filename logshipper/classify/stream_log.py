"""What becomes of a stream's final lines: lines of the log, metadata, repeats and blank lines that
are counted, and the live status of what isn't final. Pure."""

from collections import deque
from collections.abc import Iterable
from itertools import groupby, islice
from operator import eq, itemgetter

from logshipper.classify import metadata, near_records
from logshipper.classify.masks import MASK, Masks
from logshipper.classify.repeat_note import repeat_note
from logshipper.named_tuple import NamedTuple
from logshipper.render import command_prefix
from logshipper.render.renderer import Block, Renderer, Rendering
from logshipper.shape_mask import HELD_BYTES, ShapeMask, cut
from logshipper.spool.segment import (
    COPY,
    MAX_STATUS_BARS,
    MAX_STATUS_BYTES,
    ORIGIN,
    SENT,
    STATUS_BREAK,
    Json,
    Kind,
    Stream,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.classify.text_records import TextRecord, TextRecords

REPEAT_SECS = 10.0  # between two lines: the later one is no repeat; or between two notes
MAX_INTERRUPTIONS = 64  # that are remembered; a run that is older goes on no further
STATUS_SECS = 10.0  # between two of a stream in the segments
LIVE_SECS = 0.5  # between two looks at what a stream shows
MASKED_SECS = 60.0  # between two reports of masked values
OVER_SECS = 1.0  # how long a bar that is over may be shown
SNAPSHOT_MARK = b"[so far] "
MAX_KEY_SETS = (
    1024  # sets of keys that metadata records are numbered by; all further ones share one number
)
MAX_LOOKS = 1000  # of a capture: lines that may nearly be records
_BLANK = ord(" ")
_LAST_BYTE = itemgetter(-1)


class LoggedLines(NamedTuple):
    """Lines of one stream and kind."""

    stream: Stream
    kind: Kind
    text: bytes  # each line ended by LF
    lines: int  # how many
    attrs: Json | None = None  # of the only line
    # by the clock of `Classifier.feed`: when they were drawn upon last; None: they are made now
    drawn_at: float | None = None


class LoggedEvent(NamedTuple):
    """Something that happened to the capture. record: without its `type`."""

    record: Json


class Tally:
    """The ledger of one stream."""

    __slots__ = ("blank", "collapsed", "commands", "dropped", "lost", "stored")

    def __init__(self) -> None:
        self.stored = self.collapsed = self.blank = self.dropped = self.commands = self.lost = 0


class CaptureLog:
    """What both streams of a capture share: what came out, in order; what is masked; how records
    are numbered."""

    def __init__(self) -> None:
        self.out: list[LoggedLines | LoggedEvent] = []
        self.masks = Masks()
        self.masked: dict[str, int] = {}  # values by shape, not yet reported
        self._masked_due = 0.0  # when the next report of them is due at the earliest
        self.notes = self.statuses = self.parts = 0
        self._key_sets: dict[frozenset[str], int] = {}
        self._hinted: set[str] = set()
        self.looks = MAX_LOOKS  # for lines that nearly are records, that are left
        self.logs: list[StreamLog] = []

    def event(self, name: str, message: str, **details: str) -> None:
        self.out.append(LoggedEvent({"event": name, "message": message, **details}))

    def masked_due(self) -> float | None:
        """When values are reported that are masked by now."""
        return self._masked_due if self.masked else None

    def report_masked(self, now: float, *, at_end: bool = False) -> None:
        """Counts the masked values by shape, once per MASKED_SECS at most, and at the end."""
        if not self.masked or not (at_end or now >= self._masked_due):
            return
        self._masked_due = now + MASKED_SECS
        shapes = dict(sorted(self.masked.items(), key=lambda item: (-item[1], item[0])))
        self.masked.clear()
        values = sum(shapes.values())
        names = ", ".join(
            name if len(shapes) == 1 else f"{count} {name}" for name, count in shapes.items()
        )
        message = f"{values} value{'s' * (values > 1)} masked: {names}"
        event = {"event": "values_masked", "message": message, "values": values, "shapes": shapes}
        self.out.append(LoggedEvent(event))

    def number(self, keys: tuple[str, ...]) -> int:
        """The record's number among those with the same set of keys, from 1."""
        key_set = frozenset(keys)
        if key_set not in self._key_sets and len(self._key_sets) >= MAX_KEY_SETS:
            key_set = frozenset()
        number = self._key_sets.get(key_set, 0) + 1
        self._key_sets[key_set] = number
        return number

    def pattern_off(self, name: str) -> None:
        self.event(
            "metadata_pattern_off",
            f"the pattern `{name}` of ~/.logoptin is switched off: it takes too long; what it looks "
            "for is no longer a record. Make it more definite: begin it with a word that is always there",
            pattern=name,
        )

    def hint(self, hint: metadata.Hint, stream: Stream, line: bytes = b"") -> None:
        """Says what nearly was metadata, and the fix: once for each reason. line: what may be
        quoted."""
        if hint.reason not in self._hinted:
            self._hinted.add(hint.reason)
            text = near_records.quoted(hint, line) if line else hint.text
            self.event("json_hint", text, stream=stream.name.lower(), reason=hint.reason)

    def look_for_near_records(self, text: bytes, stream: Stream, *, may_quote: bool) -> None:
        """Hints at the first line of each kind that nearly is a record."""
        for line in text.split(b"\n"):
            if near_records.OBJECT_BEGIN not in line:
                continue
            if not self.looks or self._hinted >= near_records.REASONS:
                self.looks = 0
                return
            self.looks -= 1
            hint = near_records.hint_at(line, stream)
            if hint is not None:
                self.hint(hint, stream, line if may_quote else b"")


class HalfCommand:
    """A line that isn't ended, begun under another mode: it is a command or nothing. raw: its
    bytes."""

    def __init__(self, raw: bytes, size: tuple[int, int]) -> None:
        self._raw = raw
        self._size = size

    def fed(self, data: bytes) -> "HalfCommand":
        """With what follows; more than any command has isn't kept."""
        return HalfCommand((self._raw + data)[: command_prefix.MAX_BYTES + 1], self._size)

    def rendered(self, now: float) -> Rendering:
        return Renderer(*self._size).feed(self._raw + b"\n", now)


class StreamLog:
    """One stream: what its renderer shows, by the stream's own mode. half_command: what was cut off
    by a change of it; capture: what it shares with the other; collapse: repeats and blank lines;
    snapshot_secs: between two looks at a bar that runs, 0 for none; text_records: records of lines
    that aren't JSON, None: such lines are none; mask: secrets by their shape. live: what isn't
    final, as it was LIVE_SECS ago at most; b"" for nothing."""

    __slots__ = (
        "_capture",
        "_collapse",
        "_interruptions",
        "_keep_colours",
        "_last_blank",
        "_last_line",
        "_last_line_at",
        "_live_feeds",
        "_live_looked_at",
        "_part_end",
        "_repeat",
        "_repeated",
        "_repeated_since",
        "_shapes",
        "_snapshot",
        "_snapshot_due",
        "_snapshot_secs",
        "_status",
        "_status_looked_at",
        "_text_records",
        "bytes",
        "half_command",
        "live",
        "mode",
        "renderer",
        "stream",
        "tally",
    )

    def __init__(
        self,
        stream: Stream,
        renderer: Renderer,
        mode: str,
        capture: CaptureLog,
        *,
        keep_colours: bool,
        snapshot_secs: float,
        collapse: bool,
        text_records: "TextRecords | None" = None,
        mask: bool = True,
    ) -> None:
        self.half_command: HalfCommand | None = None
        self.stream = stream
        self.renderer = renderer
        self.mode = mode
        self.bytes = 0
        self.tally = Tally()
        self._capture = capture
        self._keep_colours = keep_colours
        self._collapse = collapse
        self._text_records = text_records
        self._shapes = ShapeMask(capture.masked) if mask else None
        self.live = b""
        self._live_looked_at = 0.0
        self._live_feeds = -1  # line feeds of the stream then
        self._status = b""  # the last one in the segments
        self._status_looked_at = 0.0
        self._snapshot_secs = snapshot_secs
        self._snapshot_due = float("inf")
        # when the lines of the other stream were drawn
        self._interruptions: deque[float] = deque(maxlen=MAX_INTERRUPTIONS)
        capture.logs.append(self)
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._last_line: bytes | None = None  # the last line logged, for repeats, without colours
        self._last_line_at = 0.0  # when it came last, by the clock of `Classifier.feed`
        self._repeated = 0  # how often it came again, not yet logged
        self._repeat = b""  # the first of these, as it is to be logged
        self._repeated_since = 0.0  # ... and when it came
        self._last_blank = False
        self._part_end = b""  # of a long line's last part: a token may go on in the next one
        self._snapshot = b""  # the last one
        if self._text_records is not None:
            self._text_records.forget()

    # ---- what comes in

    def sort(self, blocks: Iterable[Block]) -> None:
        """Takes final lines."""
        for block in blocks:
            if block.part or block.note:
                self._sort_odd(block)
                continue
            if self._text_records is None or self.mode == "disabled":
                self._sort_text(block.text, block.drawn_at)
            else:
                self._sort_with_records(block.text, self._text_records, block.drawn_at)

    def take_record(self, record: bytes) -> None:
        """Takes metadata that the job didn't print but sent."""
        record = self.masked(record)
        keys = metadata.keys_of(record)
        if self.mode == "disabled" or not isinstance(keys, tuple):
            self.tally.dropped += 1
            return
        self.end_run()
        self._write(Kind.METADATA, record + b"\n", 1, {"n": self._capture.number(keys), SENT: 1})
        self.tally.stored += 1

    def take_command(self, line: bytes) -> None:
        """A line that was obeyed, as it is to be shown."""
        self.end_run()
        self._write(Kind.COMMAND, line + b"\n", 1)

    def tick(self, now: float) -> None:
        """What only time brings: rows left alone, repeats that go on, the status of running
        bars."""
        self.sort(self.renderer.tick(now))
        if self._repeated and now >= self._repeated_since + REPEAT_SECS:
            self._say_repeats()
        if now >= self._live_looked_at + LIVE_SECS or not self.renderer.pending():
            self._look_for_live(now)
        if now >= self._status_looked_at + STATUS_SECS:
            self._status_looked_at = now
            self._show_status()
        elif self._status and not self.renderer.pending():
            self._write_status(b"")  # over: that isn't waited with
        if self._snapshot_secs and self.mode == "enabled" and self.renderer.pending():
            self._look_for_snapshot(now)

    def next_tick(self, ticked_at: float) -> float | None:
        """When `tick` has something to do at the earliest, or None. ticked_at: when it was called
        last."""
        times = []
        due = self.renderer.next_tick()
        if due is not None:
            times.append(due)
        if self._repeated:
            times.append(self._repeated_since + REPEAT_SECS)
        if self.mode == "enabled" and (self.live or self._status or self.renderer.pending()):
            times.append(self._live_looked_at + LIVE_SECS)
            times.append(self._status_looked_at + STATUS_SECS)
            times.append(min(self._snapshot_due, ticked_at + OVER_SECS))
        return min(times, default=None)

    def account(self) -> Json:
        """The stream's part of the ledger."""
        counts = {name: getattr(self.tally, name) for name in Tally.__slots__}
        # a single repeat may become a line yet
        held = int(self._repeated == 1)
        pending = self.renderer.pending() + held
        counts["collapsed"] += self._repeated - held
        return {
            "read": sum(counts.values()) + pending,
            **counts,
            "pending": pending,
            "bytes": self.bytes,
            "line_feeds": self.renderer.line_feeds - self.renderer.held_line_feeds() - held,
        }

    def settle(self) -> None:
        """All that the stream shows and holds is logged; its status is withdrawn; it starts
        afresh."""
        self.sort(self.renderer.flush())
        if self._repeated:
            self._say_repeats()
        self.live = b""
        if self._status:
            self._write_status(b"")
        self._start_afresh()

    def change_mode(self, mode: str, now: float) -> None:
        """All that the stream shows is dealt with under the old mode. A half line may be a command
        all the same."""
        before, half = self.renderer.take_half_command()
        if half and self.half_command is None:
            self.half_command = HalfCommand(half, self.renderer.size())
        if self.mode != "enabled":
            self.renderer.drop_half_line()  # part of a line was printed under the old mode: what it is isn't known
        self.settle()
        if before.strip() and self.mode == "enabled":
            self.sort([Block(before + b"\n", drawn_at=now)])
            self.settle()
        self.mode = mode

    def end_run(self) -> None:
        """Another line comes: a run of repeats, and a run of blank lines, is over."""
        if self._repeated:
            self._say_repeats()
        self._last_line = None
        self._last_blank = False

    def interrupt(self, drawn_at: float | None) -> None:
        """A line of the other stream comes out, drawn at that time: a run of repeats, and of blank
        lines, is over, but for lines that are held and were drawn before."""
        if drawn_at is not None:
            self._interruptions.append(drawn_at)
        has_run = self._last_line is not None or self._last_blank
        if has_run and (drawn_at is None or not self.renderer.pending()):
            self.end_run()

    # ---- sorting final lines

    def masked(self, text: bytes, *, counted: bool = True) -> bytes:
        """Whole lines without stop tokens and secrets. Call it once for each text: a secret may go
        on in the next one. counted: the text is logged, so its secrets count."""
        text = self._capture.masks.masked(text)
        return text if self._shapes is None else self._shapes.masked(text, counted=counted)

    def _sort_text(self, text: bytes, drawn_at: float, *, is_masked: bool = False) -> None:
        if self._keep_colours and b"\x1b" in text:
            self._sort_coloured(text, drawn_at, is_masked=is_masked)
            return
        mined = self.stream is Stream.STDOUT and _begins_object(text)
        if self.mode == "enabled":
            self._sort_block(text if is_masked else self.masked(text), mined, drawn_at)
        elif self.mode == "metadata" and mined:
            self._sort_block(text, mined, drawn_at)
        else:
            self.tally.dropped += text.count(b"\n")
            if self.mode == "metadata" and self.stream is Stream.STDOUT:
                self._hint(text)

    def _sort_with_records(self, text: bytes, text_records: "TextRecords", drawn_at: float) -> None:
        """Lines some of which may be records though they aren't JSON. In mode `enabled` such a line
        is logged as it is, and the record is beside it; in mode `metadata` the record takes its
        place."""
        plain = text
        if self._keep_colours and b"\x1b" in text:
            from logshipper.render.colours import stripped

            plain = stripped(text)
        masked = self.masked(plain, counted=self.mode == "enabled")
        text = masked if text is plain else _with_masks(text, plain, masked)
        records = text_records.find(masked)
        for name in text_records.take_switched_off():
            self._capture.pattern_off(name)
        enabled = self.mode == "enabled"
        if enabled and not _begins_object(masked):
            self._sort_text(text, drawn_at, is_masked=True)
            for record in records:
                self._write_text_record(record, {COPY: 1}, drawn_at)
            return
        # records are in the order of printing, JSON lines among them
        lines = text.split(b"\n")
        lines.pop()
        begin = 0
        for record in records:
            self._sort_lines_between(lines[begin : record.at + enabled], drawn_at)
            if enabled:
                self._write_text_record(record, {COPY: 1}, drawn_at)
            else:
                self._write_text_record(record, {}, drawn_at)
                self.tally.stored += 1
            begin = record.at + 1
        self._sort_lines_between(lines[begin:], drawn_at)

    def _sort_lines_between(self, lines: list[bytes], drawn_at: float) -> None:
        if lines:
            self._sort_text(b"\n".join(lines) + b"\n", drawn_at, is_masked=True)

    def _write_text_record(self, record: "TextRecord", attrs: Json, drawn_at: float) -> None:
        if type(record.keys) is metadata.KeysWithGaps:
            self._capture.hint(metadata.NAN_HINT, self.stream)
        numbered = {"n": self._capture.number(record.keys), ORIGIN: record.origin, **attrs}
        self._write(Kind.METADATA, record.line + b"\n", 1, numbered, drawn_at=drawn_at)

    def _sort_coloured(self, text: bytes, drawn_at: float, *, is_masked: bool) -> None:
        """Lines that hold colours: what becomes of each is as if it held none."""
        from logshipper.render.colours import stripped

        plain = stripped(text)
        mined = self.stream is Stream.STDOUT and _begins_object(plain)
        if self.mode != "enabled" and not (self.mode == "metadata" and mined):
            self.tally.dropped += plain.count(b"\n")
            return
        masked = plain if is_masked or self.mode != "enabled" else self.masked(plain)
        self._sort_block(masked, mined, drawn_at, _with_masks(text, plain, masked))

    def _sort_odd(self, block: Block) -> None:
        """The renderer's own notes, and the parts of a line too long to be one: never metadata,
        never collapsed."""
        if block.part:
            is_first = block.part == "1"
            # further parts are logshipper's doing: the line counts once
            self._capture.parts += not is_first
            if self.mode != "enabled":
                self.tally.dropped += is_first
                return
            self.tally.stored += is_first
        elif self.mode != "enabled":
            return
        else:
            self._capture.notes += 1
        self.end_run()
        kind = Kind.NOTE if block.note else Kind.LOG
        attrs: Json | None = {"part": block.part} if block.part else None
        has_masks = self._capture.masks or self._shapes
        text = self._masked_part(block) if block.part and has_masks else block.text
        self._write(kind, text, block.text.count(b"\n"), attrs, drawn_at=block.drawn_at)

    def _masked_part(self, block: Block) -> bytes:
        """A token may begin at the end of one part and go on in the next: as much as that is kept
        for the next one."""
        text = self._part_end + block.text[:-1]
        if b"\x1b" in text:
            from logshipper.render.colours import stripped

            text = stripped(text)
        text = self._capture.masks.masked(text)
        self._part_end = b""
        if "/" not in block.part:
            end = len(text) - max(self._capture.masks.longest, HELD_BYTES)
            end = max(min(end, cut(text)), 0)
            while end and text[end] & 0xC0 == 0x80:
                end -= 1
            text, self._part_end = text[:end], text[end:]
        if self._shapes is not None:
            text = self._shapes.masked(text, goes_on="/" not in block.part)
        return text + b"\n"

    def _sort_block(
        self, text: bytes, mined: bool, drawn_at: float, coloured: bytes | None = None
    ) -> None:
        """Lines of a stream that may be logged: by the chunk where nothing in them is special.

        mined: some line begins with `{`, on stdout. coloured: the lines as they are to be logged,
        if otherwise.
        """
        self._hint(text)
        lines = text.split(b"\n")
        lines.pop()
        # each of these looks over all lines at C speed; cheap single bytes stand before pairs
        # (docs/rendering.md)
        special = (
            mined
            or self.mode != "enabled"
            or b"" in lines
            or _BLANK in map(_LAST_BYTE, lines)
            or lines[0] == self._last_line
            or True in map(eq, lines, islice(lines, 1, None))
        )
        if special:
            self._sort_lines(
                lines, mined, drawn_at, coloured.split(b"\n") if coloured is not None else None
            )
            return
        self.end_run()
        self.tally.stored += len(lines)
        self._write(Kind.LOG, text if coloured is None else coloured, len(lines), drawn_at=drawn_at)
        self._last_line, self._last_line_at = lines[-1], drawn_at

    def _hint(self, text: bytes) -> None:
        """Looks for lines that nearly are records, where any may be among these."""
        if b"{" in text and self._capture.looks and near_records.OBJECT_BEGIN in text:
            may_quote = self.mode == "enabled"
            self._capture.look_for_near_records(text, self.stream, may_quote=may_quote)

    def _sort_lines(
        self,
        lines: list[bytes],
        mined: bool,
        drawn_at: float,
        coloured: list[bytes] | None = None,
    ) -> None:
        """coloured: the same lines as they are to be logged, where they hold colours."""
        plain: list[bytes] = []  # lines to be logged together
        log_lines: list[bytes] = [] if coloured else plain  # ... with their colours
        tally = self.tally
        logged = self.mode == "enabled"
        at = times = 0
        for line, group in groupby(lines):
            at += times
            times = sum(1 for _ in group)
            if mined and line[:1] == b"{" and (keys := self._keys_of(line)) is not None:
                self._write_plain(plain, log_lines, drawn_at)
                self.end_run()
                # outside `enabled` all other lines are dropped, so nothing has masked this one
                record = line if logged else self.masked(line)
                for _ in range(times):
                    self._write(
                        Kind.METADATA,
                        record + b"\n",
                        1,
                        {"n": self._capture.number(keys)},
                        drawn_at=drawn_at,
                    )
                tally.stored += times
                continue
            if not logged:
                tally.dropped += times
                continue
            text = line.rstrip(b" ")
            if not self._collapse:
                plain += [text] * times
                if coloured:
                    log_lines += [
                        _trimmed(coloured_line, text) for coloured_line in coloured[at : at + times]
                    ]
                continue
            if not text:
                self._write_plain(plain, log_lines, drawn_at)
                self._blank(times, drawn_at)
                continue
            logged_line = _trimmed(coloured[at], text) if coloured else text
            goes_on = self._is_repeat(text, drawn_at) if not plain else plain[-1] == text
            if goes_on:
                self._write_plain(plain, log_lines, drawn_at)
                self._count_repeats(logged_line, times, drawn_at)
                continue
            if self._repeated:
                self._say_repeats()
            self._last_blank = False
            plain.append(text)
            if coloured:
                log_lines.append(logged_line)
            if times > 1:
                self._write_plain(plain, log_lines, drawn_at)
                again = _trimmed(coloured[at + 1], text) if coloured else text
                self._count_repeats(again, times - 1, drawn_at)
        self._write_plain(plain, log_lines, drawn_at)

    def _write_plain(self, plain: list[bytes], log_lines: list[bytes], drawn_at: float) -> None:
        if not plain:
            return
        self.tally.stored += len(plain)
        self._write(Kind.LOG, b"\n".join(log_lines) + b"\n", len(plain), drawn_at=drawn_at)
        self._last_line, self._last_line_at = plain[-1], drawn_at
        self._last_blank = False
        plain.clear()
        log_lines.clear()

    def _blank(self, times: int, drawn_at: float) -> None:
        if not self._last_blank:
            self.end_run()
            self._write(Kind.LOG, b"\n", 1, drawn_at=drawn_at)
            self.tally.stored += 1
            times -= 1
        self.tally.blank += times
        self._last_blank = True

    def _is_repeat(self, text: bytes, drawn_at: float) -> bool:
        return (
            text == self._last_line
            and drawn_at - self._last_line_at <= REPEAT_SECS
            and not self._is_interrupted(self._last_line_at, drawn_at)
        )

    def _is_interrupted(self, begin: float, end: float) -> bool:
        """Whether the other stream drew a line between two times."""
        times = self._interruptions
        if not times or times[-1] <= begin:
            return False
        forgot = len(times) == MAX_INTERRUPTIONS and times[0] > begin
        return forgot or any(begin < time <= end for time in times)

    def _count_repeats(self, line: bytes, times: int, drawn_at: float) -> None:
        """line: the first of them, as it is to be logged."""
        if not self._repeated:
            self._repeat, self._repeated_since = line, drawn_at
        self._repeated += times
        self._last_line_at = drawn_at

    def _say_repeats(self) -> None:
        """A single one is logged as it is. What was masked since the line was logged is masked."""
        times, self._repeated = self._repeated, 0
        line = self._last_line or b""
        masked = self._capture.masks.masked(line)
        if times == 1:
            self.tally.stored += 1
            text = (self._repeat if masked == line else masked) + b"\n"
            self._write(Kind.LOG, text, 1, drawn_at=self._last_line_at)
            return
        self.tally.collapsed += times
        self._capture.notes += 1
        text = repeat_note(masked, times) + b"\n"
        self._write(Kind.NOTE, text, 1, {"repeat": times}, drawn_at=self._last_line_at)

    def _keys_of(self, line: bytes) -> tuple[str, ...] | None:
        keys = metadata.keys_of(line)
        if isinstance(keys, metadata.Hint):
            takes_dicts = self._text_records is not None and self._text_records.takes_dicts
            if not (takes_dicts and keys is metadata.REPR_HINT):
                self._capture.hint(keys, self.stream, line if self.mode == "enabled" else b"")
            return None
        if type(keys) is metadata.KeysWithGaps:
            self._capture.hint(metadata.NAN_HINT, self.stream)
        return keys

    # ---- live status

    def _look_for_live(self, now: float) -> None:
        """A line that is just being printed is left out: one of plain text counts where none has
        ended since the look before."""
        stood = self.renderer.line_feeds == self._live_feeds
        self._live_looked_at, self._live_feeds = now, self.renderer.line_feeds
        is_shown = self.mode == "enabled" and (stood or self.renderer.is_on_screen)
        self.live = self._status_text() if is_shown else b""

    def _show_status(self) -> None:
        text = self._status_text() if self.mode == "enabled" else b""
        if text != self._status:
            self._write_status(text)

    def _status_text(self) -> bytes:
        """What isn't final: the lowest lines, as a STATUS line has them, as many as find room."""
        lines = self.renderer.status().split(b"\n")[-MAX_STATUS_BARS:]
        text = b""
        for line in map(self._shown, reversed(lines)):
            joined = line + STATUS_BREAK + text if text else line
            if len(joined) > MAX_STATUS_BYTES:
                break
            text = joined
        return text

    def _shown(self, line: bytes) -> bytes:
        """A line that isn't final, without tokens, and without what a command that isn't ended yet
        may hold."""
        command = command_prefix.find(line)
        if command >= 0:
            line = line[:command] + command_prefix.PREFIX + b" " + MASK
        line = self._capture.masks.masked_open(line)
        if self._shapes is not None:
            line = self._shapes.masked_open(line)
        line = line[:MAX_STATUS_BYTES]
        return line.decode(errors="ignore").rstrip(" ").encode()

    def _write_status(self, text: bytes) -> None:
        """Of the time at which it was drawn, or it would push what is drawn later behind itself."""
        self._status = text
        self._capture.statuses += 1
        drawn_at = self.renderer.status_drawn_at() if text else None
        self._write(Kind.STATUS, text + b"\n", 1, drawn_at=drawn_at)

    def _look_for_snapshot(self, now: float) -> None:
        """What the lowest bar shows now as a note in the log: its last state is yet to come."""
        if now < self._snapshot_due < float("inf"):
            return
        is_first = self._snapshot_due == float("inf")
        self._snapshot_due = now + self._snapshot_secs
        text = self._status_text().rpartition(STATUS_BREAK)[2]
        if is_first or text in (b"", self._snapshot):
            return
        self._snapshot = text
        self.end_run()
        self._capture.notes += 1
        drawn_at = self.renderer.status_drawn_at()
        self._write(Kind.NOTE, SNAPSHOT_MARK + text + b"\n", 1, drawn_at=drawn_at)

    def _write(
        self,
        kind: Kind,
        text: bytes,
        count: int,
        attrs: Json | None = None,
        *,
        drawn_at: float | None = None,
    ) -> None:
        if kind is not Kind.STATUS:
            for log in self._capture.logs:
                if log is not self:
                    log.interrupt(drawn_at)
        self._capture.out.append(LoggedLines(self.stream, kind, text, count, attrs, drawn_at))


def _begins_object(text: bytes) -> bool:
    """Whether some line begins with `{`. A single byte is looked for first: that is cheaper."""
    return b"{" in text and (text[:1] == b"{" or b"\n{" in text)


def _with_masks(text: bytes, plain: bytes, masked: bytes) -> bytes:
    """Coloured lines; those that hold secrets are masked and lose their colours, as colours may stand
    amid a secret. plain: the lines without colours; masked: these without secrets."""
    if masked == plain:
        return text
    lines = zip(text.split(b"\n"), plain.split(b"\n"), masked.split(b"\n"), strict=True)
    return b"\n".join(
        line if masked_line == plain_line else masked_line
        for line, plain_line, masked_line in lines
    )


def _trimmed(coloured: bytes, text: bytes) -> bytes:
    """A coloured line without the blanks at its end. text: the same without colours."""
    if coloured == text:
        return text
    from logshipper.render.colours import beginning

    return beginning(coloured, len(text))
