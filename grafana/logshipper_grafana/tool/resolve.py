"""Resolves variables of our own dashboards as Grafana does, for queries without a browser. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from logshipper_grafana.parts import Json

ALL = "$__all"
_REFERENCE = re.compile(r"\$\{(\w+)(?::(\w+))?\}|\$(\w+)")
_SPECIAL = re.compile(r"[\\^$*+?.()|\[\]{}/]")


class Option(NamedTuple):
    text: str
    value: str


class Selection(NamedTuple):
    """A variable's value. every: all are chosen; all_value: replaces all of them, "" to name each."""

    options: Sequence[Option]
    all_value: str = ""
    every: bool = False


def fill_in(text: str, selections: Mapping[str, Selection]) -> str:
    """Return a query with its variables filled in. Other names stay: LogQL's templates have their
    own `$`."""

    def replacement(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        selection = selections.get(name)
        if selection is not None and match[2] == "queryparam":
            return _in_address(name, selection)
        return match[0] if selection is None else _format(selection, match[2] or "raw")

    return _REFERENCE.sub(replacement, text)


def _format(selection: Selection, form: str) -> str:
    """Raises KeyError for a format that no dashboard of ours has."""
    if form == "text":
        return "All" if selection.every else " + ".join(option.text for option in selection.options)
    if selection.all_value:
        return selection.all_value
    values = [option.value for option in selection.options]
    if form == "percentencode":
        text = values[0] if len(values) == 1 else f"{{{','.join(values)}}}"
        return quote(text, safe="-_.~")
    if form == "regex":
        values = [_SPECIAL.sub(r"\\\g<0>", value) for value in values]
        return values[0] if len(values) == 1 else f"({'|'.join(values)})"
    return {"raw": ",", "pipe": "|"}[form].join(values)


def _in_address(name: str, selection: Selection) -> str:
    values = [ALL] if selection.every else [option.value for option in selection.options]
    return "&".join(f"var-{name}={quote(value, safe='-_.~')}" for value in values)


def in_order(variables: Sequence[Json]) -> Iterator[Json]:
    """Yield each variable after those that it names. Raises ValueError for circles."""
    names = {variable["name"] for variable in variables}
    done: set[str] = set()
    rest = list(variables)
    while rest:
        ready = [variable for variable in rest if references(variable) & names <= done]
        if not ready:
            raise ValueError(
                f"variables wait for each other: {', '.join(variable['name'] for variable in rest)}"
            )
        yield ready[0]
        done.add(ready[0]["name"])
        rest.remove(ready[0])


def references(variable: Json) -> set[str]:
    """Names that its query and its data source refer to."""
    text = f"{query_of(variable)} {(variable.get('datasource') or {}).get('uid', '')}"
    return {match[1] or match[3] for match in _REFERENCE.finditer(text)}


def query_of(variable: Json) -> str:
    query = variable.get("query") or ""
    return str(query["query"] if isinstance(query, dict) else query)


def initial_selection(variable: Json, answers: Sequence[str], wished: str = "") -> Selection:
    """Return the initial choice. answers: of its query; wished: the preferred option, or typed
    text."""
    kind = variable["type"]
    if kind == "textbox":
        return Selection([Option(wished, wished)])
    options = (
        _custom(query_of(variable))
        if kind == "custom"
        else _read(answers, variable.get("regex") or "")
    )
    current = (variable.get("current") or {}).get("value")
    if current == [ALL]:
        return Selection(options, str(variable.get("allValue") or ""), every=True)
    values = [wished] if wished else []
    values += current if isinstance(current, list) else [current or ""]
    fitting = [option for value in values for option in options if option.value == value]
    return Selection((fitting or options or [Option("", "")])[:1])


def _custom(query: str) -> list[Option]:
    pairs = [part.strip().partition(" : ") for part in query.split(",")]
    return [Option(text.strip(), (value or text).strip()) for text, _, value in pairs]


def _read(answers: Sequence[str], pattern: str) -> list[Option]:
    """Options of equal value are one."""
    options: dict[str, Option] = {}
    expression = re.compile(pattern[1:-1].replace("(?<", "(?P<")) if pattern else None
    for answer in answers:
        text = value = answer
        if expression is not None:
            match = expression.search(answer)
            if match is None:
                continue
            groups = match.groupdict()
            value = groups.get("value") or ""
            text = groups.get("text") or value
        options.setdefault(value, Option(text, value))
    return list(options.values())


def series_text(labels: Mapping[str, str], value: float) -> str:
    """A series as a variable's regular expression sees it: labels sorted and unescaped."""
    names = sorted(labels.keys() - {"__name__"})
    inside = ",".join(f'{name}="{labels[name]}"' for name in names)
    number = f"{value:.6f}".rstrip("0").rstrip(".")
    return f"{labels.get('__name__', '')}{{{inside}}} {number} 0"
