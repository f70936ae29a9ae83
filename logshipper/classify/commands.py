"""In-band commands (R14, R15): one rendered line in, a value out. Pure; a malformed command is a
value, not an error.

A closed set that only affects what is logged of the job that printed it:
`{"mode":"enabled|metadata|disabled"}`, `{"stop":"TOKEN"}`, `{"resume":"TOKEN"}`, `{"event":{...}}`,
`{"event":"NAME"}`.

A command is exact. What isn't, but may have been meant to keep something out of the log, is a
MalformedCommand with what it asks for: the classifier takes from it what makes the log narrower,
and nothing else.
"""

import json

from logshipper.config import MODES
from logshipper.late_pattern import late_pattern
from logshipper.named_tuple import NamedTuple
from logshipper.render.command_prefix import ANY_CASE, MAX_BYTES, PREFIX
from logshipper.spool.segment import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MAX_TOKEN_CHARS = 256
MAX_EVENT_BYTES = 8 << 10  # of an event's line: escaped as ASCII it fits a record all the same
MAX_EVENT_NESTED = 100  # brackets in it: whoever reads it mustn't run out of stack
_MAX_MESSAGE_CHARS = 512
USER_EVENT = "user_event"
RIGHT_FORM = '/LOGCOMMAND {"mode":"metadata"}  (one space, one JSON object, nothing after it)'


class Command(NamedTuple):
    """A valid command. verb: mode, stop or resume; value: the mode or the token."""

    verb: str
    value: str


class UserEvent(NamedTuple):
    """An event that a job prints. data: all that it gives."""

    data: Json

    def record(self) -> Json:
        """The event as it is stored: `name` and `message` are the data's own, else made of it."""
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
    begin: int = 0  # where PREFIX stands
    narrow: str | None = None  # the mode that its text asks for, to be taken where that is narrower
    stop: str | None = None  # the token of a fence that it asks for; "" where none can be made out
    resume: str | None = None  # the token that it gives
    has_tail: bool = False  # text follows on the same line, printed after what asks for `narrow`


_MAX_ODD_BYTES = 4 << 10  # of a malformed command: more aren't looked at
_MEANT = late_pattern(rb"(?i)\b(?:mode|stop|resume|event|enabled|metadata|disabled)\b")
_AFTER_VERB = rb"""(?i)\s*\{?\s*["']?%s["']?\s*[:=]\s*["']?([^"'},]{0,256})"""  # the first key is what is asked for
_TOKEN_IN_TEXT = {verb: late_pattern(_AFTER_VERB % verb.encode()) for verb in ("stop", "resume")}
_QUOTED = rb"""(?:'[^'\\]*'|"[^"\\]*")"""
_PAIR = rb"(%s)\s*:\s*(%s|[\w.+-]+)\s*" % (_QUOTED, _QUOTED)
_PYTHON_PAIR = late_pattern(_PAIR)
_PYTHON_OBJECT = late_pattern(rb"\{\s*%s(?:,\s*%s)*(?:,\s*)?\}" % (_PAIR, _PAIR))
_NARROW_WORD = late_pattern(rb"(?i)\b(?:metadata|disabled)")  # a bar may stand right behind it
# not amid a sentence
_MEANT_AT_ONCE = late_pattern(rb"(?i)\s*(?:[{:=\"']|(?:\w+[\s:=]+)?(?:metadata|disabled))")
_ONE_KEY = "the object must hold one key: mode, stop, resume or event"


def width(mode: str) -> int:
    """0 for enabled, the widest; larger is narrower."""
    return MODES.index(mode)


def narrowest(first: str, second: str) -> str:
    return first if width(first) >= width(second) else second


def parse(line: bytes) -> Command | UserEvent | MalformedCommand | None:
    """What a rendered line that holds PREFIX, in any case, asks for; None: nothing, it only
    mentions it. line: without LF, with the blanks at its end."""
    if not line.startswith(PREFIX):
        return _parse_odd(line)
    reason = _fault(line)
    if not reason:
        try:
            pairs = json.loads(line[len(PREFIX) + 1 :], object_pairs_hook=list)
        except (ValueError, RecursionError):
            reason = "what follows isn't one JSON object"
        else:
            command = _event(line) if _is_event(pairs) else _from_pairs(pairs)
            if not isinstance(command, str):
                return command
            reason = command
    return _malformed_command(reason, line, 0)


def _parse_odd(line: bytes) -> MalformedCommand | None:
    """A line that doesn't begin with PREFIX."""
    begin = max((match.start() for match in ANY_CASE.finditer(line)), default=-1)
    rest = line[begin + len(PREFIX) :]
    if begin < 0:
        return None
    if line[:begin].strip():
        return _behind_text(begin, rest)
    reason = (
        "blanks stand before it"
        if line[begin : begin + len(PREFIX)] == PREFIX
        else "it isn't in capitals"
    )
    return _malformed_command(reason, line, begin)


def _behind_text(begin: int, rest: bytes) -> MalformedCommand | None:
    """rest: what follows PREFIX. Only a whole object at the line's end asks for something: source
    code, as a traceback shows it, rarely ends so."""
    reason = "text stands before it on its line"
    fields = _object(rest)
    if fields is not None:
        mode = str(fields.get("mode")).lower()
        return MalformedCommand(
            reason,
            begin,
            mode if mode in MODES[1:] else None,
            _token(fields, "stop"),
            _token(fields, "resume"),
        )
    return MalformedCommand(reason, begin) if _MEANT.search(rest[:MAX_BYTES]) else None


def _malformed_command(reason: str, line: bytes, begin: int) -> MalformedCommand:
    """begin: where PREFIX stands, at the line's begin or behind blanks."""
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
    """The one object that rest is, as JSON or as Python writes it, keys in lower case; None where
    it is none."""
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
    """A token of a malformed command; "" where it can't be one."""
    if verb not in fields:
        return None
    value = fields[verb]
    text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
    return text if _is_token(text) else ""


def _token_in_text(rest: bytes, verb: str) -> str | None:
    """The token that stands behind a verb in text that is no object."""
    match = _TOKEN_IN_TEXT[verb].match(rest[:_MAX_ODD_BYTES])
    if match is None:
        return None
    text = match[1].decode(errors="replace").strip()
    try:
        text = str(json.loads(f'"{text}"'))  # as the form that is right would be read
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
    if not rest.startswith(b" {"):
        return (
            "more than one blank follows"
            if rest.startswith((b"  ", b" \t"))
            else "what follows isn't a JSON object"
        )
    if not rest.endswith(b"}"):
        return "something follows the JSON object"
    return ""


def _from_pairs(pairs: object) -> Command | str:
    """pairs: the object's (key, value) pairs, which json.loads made of every object in the line."""
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], tuple):
        return _ONE_KEY
    key, value = pairs[0]
    if key == "mode":
        return (
            Command("mode", value)
            if value in MODES
            else "mode must be enabled, metadata or disabled"
        )
    if key in ("stop", "resume"):
        if _is_token(value):
            return Command(key, value)
        return f"{key} takes a token of 1 to {MAX_TOKEN_CHARS} printable characters"
    return _ONE_KEY


def _is_token(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TOKEN_CHARS and value.isprintable()


def _is_event(pairs: object) -> bool:
    return (
        isinstance(pairs, list)
        and len(pairs) == 1
        and isinstance(pairs[0], tuple)
        and pairs[0][0] == "event"
    )


def _event(line: bytes) -> UserEvent | str:
    """line: holds one object with the key `event`. Numbers that JSON doesn't know, which Python
    reads, are refused."""
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
    """A job that prints a dict's repr means to hide what follows: its token must not leak for two
    wrong quotes."""
    modes = {word.lower().decode() for word in _NARROW_WORD.findall(rest)}
    return next((mode for mode in reversed(MODES[1:]) if mode in modes), None)
