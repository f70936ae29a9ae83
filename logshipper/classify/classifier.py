"""Decides the fate of rendered lines: modes, commands, metadata, repeats, blank lines. Pure.

A Classifier serves both streams of a capture. It takes bytes, reports of empty streams from the
relay, and a clock. It returns `LoggedLines` and `LoggedEvent` values in the order of writing.

Privacy (R11, R16, R17): all code here keeps these invariants.

- Within a stream, a command applies from the next line on. The renderer stops at a line that may
  contain a command.
- The order of lines across streams is known in part only. policies.py has the rules.
- A near miss of a command may narrow the log and never widens it. An event reports the outcome.
- When a stream's policy changes, the old policy applies to everything that the stream still shows.
  Then its screen, repeats and unfinished line start afresh. Outside mode `enabled` the log has
  neither unfinished lines nor a status.
"""

from collections.abc import Iterable, Sequence

from logshipper.classify import commands
from logshipper.classify.capture_log import CaptureLog, EventLimit
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.classify.policies import Obedience, Policies
from logshipper.classify.stream_log import StreamLog
from logshipper.config import AUTO, JSON, MetadataPattern
from logshipper.masks.shape_mask import MASK
from logshipper.render import command_prefix
from logshipper.render.renderer import Block, Renderer, Rendering
from logshipper.spool.segment import Json, Stream

MAX_USER_EVENTS = 5_000  # of a capture; readers keep twice as many events, so all others have room
MAX_REFUSALS = 500  # likewise
_FENCED = "a stop token is in force"
_IN_DOUBT = (
    "the job may have printed {} after it; print it again on that stream, or once that stream is "
    "quiet"
)


class Classifier:
    """See the module's docstring. columns, rows: the terminal's size; collapse: repeats and blank
    lines; finds_series: in mode `enabled`, even without `auto` in metadata; limits_series: their CPU
    time; first_secs: see Renderer; mask: secrets by their shape; all else as configured."""

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
        finds_series: bool = False,
        ignore: tuple[str, ...] = (),
        rename: tuple[tuple[str, str], ...] = (),
        limits_series: bool = True,
        first_secs: float = 0.0,
        mask: bool = True,
    ) -> None:
        self._policies = Policies(mode)
        self._obey = obey
        self._disabled_until = float("-inf")  # end of the last time with a stream in that mode
        self._log = CaptureLog()
        renderer_type = Renderer
        if keep_colours:  # rare, hence a late import
            from logshipper.render.coloured_renderer import ColouredRenderer

            renderer_type = ColouredRenderer
        text_records = None
        text_kinds = [kind for kind in metadata if kind not in (JSON, AUTO)]
        if text_kinds:  # likewise
            from logshipper.classify.text_records import TextRecords

            text_records = TextRecords(text_kinds)
        series_modes: tuple[str, ...] = ("enabled",) if finds_series else ()
        if AUTO in metadata:
            series_modes = ("enabled", "metadata")
        self._streams = {
            stream: StreamLog(
                stream,
                renderer_type(columns, rows, first_secs),
                mode,
                self._log,
                keep_colours=keep_colours,
                snapshot_secs=snapshot_secs,
                collapse=collapse,
                # R5: only stdout has records
                text_records=text_records if stream is Stream.STDOUT else None,
                series_modes=series_modes,
                ignore=ignore,
                rename=rename,
                limits_series=limits_series,
                mask=mask,
            )
            for stream in (Stream.STDOUT, Stream.STDERR)
        }
        out, err = (state.output for state in self._streams.values())
        out.other, err.other = err, out
        self._user_events = EventLimit(
            self._log,
            "user_events",
            MAX_USER_EVENTS,
            "the job's own events appear as lines of the log only",
        )
        self._refusals = EventLimit(
            self._log, "refusals", MAX_REFUSALS, "logshipper reports no further ignored commands"
        )
        self._ticked_at = 0.0

    @property
    def mode(self) -> str:
        """The mode in force, by all commands so far, or the configuration."""
        return self._policies.mode

    def take(self) -> list[LoggedLines | LoggedEvent]:
        """Return all results since the last call."""
        out, self._log.out = self._log.out, []
        return out

    # ---- input

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """Take bytes of a stream. now: seconds of a monotonic clock."""
        state = self._streams[stream]
        renderer = state.renderer
        state.bytes += len(data)
        begin = self._feed_half_command(state, data, now)
        while begin < len(data):
            rendering = renderer.feed(data, now, begin)
            state.sort(rendering.blocks)
            begin = rendering.consumed
            self._handle_command(_CommandLine(state, rendering), now)

    def take_measurements(self, records: Sequence[bytes], arrived_at: float) -> int:
        """Take metadata that the job sent (logshipper/telegraf/measurements.py) as records of
        stdout, under the narrowest mode since their arrival. Return the number of dropped ones."""
        stdout = self._streams[Stream.STDOUT]
        if "disabled" in (self.mode, stdout.mode) or arrived_at <= self._disabled_until:
            stdout.tally.dropped += len(records)
            return len(records)
        for record in records:
            stdout.add_record(record)
        return 0

    def seen_empty(self, stream: Stream, now: float) -> None:
        """Note that the relay saw the stream empty: the present policy applies to its next text."""
        if self._policies.seen_empty(stream):
            self._apply_policies(now)

    def resize(self, columns: int, rows: int) -> None:
        for state in self._streams.values():
            state.renderer.resize(columns, rows)

    def end(self, stream: Stream, now: float, *, may_continue: bool = False) -> None:
        """End the stream: its unfinished line, screen and repeats are final. may_continue: series
        go on in later text."""
        state = self._streams[stream]
        self._end_half_command(state, now)
        rendering = state.renderer.end_line(now)
        state.sort(rendering.blocks)
        self._handle_command(_CommandLine(state, rendering), now)
        state.settle(keeps_series=may_continue)
        for limit in (self._user_events, self._refusals):
            limit.report()
        self._log.report_masked(now, at_end=True)

    def release(self) -> None:
        """Log lines that only waited for a redraw, as the command is over."""
        for state in self._streams.values():
            state.sort(state.renderer.release())

    def tick(self, now: float) -> None:
        """Do the work that is due by time: idle rows, repeats, and the status of running bars."""
        for state in self._streams.values():
            state.tick(now)
        self._log.report_masked(now)
        self._ticked_at = now

    def next_tick(self) -> float | None:
        """Return the earliest time with work for `tick`, or None."""
        times = [state.next_tick(self._ticked_at) for state in self._streams.values()]
        times.append(self._log.masked_due())
        return min((time for time in times if time is not None), default=None)

    def live(self) -> dict[Stream, bytes]:
        """Return each stream's open lines, such as a running bar or a prompt; b"" for none."""
        return {stream: state.status.live for stream, state in self._streams.items()}

    def ledger(self) -> Json:
        """Return the counts of lines (docs/segment-format.md), which always balance."""
        log = self._log
        counts = {state.stream.name.lower(): state.account() for state in self._streams.values()}
        return {**counts, "notes": log.notes, "status": log.statuses, "parts": log.parts}

    def count_lost(self, stream: Stream, lines: int) -> None:
        """Move lines from stored to lost, as the segment writer could not write them."""
        tally = self._streams[stream].tally
        tally.stored -= lines
        tally.lost += lines

    # ---- commands and policies

    def _feed_half_command(self, state: StreamLog, data: bytes, now: float) -> int:
        """Feed the rest of a line that a change of the mode cut off. Return its size in data."""
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
                self._handle_command(line, now)
            else:
                line.keep()

    def _handle_command(self, line: "_CommandLine", now: float) -> None:
        """Obey a line with a command, or keep it as an ordinary line."""
        if not line.text:
            return
        command = commands.parse(line.text) if self._obey else None
        obedience = self._policies.obedience(line.state.stream)
        match command:
            case commands.UserEvent() if obedience is Obedience.ALL:
                self._take_user_event(line, command)
            case commands.Command(verb="mode") if obedience is Obedience.ALL:
                self._set_mode(line, command.value, now)
            case commands.Command(verb="mode"):
                self._set_fenced_mode(line, command.value, now)
            case commands.Command(verb="stop"):
                self._stop(line, command.value, now)
            case commands.Command(verb="resume"):
                self._resume(line, command.value, now)
            case commands.MalformedCommand():
                self._obey_malformed(line, command, now)
            case _:
                line.keep()

    def _set_mode(self, line: "_CommandLine", mode: str, now: float) -> None:
        stream, before = line.state.stream, self.mode
        line.obey()
        self._policies.set_mode(stream, mode)
        self._apply_policies(now)
        line.state.add_command(line.text)
        self._report_mode(before, stream)
        if commands.width(self.mode) > commands.width(mode):
            self._report_refusal(stream, _IN_DOUBT.format(f"{self.mode} on the other stream"))

    def _set_fenced_mode(self, line: "_CommandLine", mode: str, now: float) -> None:
        """Narrow the mode if a fence may be in force; if one is, note the command for later."""
        stream = line.state.stream
        may_obey = self._policies.obedience(stream) is Obedience.NARROWING
        line.keep()
        narrows = commands.width(mode) > commands.width(self.mode)
        if may_obey:
            self._narrow(stream, mode, now, "to be safe: a stop token may be in force")
        else:
            self._policies.ignore(stream, mode)
        if narrows != may_obey and mode != self.mode:
            self._report_refusal(stream, "a stop token may be in force" if may_obey else _FENCED)

    def _stop(self, line: "_CommandLine", token: str, now: float) -> None:
        stream, before, was_fenced = line.state.stream, self.mode, self._policies.fenced()
        if self._policies.obedience(stream) is Obedience.NONE:
            line.keep_as(self._masked_command("stop", token), now)
            return
        line.obey()
        self._policies.stop(stream, token, is_certain=True)
        masked = self._masked_command("stop", token)
        self._apply_policies(now)
        line.state.add_command(masked)
        self._report_mode(before, stream)
        self._report_fence(stream, was_fenced)

    def _resume(self, line: "_CommandLine", token: str, now: float) -> None:
        stream, before, was_fenced = line.state.stream, self.mode, self._policies.fenced()
        has_ended = self._policies.resume(stream, token, is_certain=True)
        masked = self._masked_command("resume", token)
        if has_ended is None:
            line.keep_as(masked, now)
            return
        line.obey()
        line.state.add_command(masked)
        self._apply_policies(now)
        self._report_mode(before, stream, " (requested behind the stop token)")
        if not has_ended:
            self._report_refusal(stream, _IN_DOUBT.format("stop on the other stream"))
        elif was_fenced and not self._policies.fenced():
            self._log.event("commands_resumed", "logshipper obeys commands again", stream)

    def _obey_malformed(
        self, line: "_CommandLine", command: commands.MalformedCommand, now: float
    ) -> None:
        """Obey the narrowing parts of a malformed command."""
        stream, was_fenced = line.state.stream, self._policies.fenced()
        obedience = self._policies.obedience(stream)
        resumed = None
        if command.resume is not None:
            resumed = self._policies.resume(stream, command.resume, is_certain=False)
        if obedience is Obedience.NONE:
            command = command._replace(narrow=None, stop=None)
        self._keep_malformed(line, command, resumed is not None)
        if resumed is not None:
            self._apply_policies(now)  # a command within the fence may narrow
        if command.stop is not None:
            self._policies.stop(stream, command.stop, is_certain=False)
            self._report_fence(stream, was_fenced)
        if obedience is not Obedience.NONE or resumed is not None:
            self._report_refusal(
                stream,
                command.reason,
                f"a line with /LOGCOMMAND is no command: {command.reason}. "
                f"Correct form: {commands.RIGHT_FORM}",
            )
        if command.narrow is not None:
            self._narrow(stream, command.narrow, now, "to be safe: it names this mode")

    def _keep_malformed(
        self, line: "_CommandLine", command: commands.MalformedCommand, has_resumed: bool
    ) -> None:
        """Keep the line, unless it contains a token, or text behind a narrowing request."""
        for token in (command.stop, command.resume):
            self._log.stop_tokens.add(token or "")
        if (command.stop is not None or has_resumed) and not line.is_part:
            line.obey()
            before = b""
            if line.state.mode == "enabled":
                before = line.state.masked(line.text[: command.begin])
            verb = "stop" if command.stop is not None else "resume"
            line.state.add_command(before + self._masked_command(verb))
        elif command.narrow is not None and command.has_tail and not line.is_part:
            line.drop()
        else:
            line.keep()

    def _narrow(self, stream: Stream, mode: str, now: float, reason: str) -> None:
        """Narrow the mode. The call matters even in a narrower mode, which may be undone."""
        before = self.mode
        self._policies.narrow(stream, mode)
        self._apply_policies(now)
        self._report_mode(before, stream, f" ({reason})")

    def _apply_policies(self, now: float) -> None:
        for state in self._streams.values():
            mode = self._policies.mode_of(state.stream)
            if mode != state.mode:
                if state.mode == "disabled":
                    self._disabled_until = now
                state.change_mode(mode, now)

    def _take_user_event(self, line: "_CommandLine", user_event: commands.UserEvent) -> None:
        """Log a user's event, in every mode. Over MAX_USER_EVENTS it is a line of the log only."""
        line.obey()
        masked = line.state.masked(line.text)
        line.state.add_command(masked)
        event = user_event if masked == line.text else commands.parse(masked)
        if not isinstance(event, commands.UserEvent):
            # a mask outside of a text breaks the JSON
            event = commands.UserEvent({"name": MASK.decode()})
        if self._user_events.admit():
            stream = line.state.stream.name.lower()
            self._log.out.append(LoggedEvent({**event.record(), "stream": stream}))

    def _masked_command(self, verb: str, token: str = "") -> bytes:
        self._log.stop_tokens.add(token)
        return b'%s {"%s":"%s"}' % (command_prefix.PREFIX, verb.encode(), MASK)

    # ---- events about commands, which never quote output

    def _report_mode(self, before: str, stream: Stream, reason: str = "") -> None:
        if self.mode != before:
            message = f"mode changed from {before} to {self.mode}{reason}"
            details = {"from": before, "to": self.mode}
            self._log.event("mode_changed", message, stream, **details)

    def _report_fence(self, stream: Stream, was_fenced: bool) -> None:
        if not was_fenced:
            message = "logshipper ignores commands until the stop token comes again"
            self._log.event("commands_fenced", message, stream)

    def _report_refusal(self, stream: Stream, reason: str, message: str = "") -> None:
        if self._refusals.admit():
            message = message or f"logshipper ignored a line with /LOGCOMMAND: {reason}"
            self._log.event("command_refused", message, stream, reason=reason)


class _CommandLine:
    """A rendered line that may contain a command, before the decision about it."""

    def __init__(self, state: StreamLog, rendering: Rendering, *, is_half: bool = False) -> None:
        self.state = state
        self.text = rendering.command or b""  # b"" for none
        self.is_part = rendering.is_part
        self._is_half = is_half  # begun under another mode: a command, or not logged

    def keep(self) -> None:
        """Log an ordinary line."""
        if self._is_half:
            self.state.tally.dropped += 1
        else:
            self.state.sort(self.state.renderer.keep_command())

    def keep_as(self, text: bytes, now: float) -> None:
        """Log an ordinary line with another text, if the line can be changed."""
        if self._is_half or self.is_part:
            self.keep()
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
