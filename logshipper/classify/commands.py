"""Parses in-band commands (R14, R15) from rendered lines. Pure; a malformed command is a value, not
an error.

The commands affect only the log of the job that prints them: `{"mode":"enabled|metadata|disabled"}`,
`{"stop":"TOKEN"}`, `{"resume":"TOKEN"}`, `{"event":{...}}`, `{"event":"NAME"}`.

A valid command is exact. A near miss may have been meant to keep text out of the log, so it becomes
a MalformedCommand. The classifier obeys the parts of it that narrow the log, and no others.
"""

import json

from logshipper.config import MODES
from logshipper.late_pattern import late_pattern
from logshipper.named_tuple import NamedTuple
from logshipper.render.command_prefix import ANY_CASE, MAX_BYTES, PREFIX
from logshipper.spool.segment import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAX_TOKEN_CHARS = 256
MAX_EVENT_BYTES = 8 << 10  # of an event's line; escaped as ASCII it still fits a record
MAX_EVENT_NESTED = 100  # brackets in an event: protects the stack of readers
_MAX_MESSAGE_CHARS = 512
USER_EVENT = "user_event"
RIGHT_FORM = '/LOGCOMMAND {"mode":"metadata"}  (one space, one JSON object, nothing after it)'


class Command(NamedTuple):
    """A valid command."""

    verb: str  # mode, stop or resume
    value: str  # the mode or the token


class UserEvent(NamedTuple):
    """An event that a job prints."""

    data: Json  # complete

    def record(self) -> Json:
        """Return the record to store. `name` and `message` come from the data's fields of that name;
        without a message, the other fields form one."""
        name, message = self.data.get("name"), self.data.get("message")
        name = name if isinstance(name, str) else ""
        if not isinstance(message, str) or not message:
            details = {key: value for key, value in self.data.items() if key != "name"}
            details_text = json.dumps(details, ensure_ascii=False) if details else ""
            message = ": ".join(filter(None, (name, details_text)))
        shortened = {"message": message[:_MAX_MESSAGE_CHARS], "name": name[:_MAX_MESSAGE_CHARS]}
        return {"event": USER_EVENT, **shortened, "data": self.data}


class MalformedCommand(NamedTuple):
    """A line that may be meant as a command but isn't one."""

    reason: str
    begin: int = 0  # position of PREFIX
    narrow: str | None = None  # the requested mode, which only applies if it narrows the log
    stop: str | None = None  # the token of the requested fence; "" if the token is unclear
    resume: str | None = None  # the token of `resume`
    has_tail: bool = False  # text follows on the same line, printed after the request for `narrow`


_MAX_ODD_BYTES = 4 << 10  # of a malformed command; longer ones are not parsed
_MEANT = late_pattern(rb"(?i)\b(?:mode|stop|resume|event|enabled|metadata|disabled)\b")
_AFTER_VERB = (
    rb"""(?i)\s*\{?\s*["']?%s["']?\s*[:=]\s*["']?([^"'},]{0,256})"""  # the first key counts
)
_TOKEN_IN_TEXT = {verb: late_pattern(_AFTER_VERB % verb.encode()) for verb in ("stop", "resume")}
_QUOTED = rb"""(?:'[^'\\]*'|"[^"\\]*")"""
_PAIR = rb"(%s)\s*:\s*(%s|[\w.+-]+)\s*" % (_QUOTED, _QUOTED)
_PYTHON_PAIR = late_pattern(_PAIR)
_PYTHON_OBJECT = late_pattern(rb"\{\s*%s(?:,\s*%s)*(?:,\s*)?\}" % (_PAIR, _PAIR))
_NARROW_WORD = late_pattern(rb"(?i)\b(?:metadata|disabled)")  # a bar may follow directly
# in the middle of a sentence the words mean nothing
_MEANT_AT_ONCE = late_pattern(rb"(?i)\s*(?:[{:=\"']|(?:\w+[\s:=]+)?(?:metadata|disabled))")


def width(mode: str) -> int:
    """Return the rank of a mode: 0 for enabled, the widest; larger is narrower."""
    return MODES.index(mode)


def narrowest(first: str, second: str) -> str:
    return first if width(first) >= width(second) else second


def parse(line: bytes) -> Command | UserEvent | MalformedCommand | None:
    """Parse a rendered line that contains PREFIX in any case; return None if it only mentions it.
    line: without LF, with the blanks at its end."""
    if not line.startswith(PREFIX):
        return _parse_odd(line)
    command = _exact_command(line)
    return _malformed_command(command, line, 0) if isinstance(command, str) else command


def _parse_odd(line: bytes) -> MalformedCommand | None:
    """Parse a line that doesn't begin with PREFIX."""
    begin = max((match.start() for match in ANY_CASE.finditer(line)), default=-1)
    if begin < 0:
        return None
    if line[:begin].strip():
        return _behind_text(begin, line[begin + len(PREFIX) :])
    is_exact = line.startswith(PREFIX, begin)
    reason = "blanks stand before it" if is_exact else "it isn't in capitals"
    return _malformed_command(reason, line, begin)


def _behind_text(begin: int, rest: bytes) -> MalformedCommand | None:
    """Parse a command behind other text. Only a complete object at the line's end counts, because
    source code in a traceback rarely ends so. rest: the text behind PREFIX."""
    reason = "text stands before it on its line"
    fields = _object(rest)
    if fields is not None:
        mode = str(fields.get("mode")).lower()
        narrow = mode if mode in MODES[1:] else None
        stop, resume = _token(fields, "stop"), _token(fields, "resume")
        return MalformedCommand(reason, begin, narrow, stop, resume)
    return MalformedCommand(reason, begin) if _MEANT.search(rest[:MAX_BYTES]) else None


def _malformed_command(reason: str, line: bytes, begin: int) -> MalformedCommand:
    """begin: position of PREFIX, at the line's begin or behind blanks."""
    rest = line[begin + len(PREFIX) :]
    fields = _object(rest)
    if fields is None:
        stop, resume = _token_in_text(rest, "stop"), _token_in_text(rest, "resume")
    else:
        stop, resume = _token(fields, "stop"), _token(fields, "resume")
    is_exact = not begin and line.startswith(PREFIX)
    narrow = _named_narrow_mode(rest) if is_exact or _MEANT_AT_ONCE.match(rest) else None
    return MalformedCommand(reason, begin, narrow, stop, resume, not rest.rstrip().endswith(b"}"))


def _object(rest: bytes) -> Json | None:
    """Parse one object in JSON's or Python's notation, with keys in lower case."""
    text = rest[:_MAX_ODD_BYTES].strip()
    if len(rest) > _MAX_ODD_BYTES or not (text.startswith(b"{") and text.endswith(b"}")):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        if _PYTHON_OBJECT.fullmatch(text) is None:
            return None
        fields = {
            key.decode().strip("'\""): value.decode().strip("'\"")
            for key, value in _PYTHON_PAIR.findall(text)
        }
    return (
        {key.lower(): value for key, value in fields.items()} if isinstance(fields, dict) else None
    )


def _token(fields: Json, verb: str) -> str | None:
    """Return a token of a malformed command, "" for an invalid token, None without the verb."""
    if verb not in fields:
        return None
    value = fields[verb]
    text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
    return text if _is_token(text) else ""


def _token_in_text(rest: bytes, verb: str) -> str | None:
    """Return the token behind a verb in a text that is no object; "" and None as in `_token`."""
    match = _TOKEN_IN_TEXT[verb].match(rest[:_MAX_ODD_BYTES])
    if match is None:
        return None
    text = match[1].decode(errors="replace").strip()
    try:
        text = str(json.loads(f'"{text}"'))  # as in the correct form
    except ValueError:
        pass
    return text if _is_token(text) else ""


def _fault(line: bytes) -> str:
    rest = line[len(PREFIX) :]
    if len(line) > MAX_BYTES:
        return f"the line is over {MAX_BYTES >> 10} KiB"
    if not rest.strip():
        return "nothing follows"
    if not rest.startswith(b" "):
        return "no blank follows /LOGCOMMAND"
    if rest.startswith((b"  ", b" \t")):
        return "more than one blank follows"
    if not rest.startswith(b" {"):
        return "no JSON object follows"
    if not rest.endswith(b"}"):
        return "text follows the JSON object"
    return ""


def _exact_command(line: bytes) -> Command | UserEvent | str:
    """Return the command of a line that begins with PREFIX, or the reason why there is none."""
    fault = _fault(line)
    if fault:
        return fault
    try:
        # Any: JSON
        pairs: list[tuple[str, Any]] = json.loads(line[len(PREFIX) + 1 :], object_pairs_hook=list)
    except (ValueError, RecursionError):
        return "no single JSON object follows"
    key, value = pairs[0] if len(pairs) == 1 else ("", "")
    if key == "event":
        return _event(line)
    if key == "mode":
        return (
            Command(key, value) if value in MODES else "mode must be enabled, metadata or disabled"
        )
    if key in ("stop", "resume"):
        if _is_token(value):
            return Command(key, value)
        return f"{key} takes a token of 1 to {MAX_TOKEN_CHARS} printable characters"
    return "the object must hold one key: mode, stop, resume or event"


def _is_token(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TOKEN_CHARS and value.isprintable()


def _event(line: bytes) -> UserEvent | str:
    """Return the event, or the reason why there is none. line: contains one object with the key
    `event`. NaN and Infinity are refused, as JSON has no such numbers."""
    if len(line) > MAX_EVENT_BYTES:
        return f"an event's line is over {MAX_EVENT_BYTES >> 10} KiB"
    if line.count(b"{") + line.count(b"[") > MAX_EVENT_NESTED:
        return f"an event holds over {MAX_EVENT_NESTED} brackets"
    try:
        value = json.loads(line[len(PREFIX) + 1 :], parse_constant=_refuse)["event"]
    except ValueError:
        return "an event holds NaN or Infinity, which JSON doesn't know"
    if isinstance(value, str) and value:
        return UserEvent({"name": value})
    if isinstance(value, dict) and value:
        return UserEvent(value)
    return "event takes a name or an object that isn't empty"


def _refuse(constant: str) -> "NoReturn":
    raise ValueError(constant)


def _named_narrow_mode(rest: bytes) -> str | None:
    """Return the narrowest mode that the text names. A job that prints a dict's repr means to hide
    later output; its secret must not leak because of wrong quotes."""
    modes = {word.lower().decode() for word in _NARROW_WORD.findall(rest)}
    return next((mode for mode in reversed(MODES[1:]) if mode in modes), None)
