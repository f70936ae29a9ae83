"""Frozen dataclasses from TOML tables, by field names and types, with all problems. Pure except
for `read_toml`."""

import dataclasses
import difflib
import os
import tomllib
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from logshipper.errors import ConfigError, os_words

MAX_FILE_BYTES = 1 << 20
Section = TypeVar("Section")
Table = Mapping[str, Any]  # Any: TOML values, each of which is checked
Rules = dict[str, tuple[bool, str]]  # by option: whether its value is valid, and the message

_NOUNS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def read_toml(path: str) -> dict[str, Any]:  # Any: TOML
    """Return a file's tables. Raises ConfigError if unreadable or not TOML."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise ConfigError(path, [f"is over {MAX_FILE_BYTES >> 20} MiB"])
            # editors on Windows begin with a byte order mark
            return tomllib.loads(file.read(MAX_FILE_BYTES + 1).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(path, [f"can't be read: {os_words(error)}"]) from None
    except tomllib.TOMLDecodeError as error:
        quotes = ": texts stand in quotes" if str(error).startswith("Invalid value") else ""
        raise ConfigError(path, [f"isn't TOML: {error}{quotes}"]) from None
    except UnicodeDecodeError:
        raise ConfigError(path, ["isn't TOML: it isn't UTF-8 text"]) from None
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(path, [f"isn't TOML: {error}"]) from None


def fill(cls: type[Section], table: object, table_name: str, problems: list[str]) -> Section:
    """Return a dataclass with the table's values; missing fields keep their defaults.

    table_name: for messages. Problems (unknown keys, wrong types) go to `problems`. Fields that
    are dataclasses take their values from the same table.
    """
    if not isinstance(table, Mapping):
        problems.append(f"[{table_name}]: must be a table, with a line for each option")
        return cls()
    nested, types = _fields(cls)
    option_names = [*types, *(name for inner in nested.values() for name in _fields(inner)[1])]
    unknown = [name for name in table if name not in option_names]
    problems += [
        f"[{table_name}] {name}: there is no such option{hint(name, option_names)}"
        for name in unknown
    ]
    values: dict[str, Any] = {
        name: inner(**_values(_fields(inner)[1], table, table_name, problems))
        for name, inner in nested.items()
    }
    values |= _values(types, table, table_name, problems)
    return cls(**values)


def split_named(cls: type, table: object) -> tuple[object, dict[str, Table]]:
    """Split a table into its own options, for `fill`, and named tables [TABLE.NAME]. cls: the
    dataclass of each, whose options are no names."""
    if not isinstance(table, Mapping):
        return table, {}
    sections = (cls, *_fields(cls)[0].values())
    options = {field.name for section in sections for field in dataclasses.fields(section)}
    named_tables = {
        name: value
        for name, value in table.items()
        if isinstance(value, Mapping) and name not in options
    }
    return {name: value for name, value in table.items() if name not in named_tables}, named_tables


def _values(
    types: Mapping[str, type], table: Table, table_name: str, problems: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, kind in types.items():
        if name not in table:
            continue
        value = table[name]
        if kind is float and type(value) is int:
            value = float(value) if abs(value) < 1 << 53 else float("inf")  # out of all ranges
        if type(value) is kind:
            values[name] = value
            continue
        text = repr(value)
        text = text if len(text) <= 60 else f"{text[:57]}..."
        problems.append(f"[{table_name}] {name}: must be {_NOUNS[kind]}, not {text}")
    return values


def _fields(cls: type) -> tuple[dict[str, type], dict[str, type]]:
    """Return fields with dataclass types, and the others, with their types."""
    hints = typing.get_type_hints(cls)
    nested: dict[str, type] = {}
    types: dict[str, type] = {}
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        (nested if dataclasses.is_dataclass(kind) else types)[field.name] = kind
    return nested, types


def hint(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_tables(tables: Table, names: Sequence[str]) -> list[str]:
    """Return a sentence for each table without one of these names."""
    return [
        f"[{name}]: there is no such table{hint(name, names)}"
        for name in tables
        if name not in names
    ]


def within(section: object, **ranges: tuple[float, float]) -> Rules:
    """Return the rules for numbers with a least and a greatest value."""
    return {
        name: (least <= getattr(section, name) <= greatest, f"must be {least} to {greatest}")
        for name, (least, greatest) in ranges.items()
    }


def zero_or_at_least(section: object, **least_values: int) -> Rules:
    """Return the rules for limits, of which 0 is none."""
    return {
        name: (
            (value := getattr(section, name)) == 0 or value >= least,
            f"must be 0, or at least {least}",
        )
        for name, least in least_values.items()
    }


def socket_rules(path: str) -> Rules:
    """Return the rules for the option `socket`; "" is none."""
    is_short = len(os.fsencode(path)) <= 107
    return {
        "socket": (not path or os.path.isabs(path), 'must be an absolute path, or "" for none'),
        "socket ": (is_short, "is longer than the 107 bytes that a socket's path may have"),
    }


def broken(rules: Rules, table_name: str) -> list[str]:
    """Return a sentence for each broken rule, by option."""
    return [
        f"[{table_name}] {option.strip()}: {must}"
        for option, (holds, must) in rules.items()
        if not holds
    ]
