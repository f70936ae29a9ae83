"""The common state of a capture's two streams: results in order, stop tokens, counts and hints.
Pure."""

from logshipper.classify import near_records
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.classify.metadata import Hint
from logshipper.classify.stop_tokens import StopTokens
from logshipper.spool.segment import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MASKED_SECS = 60.0  # between two reports of masked values
MAX_KEY_SETS = 1024  # with a numbering of their own; records with further sets share one
MAX_LOOKS = 1000  # lines of a capture that are checked for near misses


class CaptureLog:
    """State that both streams share. Classifier.take empties `out`."""

    def __init__(self) -> None:
        self.out: list[LoggedLines | LoggedEvent] = []  # results, in the order of writing
        self.stop_tokens = StopTokens()
        self.masked: dict[str, int] = {}  # unreported masked values, by shape
        self._masked_due = 0.0  # earliest time of the next report of them
        self.notes = self.statuses = self.parts = 0
        self.looks = MAX_LOOKS  # remaining checks for near misses
        self._key_sets: dict[int, int] = {}  # by the hash of the set, which may be large
        self._hint_reasons: set[str] = set()  # of the hints so far

    # Any: JSON values
    def event(
        self, name: str, message: str, stream: Stream | None = None, **details: "Any"
    ) -> None:
        source = {} if stream is None else {"stream": stream.name.lower()}
        self.out.append(LoggedEvent({"event": name, "message": message, **source, **details}))

    def masked_due(self) -> float | None:
        """Return the time of the next report of masked values, if there are any."""
        return self._masked_due if self.masked else None

    def report_masked(self, now: float, *, at_end: bool = False) -> None:
        """Report masked values by shape, at most once per MASKED_SECS and at the end."""
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
        self.event("values_masked", message, values=values, shapes=shapes)

    def number(self, keys: tuple[str, ...]) -> int:
        """Return the record's number, from 1, among the records with the same set of keys."""
        key_set = hash(frozenset(keys))
        if key_set not in self._key_sets and len(self._key_sets) >= MAX_KEY_SETS:
            key_set = 0
        number = self._key_sets.get(key_set, 0) + 1
        self._key_sets[key_set] = number
        return number

    def report_pattern_off(self, name: str) -> None:
        message = (
            f"logshipper disabled the pattern `{name}` of ~/.logoptin, because it takes too long; its "
            "lines are no longer records. Make it more definite: begin it with a constant word"
        )
        self.event("metadata_pattern_off", message, pattern=name)

    def report_series_too_fast(self, lines: int) -> None:
        message = (
            f"logshipper did not look for series in {lines:,} lines, as the output was too fast; "
            "`logshipper plot JOB --reread` finds the series in all stored lines"
        )
        self.event("series_left_out", message, reason="too_fast", lines=lines)

    def report_series_over_limit(self, reason: str, count: int) -> None:
        """Report `shapes` of lines, or numbers of further `keys`, beyond the limits of a stream."""
        message = {
            "shapes": f"the series lack {count:,} shapes of lines: this stream has too many of them",
            "keys": f"the series lack {count:,} numbers: their keys are beyond the limit of 256; "
            "`ignore` in ~/.logoptin makes room for others",
        }[reason]
        self.event("series_left_out", message, reason=reason, count=count)

    def report_rename_conflict(self, name: str, new_name: str) -> None:
        """Report a rule of the user's file; its key is output and stays unquoted."""
        message = (
            f"`rename` of `{name}` to `{new_name}` in ~/.logoptin: some records already had a key "
            f"`{new_name}`, so another key kept its name; choose another new name"
        )
        self.event("series_rename_conflict", message, key=name, new_name=new_name)

    def report_series_off(self, error: str) -> None:
        message = f"logshipper stopped looking for series in this job's lines, because of an error: {error}"
        self.event("series_off", message)

    def hint(self, hint: Hint, stream: Stream, line: bytes = b"") -> None:
        """Report a near miss and its fix, once per reason. line: quoted, unless empty."""
        if hint.reason not in self._hint_reasons:
            self._hint_reasons.add(hint.reason)
            text = near_records.quoted(hint, line) if line else hint.text
            self.event("json_hint", text, stream, reason=hint.reason)

    def check_near_records(self, text: bytes, stream: Stream, *, may_quote: bool) -> None:
        """Hint at the first line of each kind that is nearly a record."""
        for line in text.split(b"\n"):
            if near_records.OBJECT_BEGIN not in line:
                continue
            if not self.looks or self._hint_reasons >= near_records.REASONS:
                self.looks = 0
                return
            self.looks -= 1
            hint = near_records.hint_at(line, stream)
            if hint is not None:
                self.hint(hint, stream, line if may_quote else b"")


class EventLimit:
    """Counts a capture's events of one kind and reports those over the limit: at the first, and at
    the end. consequence: for these."""

    def __init__(self, log: CaptureLog, name: str, limit: int, consequence: str) -> None:
        self._log = log
        self._event_name = f"{name}_left_out"
        self._limit = limit
        self._consequence = consequence
        self._count = self._reported_count = 0

    def admit(self) -> bool:
        """Count an event; return whether it is within the limit."""
        self._count += 1
        if self._count == self._limit + 1:
            message = f"the limit of {self._limit:,} is reached: {self._consequence}"
            self._log.event(self._event_name, message)
        return self._count <= self._limit

    def report(self) -> None:
        count = self._count - self._limit
        if count > self._reported_count:
            self._reported_count = count
            message = f"{count:,} over the limit: {self._consequence}"
            self._log.event(self._event_name, message, events=count)
