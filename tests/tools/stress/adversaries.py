"""Generate the worst texts for a regular expression from the expression itself.

Matching takes more than linear time if the same text has many readings. Two repetitions side by
side cause this, or nested ones, or a search that restarts at each place. All of these show on a
long run of something in the expression, after a fitting head and before an end that does not match.

The module combines heads (text that matches up to each place of the expression), runs (each of its
characters and pieces, and pairs) and tails.
"""

import contextlib
import importlib
import itertools
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_MAX_CHARS_MENTIONED = 6
_MAX_HEADS = 12
_TAILS = ("", "\x00", "a")
_POOL = "aZ0 \t\n\r\"'\\,.:;=-_/@%${}[]()<>|*\x1b\x00\x7fé\ud800"
_CATEGORIES = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " \n", "CATEGORY_WORD": "a0", "CATEGORY_NOT_DIGIT": "a ",
               "CATEGORY_NOT_SPACE": "a", "CATEGORY_NOT_WORD": " ,"}  # fmt: skip
_FIRST_LENGTHS = (14, 1000)  # a short one first: some expressions take exponential time
_SHORT = 50  # texts up to this length grow by 3, all others to twice their length
_STEPS = 3
_MAX_GROWTH = 3  # per step: times grow 2-fold (linear), 4-fold (quadratic) or 8-fold (exponential)
_CLEAR_SECS = 0.1
_MAX_SECS = 0.4
_SUSPICIOUS_SECS = 0.00025
_SLOW_SECS = 0.02
_LONG = 20
_parser: Any = importlib.import_module("re._parser")  # Any: typeshed has no types for it

Expression = re.Pattern[str] | re.Pattern[bytes]


class Attack(NamedTuple):
    head: str
    run: str
    tail: str

    def text(self, length: int) -> str:
        return self.head + self.run * (length // len(self.run) + 1) + self.tail


class Slow(NamedTuple):
    """A text with superlinear time. secs, longer_secs: CPU time for a text of `length` and of
    `longer`."""

    attack: Attack
    length: int
    secs: float
    longer: int
    longer_secs: float


def slow_text(expression: Expression, use: str) -> Slow | None:
    """Return a text for which the time grows faster than its length, or None.

    use: match, fullmatch, search, sub.
    """
    run = _runner(expression, use)
    attacks = list(_attacks(expression))
    with _ending_long_runs():
        for length in _FIRST_LENGTHS:
            for attack in attacks:
                secs = _cpu_secs(run, attack.text(length), 1)
                if secs < _SUSPICIOUS_SECS:
                    continue
                slow = _growth(run, attack, length, secs)
                if slow is not None:
                    return slow
    return None


def secs_at(expression: Expression, use: str, length: int) -> float:
    """Return the CPU time of the worst text of that length."""
    run = _runner(expression, use)
    with _ending_long_runs():
        return max(_cpu_secs(run, attack.text(length), 1) for attack in _attacks(expression))


def _growth(
    run: Callable[[str], object], attack: Attack, length: int, once_secs: float
) -> Slow | None:
    """Measure longer and longer texts until the growth is clear. once_secs: of one run."""
    first = secs = min(once_secs, _cpu_secs(run, attack.text(length), 2))
    longer = length
    for step in range(1, _STEPS + 1):
        if secs == float("inf"):
            return Slow(attack, length, first, longer, secs)
        if secs > _CLEAR_SECS:
            return (
                Slow(attack, length, first, longer, secs)
                if secs > first * _MAX_GROWTH ** (step - 1)
                else None
            )
        longer = longer * 2 if length > _SHORT else longer + 3
        secs = _cpu_secs(run, attack.text(longer), 3, first * _MAX_GROWTH**step)
        if secs < first * _MAX_GROWTH**step:
            return None
    slow = secs > _SLOW_SECS and secs > first * _MAX_GROWTH**_STEPS
    return Slow(attack, length, first, longer, secs) if slow else None


def _runner(expression: Expression, use: str) -> Callable[[str], object]:
    apply: Any = getattr(expression, use)  # Any: its argument is of the expression's type
    args: tuple[Any, ...] = ("",) if use == "sub" else ()
    if isinstance(expression.pattern, bytes):
        return lambda text: apply(
            *(arg.encode() for arg in args), text.encode("utf-8", "surrogatepass")
        )
    return lambda text: apply(*args, text)


class _TooLong(Exception):
    pass


def _cpu_secs(
    run: Callable[[str], object], text: str, times: int, enough_secs: float = 0.0
) -> float:
    """Return this thread's least CPU time of several runs; infinity if a run does not end.

    Other processes hardly affect this time. A run below enough_secs is the last one.
    """
    least = float("inf")
    for _ in range(times):
        began = time.thread_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, _MAX_SECS)
        try:
            run(text)
        except _TooLong:
            return float("inf")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        least = min(least, time.thread_time() - began)
        if least < enough_secs:
            break
    return least


@contextlib.contextmanager
def _ending_long_runs() -> Iterator[None]:
    """Raise _TooLong inside a match that has taken _MAX_SECS of CPU time; `re` checks for
    signals."""

    def end(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _attacks(expression: Expression) -> Iterator[Attack]:
    pattern = (
        expression.pattern
        if isinstance(expression.pattern, str)
        else expression.pattern.decode("latin-1")
    )
    items = list(_parser.parse(pattern, expression.flags & ~re.UNICODE))
    heads = list(dict.fromkeys(_heads(items, "")))
    heads = heads[:: len(heads) // _MAX_HEADS + 1]
    chars = list(dict.fromkeys(_mentioned(items)))[:_MAX_CHARS_MENTIONED]
    pieces = [piece for piece in (*_pieces(items), *heads) if piece]
    pairs = ["".join(pair) for pair in itertools.permutations(chars, 2)]
    least = _parser.parse(pattern, expression.flags & ~re.UNICODE).getwidth()[0]
    # the expression rejects shorter text at once
    fillers = [char * least for char in (*chars, "a")] if least > _LONG else []
    for run in dict.fromkeys([*chars, *pieces, *pairs]):
        for head in heads if len(run) == 1 or run in pieces else heads[:1]:
            for tail in (*_TAILS, *fillers):
                yield Attack(head, run, tail)


# ---- characters and pieces of an expression


def _inner(name: str, value: Any) -> list[list[Any]]:
    """Return the sequences inside an item."""
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [list(value[2])]
    if name == "SUBPATTERN":
        return [list(value[3])]
    if name == "ATOMIC_GROUP":
        return [list(value)]
    if name == "BRANCH":
        return [list(branch) for branch in value[1]]
    if name in ("ASSERT", "ASSERT_NOT"):
        return [list(value[1])]
    return []


def _fits(name: str, value: Any) -> str:
    """Return some characters that a one-character item matches; "" for all other items."""
    if name == "LITERAL":
        return chr(value)
    if name == "NOT_LITERAL":
        return "".join(char for char in _POOL if ord(char) != value)[:3]
    if name == "ANY":
        return "a ,"
    if name != "IN":
        return ""
    single = {chr(of) for kind, of in value if str(kind) == "LITERAL"}
    ranges = [of for kind, of in value if str(kind) == "RANGE"]
    kinds = "".join(_CATEGORIES.get(str(of), "") for kind, of in value if str(kind) == "CATEGORY")
    if str(value[0][0]) == "NEGATE":
        out = single | set(kinds)
        return "".join(
            c
            for c in _POOL
            if c not in out and not any(low <= ord(c) <= high for low, high in ranges)
        )[:6]
    return "".join(sorted(single)) + kinds + "".join(chr(low) for low, _ in ranges)


def _sample(items: list[Any], *, rich: bool) -> str:
    """Return a text that the sequence matches. rich: with one turn of each optional item."""
    text = ""
    for kind, value in items:
        name = str(kind)
        if name in ("ASSERT", "ASSERT_NOT"):
            continue
        inner = _inner(name, value)
        times = 1
        if name.endswith("_REPEAT"):
            times = min(max(value[0], int(rich)), 64)
        if inner:
            text += _sample(inner[-1 if rich else 0], rich=rich) * times
        else:
            text += _fits(name, value)[:1]
    return text


def _heads(items: list[Any], before: str) -> Iterator[str]:
    """Yield texts that match up to each place."""
    yield before
    for at, (kind, value) in enumerate(items):
        for rich in (False, True):
            head = before + _sample(items[:at], rich=rich)
            yield head
            for inner in _inner(str(kind), value):
                yield from _heads(inner, head)


def _pieces(items: list[Any]) -> Iterator[str]:
    for at, (kind, value) in enumerate(items):
        for inner in _inner(str(kind), value):
            yield from (_sample(inner, rich=rich) for rich in (False, True))
            yield from _pieces(inner)
        if at:
            yield _sample(items[: at + 1], rich=True)


def _mentioned(items: list[Any]) -> Iterator[str]:
    for kind, value in items:
        yield from _fits(str(kind), value)
        for inner in _inner(str(kind), value):
            yield from _mentioned(inner)
