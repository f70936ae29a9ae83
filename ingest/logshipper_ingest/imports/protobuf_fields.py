"""Reads fields of protobuf messages: the packages that know TensorBoard's and wandb's messages are
large, or have no reader. Format: https://protobuf.dev/programming-guides/encoding/. Pure."""

import struct
from collections.abc import Iterator

Message = dict[int, list[int | float | bytes]]


class BrokenMessage(ValueError):
    """The bytes are no message."""


def message(data: int | float | bytes) -> Message:
    """Values of each field by its number: whole numbers, 8-byte fractions, 4-byte fractions, or
    bytes. Raises BrokenMessage."""
    fields: Message = {}
    at = 0
    try:
        view = bytes(data) if isinstance(data, bytes) else b"\xff"
        while at < len(view):
            tag, at = _whole(view, at)
            value: int | float | bytes
            if tag & 7 == 0:
                value, at = _whole(view, at)
            elif tag & 7 == 1:
                value, at = struct.unpack_from("<d", view, at)[0], at + 8
            elif tag & 7 == 5:
                value, at = struct.unpack_from("<f", view, at)[0], at + 4
            elif tag & 7 == 2:
                size, at = _whole(view, at)
                value, at = view[at : at + size], at + size
            else:
                raise BrokenMessage("no message")
            fields.setdefault(tag >> 3, []).append(value)
    except (IndexError, struct.error):
        raise BrokenMessage("no message") from None
    if at != len(view):
        raise BrokenMessage("cut short")
    return fields


def messages(parent: Message, number: int) -> Iterator[Message]:
    """Messages in a field."""
    return map(message, parent.get(number, ()))


def text(parent: Message, number: int) -> str:
    """The last text of a field; "" without one."""
    value = parent.get(number, [b""])[-1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def number(parent: Message, field: int) -> float:
    """The last number of a field; 0 without one."""
    value = parent.get(field, [0])[-1]
    return 0 if isinstance(value, bytes) else value


def _whole(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise BrokenMessage("no message")
