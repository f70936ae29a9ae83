"""`logshipper.emit` prints numbers of training code as a JSON line on standard output;
`logshipper.event` adds to the job's events.

It imports light modules only, without `json`, `typing` and `collections`. It never disturbs the
calling program: it reports each fault once on stderr, and never raises.
"""

import _thread
import fcntl
import math
import os
import select
import stat
import sys

TYPE_CHECKING = False  # typing itself would cost more than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Never

try:
    from _json import encode_basestring_ascii as _quoted  # json's own function
except ImportError:  # another Python than CPython
    from json.encoder import py_encode_basestring_ascii as _quoted

_GAPS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_WORDS = {None: "null", True: "true", False: "false"}
MAX_DEPTH = 32  # of nested values
MAX_ITEMS = 10_000  # of one value: a log is no place for arrays
MAX_KEY_BYTES = 256  # as graphs and dashboards take them
MAX_INT_BITS = 13_000  # 4,000 digits: Python refuses to print, and a capture to read, longer ones
MAX_LINE_BYTES = 1 << 20  # a capture takes four times as much
# as in logshipper.classify.commands, whose import would cost more than this module
MAX_EVENT_BYTES = 8 << 10
MAX_EVENT_NESTED = 100
MAX_NOTES = 1_000  # notes on stderr
_WAIT_SECS = 10.0  # for a slow reader of a non-blocking standard output

_lock = _thread.RLock()  # re-entrant: a signal's handler may emit, too
_notes: set[str] = set()  # reported on stderr


def _renew_lock() -> None:
    """Renew the lock in a forked child, where another thread's hold would never end."""
    global _lock  # noqa: PLW0603  the only state, besides _notes
    _lock = _thread.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def emit(
    record: "Mapping[str, object] | None" = None, /, *surplus: "Never", **values: object
) -> None:
    """Print one line at once, a JSON object of these values: `emit(epoch=3, loss=0.1)`,
    `emit({"val/loss": 0.2})`.

    Numbers of numpy, torch and others, and arrays without dimensions, become plain numbers. Other
    arrays, tuples and sets become lists, and other types become text. NaN and infinity look as in
    json.dumps: graphs have a gap there. Keys are texts of 1 to 256 bytes. A value under another key
    is dropped, one without a conversion becomes null, and a note reports it once. Threads and
    forked processes may call it at the same time: lines stay whole. It never raises for any
    arguments; with a closed standard output it prints nothing.
    """
    try:
        if surplus:
            _refuse(surplus)
        _emit({**({} if record is None else record), **values})
    except Exception as error:
        _report("emit", "a record couldn't be printed", error)


def event(
    name: str = "",
    data: "Mapping[str, object] | None" = None,
    /,
    *surplus: "Never",
    **values: object,
) -> None:
    """Print an event of the job: `event("checkpoint", step=100)`, for `logshipper events` and the
    marks of graphs.

    The arguments become its data; message: replaces its text. The event is one line on standard
    output, which the capture removes; a job without capture prints it. Values become plain as in
    `emit`; NaN and infinity become null. name: 1 to 256 bytes. It never raises: it drops events
    over 8 KiB, or over 100 nested levels, and reports it once on stderr.
    """
    try:
        if surplus:
            _refuse(surplus)
        _event(name, {**({} if data is None else data), **values})
    except Exception as error:
        _report("event", "an event couldn't be printed", error)


def _refuse(surplus: "tuple[object, ...]") -> "Never":
    raise TypeError(f"{len(surplus)} values too many, without a name")


def _event(name: str, values: "Mapping[Any, object]") -> None:
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= MAX_KEY_BYTES:
        _say(
            "event name",
            f"an event was left out: its name {str(name)[:100]!r} isn't of 1 to 256 bytes",
        )
        return
    fields = {
        "name": str(name),
        **_object({key: value for key, value in values.items() if key != "name"}, "", 0),
    }
    fields = {key: _without_gaps(value, key) for key, value in fields.items()}
    line = f"/LOGCOMMAND {_json({'event': fields})}\n"
    if len(line) > MAX_EVENT_BYTES:
        _say(
            "event long",
            f"an event of {len(line):,} bytes was left out: {MAX_EVENT_BYTES:,} is the most",
        )
    elif line.count("{") + line.count("[") > MAX_EVENT_NESTED:
        _say("event nested", f"an event of over {MAX_EVENT_NESTED} objects and lists was left out")
    else:
        _write(line)


def _emit(values: "Mapping[Any, object]") -> None:
    record = _object(values, "", 0)
    if not record:
        return
    line = f"{_json(record)}\n"  # ASCII: one line in any encoding
    if len(line) > MAX_LINE_BYTES:
        _say(
            "long", f"a record of {len(line):,} bytes was left out: {MAX_LINE_BYTES:,} is the most"
        )
    else:
        _write(line)


# ---- values


def _object(values: "Mapping[Any, object]", above: str, depth: int) -> dict[str, object]:
    fields = {}
    for key, value in values.items():
        try:
            name = str(key)
        except Exception:
            name = ""
        path = f"{above}{name}"
        if not name or len(name.encode("utf-8", "replace")) > MAX_KEY_BYTES:
            _say(
                f"key {path[:100]}",
                f"a value was left out: its key {path[:100]!r} isn't of 1 to 256 bytes",
            )
            continue
        fields[name] = _plain(value, path, depth)
    return fields


def _plain(value: object, path: str, depth: int) -> object:
    """The value as JSON has it, or NaN or an infinity. path: of keys, for notes."""
    try:
        if isinstance(value, str):
            return str(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            if int(value).bit_length() <= MAX_INT_BITS:
                return int(value)
            _say(f"value {path}", f"{path} is an integer of over 4,000 digits: printed as null")
            return None
        if isinstance(value, float):
            return float(value)
        return _converted(value, path, depth)
    except Exception:
        _say(
            f"value {path}",
            f"{path}: a {type(value).__name__} couldn't be converted, and is printed as null",
        )
        return None


def _without_gaps(value: object, path: str) -> object:
    """A plain value with null in the place of NaN and infinities: an event's line is JSON."""
    if isinstance(value, dict):
        return {key: _without_gaps(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_without_gaps(item, path) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    _say(
        f"event nan {path}",
        f"{path} is {value}, which JSON doesn't know: printed as null (said once)",
    )
    return None


def _converted(value: "Any", path: str, depth: int) -> object:  # Any: the program's values
    if depth >= MAX_DEPTH:
        return _text(value)
    if hasattr(value, "keys") and hasattr(value, "items"):
        return _object(value, f"{path}.", depth + 1)
    if isinstance(value, list | tuple | set | frozenset):
        return _list(value, path, depth)
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) and hasattr(value, "tolist"):
        if math.prod(shape) > MAX_ITEMS:
            raise ValueError("too large")
        return _list(value.tolist(), path, depth)
    if hasattr(value, "item") and callable(value.item):
        item = value.item()
        if item is None or isinstance(item, str | bool | int | float):
            return _plain(item, path, depth)
    if hasattr(type(value), "__float__"):  # Decimal, Fraction, numpy's longdouble
        return float(value)
    return _text(value)


def _list(values: "Any", path: str, depth: int) -> list[object]:  # Any: a list, tuple or set
    if len(values) > MAX_ITEMS:
        raise ValueError("too long")
    return [_plain(item, path, depth + 1) for item in values]


def _text(value: object) -> str:
    return str(value)[:MAX_LINE_BYTES]


def _json(value: object) -> str:
    """Encode a result of `_plain` as `json.dumps` does, with NaN and infinities."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_quoted(key)}: {_json(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return _GAPS[repr(value)]
    return repr(value)


# ---- output


def _write(line: str) -> None:
    """Write a line past the buffer of standard output, after its content; through a replacement of
    it, too."""
    out = sys.stdout
    if out is None or out.closed:
        return
    with _lock:
        try:
            is_own = out is sys.__stdout__
            if not is_own:  # a notebook's, a test's
                out.write(line)
            out.flush()
            if is_own:
                _write_all(out.fileno(), line.encode())
        except (OSError, ValueError) as error:  # the reader has gone, or somebody closed it
            _say("write", f"standard output can't be written, records are lost: {error}")


def _write_all(fd: int, line: bytes) -> None:
    """Writes a line at once. A file and a terminal keep it together; a pipe may take a long one in
    pieces, so that processes wait for each other there."""
    locked = stat.S_ISFIFO(os.fstat(fd).st_mode) and _locked(fd)
    try:
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                if not select.select([], [fd], [], _WAIT_SECS)[1]:
                    raise
    finally:
        if locked:
            fcntl.lockf(fd, fcntl.LOCK_UN)


def _locked(fd: int) -> bool:
    """Waits for other processes that emit to the same pipe; whether that can be done."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _report(function: str, words: str, error: Exception) -> None:
    """Prints why a call came to nothing, once."""
    try:
        try:
            reason = f"{type(error).__name__}: {error}"
        except Exception:
            reason = type(error).__name__
        _say(function, f"{words}: {reason}")
    except Exception:  # noqa: S110  the stack has no room even for that
        pass


def _say(about: str, words: str) -> None:
    """Prints a sentence on stderr, once about each thing."""
    if about in _notes or len(_notes) >= MAX_NOTES:
        return
    _notes.add(about)
    try:
        sys.stderr.write(
            f"logshipper.{'event' if about.startswith('event') else 'emit'}: {words}\n"
        )
        sys.stderr.flush()
    except Exception:  # noqa: S110  there is nobody to tell
        pass
