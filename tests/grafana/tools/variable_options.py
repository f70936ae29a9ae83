"""A variable's options, made like Grafana's from a data source's answers, with its regular
expression and order."""

import re
from collections.abc import Iterable, Sequence

from tests.grafana.tools.frames import Json
from tests.grafana.tools.interpolation import ALL_VALUE, Option

_INTERVALS = re.compile(r"\d+(?:ms|[smhdwMy])")


def options_of(model: Json, answers: Sequence[str]) -> list[Option]:
    """Return text and value of each option, without `All`. answers: to the query of a query's or a
    data source's variable."""
    kind = model["type"]
    if kind == "query":
        return in_order(filtered(answers, model.get("regex") or ""), model.get("sort") or 0)
    if kind == "datasource":
        return filtered(answers, model.get("regex") or "")
    if kind == "custom":
        return custom(model["query"])
    if kind == "interval":
        return [(text, text) for text in _INTERVALS.findall(model["query"])]
    assert kind in ("constant", "textbox"), f"not modelled: {kind}"
    return [(model["query"], model["query"])] if model["query"] else []


def custom(query: str) -> list[Option]:
    """Parse `a, b : c`: commas between options, ` : ` between a text and its value."""
    options = []
    for part in re.findall(r"(?:\\,|[^,])+", query):
        text, _, value = part.replace("\\,", ",").strip().partition(" : ")
        options.append((text.strip(), (value or text).strip()))
    return [option for option in options if option[1] != ALL_VALUE]


def filtered(answers: Sequence[str], pattern: str) -> list[Option]:
    """Return the matches of an expression in each answer, by the groups `value` and `text`.

    Without these groups, or if both are empty, the first group counts. Options with equal values
    are one.
    """
    if not pattern:
        return _unique((answer, answer) for answer in answers)
    begin, _, flags = pattern.rpartition("/")
    assert begin.startswith("/"), f"no regular expression of JavaScript's: {pattern}"
    expression = re.compile(
        re.sub(r"\(\?<(?![=!])", "(?P<", begin[1:]), re.IGNORECASE if "i" in flags else 0
    )
    options: list[Option] = []
    for answer in answers:
        matches = (
            list(expression.finditer(answer))
            if "g" in flags
            else [*filter(None, [expression.search(answer)])]
        )
        if matches:
            options += _of_matches(answer, matches)
    return _unique(options)


def _of_matches(answer: str, matches: Sequence[re.Match[str]]) -> list[Option]:
    groups = [match.groupdict() for match in matches]
    by_value = next((group for group in groups if group.get("value")), None)
    by_text = next((group for group in groups if group.get("text")), None)
    if by_value or by_text:
        value = (by_value or {}).get("value") or (by_text or {}).get("text") or ""
        return [((by_text or {}).get("text") or value, value)]
    if not matches[0].re.groups:
        return [(answer, answer)]
    firsts = [match[1] or "" for match in matches]
    return [(text, text) for text in (firsts if len(firsts) > 1 else firsts[:1])]


def _unique(options: Iterable[Option]) -> list[Option]:
    by_value: dict[str, Option] = {}
    for option in options:
        by_value.setdefault(option[1], option)
    return list(by_value.values())


def in_order(options: list[Option], sort: int) -> list[Option]:
    """Sort options. sort is Grafana's number: 0 none, 1 and 2 by text, 3 and 4 by its first number,
    5 and 6 in any case; even: descending."""
    if not sort:
        return options
    key = (_by_text, _by_number, _in_any_case)[(sort + 1) // 2 - 1]
    ascending = sorted(options, key=key)
    return ascending[::-1] if sort % 2 == 0 else ascending


def _by_text(option: Option) -> tuple[str, int]:
    return option[0], 0


def _by_number(option: Option) -> tuple[str, int]:
    digits = re.search(r"\d+", option[0])
    return "", int(digits[0]) if digits else -1


def _in_any_case(option: Option) -> tuple[str, int]:
    return option[0].lower(), 0
