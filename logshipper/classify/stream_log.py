"""Sorts a stream's final lines into log lines, metadata, repeats and blank lines. Pure."""

from collections.abc import Iterable
from itertools import groupby, islice
from operator import eq, itemgetter

from logshipper.classify import metadata, near_records
from logshipper.classify.capture_log import CaptureLog
from logshipper.classify.half_command import HalfCommand
from logshipper.classify.stream_output import StreamOutput
from logshipper.classify.stream_status import StreamStatus
from logshipper.late_pattern import late_pattern
from logshipper.masks.shape_mask import HELD_BYTES, ShapeMask, cut
from logshipper.render.renderer import Block, Renderer
from logshipper.spool.segment import COPY, ORIGIN, SENT, Json, Kind, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.classify.stream_series import StreamSeries
    from logshipper.classify.text_records import TextRecord, TextRecords

_BLANK = ord(" ")
_LAST_BYTE = itemgetter(-1)
_DIGIT = late_pattern(rb"[0-9]")
MAX_HEADS_BYTES = 8 << 10


class StreamLog:
    """One stream: its renderer, mode and lines.

    capture: the state common with the other stream; snapshot_secs: between two snapshots of a running
    bar, 0 for none; collapse: repeats and blank lines; text_records: finds records in lines that are
    not JSON; series_modes: modes in which plain lines and bars are searched for series; ignore, rename:
    as configured, for series; limits_series: their CPU time; mask: secrets by their shape.
    """

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
        series_modes: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
        rename: tuple[tuple[str, str], ...] = (),
        limits_series: bool = True,
        mask: bool = True,
    ) -> None:
        self.stream = stream
        self.renderer = renderer
        self.mode = mode
        self.half_command: HalfCommand | None = None  # cut off by a change of the mode
        self.bytes = 0
        self.output = StreamOutput(stream, renderer, capture)
        self.tally = self.output.tally
        self._capture = capture
        self._keep_colours = keep_colours
        self._collapse = collapse
        self._text_records = text_records
        self._series: StreamSeries | None = None  # made with the first number or bar
        self._heads = b""  # the newest lines before the first number: a table's header may be there
        self._series_modes = series_modes
        self._ignore, self._rename = ignore, rename
        self._limits_series = limits_series
        self._shapes = ShapeMask(capture.masked) if mask else None
        self.status = StreamStatus(renderer, self.output, capture, self._shapes, snapshot_secs)
        self._part_end = b""  # of a long line's last part: a token may continue in the next part

    # ---- input

    def sort(self, blocks: Iterable[Block]) -> None:
        """Sort final lines."""
        for block in blocks:
            if block.part or block.note:
                self._sort_odd(block)
            elif self.mode == "disabled" or not (self._text_records or self._finds_series()):
                self._sort_text(block.text, block.drawn_at)
            else:
                self._sort_with_records(block.text, block.drawn_at)

    def add_record(self, record: bytes) -> None:
        """Log metadata that the job sent instead of printing it."""
        record = self.masked(record)
        keys = metadata.keys_of(record)
        if self.mode == "disabled" or not isinstance(keys, tuple):
            self.tally.dropped += 1
            return
        self.output.end_run()
        self._write_record(record, {"n": self._capture.number(keys), SENT: 1})
        self.tally.stored += 1

    def add_command(self, line: bytes) -> None:
        """Log an obeyed command. line: as logged."""
        self.output.end_run()
        self.output.write(Kind.COMMAND, line + b"\n")

    def tick(self, now: float) -> None:
        """Do the work that is due by time: idle rows, repeats, and the status of running bars."""
        self.sort(self.renderer.tick(now))
        due = self.output.repeats_due()
        if due is not None and now >= due:
            self.output.report_repeats()
        self.status.tick(now, is_enabled=self.mode == "enabled")
        if self._series is not None:
            self._series.tick(now)
        if self.renderer.pending() and self.mode == "enabled" and self._finds_series():
            self._stream_series().take_bars(self.status.rows, now, is_still=bool(self.status.live))

    def next_tick(self, ticked_at: float) -> float | None:
        """Return the earliest time with work for `tick`, or None. ticked_at: time of the last one."""
        times = [self.renderer.next_tick(), self.output.repeats_due()]
        if self._series is not None:
            times.append(self._series.next_tick())
        if self.mode == "enabled":
            times += self.status.due_times(ticked_at)
        return min((time for time in times if time is not None), default=None)

    def account(self) -> Json:
        """Return the stream's part of the ledger."""
        counts = dict(vars(self.tally))
        held = int(self.output.repeats == 1)  # a single repeat may still become a line
        pending = self.renderer.pending() + held
        counts["collapsed"] += self.output.repeats - held
        return {
            "read": sum(counts.values()) + pending,
            **counts,
            "pending": pending,
            "bytes": self.bytes,
            "line_feeds": self.renderer.line_feeds - self.renderer.held_line_feeds() - held,
        }

    def settle(self, *, keeps_series: bool = False) -> None:
        """Log everything that the stream shows and holds, and start afresh without a status.

        keeps_series: the shapes of series stay confirmed.
        """
        self.sort(self.renderer.flush())
        if self.output.repeats:
            self.output.report_repeats()
        if self._series is not None and keeps_series:
            self._series.flush()
        elif self._series is not None:
            self._series.reset()
        self._heads = b""
        self.status.withdraw()
        self.output.forget()
        self._part_end = b""
        if self._text_records is not None:
            self._text_records.forget()

    def change_mode(self, mode: str, now: float) -> None:
        """Finish all shown lines under the old mode. An unfinished line may still be a command."""
        before, half = self.renderer.take_half_command()
        if half and self.half_command is None:
            self.half_command = HalfCommand(half, self.renderer.size())
        if self.mode != "enabled":
            # part of this line was printed under the old mode
            self.renderer.drop_half_line()
        self.settle()
        if before.strip() and self.mode == "enabled":
            self.sort([Block(before + b"\n", drawn_at=now)])
            self.settle()
        self.mode = mode

    # ---- sorting final lines

    def masked(self, text: bytes, *, counted: bool = True) -> bytes:
        """Mask stop tokens and secrets in complete lines. Call it once per text, as a secret may
        continue in the next one. counted: count the masked values, as the text is logged."""
        text = self._capture.stop_tokens.masked(text)
        return text if self._shapes is None else self._shapes.masked(text, counted=counted)

    def _sort_text(self, text: bytes, drawn_at: float, *, is_masked: bool = False) -> None:
        if self._keep_colours and b"\x1b" in text:
            self._sort_coloured(text, drawn_at, is_masked=is_masked)
            return
        has_objects = self.stream is Stream.STDOUT and _has_objects(text)
        if self.mode == "enabled":
            self._sort_block(text if is_masked else self.masked(text), has_objects, drawn_at)
        elif self.mode == "metadata" and has_objects:
            self._sort_block(text, has_objects, drawn_at)
        else:
            self.tally.dropped += text.count(b"\n")
            if self.mode == "metadata" and self.stream is Stream.STDOUT:
                self._hint(text)

    def _sort_with_records(self, text: bytes, drawn_at: float) -> None:
        """Sort lines that may be records without being JSON. Mode `enabled` logs such a line and
        adds the record; mode `metadata` replaces the line by the record."""
        handled = self._handled()
        plain = _without_colours(text)
        enabled = self.mode == "enabled"
        masked = self.masked(plain, counted=enabled)
        text = masked if text is plain else _with_masks(text, plain, masked)
        records: list[TextRecord] = []
        if self._text_records is not None:
            records = self._text_records.find(masked)
            for name in self._text_records.take_disabled():
                self._capture.report_pattern_off(name)
        if enabled and not _has_objects(masked):
            self._sort_text(text, drawn_at, is_masked=True)
            for record in records:
                self._write_text_record(record, drawn_at)
            self._find_series(masked, records, self._handled() - handled, drawn_at)
            return
        # records keep the order of printing, among the JSON lines
        lines = text.split(b"\n")
        lines.pop()
        begin = 0
        for record in records:
            self._sort_lines_between(lines[begin : record.at + enabled], drawn_at)
            self._write_text_record(record, drawn_at)
            self.tally.stored += not enabled
            begin = record.at + 1
        self._sort_lines_between(lines[begin:], drawn_at)
        self._find_series(masked, records, self._handled() - handled, drawn_at)

    def _handled(self) -> int:
        return self.tally.stored + self.tally.dropped

    def _find_series(
        self, text: bytes, records: "list[TextRecord]", count: int, drawn_at: float
    ) -> None:
        """Find series in lines that are no records. count: of the lines without repeats, known here,
        as counting again would cost a flood a tenth of its throughput."""
        if not self._finds_series():
            return
        if self._series is None and not _DIGIT.search(text):
            self._heads = (self._heads + text)[-MAX_HEADS_BYTES:]
            return
        series = self._stream_series()
        if not series.is_open(count, len(text), drawn_at):
            return
        lines = text.split(b"\n")
        lines.pop()
        if records or b'{"' in text:
            taken = {record.at for record in records}
            lines = [line for at, line in enumerate(lines) if at not in taken and line[:2] != b'{"']
        series.take(lines, drawn_at)

    def _finds_series(self) -> bool:
        return self.mode in self._series_modes

    def _stream_series(self) -> "StreamSeries":
        if self._series is None:
            from logshipper.classify.series.key_rules import KeyRules
            from logshipper.classify.stream_series import StreamSeries

            rules = KeyRules(self._ignore, self._rename)
            self._series = StreamSeries(
                self.output, self._capture, rules, is_limited=self._limits_series
            )
            self._series.take(self._heads.splitlines(), 0.0)
        return self._series

    def _sort_lines_between(self, lines: list[bytes], drawn_at: float) -> None:
        if lines:
            self._sort_text(b"\n".join(lines) + b"\n", drawn_at, is_masked=True)

    def _write_text_record(self, record: "TextRecord", drawn_at: float) -> None:
        if type(record.keys) is metadata.KeysWithGaps:
            self._capture.hint(metadata.NAN_HINT, self.stream)
        attrs: Json = {"n": self._capture.number(record.keys), ORIGIN: record.origin}
        if self.mode == "enabled":
            attrs[COPY] = 1  # of a logged line
        self._write_record(record.line, attrs, drawn_at)

    def _write_record(self, record: bytes, attrs: Json, drawn_at: float | None = None) -> None:
        self.output.write(Kind.METADATA, record + b"\n", 1, attrs, drawn_at=drawn_at)

    def _sort_coloured(self, text: bytes, drawn_at: float, *, is_masked: bool) -> None:
        """Sort lines with colours in the same way as lines without colours."""
        plain = _without_colours(text)
        has_objects = self.stream is Stream.STDOUT and _has_objects(plain)
        if self.mode != "enabled" and not (self.mode == "metadata" and has_objects):
            self.tally.dropped += plain.count(b"\n")
            return
        masked = plain if is_masked or self.mode != "enabled" else self.masked(plain)
        self._sort_block(masked, has_objects, drawn_at, _with_masks(text, plain, masked))

    def _sort_odd(self, block: Block) -> None:
        """Sort the renderer's notes and the parts of an overlong line. They are never metadata and
        never collapsed."""
        enabled = self.mode == "enabled"
        if block.part:
            is_first = block.part == "1"
            self._capture.parts += not is_first  # the job printed one line
            self.tally.stored += is_first and enabled
            self.tally.dropped += is_first and not enabled
        if not enabled:
            return
        self._capture.notes += block.note
        self.output.end_run()
        kind = Kind.NOTE if block.note else Kind.LOG
        attrs: Json | None = {"part": block.part} if block.part else None
        has_masks = self._capture.stop_tokens or self._shapes
        text = self._masked_part(block) if block.part and has_masks else block.text
        self.output.write(kind, text, block.text.count(b"\n"), attrs, drawn_at=block.drawn_at)

    def _masked_part(self, block: Block) -> bytes:
        """Mask a part of an overlong line. The next part gets an end that may begin a token."""
        text = _without_colours(self._part_end + block.text[:-1])
        text = self._capture.stop_tokens.masked(text)
        self._part_end = b""
        goes_on = "/" not in block.part
        if goes_on:
            end = len(text) - max(self._capture.stop_tokens.longest, HELD_BYTES)
            end = max(min(end, cut(text)), 0)
            while end and text[end] & 0xC0 == 0x80:
                end -= 1
            text, self._part_end = text[:end], text[end:]
        if self._shapes is not None:
            text = self._shapes.masked(text, goes_on=goes_on)
        return text + b"\n"

    def _sort_block(
        self, text: bytes, has_objects: bool, drawn_at: float, coloured: bytes | None = None
    ) -> None:
        """Sort lines: as one chunk, unless some need a closer look.

        has_objects: a line of stdout begins with `{`. coloured: the lines as logged, if different.
        """
        self._hint(text)
        lines = text.split(b"\n")
        lines.pop()
        # each check scans all lines at C speed; cheap single bytes stand before pairs
        # (docs/rendering.md)
        if (
            has_objects
            or self.mode != "enabled"
            or b"" in lines
            or _BLANK in map(_LAST_BYTE, lines)
            or lines[0] == self.output.last_line
            or True in map(eq, lines, islice(lines, 1, None))
        ):
            self._sort_lines(lines, has_objects, drawn_at, coloured)
            return
        self.output.end_run()
        self.output.write_log(lines, text if coloured is None else coloured, drawn_at)

    def _hint(self, text: bytes) -> None:
        """Check the text for near misses of records, if it may contain any."""
        if b"{" in text and self._capture.looks and near_records.OBJECT_BEGIN in text:
            may_quote = self.mode == "enabled"
            self._capture.check_near_records(text, self.stream, may_quote=may_quote)

    def _sort_lines(
        self, lines: list[bytes], has_objects: bool, drawn_at: float, coloured: bytes | None
    ) -> None:
        output = self.output
        coloured_lines = coloured.split(b"\n") if coloured is not None else None
        enabled = self.mode == "enabled"
        at = times = 0
        for line, group in groupby(lines):
            at += times
            times = sum(1 for _ in group)
            if has_objects and line[:1] == b"{" and (keys := self._keys_of(line)) is not None:
                output.flush(drawn_at)
                output.end_run()
                # outside mode `enabled`, records are the only lines to mask
                record = line if enabled else self.masked(line)
                for _ in range(times):
                    self._write_record(record, {"n": self._capture.number(keys)}, drawn_at)
                self.tally.stored += times
                continue
            if not enabled:
                self.tally.dropped += times
                continue
            text = line.rstrip(b" ")
            if not self._collapse:
                for place in range(at, at + times):
                    logged = text
                    if coloured_lines is not None:
                        logged = _trimmed(coloured_lines[place], text)
                    output.add(text, logged)
                continue
            logged = repeat = text
            if coloured_lines is not None:
                logged = _trimmed(coloured_lines[at], text)
                repeat = _trimmed(coloured_lines[at + 1], text) if times > 1 else logged
            output.add_run(text, times, logged, repeat, drawn_at)
        output.flush(drawn_at)

    def _keys_of(self, line: bytes) -> tuple[str, ...] | None:
        keys = metadata.keys_of(line)
        if isinstance(keys, metadata.Hint):
            if keys is not metadata.REPR_HINT or not self._takes_dicts():
                self._capture.hint(keys, self.stream, line if self.mode == "enabled" else b"")
            return None
        if type(keys) is metadata.KeysWithGaps:
            self._capture.hint(metadata.NAN_HINT, self.stream)
        return keys

    def _takes_dicts(self) -> bool:
        """Return whether Python dicts become records, at once or as a series."""
        text_records = self._text_records
        return self._finds_series() or (text_records is not None and text_records.takes_dicts)


def _has_objects(text: bytes) -> bool:
    """Return whether some line begins with `{`. The search for a single byte is cheaper."""
    return b"{" in text and (text[:1] == b"{" or b"\n{" in text)


def _without_colours(text: bytes) -> bytes:
    if b"\x1b" not in text:
        return text
    from logshipper.render.colours import stripped  # rare, hence a late import

    return stripped(text)


def _with_masks(text: bytes, plain: bytes, masked: bytes) -> bytes:
    """Mask coloured lines. A line with secrets loses its colours, which may split a secret. plain: the
    lines without colours; masked: these without secrets."""
    if masked == plain:
        return text
    lines = zip(text.split(b"\n"), plain.split(b"\n"), masked.split(b"\n"), strict=True)
    return b"\n".join(
        line if masked_line == plain_line else masked_line
        for line, plain_line, masked_line in lines
    )


def _trimmed(coloured: bytes, text: bytes) -> bytes:
    """Return a coloured line without the blanks at its end. text: the same without colours."""
    if coloured == text:
        return text
    from logshipper.render.colours import beginning

    return beginning(coloured, len(text))
