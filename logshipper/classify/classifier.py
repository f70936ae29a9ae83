"""What of the rendered output is logged, and as what: modes, commands, metadata, repeats, blank
lines. Pure.

One Classifier serves one capture, both streams. Bytes, what the relay saw empty, and a clock go in;
`Lines` and `Event` values come out, in the order in which they are to be written.

Privacy (R11, R16, R17), the invariants that everything here keeps:
- Within a stream a command is obeyed from the next line on: the renderer stops at a line that may
  hold a command.
- Across streams little is known of the order in which two streams were written: policies.py has
  what, and what follows.
- What only looks like a command may narrow what is logged, and never widens it; an event says what
  was made of it.
- At a change of a stream's policy everything that it still shows is dealt with under the old one,
  and its screen, repeats and half line start afresh. Outside `enabled` a half line is not logged,
  and there is no status.
"""

from collections.abc import Iterable, Sequence

from logshipper.classify import commands
from logshipper.classify.masks import MASK
from logshipper.classify.policies import Obedience, Policies
from logshipper.classify.stream_log import CaptureLog, LoggedEvent, LoggedLines, StreamLog
from logshipper.config import JSON, MetadataPattern
from logshipper.render import command_prefix
from logshipper.render.renderer import Block, Renderer, Rendering
from logshipper.spool.segment import Json, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.classify.text_records import TextRecords

MAX_USER_EVENTS = (
    5_000  # of a capture; its readers keep twice as many events, so that all others have room
)
MAX_REFUSALS = 500  # likewise
_FENCED = "a stop token is in force"
_IN_DOUBT = (
    "{} may have been printed after it: print it again, on that stream, or once that one is quiet"
)


class Classifier:
    """See the module's docstring. columns, rows: the terminal's size; collapse: repeats and blank
    lines; first_secs: see Renderer; mask: secrets by their shape; all else as configured."""

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
        metadata: Iterable[str | MetadataPattern] = (JSON,),
        first_secs: float = 0.0,
        mask: bool = True,
    ) -> None:
        self._policies = Policies(mode)
        self._obey = obey
        self._disabled_until = float("-inf")  # when a stream's policy was that last
        self._log = CaptureLog()
        make = _coloured_renderer() if keep_colours else Renderer
        text_records = _text_records(metadata)
        self._streams = {
            stream: StreamLog(
                stream,
                make(columns, rows, first_secs),
                mode,
                self._log,
                keep_colours=keep_colours,
                snapshot_secs=snapshot_secs,
                collapse=collapse,
                # R5: of stdout only
                text_records=text_records if stream is Stream.STDOUT else None,
                mask=mask,
            )
            for stream in (Stream.STDOUT, Stream.STDERR)
        }
        self._user_events = _EventLimit(
            "user_events", MAX_USER_EVENTS, "the job's own events are lines of the log only"
        )
        self._refusals = _EventLimit(
            "refusals",
            MAX_REFUSALS,
            "lines that look like commands and aren't obeyed aren't events",
        )
        self._ticked_at = 0.0

    @property
    def mode(self) -> str:
        """The mode in force, by all commands so far, or the configuration."""
        return self._policies.mode

    def take(self) -> list[LoggedLines | LoggedEvent]:
        """All that came out since the last call."""
        out, self._log.out = self._log.out, []
        return out

    # ---- what comes in

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """Takes bytes of a stream. now: seconds of a monotonic clock."""
        state = self._streams[stream]
        renderer = state.renderer
        state.bytes += len(data)
        begin = self._feed_half_command(state, data, now)
        while begin < len(data):
            rendering = renderer.feed(data, now, begin)
            state.sort(rendering.blocks)
            begin = rendering.consumed
            self._meet_command(_CommandLine(state, rendering), now)

    def take_measurements(self, records: Sequence[bytes], arrived_at: float) -> int:
        """Takes metadata that the job didn't print but sent (logshipper/telegraf/measurements.py),
        as if it stood on stdout, under the narrowest mode since it arrived. Returns how many
        records are dropped."""
        stdout = self._streams[Stream.STDOUT]
        if "disabled" in (self.mode, stdout.mode) or arrived_at <= self._disabled_until:
            stdout.tally.dropped += len(records)
            return len(records)
        for record in records:
            stdout.take_record(record)
        return 0

    def seen_empty(self, stream: Stream, now: float) -> None:
        """The relay saw the stream empty: what is read of it from now on was written under the
        policy of now."""
        if self._policies.seen_empty(stream):
            self._apply_policies(now)

    def resize(self, columns: int, rows: int) -> None:
        for state in self._streams.values():
            state.renderer.resize(columns, rows)

    def end(self, stream: Stream, now: float) -> None:
        """The stream is over: its half line is a line, its screen and repeats are final."""
        state = self._streams[stream]
        self._end_half_command(state, now)
        rendering = state.renderer.end_line(now)
        state.sort(rendering.blocks)
        self._meet_command(_CommandLine(state, rendering), now)
        state.settle()
        for capped in (self._user_events, self._refusals):
            capped.say_left_out(self._log)
        self._log.report_masked(now, at_end=True)

    def release(self) -> None:
        """The command is over: what only waited for that it might be drawn again is final."""
        for state in self._streams.values():
            state.sort(state.renderer.release())

    def tick(self, now: float) -> None:
        """What only time brings: rows left alone, repeats that go on, the status of running
        bars."""
        for state in self._streams.values():
            state.tick(now)
        self._log.report_masked(now)
        self._ticked_at = now

    def next_tick(self) -> float | None:
        """When `tick` has something to do at the earliest, or None."""
        times = [state.next_tick(self._ticked_at) for state in self._streams.values()]
        times.append(self._log.masked_due())
        return min((time for time in times if time is not None), default=None)

    def live(self) -> dict[Stream, bytes]:
        """What each stream shows and isn't final: a running bar, a prompt; b"" for nothing."""
        return {stream: state.live for stream, state in self._streams.items()}

    def ledger(self) -> Json:
        """The account of lines (docs/segment-format.md): balances at any time."""
        account = {state.stream.name.lower(): state.account() for state in self._streams.values()}
        return {
            **account,
            "notes": self._log.notes,
            "status": self._log.statuses,
            "parts": self._log.parts,
        }

    def count_lost(self, stream: Stream, lines: int) -> None:
        """Lines that were stored by our count, but then couldn't be written."""
        tally = self._streams[stream].tally
        tally.stored -= lines
        tally.lost += lines

    # ---- commands and policies

    def _feed_half_command(self, state: StreamLog, data: bytes, now: float) -> int:
        """The rest of a line that was cut off by a change of the mode. Returns how much of data
        that is."""
        half = state.half_command
        if half is None:
            return 0
        end = data.find(b"\n") + 1
        if not end:
            state.half_command = half.fed(data)
            return len(data)
        state.half_command = half.fed(data[: end - 1])
        state.renderer.line_feeds += 1
        self._end_half_command(state, now)
        return end

    def _end_half_command(self, state: StreamLog, now: float) -> None:
        half, state.half_command = state.half_command, None
        if half is not None:
            line = _CommandLine(state, half.rendered(now), is_half=True)
            if line.text:
                self._meet_command(line, now)
            else:
                line.keep(now)

    def _meet_command(self, line: "_CommandLine", now: float) -> None:
        """Obeys a line that holds a command, or leaves it as the ordinary line that it is."""
        if not line.text:
            return
        command = commands.parse(line.text) if self._obey else None
        obedience = self._policies.obedience(line.state.stream)
        if isinstance(command, commands.UserEvent) and obedience is Obedience.ALL:
            self._take_user_event(line, command)
        elif isinstance(command, commands.Command) and command.verb == "resume":
            self._resume(line, command, now)
        elif isinstance(command, commands.Command) and obedience is Obedience.ALL:
            self._obey_command(line, command, now)
        elif isinstance(command, commands.Command):
            self._obey_fenced(line, command, now)
        elif isinstance(command, commands.MalformedCommand):
            self._obey_malformed(line, command, now)
        else:
            line.keep(now)

    def _obey_command(self, line: "_CommandLine", command: commands.Command, now: float) -> None:
        stream, before, was_fenced = line.state.stream, self.mode, self._policies.fenced()
        line.obey()
        text = line.text
        if command.verb == "mode":
            self._policies.set_mode(stream, command.value)
        else:
            self._policies.stop(stream, command.value, is_certain=True)
            text = self._masked_command(command)
        self._apply_policies(now)
        line.state.take_command(text)
        self._say_mode(before, stream)
        if command.verb == "stop":
            self._say_fenced(stream, was_fenced)
        elif commands.width(self.mode) > commands.width(command.value):
            self._refuse(stream, _IN_DOUBT.format(f"{self.mode} on the other stream"))

    def _obey_fenced(self, line: "_CommandLine", command: commands.Command, now: float) -> None:
        """A fence is in force, or may be: then what narrows is obeyed."""
        stream = line.state.stream
        may_obey = self._policies.obedience(stream) is Obedience.NARROWING
        if command.verb == "stop" and may_obey:
            self._obey_command(line, command, now)
            return
        if command.verb == "stop":
            line.keep_as(self._masked_command(command), now)
            return
        line.keep(now)
        narrows = commands.width(command.value) > commands.width(self.mode)
        if may_obey:
            self._narrow(stream, command.value, now, "to be safe: a stop token may be in force")
        else:
            self._policies.ignore(stream, command.value)
        if narrows != may_obey and command.value != self.mode:
            self._refuse(stream, "a stop token may be in force" if may_obey else _FENCED)

    def _resume(self, line: "_CommandLine", command: commands.Command, now: float) -> None:
        stream, before, was_fenced = line.state.stream, self.mode, self._policies.fenced()
        has_ended = self._policies.resume(stream, command.value, is_certain=True)
        if has_ended is None:
            line.keep_as(self._masked_command(command), now)
            return
        line.obey()
        line.state.take_command(self._masked_command(command))
        self._apply_policies(now)
        self._say_mode(before, stream, " (it was asked for behind the stop token)")
        if not has_ended:
            self._refuse(stream, _IN_DOUBT.format("stop on the other stream"))
        elif was_fenced and not self._policies.fenced():
            self._log.event("commands_resumed", "commands are obeyed", stream=stream.name.lower())

    def _obey_malformed(
        self, line: "_CommandLine", command: commands.MalformedCommand, now: float
    ) -> None:
        """A malformed command: what of it narrows is obeyed."""
        stream, was_fenced = line.state.stream, self._policies.fenced()
        obedience = self._policies.obedience(stream)
        resumed = None
        if command.resume is not None:
            resumed = self._policies.resume(stream, command.resume, is_certain=False)
        if obedience is Obedience.NONE:
            command = command._replace(narrow=None, stop=None)
        self._keep_malformed(line, command, resumed is not None, now)
        if resumed is not None:
            self._apply_policies(now)  # of what the fence held back something may narrow
        if command.stop is not None:
            self._policies.stop(stream, command.stop, is_certain=False)
            self._say_fenced(stream, was_fenced)
        if obedience is not Obedience.NONE or resumed is not None:
            self._refuse(
                stream,
                command.reason,
                f"is no command: {command.reason}. The right form: {commands.RIGHT_FORM}",
            )
        if command.narrow is not None:
            self._narrow(stream, command.narrow, now, "to be safe: it names this mode")

    def _keep_malformed(
        self,
        line: "_CommandLine",
        command: commands.MalformedCommand,
        has_resumed: bool,
        now: float,
    ) -> None:
        """An ordinary line, unless it holds a token, or text that was printed behind what
        narrows."""
        for token in (command.stop, command.resume):
            self._log.masks.add(token or "")
        if (command.stop is not None or has_resumed) and not line.is_part:
            line.obey()
            before = (
                line.state.masked(line.text[: command.begin])
                if line.state.mode == "enabled"
                else b""
            )
            verb = "stop" if command.stop is not None else "resume"
            line.state.take_command(before + self._masked_command(commands.Command(verb, "")))
        elif command.narrow is not None and command.has_tail and not line.is_part:
            line.drop()
        else:
            line.keep(now)

    def _narrow(self, stream: Stream, mode: str, now: float, reason: str) -> None:
        """Also where the mode in force is narrower: another command may undo that one."""
        before = self.mode
        self._policies.narrow(stream, mode)
        self._apply_policies(now)
        self._say_mode(before, stream, f" ({reason})")

    def _apply_policies(self, now: float) -> None:
        for state in self._streams.values():
            mode = self._policies.mode_of(state.stream)
            if mode == state.mode:
                continue
            if state.mode == "disabled":
                self._disabled_until = now
            state.change_mode(mode, now)

    def _take_user_event(self, line: "_CommandLine", user_event: commands.UserEvent) -> None:
        """In each mode: it is for the logger. Past MAX_USER_EVENTS it is a line of the log only."""
        line.obey()
        masked = line.state.masked(line.text)
        line.state.take_command(masked)
        event = user_event if masked == line.text else commands.parse(masked)
        if not isinstance(event, commands.UserEvent):
            # a token stood where JSON has no text
            event = commands.UserEvent({"name": MASK.decode()})
        if self._user_events.take(self._log):
            self._log.out.append(
                LoggedEvent({**event.record(), "stream": line.state.stream.name.lower()})
            )

    def _masked_command(self, command: commands.Command) -> bytes:
        self._log.masks.add(command.value)
        return b'%s {"%s":"%s"}' % (command_prefix.PREFIX, command.verb.encode(), MASK)

    # ---- events about them, which never quote output

    def _say_mode(self, before: str, stream: Stream, reason: str = "") -> None:
        if self.mode != before:
            message = f"mode changed from {before} to {self.mode}{reason}"
            details = {"from": before, "to": self.mode}
            self._log.event("mode_changed", message, stream=stream.name.lower(), **details)

    def _say_fenced(self, stream: Stream, was_fenced: bool) -> None:
        if not was_fenced:
            message = "commands are not obeyed until the stop token comes again"
            self._log.event("commands_fenced", message, stream=stream.name.lower())

    def _refuse(self, stream: Stream, reason: str, message: str = "") -> None:
        if self._refusals.take(self._log):
            words = message or f"isn't obeyed: {reason}"
            self._log.event(
                "command_refused",
                f"a line with /LOGCOMMAND {words}",
                stream=stream.name.lower(),
                reason=reason,
            )


class _CommandLine:
    """A rendered line that may hold a command, until it is known what becomes of it. text: b""
    where there is none; is_half: its begin was printed under another mode, so it is a command or
    nothing."""

    __slots__ = ("_is_half", "is_part", "state", "text")

    def __init__(self, state: StreamLog, rendering: Rendering, *, is_half: bool = False) -> None:
        self.state = state
        self.text = rendering.command or b""
        self.is_part = rendering.is_part
        self._is_half = is_half

    def keep(self, now: float) -> None:
        """It is an ordinary line."""
        if self._is_half:
            self.state.tally.dropped += 1
        else:
            self.state.sort(self.state.renderer.keep_command())

    def keep_as(self, text: bytes, now: float) -> None:
        """It is an ordinary line that reads otherwise, where it can be changed."""
        if self._is_half or self.is_part:
            self.keep(now)
            return
        self.state.sort(self.state.renderer.take_command())
        self.state.sort([Block(text + b"\n", drawn_at=now)])

    def obey(self) -> None:
        self._take()
        self.state.tally.commands += 1

    def drop(self) -> None:
        self._take()
        self.state.tally.dropped += 1

    def _take(self) -> None:
        if not self._is_half:
            self.state.sort(self.state.renderer.take_command())


class _EventLimit:
    """Events of one kind, up to a limit; an event at the end says how many came after it. name: of
    what is counted; words: what becomes of the rest."""

    def __init__(self, name: str, limit: int, words: str) -> None:
        self._name = name
        self._limit = limit
        self._words = words
        self._count = self._reported_count = 0

    def take(self, log: CaptureLog) -> bool:
        """Whether one more is an event."""
        self._count += 1
        if self._count == self._limit + 1:
            message = f"from here on {self._words}: {self._limit:,} were taken"
            log.out.append(LoggedEvent({"event": f"{self._name}_left_out", "message": message}))
        return self._count <= self._limit

    def say_left_out(self, log: CaptureLog) -> None:
        left_out = self._count - self._limit
        if left_out > self._reported_count:
            self._reported_count = left_out
            message = f"of {left_out:,} more, {self._words}"
            log.out.append(
                LoggedEvent(
                    {"event": f"{self._name}_left_out", "message": message, "events": left_out}
                )
            )


def _coloured_renderer() -> type[Renderer]:
    """Imported where it is needed: few jobs keep colours."""
    from logshipper.render.coloured_renderer import ColouredRenderer

    return ColouredRenderer


def _text_records(kinds: Iterable[str | MetadataPattern]) -> "TextRecords | None":
    """Likewise. None where JSON is all that is metadata."""
    kinds = [kind for kind in kinds if kind != JSON]
    if not kinds:
        return None
    from logshipper.classify.text_records import TextRecords

    return TextRecords(kinds)
