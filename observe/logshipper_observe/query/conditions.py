"""Conditions on jobs as people type them: `loss<0.3`, `tags.dataset=cifar10`, `note:exists:true`.
Pure.

Numbers compare with numbers and texts with texts. A missing value matches no `=` and no order, and
every `!=`.
"""

import argparse
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from logshipper.errors import UsageError
from logshipper_ingest.console.time_span import time_span
from logshipper_observe.base.words import NS, state_of
from logshipper_observe.model import properties

OPERATORS = ("=", "==", "<", "<=", ">", ">=", "!=", "<>", ":regex:", ":exists:")
_CONDITION = re.compile(
    r'\s*(?P<name>"(?:[^"\\]|\\.)*"[^=<>!]*?|[^=<>!]+?)\s*'
    r"(?P<operator>:regex:|:exists:|<=|>=|<>|!=|==|=|<|>)\s*(?P<value>.*?)\s*",
    re.DOTALL,
)
_CONSTANTS: dict[str, properties.Value] = {
    "$none": None,
    "$true": True,
    "$false": False,
    "$empty": "",
}
_Order: TypeAlias = Callable[[Any, Any], bool]  # Any: two numbers, or two texts
_ORDERS: dict[str, _Order] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FLAGS = {
    **dict.fromkeys(("true", "$true", "yes", "1"), True),
    **dict.fromkeys(("false", "$false", "no", "0"), False),
}


class Condition(NamedTuple):
    """text: as typed; field: the tested field; matches: tests a value."""

    text: str
    field: properties.Field
    matches: Callable[[properties.Value], bool]

    def holds(self, row: properties.JobRow) -> bool:
        return self.matches(self.field.get(row))


def parse_condition(text: str) -> Condition:
    """Raises UsageError, which names the condition."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        words = f"isn't a condition: a name, one of {' '.join(OPERATORS)}, and a value"
        raise UsageError(repr(text), [words])
    field, sign, value = properties.field_of(match["name"]), match["operator"], match["value"]
    return Condition(text, field, _matcher(text, field.kind, sign, value))


def tag_condition(text: str) -> Condition:
    """Parse `WORD`, for a job with the tag, or `KEY=VALUE`."""
    name, equals, value = text.partition("=")
    field = properties.field_of(f"tags.{name}")
    return Condition(
        text, field, _equals(value) if equals else lambda value: value is not properties.MISSING
    )


def _matcher(
    text: str, kind: properties.PropertyKind, sign: str, value: str
) -> Callable[[properties.Value], bool]:
    if sign == ":exists:":
        flag = _FLAGS.get(value.lower())
        if flag is None:
            raise UsageError(repr(text), ["`:exists:` is followed by true or false"])
        return lambda actual: (actual is not properties.MISSING) is flag
    if sign == ":regex:":
        return _regex(text, value)
    if value[:1] in ("<", ">", "="):
        hint = {"=<": "; `<=` is", "=>": "; `>=` is"}.get(sign + value[0], "")
        words = f"`{sign}{value[0]}` is no operator{hint}; a text that begins so is quoted"
        raise UsageError(repr(text), [words])
    order = _ORDERS.get(sign)
    if order is not None and not value:
        raise UsageError(repr(text), [f"nothing stands behind `{sign}`: give a number or a text"])
    operand = _operand(text, kind, value)
    if order is not None:
        return _ordered(order, operand, text_too=kind is properties.PropertyKind.TAG)
    is_same = _same_as(operand, value, kind)
    return is_same if sign in ("=", "==") else lambda actual: not is_same(actual)


def _regex(text: str, pattern: str) -> Callable[[properties.Value], bool]:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise UsageError(repr(text), [f"isn't a regular expression: {error}"]) from None
    return lambda actual: (
        actual is not properties.MISSING
        and actual is not None
        and search(_text(actual)) is not None
    )


def _operand(text: str, kind: properties.PropertyKind, value: str) -> properties.Value:
    """Convert the value of a condition to the property's kind."""
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    if kind is properties.PropertyKind.STATE:
        return state_of(value)
    if kind is properties.PropertyKind.TIME:
        return time_ns(repr(text), value)
    if kind is properties.PropertyKind.FLAG:
        if value.lower() not in _FLAGS:
            raise UsageError(repr(text), ["is compared with $true or $false"])
        return _FLAGS[value.lower()]
    number = properties.number_of(f"0{value}" if value[:1] == "." else value)
    if kind in (properties.PropertyKind.NUMBER, properties.PropertyKind.SPAN):
        if number is None and kind is properties.PropertyKind.SPAN:
            with suppress(argparse.ArgumentTypeError):
                return time_span(value)
        if number is None:
            is_span = kind is properties.PropertyKind.SPAN
            looks = "a number, or a time such as 90s, 12h, 30d" if is_span else "a number"
            raise UsageError(repr(text), [f"{value!r} isn't {looks}"])
        return number
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    if kind is properties.PropertyKind.TEXT:
        return value
    return value if number is None else number


def time_ns(subject: str, value: str) -> int:
    """Parse `2026-05-01` or `2026-05-01T09:30`. Raises UsageError, which names the subject."""
    try:
        return int(datetime.fromisoformat(value).astimezone().timestamp() * NS)
    except (ValueError, OverflowError, OSError):
        looks = "a time such as 2026-05-01 or 2026-05-01T09:30, local unless it has an offset"
        raise UsageError(subject, [f"{value!r} isn't {looks}"]) from None


def _same_as(
    operand: properties.Value, value: str, kind: properties.PropertyKind
) -> Callable[[properties.Value], bool]:
    if operand is None:
        return lambda actual: actual is properties.MISSING or actual is None
    if kind is properties.PropertyKind.TEXT and operand == "":
        return lambda actual: actual is properties.MISSING or actual == ""
    if kind is properties.PropertyKind.TAG:
        return _equals(value if isinstance(operand, int | float) else str(operand))
    return lambda actual: (
        actual == operand and isinstance(actual, bool) is isinstance(operand, bool)
    )


def _equals(value: str) -> Callable[[properties.Value], bool]:
    """Return a test of a tag: the same text, or the same number."""
    number = properties.number_of(value)

    def matches(actual: properties.Value) -> bool:
        return actual == value or (
            number is not None
            and isinstance(actual, str)
            and properties.number_of(actual) == number
        )

    return matches


def _ordered(
    order: _Order, operand: properties.Value, *, text_too: bool
) -> Callable[[properties.Value], bool]:
    """text_too: a text that is a number compares as one, as tags are all texts."""

    def matches(actual: properties.Value) -> bool:
        if text_too and isinstance(actual, str) and _is_number(operand):
            actual = properties.number_of(actual)
        if _is_number(actual) and _is_number(operand):
            return order(actual, operand)
        return isinstance(actual, str) and isinstance(operand, str) and order(actual, operand)

    return matches


def _is_number(value: properties.Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: properties.Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
