"""What of the rendered output is logged, and as what: modes, commands, metadata, repeats, blank lines. Pure.

One Classifier serves one capture, both streams. Bytes, what the relay saw empty, and a clock go in; `Lines` and
`Event` values come out, in the order in which they are to be written.

Privacy (R11, R16, R17), the invariants that everything here keeps:
- Within a stream a command is obeyed from the next line on: the renderer stops at a line that may be a command.
- Across streams nothing is known of the order in which two streams were written, but this: bytes that are read after
  a stream was seen empty were written after that. So each stream has a policy of its own: the strictest of those in
  force since it was last seen empty.
- At a change of a stream's policy everything that it still shows is dealt with under the old one, and its screen,
  repeats and half line start afresh. Outside `enabled` a half line is not logged, and there is no status.
"""

from collections.abc import Iterable
from itertools import groupby, islice
from operator import eq, itemgetter
from typing import NamedTuple

from logshipper import commands, metadata
from logshipper.renderer import Block, Renderer
from logshipper.segment import Json, Kind, Stream

REPEAT_SECS = 10.0
STATUS_SECS = 10.0
OVER_SECS = 1.0  # how long a bar that is over may be shown
SNAPSHOT_MARK = b"[so far] "
MAX_KEY_SETS = 1024  # sets of keys that metadata records are numbered by; all further ones share one number
MAX_TOKENS = 64
MAX_USER_EVENTS = 5_000  # of a capture; its readers keep twice as many events, so that all others have room
MASKED_TOKEN_CHARS = 8  # shorter ones are masked in commands only: they could stand anywhere
MASK = b"***"
_BLANK = ord(" ")
_LAST_BYTE = itemgetter(-1)


class Lines(NamedTuple):
    """Lines of one stream and kind. text: each ended by LF; lines: how many; attrs: of the only line, or None."""

    stream: Stream
    kind: Kind
    text: bytes
    lines: int
    attrs: Json | None = None


class Event(NamedTuple):
    """Something that happened to the capture. record: without its `type`."""

    record: Json


class _Tally:
    """The ledger of one stream (ARCHITECTURE, Names)."""

    __slots__ = ("blank", "collapsed", "commands", "dropped", "lost", "stored")

    def __init__(self) -> None:
        self.stored = self.collapsed = self.blank = self.dropped = self.commands = self.lost = 0


class _StreamState:
    __slots__ = (
        "bytes",
        "fenced",
        "last_blank",
        "last_line",
        "mode",
        "renderer",
        "repeated",
        "repeated_since",
        "snapshot",
        "snapshot_due",
        "status",
        "status_looked_at",
        "stream",
        "tally",
    )

    def __init__(self, stream: Stream, renderer: Renderer, mode: str) -> None:
        self.stream = stream
        self.renderer = renderer
        self.mode = mode
        self.fenced = False
        self.bytes = 0
        self.tally = _Tally()
        self.status = b""
        self.status_looked_at = 0.0
        self.snapshot_due = float("inf")
        self.start_afresh()

    def start_afresh(self) -> None:
        self.last_line: bytes | None = None  # the last line logged, for repeats
        self.repeated = 0  # how often it came again, not yet said
        self.repeated_since = 0.0
        self.last_blank = False
        self.snapshot = b""  # the last one


class Classifier:
    """See the module's docstring. columns, rows: the terminal's size; collapse: repeats and blank lines; all else as
    configured."""

    def __init__(
        self,
        mode: str,
        *,
        obey: bool = True,
        keep_colours: bool = False,
        snapshot_secs: float = 0.0,
        columns: int = 160,
        rows: int = 50,
        collapse: bool = True,
    ) -> None:
        self._mode = mode
        self._obey = obey
        self._collapse = collapse
        self._keep_colours = keep_colours
        self._snapshot_secs = snapshot_secs
        self._token: str | None = None  # of the fence in force
        self._masks: list[bytes] = []
        make = _coloured_renderer() if keep_colours else Renderer
        self._streams = {
            stream: _StreamState(stream, make(columns, rows), mode) for stream in (Stream.STDOUT, Stream.STDERR)
        }
        self._key_sets: dict[frozenset[str], int] = {}
        self._hinted: set[str] = set()
        self._user_events = 0
        self._said_left_out = 0
        self._out: list[Lines | Event] = []
        self._ticked_at = 0.0
        self.notes = self.statuses = self.parts = 0

    @property
    def mode(self) -> str:
        """The mode in force, as the last command (or the configuration) has it."""
        return self._mode

    def take(self) -> list[Lines | Event]:
        """All that came out since the last call."""
        out, self._out = self._out, []
        return out

    # ---- what comes in

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """Takes bytes of a stream. now: seconds of a monotonic clock."""
        state = self._streams[stream]
        renderer = state.renderer
        state.bytes += len(data)
        begin = 0
        while begin < len(data):
            fed = renderer.feed(data, now, begin)
            self._sort(state, fed.blocks, now)
            begin = fed.consumed
            if fed.command is not None:
                self._meet_command(state, fed.command, now)

    def measured(self, records: Iterable[bytes]) -> None:
        """Takes metadata that the job didn't print but sent (logshipper/measurements.py), as if it stood on stdout."""
        state = self._streams[Stream.STDOUT]
        for record in records:
            keys = metadata.keys_of(record)
            if state.mode == "disabled" or not isinstance(keys, tuple):
                state.tally.dropped += 1
                continue
            self._end_run(state)
            self._write(state, Kind.METADATA, self._masked(record) + b"\n", 1, {"n": self._number(keys)})
            state.tally.stored += 1

    def seen_empty(self, stream: Stream, now: float) -> None:
        """The relay saw the stream empty: what is read of it from now on was written under the policy of now."""
        state = self._streams[stream]
        self._set_policy(state, self._mode, self._token is not None, now)

    def resize(self, columns: int, rows: int) -> None:
        for state in self._streams.values():
            state.renderer.resize(columns, rows)

    def end(self, stream: Stream, now: float) -> None:
        """The stream is over: its half line is a line, its screen and repeats are final."""
        state = self._streams[stream]
        fed = state.renderer.end_line(now)
        self._sort(state, fed.blocks, now)
        if fed.command is not None:
            self._meet_command(state, fed.command, now)
        self._sort(state, state.renderer.flush(), now)
        self._settle(state)
        self._say_left_out()

    def tick(self, now: float) -> None:
        """What only time brings: rows left alone, repeats that go on, the status of running bars."""
        for state in self._streams.values():
            self._sort(state, state.renderer.tick(now), now)
            if state.repeated and now - state.repeated_since >= REPEAT_SECS:
                self._say_repeats(state)
            if now - state.status_looked_at >= STATUS_SECS:
                state.status_looked_at = now
                self._show_status(state)
            elif state.status and not state.renderer.pending():
                self._write_status(state, b"")  # over: that isn't waited with
            if self._snapshot_secs and state.mode == "enabled" and state.renderer.pending():
                self._look_for_snapshot(state, now)
        self._ticked_at = now

    def next_tick(self) -> float | None:
        """When `tick` has something to do at the earliest, or None."""
        times = []
        for state in self._streams.values():
            due = state.renderer.next_tick()
            if due is not None:
                times.append(due)
            if state.repeated:
                times.append(state.repeated_since + REPEAT_SECS)
            if state.mode == "enabled" and (state.status or state.renderer.pending()):
                times.append(state.status_looked_at + STATUS_SECS)
                times.append(min(state.snapshot_due, self._ticked_at + OVER_SECS))
        return min(times, default=None)

    def ledger(self) -> Json:
        """The account of lines (docs/segment-format.md): balances at any time."""
        account: Json = {}
        for state in self._streams.values():
            tally, renderer = state.tally, state.renderer
            pending = renderer.pending()
            counts = {name: getattr(tally, name) for name in _Tally.__slots__}
            account[state.stream.name.lower()] = {
                "read": sum(counts.values()) + pending,
                **counts,
                "pending": pending,
                "bytes": state.bytes,
                "line_feeds": renderer.line_feeds - renderer.held_line_feeds(),
            }
        return {**account, "notes": self.notes, "status": self.statuses, "parts": self.parts}

    def count_lost(self, stream: Stream, lines: int) -> None:
        """Lines that were stored by our count, but then couldn't be written."""
        tally = self._streams[stream].tally
        tally.stored -= lines
        tally.lost += lines

    # ---- commands and policies

    def _meet_command(self, state: _StreamState, line: bytes, now: float) -> None:
        """Obeys a line that begins like a command, or leaves it as the ordinary line that it is."""
        asked = commands.parse(line) if self._obey else None
        if isinstance(asked, commands.UserEvent) and not state.fenced:
            self._take_user_event(state, asked, line)
            return
        if state.fenced:
            if isinstance(asked, commands.Command) and asked.verb == "resume" and asked.value == self._token:
                self._obey_command(state, asked, line, now)
                return
            asked = None
        if isinstance(asked, commands.Command) and asked.verb != "resume":
            self._obey_command(state, asked, line, now)
            return
        self._sort(state, state.renderer.keep_command(), now)
        if isinstance(asked, commands.Refused):
            self._refuse_command(state, asked, now)

    def _obey_command(self, state: _StreamState, command: commands.Command, line: bytes, now: float) -> None:
        state.renderer.take_command()
        state.tally.commands += 1
        before = self._mode
        fence_before = self._token is not None
        if command.verb == "mode":
            self._mode = command.value
        else:
            self._token = command.value if command.verb == "stop" else None
            self._mask(command.value)
            line = b'%s {"%s":"%s"}' % (commands.PREFIX, command.verb.encode(), MASK)
        self._apply_policy(state, now)
        self._end_run(state)
        self._write(state, Kind.COMMAND, line + b"\n", 1)
        if self._mode != before:
            self._say_mode(before, state.stream)
        if (self._token is not None) != fence_before:
            verb = "fenced" if self._token else "resumed"
            message = (
                "commands are not obeyed until the stop token comes again" if self._token else "commands are obeyed"
            )
            self._event(f"commands_{verb}", message, stream=state.stream.name.lower())

    def _take_user_event(self, state: _StreamState, asked: commands.UserEvent, line: bytes) -> None:
        """In each mode: it is told to the logger. Past MAX_USER_EVENTS it is a line of the log only."""
        state.renderer.take_command()
        state.tally.commands += 1
        self._end_run(state)
        masked = self._masked(line)
        self._write(state, Kind.COMMAND, masked + b"\n", 1)
        self._user_events += 1
        told = asked if masked == line else commands.parse(masked)
        if self._user_events <= MAX_USER_EVENTS and isinstance(told, commands.UserEvent):
            self._out.append(Event({**told.record(), "stream": state.stream.name.lower()}))
        elif self._user_events == MAX_USER_EVENTS + 1:
            message = f"from here on the job's own events are lines of the log only: {MAX_USER_EVENTS:,} were taken"
            self._out.append(Event({"event": "user_events_left_out", "message": message}))

    def _say_left_out(self) -> None:
        left_out = self._user_events - MAX_USER_EVENTS
        if left_out > self._said_left_out:
            self._said_left_out = left_out
            message = f"{left_out:,} of the job's own events are lines of the log only"
            self._out.append(Event({"event": "user_events_left_out", "message": message, "events": left_out}))

    def _refuse_command(self, state: _StreamState, refused: commands.Refused, now: float) -> None:
        before = self._mode
        narrows = refused.narrow is not None and commands.width(refused.narrow) > commands.width(before)
        if narrows and refused.narrow is not None:
            self._mode = refused.narrow
            self._apply_policy(state, now)
        message = (
            f"a line begins with /LOGCOMMAND but is no command: {refused.reason}. The right form: {commands.RIGHT_FORM}"
        )
        self._event("command_refused", message, stream=state.stream.name.lower(), reason=refused.reason)
        if narrows:
            self._say_mode(before, state.stream, " (to be safe: it names this mode)")

    def _apply_policy(self, by: _StreamState, now: float) -> None:
        """A command on one stream: exact there, and no wider than what the other stream has to obey still."""
        for state in self._streams.values():
            if state is by:
                self._set_policy(state, self._mode, self._token is not None, now)
            else:
                mode = commands.narrowest(state.mode, self._mode)
                self._set_policy(state, mode, state.fenced or self._token is not None, now)

    def _set_policy(self, state: _StreamState, mode: str, fenced: bool, now: float) -> None:
        state.fenced = fenced
        if mode == state.mode:
            return
        if state.mode != "enabled":
            state.renderer.drop_half_line()  # part of a line was printed under the old mode: it isn't known what it is
        self._sort(state, state.renderer.flush(), now)
        self._settle(state)
        state.mode = mode

    def _say_mode(self, before: str, stream: Stream, why: str = "") -> None:
        self._event(
            "mode_changed",
            f"mode changed from {before} to {self._mode}{why}",
            stream=stream.name.lower(),
            **{"from": before, "to": self._mode},
        )

    def _mask(self, token: str) -> None:
        mask = token.encode()
        if len(token) >= MASKED_TOKEN_CHARS and mask not in self._masks and len(self._masks) < MAX_TOKENS:
            self._masks.append(mask)

    # ---- sorting final lines

    def _sort(self, state: _StreamState, blocks: list[Block], now: float) -> None:
        for block in blocks:
            if block.part or block.note:
                self._sort_odd(state, block)
                continue
            text = block.text
            if self._keep_colours and b"\x1b" in text:
                self._sort_coloured(state, text, now)
                continue
            mined = state.stream is Stream.STDOUT and b"{" in text and (text[:1] == b"{" or b"\n{" in text)
            if state.mode == "enabled" or (state.mode == "metadata" and mined):
                self._sort_block(state, self._masked(text), mined, now)
            else:
                state.tally.dropped += text.count(b"\n")

    def _sort_coloured(self, state: _StreamState, text: bytes, now: float) -> None:
        """Lines that hold colours: what becomes of each is as if it held none."""
        from logshipper.colours import stripped

        plain = stripped(text)
        mined = state.stream is Stream.STDOUT and b"{" in plain and (plain[:1] == b"{" or b"\n{" in plain)
        if state.mode != "enabled" and not (state.mode == "metadata" and mined):
            state.tally.dropped += plain.count(b"\n")
            return
        masked = self._masked(plain)
        if masked != plain:  # colours may stand amid a token
            lines = zip(text.split(b"\n"), plain.split(b"\n"), masked.split(b"\n"), strict=True)
            text = b"\n".join(line if shown == unmasked else shown for line, unmasked, shown in lines)
        self._sort_block(state, masked, mined, now, text)

    def _masked(self, text: bytes) -> bytes:
        for mask in self._masks:
            if mask in text:
                text = text.replace(mask, MASK)
        return text

    def _sort_odd(self, state: _StreamState, block: Block) -> None:
        """The renderer's own notes, and the parts of a line too long to be one: never metadata, never collapsed."""
        if block.part:
            is_first = block.part == "1"
            self.parts += not is_first  # further parts are logshipper's doing: the line counts once
            if state.mode != "enabled":
                state.tally.dropped += is_first
                return
            state.tally.stored += is_first
        elif state.mode != "enabled":
            return
        else:
            self.notes += 1
        self._end_run(state)
        kind = Kind.NOTE if block.note else Kind.LOG
        attrs: Json | None = {"part": block.part} if block.part else None
        self._write(state, kind, self._masked_part(block.text), block.text.count(b"\n"), attrs)

    def _masked_part(self, text: bytes) -> bytes:
        if self._masks and b"\x1b" in text:
            from logshipper.colours import stripped

            plain = stripped(text)
            masked = self._masked(plain)
            return text if masked == plain else masked
        return self._masked(text)

    def _sort_block(
        self, state: _StreamState, text: bytes, mined: bool, now: float, coloured: bytes | None = None
    ) -> None:
        """Lines of a stream that may be logged: by the chunk where nothing in them is special.

        mined: some line begins with `{`, on stdout. coloured: the lines as they are to be logged, if otherwise.
        """
        lines = text.split(b"\n")
        lines.pop()
        # each of these looks over all lines at C speed; cheap single bytes stand before pairs (docs/rendering.md)
        special = (
            mined
            or state.mode != "enabled"
            or b"" in lines
            or _BLANK in map(_LAST_BYTE, lines)
            or lines[0] == state.last_line
            or True in map(eq, lines, islice(lines, 1, None))
        )
        if special:
            self._sort_lines(state, lines, mined, now, coloured.split(b"\n") if coloured is not None else None)
            return
        self._end_run(state)
        state.tally.stored += len(lines)
        self._write(state, Kind.LOG, text if coloured is None else coloured, len(lines))
        state.last_line = lines[-1]

    def _sort_lines(
        self, state: _StreamState, lines: list[bytes], mined: bool, now: float, coloured: list[bytes] | None = None
    ) -> None:
        """coloured: the same lines as they are to be logged, where they hold colours."""
        plain: list[bytes] = []  # lines to be logged together
        shown: list[bytes] = [] if coloured else plain  # ... with their colours
        tally = state.tally
        logged = state.mode == "enabled"
        at = times = 0
        for line, group in groupby(lines):
            at += times
            times = sum(1 for _ in group)
            if mined and line[:1] == b"{" and (keys := self._keys_of(line, state)) is not None:
                self._write_plain(state, plain, shown)
                self._end_run(state)
                for _ in range(times):
                    self._write(state, Kind.METADATA, line + b"\n", 1, {"n": self._number(keys)})
                tally.stored += times
                continue
            if not logged:
                tally.dropped += times
                continue
            text = line.rstrip(b" ")
            if not self._collapse:
                plain += [text] * times
                if coloured:
                    shown += [_trimmed(one, text) for one in coloured[at : at + times]]
                continue
            if not text:
                self._write_plain(state, plain, shown)
                self._blank(state, times)
                continue
            if text == state.last_line and not plain:
                self._repeat(state, times, now)
                continue
            if plain and plain[-1] == text:  # differs in blanks at its end only
                self._write_plain(state, plain, shown)
                self._repeat(state, times, now)
                continue
            if state.repeated:
                self._say_repeats(state)
            state.last_blank = False
            plain.append(text)
            if coloured:
                shown.append(coloured[at] if len(text) == len(line) else _trimmed(coloured[at], text))
            if times > 1:
                self._write_plain(state, plain, shown)
                self._repeat(state, times - 1, now)
        self._write_plain(state, plain, shown)

    def _write_plain(self, state: _StreamState, plain: list[bytes], shown: list[bytes]) -> None:
        if not plain:
            return
        state.tally.stored += len(plain)
        self._write(state, Kind.LOG, b"\n".join(shown) + b"\n", len(plain))
        state.last_line = plain[-1]
        state.last_blank = False
        plain.clear()
        shown.clear()

    def _blank(self, state: _StreamState, times: int) -> None:
        if not state.last_blank:
            self._end_run(state)
            self._write(state, Kind.LOG, b"\n", 1)
            state.tally.stored += 1
            times -= 1
        state.tally.blank += times
        state.last_blank = True

    def _repeat(self, state: _StreamState, times: int, now: float) -> None:
        if not state.repeated:
            state.repeated_since = now
        state.repeated += times
        state.tally.collapsed += times

    def _say_repeats(self, state: _StreamState) -> None:
        times = state.repeated
        text = b"[last line repeated %d %s]\n" % (times, b"time" if times == 1 else b"times")
        state.repeated = 0
        self.notes += 1
        self._write(state, Kind.NOTE, text, 1, {"repeat": times})

    def _end_run(self, state: _StreamState) -> None:
        """Another line comes: a run of repeats, and a run of blank lines, is over."""
        if state.repeated:
            self._say_repeats(state)
        state.last_line = None
        state.last_blank = False

    def _settle(self, state: _StreamState) -> None:
        """All that the stream holds is said; its status is withdrawn; it starts afresh."""
        if state.repeated:
            self._say_repeats(state)
        if state.status:
            self._write_status(state, b"")
        state.start_afresh()

    # ---- metadata

    def _keys_of(self, line: bytes, state: _StreamState) -> tuple[str, ...] | None:
        keys = metadata.keys_of(line)
        if isinstance(keys, metadata.Hint):
            if keys.reason not in self._hinted:
                self._hinted.add(keys.reason)
                self._event("json_hint", keys.text, stream=state.stream.name.lower(), reason=keys.reason)
            return None
        return keys

    def _number(self, keys: tuple[str, ...]) -> int:
        """The record's number among those with the same set of keys, from 1."""
        key_set = frozenset(keys)
        if key_set not in self._key_sets and len(self._key_sets) >= MAX_KEY_SETS:
            key_set = frozenset()
        number = self._key_sets.get(key_set, 0) + 1
        self._key_sets[key_set] = number
        return number

    # ---- live status

    def _show_status(self, state: _StreamState) -> None:
        text = self._masked(state.renderer.status()) if state.mode == "enabled" else b""
        if text != state.status:
            self._write_status(state, text)

    def _write_status(self, state: _StreamState, text: bytes) -> None:
        state.status = text
        self.statuses += 1
        self._write(state, Kind.STATUS, text + b"\n", 1)

    def _look_for_snapshot(self, state: _StreamState, now: float) -> None:
        """What a bar shows now as a note in the log: the bar's last state is yet to come."""
        if now < state.snapshot_due < float("inf"):
            return
        is_first = state.snapshot_due == float("inf")
        state.snapshot_due = now + self._snapshot_secs
        text = self._masked(state.renderer.status())
        if is_first or text in (b"", state.snapshot):
            return
        state.snapshot = text
        self._end_run(state)
        self.notes += 1
        self._write(state, Kind.NOTE, SNAPSHOT_MARK + text + b"\n", 1)

    # ---- what goes out

    def _write(self, state: _StreamState, kind: Kind, text: bytes, count: int, attrs: Json | None = None) -> None:
        self._out.append(Lines(state.stream, kind, text, count, attrs))

    def _event(self, name: str, message: str, **details: str) -> None:
        self._out.append(Event({"event": name, "message": message, **details}))


def _coloured_renderer() -> type[Renderer]:
    """Imported where it is needed: few jobs keep colours."""
    from logshipper.coloured_renderer import ColouredRenderer

    return ColouredRenderer


def _trimmed(coloured: bytes, text: bytes) -> bytes:
    """A coloured line without the blanks at its end. text: the same without colours."""
    if coloured == text:
        return text
    from logshipper.colours import beginning

    return beginning(coloured, len(text))
