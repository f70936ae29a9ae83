"""What a relay sends its sidecar, and when, where little is printed: a table for both relays
(logshipper/relay/handover.py, deploy/slurm/spank/side_pipe.c)."""

from typing import NamedTuple

from logshipper.relay.handover import GATHER_SECS
from logshipper.relay.side_pipe import SideType

OUT, ERR = 1, 2
BEAT = round(GATHER_SECS * 1000)
Frame = tuple[SideType, int, int, bytes]  # type, stream, flags, payload


class Call(NamedTuple):
    """name: data, empty, closed or exited."""

    name: str
    stream: int = 0
    data: bytes = b""
    flags: int = 0


class Step(NamedTuple):
    """ms: its time; then comes what the relay calls `idle` for. wait_ms: how long the relay may wait
    after it, None where nothing waits."""

    ms: int
    calls: tuple[Call, ...]
    frames: tuple[Frame, ...]
    wait_ms: int | None = None


class Case(NamedTuple):
    name: str
    steps: tuple[Step, ...]


def _out(data: bytes, flags: int = 0) -> Call:
    return Call("data", OUT, data, flags)


def _err(data: bytes) -> Call:
    return Call("data", ERR, data)


def _empty(flags: int) -> Call:
    return Call("empty", flags=flags)


def _data(stream: int, data: bytes, flags: int = 0) -> Frame:
    return (SideType.DATA, stream, flags, data)


def _seen_empty(flags: int) -> Frame:
    return (SideType.EMPTY, 0, flags, b"")


def _commands(name: str, *pieces: bytes) -> Case:
    """Else text of the other stream would obey the narrower mode for longer, and a relay that is
    killed would have more of both streams in no order."""
    return Case(
        f"a command and what is seen empty after it don't wait: {name}",
        (
            Step(0, (_out(b"first\n"),), (_data(OUT, b"first\n"),)),
            Step(1, tuple(_out(piece) for piece in pieces), (_data(OUT, b"".join(pieces)),)),
            Step(2, (_empty(1),), (_seen_empty(1),)),
            Step(3, (_empty(2),), (_seen_empty(2),)),
            Step(4, (_out(b"as usual\n"), _empty(3)), (), BEAT - 1),
        ),
    )


CASES = (
    Case(
        "small writes wake the sidecar at the beat only",
        (
            Step(0, (_out(b"0", ERR), _empty(3)), (_data(OUT, b"0", ERR), _seen_empty(3))),
            Step(1, (_out(b"1", ERR), _empty(3)), (), BEAT - 1),
            Step(9, (_out(b"2", ERR), _empty(3)), (), BEAT - 9),
            # what was seen empty amid them says no more than what was seen empty behind them
            Step(BEAT, (), (_data(OUT, b"12", ERR), _seen_empty(3))),
        ),
    ),
    Case(
        "what comes after a pause goes at once",
        (
            Step(0, (_out(b"0"),), (_data(OUT, b"0"),)),
            Step(BEAT + 1, (_err(b"1"),), (_data(ERR, b"1"),)),
            Step(BEAT + 2, (_err(b"2"),), (), BEAT - 1),
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
            Step(3, (_empty(3),), (), BEAT - 1),
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
            Step(2, (_out(b"2"),), (), BEAT - 1),
            Step(
                3,
                (Call("exited"),),
                (_data(OUT, b"2"), (SideType.EXIT, 0, 0, bytes(4))),
            ),
        ),
    ),
)
