"""Order and waits of lines from two streams into one file or one terminal.

A table for both relays (logshipper/relay/channel.py, deploy/slurm/spank/channel.c).
"""

from typing import NamedTuple

OUT, ERR = 1, 2
CUT = b"x" * 4095  # the most that one read from a terminal returns: the rest of the line may follow


class Step(NamedTuple):
    """A poll. While one stream waits for the other, a poll counts its full length if it ended in
    time.

    If it ended over 5 ms late, it counts as 5 ms. Without a wait, a poll counts as at most 5 ms.
    """

    ms: int  # its time
    texts: tuple[tuple[int, bytes], ...]  # by stream, in the order of reading
    output: bytes  # the bytes that then go out


class Case(NamedTuple):
    name: str
    is_terminal: bool
    steps: tuple[Step, ...]


def _read(ms: int, stream: int, text: bytes, output: bytes) -> Step:
    return Step(ms, ((stream, text),), output)


def _wait(ms: int, output: bytes = b"") -> Step:
    return Step(ms, (), output)


_TAIL = ((OUT, b"one\ntw"), (ERR, b"err\n"))
CASES = (
    Case(
        "whole lines", False, (_read(0, OUT, b"one\n", b"one\n"), _read(1, ERR, b"err\n", b"err\n"))
    ),
    Case(
        "an open line is finished first",
        False,
        (
            _read(0, OUT, b"half", b"half"),
            _read(1, ERR, b"err\n", b""),
            _read(2, OUT, b" whole\n", b" whole\nerr\n"),
        ),
    ),
    Case(
        "whose writer is idle isn't waited for",
        False,
        (
            _read(0, OUT, b"bar", b"bar"),
            _read(6, ERR, b"err\n", b""),
            *(_wait(ms) for ms in (12, 18)),
            _wait(24, b"err\n"),
        ),
    ),
    Case(
        "one wait is enough where it ends in time",
        False,
        (_read(0, OUT, b"bar", b"bar"), _read(6, ERR, b"err\n", b""), _wait(25, b"err\n")),
    ),
    Case(
        "one that ends late counts as a short one",
        False,
        (
            _read(0, OUT, b"bar", b"bar"),
            _read(6, ERR, b"err\n", b""),
            _wait(27),
            _wait(37, b"err\n"),
        ),
    ),
    Case(
        "a tail waits while the other one has whole lines",
        False,
        (Step(0, _TAIL, b"one\nerr\n"), _wait(5, b"tw")),
    ),
    Case(
        "a line in pieces is waited for longer",
        False,
        (
            _read(0, OUT, CUT, CUT),
            _read(6, ERR, b"err\n", b""),
            *(_wait(6 * poll) for poll in range(2, 34)),
            _wait(204, b"err\n"),
        ),
    ),
    Case(
        "a prompt on a terminal",
        True,
        (_read(0, OUT, b"name? ", b"name? "), _read(1, ERR, b"err\n", b"err\n")),
    ),
    Case("a tail on a terminal", True, (Step(0, _TAIL, b"one\ntwerr\n"),)),
    Case(
        "a line on a terminal that our reading cut is finished first",
        True,
        (
            _read(0, OUT, CUT, CUT),
            _read(1, ERR, b"err\n", b""),
            _read(2, OUT, b" end\n", b" end\nerr\n"),
        ),
    ),
    Case(
        "a cut tail on a terminal",
        True,
        (Step(0, ((OUT, b"one\n" + CUT), (ERR, b"err\n")), b"one\nerr\n"), _wait(5, CUT)),
    ),
)
