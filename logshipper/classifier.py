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

from collections.abc import Sequence

from logshipper import commands
from logshipper.renderer import Renderer
from logshipper.segment import Json, Stream
from logshipper.stream_log import MASK, CaptureLog, Event, Lines, StreamLog

MAX_TOKENS = 64
MAX_USER_EVENTS = 5_000  # of a capture; its readers keep twice as many events, so that all others have room
MASKED_TOKEN_CHARS = 8  # shorter ones are masked in commands only: they could stand anywhere


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
        self._token: str | None = None  # of the fence in force
        self._disabled_until = float("-inf")  # when a stream's policy was that last
        self._log = CaptureLog()
        make = _coloured_renderer() if keep_colours else Renderer
        self._streams = {
            stream: StreamLog(
                stream,
                make(columns, rows),
                mode,
                self._log,
                keep_colours=keep_colours,
                snapshot_secs=snapshot_secs,
                collapse=collapse,
            )
            for stream in (Stream.STDOUT, Stream.STDERR)
        }
        self._user_events = 0
        self._said_left_out = 0
        self._ticked_at = 0.0

    @property
    def mode(self) -> str:
        """The mode in force, as the last command (or the configuration) has it."""
        return self._mode

    def take(self) -> list[Lines | Event]:
        """All that came out since the last call."""
        out, self._log.out = self._log.out, []
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
            state.sort(fed.blocks, now)
            begin = fed.consumed
            if fed.command is not None:
                self._meet_command(state, fed.command, now)

    def measured(self, records: Sequence[bytes], arrived_at: float) -> int:
        """Takes metadata that the job didn't print but sent (logshipper/measurements.py), as if it stood on stdout,
        under the narrowest mode since it arrived. Returns how many records are dropped."""
        stdout = self._streams[Stream.STDOUT]
        if "disabled" in (self._mode, stdout.mode) or arrived_at <= self._disabled_until:
            stdout.tally.dropped += len(records)
            return len(records)
        for record in records:
            stdout.take_record(record)
        return 0

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
        state.sort(fed.blocks, now)
        if fed.command is not None:
            self._meet_command(state, fed.command, now)
        state.settle(now)
        self._say_left_out()

    def tick(self, now: float) -> None:
        """What only time brings: rows left alone, repeats that go on, the status of running bars."""
        for state in self._streams.values():
            state.tick(now)
        self._ticked_at = now

    def next_tick(self) -> float | None:
        """When `tick` has something to do at the earliest, or None."""
        times = (state.next_tick(self._ticked_at) for state in self._streams.values())
        return min((time for time in times if time is not None), default=None)

    def ledger(self) -> Json:
        """The account of lines (docs/segment-format.md): balances at any time."""
        account = {state.stream.name.lower(): state.account() for state in self._streams.values()}
        return {**account, "notes": self._log.notes, "status": self._log.statuses, "parts": self._log.parts}

    def count_lost(self, stream: Stream, lines: int) -> None:
        """Lines that were stored by our count, but then couldn't be written."""
        tally = self._streams[stream].tally
        tally.stored -= lines
        tally.lost += lines

    # ---- commands and policies

    def _meet_command(self, state: StreamLog, line: bytes, now: float) -> None:
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
        state.sort(state.renderer.keep_command(), now)
        if isinstance(asked, commands.Refused):
            self._refuse_command(state, asked, now)

    def _obey_command(self, state: StreamLog, command: commands.Command, line: bytes, now: float) -> None:
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
        state.take_command(line)
        if self._mode != before:
            self._say_mode(before, state.stream)
        if (self._token is not None) != fence_before:
            verb = "fenced" if self._token else "resumed"
            message = (
                "commands are not obeyed until the stop token comes again" if self._token else "commands are obeyed"
            )
            self._log.event(f"commands_{verb}", message, stream=state.stream.name.lower())

    def _take_user_event(self, state: StreamLog, asked: commands.UserEvent, line: bytes) -> None:
        """In each mode: it is told to the logger. Past MAX_USER_EVENTS it is a line of the log only."""
        state.renderer.take_command()
        state.tally.commands += 1
        masked = self._log.masked(line)
        state.take_command(masked)
        self._user_events += 1
        told = asked if masked == line else commands.parse(masked)
        if self._user_events <= MAX_USER_EVENTS and isinstance(told, commands.UserEvent):
            self._log.out.append(Event({**told.record(), "stream": state.stream.name.lower()}))
        elif self._user_events == MAX_USER_EVENTS + 1:
            message = f"from here on the job's own events are lines of the log only: {MAX_USER_EVENTS:,} were taken"
            self._log.out.append(Event({"event": "user_events_left_out", "message": message}))

    def _say_left_out(self) -> None:
        left_out = self._user_events - MAX_USER_EVENTS
        if left_out > self._said_left_out:
            self._said_left_out = left_out
            message = f"{left_out:,} of the job's own events are lines of the log only"
            self._log.out.append(Event({"event": "user_events_left_out", "message": message, "events": left_out}))

    def _refuse_command(self, state: StreamLog, refused: commands.Refused, now: float) -> None:
        before = self._mode
        narrows = refused.narrow is not None and commands.width(refused.narrow) > commands.width(before)
        if narrows and refused.narrow is not None:
            self._mode = refused.narrow
            self._apply_policy(state, now)
        message = (
            f"a line begins with /LOGCOMMAND but is no command: {refused.reason}. The right form: {commands.RIGHT_FORM}"
        )
        self._log.event("command_refused", message, stream=state.stream.name.lower(), reason=refused.reason)
        if narrows:
            self._say_mode(before, state.stream, " (to be safe: it names this mode)")

    def _apply_policy(self, by: StreamLog, now: float) -> None:
        """A command on one stream: exact there, and no wider than what the other stream has to obey still."""
        for state in self._streams.values():
            if state is by:
                self._set_policy(state, self._mode, self._token is not None, now)
            else:
                mode = commands.narrowest(state.mode, self._mode)
                self._set_policy(state, mode, state.fenced or self._token is not None, now)

    def _set_policy(self, state: StreamLog, mode: str, fenced: bool, now: float) -> None:
        state.fenced = fenced
        if mode == state.mode:
            return
        if state.mode == "disabled":
            self._disabled_until = now
        if state.mode != "enabled":
            state.renderer.drop_half_line()  # part of a line was printed under the old mode: it isn't known what it is
        state.settle(now)
        state.mode = mode

    def _say_mode(self, before: str, stream: Stream, why: str = "") -> None:
        self._log.event(
            "mode_changed",
            f"mode changed from {before} to {self._mode}{why}",
            stream=stream.name.lower(),
            **{"from": before, "to": self._mode},
        )

    def _mask(self, token: str) -> None:
        mask = token.encode()
        if len(token) >= MASKED_TOKEN_CHARS and mask not in self._log.masks and len(self._log.masks) < MAX_TOKENS:
            self._log.masks.append(mask)


def _coloured_renderer() -> type[Renderer]:
    """Imported where it is needed: few jobs keep colours."""
    from logshipper.coloured_renderer import ColouredRenderer

    return ColouredRenderer
