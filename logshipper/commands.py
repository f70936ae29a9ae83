"""In-band commands (R14, R15): one rendered line in, a value out. Pure; a malformed command is a value, not an error.

A closed set that only affects what is logged of the job that printed it:
`{"mode":"enabled|metadata|disabled"}`, `{"stop":"TOKEN"}`, `{"resume":"TOKEN"}`, `{"event":{...}}`, `{"event":"NAME"}`.
"""

import json
from typing import NamedTuple, NoReturn

from logshipper.config import MODES
from logshipper.segment import Json

PREFIX = b"/LOGCOMMAND"
MAX_BYTES = 64 << 10
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
    """What a job tells about itself. data: all that it gives."""

    data: Json

    def record(self) -> Json:
        """The event as it is stored: `name` and `message` are the data's own, else made of it."""
        name, message = self.data.get("name"), self.data.get("message")
        name = name if isinstance(name, str) else ""
        if not isinstance(message, str) or not message:
            given = {key: value for key, value in self.data.items() if key != "name"}
            shown = json.dumps(given, ensure_ascii=False) if given else ""
            message = ": ".join(filter(None, (name, shown)))
        shortened = {"message": message[:_MAX_MESSAGE_CHARS], "name": name[:_MAX_MESSAGE_CHARS]}
        return {"event": USER_EVENT, **shortened, "data": self.data}


class Refused(NamedTuple):
    """A line that begins like a command but isn't one. narrow: the mode its text asks for, taken if it is narrower."""

    reason: str
    narrow: str | None


_ONE_KEY = "the object must hold one key: mode, stop, resume or event"


def width(mode: str) -> int:
    """0 for enabled, the widest; larger is narrower."""
    return MODES.index(mode)


def narrowest(one: str, other: str) -> str:
    return one if width(one) >= width(other) else other


def parse(line: bytes) -> Command | UserEvent | Refused:
    """What a rendered line that begins with PREFIX asks for. line: without LF, with the blanks at its end."""
    reason = _fault(line)
    if not reason:
        try:
            pairs = json.loads(line[len(PREFIX) + 1 :], object_pairs_hook=list)
        except (ValueError, RecursionError):
            reason = "what follows isn't one JSON object"
        else:
            found = _event(line) if _is_event(pairs) else _from_pairs(pairs)
            if not isinstance(found, str):
                return found
            reason = found
    return Refused(reason, _named_narrow_mode(line))


def _fault(line: bytes) -> str:
    rest = line[len(PREFIX) :]
    if len(line) > MAX_BYTES:
        return f"the line is over {MAX_BYTES >> 10} KiB"
    if not rest.strip():
        return "nothing follows"
    if not rest.startswith(b" "):
        return "no blank follows /LOGCOMMAND"
    if not rest.startswith(b" {"):
        return "more than one blank follows" if rest.startswith((b"  ", b" \t")) else "what follows isn't a JSON object"
    if not rest.endswith(b"}"):
        return "something follows the JSON object"
    return ""


def _from_pairs(pairs: object) -> Command | str:
    """pairs: the object's (key, value) pairs, which json.loads made of every object in the line."""
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], tuple):
        return _ONE_KEY
    key, value = pairs[0]
    if key == "mode":
        return Command("mode", value) if value in MODES else "mode must be enabled, metadata or disabled"
    if key in ("stop", "resume"):
        usable = isinstance(value, str) and 0 < len(value) <= MAX_TOKEN_CHARS and value.isprintable()
        return Command(key, value) if usable else f"{key} takes a token of 1 to {MAX_TOKEN_CHARS} printable characters"
    return _ONE_KEY


def _is_event(pairs: object) -> bool:
    return isinstance(pairs, list) and len(pairs) == 1 and isinstance(pairs[0], tuple) and pairs[0][0] == "event"


def _event(line: bytes) -> UserEvent | str:
    """line: holds one object with the key `event`. Numbers that JSON doesn't know, which Python reads, are refused."""
    if len(line) > MAX_EVENT_BYTES:
        return f"an event's line is over {MAX_EVENT_BYTES >> 10} KiB"
    if line.count(b"{") + line.count(b"[") > MAX_EVENT_NESTED:
        return f"an event holds over {MAX_EVENT_NESTED} brackets"
    try:
        given = json.loads(line[len(PREFIX) + 1 :], parse_constant=_refuse)["event"]
    except ValueError:
        return "an event holds NaN or Infinity, which JSON doesn't know"
    if isinstance(given, str) and given:
        return UserEvent({"name": given})
    if isinstance(given, dict) and given:
        return UserEvent(given)
    return "event takes a name or an object that isn't empty"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _named_narrow_mode(line: bytes) -> str | None:
    """A job that prints a dict's repr means to hide what follows: its token must not leak for two wrong quotes."""
    for mode in reversed(MODES[1:]):
        if mode.encode() in line:
            return mode
    return None
