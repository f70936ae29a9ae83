"""A dashboard as Grafana opens it: resolves its variables in order and runs its panels' queries."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from logshipper_grafana.parts.records import NO_KEY, NOTHING
from tests.grafana.tools.frames import NUMBER, Frame, Json
from tests.grafana.tools.interpolation import (
    ALL_TEXT,
    ALL_VALUE,
    Scope,
    Text,
    Variable,
    formatted,
    references,
    replaced,
)
from tests.grafana.tools.sources import (
    POINTS,
    LokiSource,
    PrometheusSource,
    Query,
    QueryFailed,
    Range,
    with_table_names,
)
from tests.grafana.tools.transformations import applied
from tests.grafana.tools.variable_options import options_of
from tests.tools.sources import ROOT

FOLDER = ROOT / "grafana" / "dashboards"
Source = LokiSource | PrometheusSource
Sources = Mapping[str, Source]  # by their purpose
AT_ONCE = 4  # queries


@dataclass(frozen=True)
class Panel:
    """A panel as shown on the page. raw: frames before the transformations."""

    title: str
    model: Json
    scope: Scope
    raw: list[Frame]
    frames: list[Frame]
    queries: list[Query]

    @property
    def frame(self) -> Frame:
        """The frame of a panel that draws only one: the first."""
        return self.frames[0] if self.frames else Frame((), 0)

    def rows(self) -> list[Json]:
        """Return the rows, without the placeholder of an empty graph."""
        return [
            row
            for frame in self.frames
            for row in frame.rows()
            if not {NOTHING, NO_KEY} & row.keys()
        ]

    def stat(self) -> float | str | None:
        """Return the value of a stat panel: the last value of numeric fields."""
        numbers = [
            value for frame in self.frames for field in frame.of(NUMBER) for value in field.values
        ]
        return numbers[-1] if numbers else None


class Page:
    """A dashboard at a time. selections: variables of an address, such as {"job": "4711"}; several
    values as a list.

    The constructor resolves all variables, in the order of their dependencies. It raises
    QueryFailed if a server refuses a variable. With goes_on, the variable keeps the address' value,
    as in Grafana.
    """

    goes_on = False

    def __init__(self, uid: str, sources: Sources, when: Range, **selections: Text) -> None:
        self.model = dashboard(uid)
        self.when = when
        self._sources = sources
        self.variables: dict[str, Variable] = {
            name: Variable(name, "built-in", value, value)
            for name, value in (
                ("__from", str(when.begin_ms)),
                ("__to", str(when.end_ms)),
                ("__url_time_range", f"from={when.begin_ms}&to={when.end_ms}"),
                ("__org", "1"),
                ("__dashboard", self.model["title"]),
            )
        }
        for model in in_order(self.model["templating"]["list"]):
            self.variables[model["name"]] = self._resolved(model, selections.get(model["name"]))

    def value(self, name: str) -> Text:
        return self.variables[name].value

    def text(self, text: str, scope: Scope | None = None) -> str:
        """Return a title or a link as shown. References without a format use the variable's text."""
        return replaced(text, self.variables, scope, plain=_as_text)

    # ---- variables

    def _resolved(self, model: Json, selection: Text | None) -> Variable:
        current = model.get("current") or {}
        variable = Variable(
            model["name"],
            model["type"],
            current.get("text", ""),
            current.get("value", ""),
            options_of(model, self._answers(model)),
            bool(model.get("multi")),
            bool(model.get("includeAll")),
            model.get("allValue") or "",
        )
        if selection is not None:
            assert model.get("hide") != 2 or not model.get("skipUrlSync"), (
                f"{model['name']} isn't in addresses"
            )
            _choose(variable, selection)
        _validate(variable, free=selection is not None or variable.kind == "textbox")
        return variable

    def _answers(self, model: Json) -> list[str]:
        if model["type"] == "datasource":
            kind = model["query"]
            return [source.uid for source in self._sources.values() if source.kind == kind]
        if model["type"] != "query":
            return []
        assert model["refresh"] in (1, 2), f"{model['name']} is never refreshed"
        source = self._source(model["datasource"])
        query = model["query"]
        text = query["query"] if isinstance(query, dict) else query
        try:
            return source.variable(replaced(text, self.variables, plain=source.plain), self.when)
        except QueryFailed:
            if self.goes_on:
                return []
            raise

    def _source(self, reference: Json) -> Source:
        uid = replaced(reference["uid"], self.variables)
        by_uid = {source.uid: source for source in self._sources.values()}
        assert by_uid[uid].kind == reference["type"], f"{reference} is {uid}"
        return by_uid[uid]

    # ---- panels

    def panels(self) -> list[tuple[Json, Scope]]:
        """Return all panels with queries, including those in closed rows, each with the values of
        its repetition."""
        row_panels: list[tuple[Json, Scope]] = []
        scopes: Sequence[Scope] = [{}]
        repeated: list[tuple[Json, Scope]] = []
        for model in self.model["panels"]:
            if model["type"] != "row":
                repeated += [(model, scope) for scope in self._repeats(model, scopes)]
                continue
            scopes = self._repeats(model, [{}])
            for inside in model["panels"]:
                row_panels += [(inside, scope) for scope in self._repeats(inside, scopes)]
        return repeated + row_panels

    def _repeats(self, model: Json, scopes: Sequence[Scope]) -> list[Scope]:
        name = model.get("repeat")
        if not name:
            return list(scopes)
        selected = self.variables[name].selected()
        if not selected:  # Grafana keeps the panel itself
            return list(scopes)
        return [{**scope, name: value} for scope in scopes for value in selected]

    def show(self, title: str) -> Panel:
        """Run and return the panel with this title, or with a title that begins with it."""
        titles = [
            (self.text(model["title"], scope), model, scope) for model, scope in self.panels()
        ]
        matches = [panel for panel in titles if panel[0] == title] or [
            panel for panel in titles if panel[0].startswith(title)
        ]
        assert matches, f"no panel {title!r}: {[panel[0] for panel in titles]}"
        return self.run(*matches[0][1:])

    def run(self, model: Json, scope: Scope) -> Panel:
        raw: list[Frame] = []
        queries: list[Query] = []
        least = model.get("interval")
        for target in model["targets"]:
            source = self._source(target["datasource"])
            expr = replaced(target["expr"], self.variables, scope, plain=source.plain)
            answer = source.answer(
                target,
                expr,
                self.when,
                _duration_ms(least) if least else None,
                model.get("maxDataPoints", POINTS),
            )
            raw += answer.frames
            queries.append(answer.query)
        if all(target.get("format") == "table" for target in model["targets"]):
            raw = with_table_names(raw)
        frames = applied(model.get("transformations", ()), raw)
        return Panel(self.text(model["title"], scope), model, scope, raw, frames, queries)

    def run_all(self) -> list[Panel]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [*pool.map(lambda panel: self.run(*panel), self.panels())]

    def annotations(self) -> dict[str, list[Json]]:
        """Return the annotations by name, each with `time` (ms), `text` and the labels."""
        annotations: dict[str, list[Json]] = {}
        for model in self.model["annotations"]["list"]:
            source = self._source(model["datasource"])
            expr = replaced(model["expr"], self.variables, plain=source.plain)
            target = {"refId": "Anno", "queryType": "range", "maxLines": model["maxLines"]}
            frame = source.answer(target, expr, self.when, None).frames[0]
            marks = zip(frame.column("Time"), frame.column("labels"), strict=True)
            annotations[model["name"]] = sorted(
                (
                    {"time": at, "text": _templated(model["textFormat"], labels), **labels}
                    for at, labels in marks
                ),
                key=lambda mark: mark["time"],
            )
        return annotations


class LenientPage(Page):
    """A page that continues after refused queries of variables."""

    goes_on = True


def _as_text(value: Text, variable: Variable) -> str:
    """Return a variable's text. A repeated panel has its own value without a text."""
    return formatted(value, "text", variable.text or value, variable.name)


def dashboard(uid: str) -> Json:
    """Return a dashboard as committed."""
    model: Json = json.loads((FOLDER / f"{uid}.json").read_text("utf-8"))
    return model


def dashboards() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def in_order(models: Sequence[Json]) -> Iterator[Json]:
    """Yield variables, each after its references. Raises AssertionError for cycles."""
    names = {model["name"] for model in models}
    done: set[str] = set()
    pending = list(models)
    while pending:
        ready = [
            model
            for model in pending
            if (
                references(
                    json.dumps([model.get("query"), model.get("regex"), model.get("datasource")])
                )
                & names
            )
            <= done
        ]
        assert ready, f"variables wait for each other: {[model['name'] for model in pending]}"
        yield ready[0]
        done.add(ready[0]["name"])
        pending.remove(ready[0])


def _choose(variable: Variable, selection: Text) -> None:
    """Select the values of an address."""
    values = selection if isinstance(selection, list) else [selection]
    if ALL_TEXT in values or ALL_VALUE in values:
        values = [ALL_VALUE]
    by_value = {value: text for text, value in variable.options} | {ALL_VALUE: ALL_TEXT}
    by_text = dict(variable.options)
    values = [value if value in by_value else by_text.get(value, value) for value in values]
    texts = [by_value.get(value, value) for value in values]
    variable.value, variable.text = (values, texts) if variable.multi else (values[0], texts[0])


def _validate(variable: Variable, *, free: bool) -> None:
    """Keep a selection that is an option; else select the first option. free: keep other values,
    too."""
    options = ([(ALL_TEXT, ALL_VALUE)] if variable.include_all else []) + variable.options
    if free and variable.value != "":
        return
    if isinstance(variable.value, list):
        matches = [option for option in options if option[1] in variable.value]
        if matches:
            variable.text, variable.value = (
                [text for text, _ in matches],
                [value for _, value in matches],
            )
            return
    else:
        matches = [
            option
            for option in options
            if variable.text == option[0] or variable.value == option[1]
        ]
        if matches and (variable.value or variable.text):
            variable.text, variable.value = matches[0]
            return
    if variable.kind == "textbox":
        return
    variable.text, variable.value = options[0] if options else ("None", "")


def _duration_ms(text: str) -> int:
    return int(text[:-1]) * {"s": 1000, "m": 60000, "h": 3600000}[text[-1]]


def _templated(text: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text
