"""Frames from a relay to its sidecar, with their times and order, while the job prints little.

A table for both relays (logshipper/relay/handover.py, deploy/slurm/spank/side_pipe.c). Tests play
it from a time that is a multiple of the beat.
"""

from typing import NamedTuple

from logshipper.relay.channel import BEAT_SECS
from logshipper.relay.handover import MUCH_BYTES
from logshipper.relay.side_pipe import SideType

OUT, ERR = 1, 2
BEAT = round(BEAT_SECS * 1000)
Frame = tuple[SideType, int, int, bytes]  # type, stream, flags, payload


class Call(NamedTuple):
    """A call of the link to the sidecar. name: data, empty, closed or exited."""

    name: str
    stream: int = 0
    data: bytes = b""
    flags: int = 0


class Step(NamedTuple):
    """Calls and the frames that follow. ms: their time; the relay then calls `idle`. wait_ms:
    longest wait of the relay after that, None if no frame is pending."""

    ms: int
    calls: tuple[Call, ...]
    frames: tuple[Frame, ...]
    wait_ms: int | None = None


class Case(NamedTuple):
    name: str
    steps: tuple[Step, ...]


def _out(data: bytes, flags: int = 0) -> Call:
    return Call("data", OUT, data, flags)


def _err(data: bytes, flags: int = 0) -> Call:
    return Call("data", ERR, data, flags)


def _empty(flags: int) -> Call:
    return Call("empty", flags=flags)


def _data(stream: int, data: bytes, flags: int = 0) -> Frame:
    return (SideType.DATA, stream, flags, data)


def _seen_empty(flags: int) -> Frame:
    return (SideType.EMPTY, 0, flags, b"")


def _commands(name: str, *pieces: bytes) -> Case:
    """Return a case in which a command, and empty streams after it, go out at once.

    If they waited, the other stream's text would obey the narrower mode for longer. A killed relay
    would leave more text of both streams in no order.
    """
    return Case(
        f"a command and what is seen empty after it don't wait: {name}",
        (
            Step(0, (_out(b"first\n"),), (_data(OUT, b"first\n"),)),
            Step(1, tuple(_out(piece) for piece in pieces), (_data(OUT, b"".join(pieces)),)),
            Step(2, (_empty(1),), (_seen_empty(1),)),
            Step(3, (_empty(2),), (_seen_empty(2),)),
            Step(4, (_out(b"as usual\n"), _empty(3)), (), BEAT - 4),
        ),
    )


def _order(name: str, calls: tuple[Call, ...], *frames: Frame) -> Case:
    """Return a case in which one turn reads bytes of both streams, and sends them at the beat."""
    first = Step(0, (_out(b"first\n"),), (_data(OUT, b"first\n"),))
    return Case(f"order: {name}", (first, Step(BEAT, calls, frames)))


COMMAND = b'/LOGCOMMAND {"mode":"disabled"}\n'
ENABLE = b'/LOGCOMMAND {"mode":"enabled"}\n'
CASES = (
    Case(
        "small writes wake the sidecar at the beat only",
        (
            Step(0, (_out(b"0", ERR), _empty(3)), (_data(OUT, b"0", ERR), _seen_empty(3))),
            Step(1, (_out(b"1", ERR), _empty(3)), (), BEAT - 1),
            Step(9, (_out(b"2", ERR), _empty(3)), (), BEAT - 9),
            # the later empty streams include the earlier ones
            Step(BEAT, (), (_data(OUT, b"12", ERR), _seen_empty(3))),
        ),
    ),
    Case(
        "what comes after a pause goes at once",
        (
            Step(0, (_out(b"0"),), (_data(OUT, b"0"),)),
            Step(BEAT + 1, (_err(b"1"),), (_data(ERR, b"1"),)),
            Step(BEAT + 2, (_err(b"2"),), (), BEAT - 2),
        ),
    ),
    Case(
        "what was seen empty alone waits, too",
        (
            Step(0, (_out(b"0"),), (_data(OUT, b"0"),)),
            Step(1, (_empty(1),), (), BEAT - 1),
            Step(2, (_empty(3),), (), BEAT - 2),
            Step(BEAT, (), (_seen_empty(3),)),
        ),
    ),
    Case(
        "much together doesn't wait, in however small pieces it came",
        (
            Step(0, (_out(b"0"),), (_data(OUT, b"0"),)),
            Step(1, (_out(b"x" * (MUCH_BYTES // 2)),), (), BEAT - 1),
            Step(2, (_out(b"x" * (MUCH_BYTES // 2)),), (_data(OUT, b"x" * MUCH_BYTES),)),
            Step(3, (_out(b"3"),), (), BEAT - 3),
        ),
    ),
    _commands("whole", b'/LOGCOMMAND {"mode":"disabled"}\n'),
    _commands("amid other text", b"x" * 300 + b"/ /LogCommand\n" + b"y" * 300),
    _commands("in three pieces", b"x/", b"logc", b"ommand\n"),
    _commands("cut behind its first word's last letter but one", b"/LOGCOMMAN", b'D {"mode":1}\n'),
    _commands("byte by byte", *(b"%c" % byte for byte in b"ab/LOGCOMMAND\n")),
    Case(
        "what isn't quite one waits",
        (
            Step(0, (_out(b"first\n"),), (_data(OUT, b"first\n"),)),
            Step(1, (_out(b"/LOGCOMMAN"), _err(b"D\n"), _out(b" /logcomman\n")), (), BEAT - 1),
        ),
    ),
    Case(
        "what was seen empty before a command isn't left out",
        (
            Step(0, (_out(b"first\n"),), (_data(OUT, b"first\n"),)),
            Step(
                1,
                (_empty(2), _err(b"/LOGCOMMAND\n")),
                (_seen_empty(2), _data(ERR, b"/LOGCOMMAND\n")),
            ),
        ),
    ),
    Case(
        "of a stream that is closed nothing is waited for after a command",
        (
            Step(0, (Call("closed", ERR),), ((SideType.CLOSED, ERR, 0, b""),)),
            Step(1, (_out(b"/LOGCOMMAND\n"),), (_data(OUT, b"/LOGCOMMAND\n"),)),
            Step(2, (_empty(1),), (_seen_empty(1),)),
            Step(3, (_empty(3),), (), BEAT - 3),
        ),
    ),
    Case(
        "ends don't wait",
        (
            Step(0, (_out(b"0"),), (_data(OUT, b"0"),)),
            Step(
                1,
                (_out(b"1"), _empty(2), Call("closed", ERR)),
                (_data(OUT, b"1"), _seen_empty(2), (SideType.CLOSED, ERR, 0, b"")),
            ),
            Step(2, (_out(b"2"),), (), BEAT - 2),
            Step(3, (Call("exited"),), (_data(OUT, b"2"), (SideType.EXIT, 0, 0, bytes(4)))),
        ),
    ),
    _order(
        "a command goes before the other stream's text that may be newer",
        (_out(b"text\n", OUT), _err(COMMAND)),
        _data(ERR, COMMAND),
        _data(OUT, b"text\n"),
    ),
    _order(
        "so does one on stdout",
        (_err(b"text\n", ERR), _out(COMMAND)),
        _data(OUT, COMMAND),
        _data(ERR, b"text\n"),
    ),
    _order(
        "and one behind much text",
        (_out(b"text\n", OUT), _err(b"x" * MUCH_BYTES + COMMAND)),
        _data(ERR, b"x" * MUCH_BYTES + COMMAND),
        _data(OUT, b"text\n"),
    ),
    _order(
        "and one whose first half came before",
        (_err(COMMAND[:5]), _out(b"text\n", OUT), _err(COMMAND[5:])),
        _data(ERR, COMMAND),
        _data(OUT, b"text\n"),
    ),
    _order(
        "what follows the command on its stream goes last",
        (_out(ENABLE + b"text\n", OUT), _err(COMMAND + ENABLE + b"more\n")),
        _data(ERR, COMMAND + ENABLE),
        _data(OUT, ENABLE + b"text\n"),
        _data(ERR, b"more\n"),
    ),
    _order(
        "and waits where it may be newer, too",
        (_out(b"text\n", OUT), _err(COMMAND + b"more\n", ERR), _out(ENABLE)),
        _data(ERR, COMMAND),
        _data(OUT, b"text\n" + ENABLE),
        _data(ERR, b"more\n"),
    ),
    _order(
        "what was seen empty is forgotten in this order",
        (_out(b"text\n", OUT | ERR), _err(COMMAND + b"more\n", OUT)),
        _data(ERR, COMMAND),
        _data(OUT, b"text\n"),
        _data(ERR, b"more\n"),
    ),
    _order(
        "all that may be newer waits",
        (_out(b"one\n", OUT | ERR), _out(b"two\n", OUT), _err(COMMAND)),
        _data(ERR, COMMAND),
        _data(OUT, b"one\ntwo\n"),
    ),
    _order(
        "text that is known to be older stays before the command",
        (_out(b"one\n", OUT), _out(b"two\n", ERR), _err(COMMAND, OUT)),
        _data(OUT, b"one\n"),
        _data(OUT, b"two\n", ERR),
        _data(ERR, COMMAND, OUT),
    ),
    _order(
        "so does text behind which the other stream was seen empty",
        (_out(b"text\n", OUT), _empty(ERR), _err(COMMAND)),
        _data(OUT, b"text\n"),
        _seen_empty(ERR),
        _data(ERR, COMMAND),
    ),
    _order(
        "other text stays in the order in which it was read",
        (_out(b"text\n", OUT), _err(b"no command\n", ERR), _out(b"text\n")),
        _data(OUT, b"text\n"),
        _data(ERR, b"no command\n"),
        _data(OUT, b"text\n"),
    ),
    _order(
        "however much it is",
        (_out(b"text\n", OUT), _err(b"x" * MUCH_BYTES)),
        _data(OUT, b"text\n"),
        _data(ERR, b"x" * MUCH_BYTES),
    ),
    _order(
        "no more than a frame waits",
        (_out(b"x" * 40_000, OUT), _out(b"y" * 25_600, OUT), _err(COMMAND)),
        _data(OUT, b"x" * 40_000),
        _data(ERR, COMMAND),
        _data(OUT, b"y" * 25_600),
    ),
    Case(
        "an end waits for no command",
        (
            Step(0, (_out(b"text\n", OUT),), (), 0),
            Step(
                1,
                (Call("closed", ERR), _out(b"last\n", OUT), Call("exited")),
                (
                    _data(OUT, b"text\n"),
                    (SideType.CLOSED, ERR, 0, b""),
                    _data(OUT, b"last\n"),
                    (SideType.EXIT, 0, 0, bytes(4)),
                ),
            ),
        ),
    ),
)
