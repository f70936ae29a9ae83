"""Fills frozen dataclasses from TOML tables by field names and types, and collects every problem on
the way. Pure, but for `read_toml`."""

import dataclasses
import difflib
import os
import tomllib
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from logshipper.errors import ConfigError, os_words

MAX_FILE_BYTES = 1 << 20
Section = TypeVar("Section")
Table = Mapping[str, Any]  # Any: TOML values, each of which is checked

_NOUNS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def read_toml(path: str) -> dict[str, Any]:  # Any: TOML
    """The tables of a file. Raises ConfigError where it can't be read, or isn't TOML."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise ConfigError(path, [f"is over {MAX_FILE_BYTES >> 20} MiB"])
            return tomllib.loads(
                file.read(MAX_FILE_BYTES + 1).decode("utf-8-sig")
            )  # Windows' editors begin with a mark
    except OSError as error:
        raise ConfigError(path, [f"can't be read: {os_words(error)}"]) from None
    except tomllib.TOMLDecodeError as error:
        quotes = ": texts stand in quotes" if str(error).startswith("Invalid value") else ""
        raise ConfigError(path, [f"isn't TOML: {error}{quotes}"]) from None
    except UnicodeDecodeError:
        raise ConfigError(path, ["isn't TOML: it isn't UTF-8 text"]) from None
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(path, [f"isn't TOML: {error}"]) from None


def fill(cls: type[Section], table: object, where: str, problems: list[str]) -> Section:
    """An instance of a dataclass with what the table says; fields that it doesn't name keep their
    defaults.

    where: the table's name, for sentences. What is wrong (unknown keys, wrong types) is added to
    problems. Fields that are dataclasses themselves are filled from the same table.
    """
    if not isinstance(table, Mapping):
        problems.append(f"[{where}]: must be a table, with a line for each option")
        return cls()
    nested, types = _fields(cls)
    known = [*types, *(name for inner in nested.values() for name in _fields(inner)[1])]
    unknown = [name for name in table if name not in known]
    problems += [
        f"[{where}] {name}: there is no such option{hint(name, known)}" for name in unknown
    ]
    values: dict[str, Any] = {
        name: fill_known(inner, table, where, problems) for name, inner in nested.items()
    }
    values |= _checked(types, table, where, problems)
    return cls(**values)


def fill_known(cls: type[Section], table: Table, where: str, problems: list[str]) -> Section:
    """As `fill`, for a dataclass that has only part of the table's options."""
    return cls(**_checked(_fields(cls)[1], table, where, problems))


def _checked(
    types: Mapping[str, type], table: Table, where: str, problems: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, wanted in types.items():
        if name not in table:
            continue
        value = table[name]
        if wanted is float and type(value) is int:
            value = float(value) if abs(value) < 1 << 53 else float("inf")  # out of all ranges
        if type(value) is not wanted:
            problems.append(f"[{where}] {name}: must be {_NOUNS[wanted]}, not {_shown(value)}")
            continue
        values[name] = value
    return values


def _fields(cls: type) -> tuple[dict[str, type], dict[str, type]]:
    """Fields that are dataclasses, and the others, with their types."""
    hints = typing.get_type_hints(cls)
    found: dict[str, type] = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    nested: dict[str, type] = {
        name: kind for name, kind in found.items() if dataclasses.is_dataclass(kind)
    }
    return nested, {name: kind for name, kind in found.items() if name not in nested}


def hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def broken(rules: Mapping[str, tuple[bool, str]], where: str) -> list[str]:
    """A sentence for each rule, by option, that doesn't hold."""
    return [
        f"[{where}] {option.strip()}: {must}"
        for option, (holds, must) in rules.items()
        if not holds
    ]
