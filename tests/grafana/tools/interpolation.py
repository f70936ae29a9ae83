"""Grafana's interpolation of variables: `$name`, `${name}`, `${name:format}`, `[[name]]` (9.4's
template service).

Unknown names stay unchanged, so templates of LogQL can use `$` themselves.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

ALL_TEXT, ALL_VALUE = "All", "$__all"
Text = str | list[str]
Option = tuple[str, str]  # text, value

_REFERENCE = re.compile(
    r"\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{(\w+)(?:\.([^:^}]+))?(?::([^}]+))?\}"
)


@dataclass
class Variable:
    """A variable and its selection. options: without `All`; all_value: replacement for `All`, ""
    for every option."""

    name: str
    kind: str
    text: Text = ""
    value: Text = ""
    options: list[Option] = field(default_factory=list)
    multi: bool = False
    include_all: bool = False
    all_value: str = ""

    @property
    def is_all(self) -> bool:
        return self.value == ALL_VALUE or (
            isinstance(self.value, list) and self.value[:1] == [ALL_VALUE]
        )

    def selected(self) -> list[Option]:
        """Return the options for which a panel repeats."""
        if self.is_all:
            return self.options
        values = self.value if isinstance(self.value, list) else [self.value]
        return [option for option in self.options if option[1] in values]


Scope = Mapping[str, Option]
Escape = Callable[[Text, Variable], str]


def as_it_is(value: Text, _: Variable) -> str:
    return _glob(value)


def replaced(
    text: str,
    variables: Mapping[str, Variable],
    scope: Scope | None = None,
    plain: Escape = as_it_is,
) -> str:
    """Return a text with its variables replaced. scope: values that take precedence, such as a
    repeated panel's; plain: formats references without a format."""

    def substitute(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[4]
        form = match[3] or match[6]
        variable = variables.get(name)
        if scope and name in scope:
            label, value = scope[name]
            scope_variable = variable or Variable(name, "scoped")
            return (
                plain(value, scope_variable)
                if form is None
                else formatted(value, form, label, name)
            )
        if variable is None:
            return match[0]
        if form == "queryparam":
            return formatted(variable.value, form, variable.text, name)
        selection, selection_text = variable.value, variable.text
        if variable.is_all:
            if variable.all_value and form != "text":
                return replaced(variable.all_value, variables)
            selection, selection_text = [value for _, value in variable.options], ALL_TEXT
        return (
            plain(selection, variable)
            if form is None
            else formatted(selection, form, selection_text, name)
        )

    return _REFERENCE.sub(substitute, text)


def formatted(value: Text, form: str, text: Text, name: str) -> str:
    """Return a value in one of Grafana's formats. Raises KeyError for an unmodelled format; Grafana
    would use `glob` instead."""
    if form == "text":
        return text if isinstance(text, str) else " + ".join(text)
    if form == "queryparam":
        values = value if isinstance(value, list) else [value]
        return "&".join(f"var-{name}={_encoded(item)}" for item in values)
    form, _, argument = form.partition(":")
    if form == "date":
        milliseconds = int(str(value))
        return {
            "": str(milliseconds),
            "ms": str(milliseconds),
            "seconds": str(round(milliseconds / 1000)),
        }[argument]
    return _FORMATS[form](value)


def references(text: str) -> set[str]:
    """Return the names that a text refers to."""
    return {match[1] or match[2] or match[4] for match in _REFERENCE.finditer(text)}


def escaped_regex(text: str) -> str:
    return re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", text)


def _raw(value: Text) -> str:
    return value if isinstance(value, str) else ",".join(value)


def _regex(value: Text) -> str:
    if isinstance(value, str):
        return escaped_regex(value)
    parts = [escaped_regex(item) for item in value]
    return parts[0] if len(parts) == 1 else f"({'|'.join(parts)})"


def _pipe(value: Text) -> str:
    return value if isinstance(value, str) else "|".join(value)


def _glob(value: Text) -> str:
    if isinstance(value, str):
        return value
    return f"{{{','.join(value)}}}" if len(value) > 1 else ",".join(value)


def _double_quoted(value: Text) -> str:
    return ",".join(
        '"' + item.replace('"', '\\"') + '"'
        for item in ([value] if isinstance(value, str) else value)
    )


def _single_quoted(value: Text) -> str:
    return ",".join(
        "'" + item.replace("'", "\\'") + "'"
        for item in ([value] if isinstance(value, str) else value)
    )


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")


def _percent_encoded(value: Text) -> str:
    return _encoded(value if isinstance(value, str) else f"{{{','.join(value)}}}")


_FORMATS: dict[str, Callable[[Text], str]] = {
    "raw": _raw,
    "csv": _raw,
    "regex": _regex,
    "pipe": _pipe,
    "glob": _glob,
    "doublequote": _double_quoted,
    "singlequote": _single_quoted,
    "percentencode": _percent_encoded,
    "json": lambda value: json.dumps(value, ensure_ascii=False),
}
