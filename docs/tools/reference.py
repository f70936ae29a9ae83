"""Generated pages of the reference, in Markdown: commands from argparse, options from the
dataclasses of the configuration, metrics from their definitions, and the Python API."""

import argparse
import ast
import dataclasses
import inspect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.metrics import MetricWrapperBase

import logshipper
from docs.tools.parsers import commands_of, parsers
from logshipper.config import Config, Notify
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.config.otlp_section import OtlpSection
from logshipper_ingest.config.site import Site
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.job_series import FAMILIES

_INTERNAL = re.compile(r" \((?:logshipper/[^)]*|R\d+)\)")  # modules and requirements in comments
_SITE_FILE = "[site file](../docs/reading-from-loki.md)"


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    for parser in parsers():
        yield parser.prog, program(parser)
    yield "options", options()
    yield "metrics", metrics()
    yield "python", python()


def program(parser: argparse.ArgumentParser) -> str:
    """Return a program's page with the help of all commands."""
    parts = [f"# {parser.prog}: all help texts", _fenced(parser.format_help())]
    commands = commands_of(parser)
    for name, command in commands.choices.items() if commands else ():
        parts += [f"## {parser.prog} {name}", _fenced(command.format_help())]
    return "\n\n".join(parts) + "\n"


def options() -> str:
    """Return the page of all configuration files."""
    parts = [
        "# Options of configuration files",
        "The tables come from the code. [Configuration](../docs/configuration.md) has examples of `~/.logoptin`, "
        "and [the node agent](../docs/agent.md) those of its file.",
        "## ~/.logoptin",
        _option_table(Config),
        "`notify` is an address, a list of addresses, or these keys ([notifications](../docs/notifications.md)):",
        _option_table(Notify),
        "## agent.toml",
        "The node agent reads `/etc/logshipper/agent.toml`. `[loki.NAME]`, `[influxdb.NAME]` and `[otlp.NAME]` add "
        "further servers.",
        *_sections(AgentConfig()),
        "### [influxdb.NAME]",
        _option_table(InfluxdbSection),
        "### [otlp.NAME]",
        _option_table(OtlpSection),
        "## site.toml",
        f"Reading commands take addresses and credentials from the {_SITE_FILE}.",
        *_sections(Site()),
    ]
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    """Return the page of all metrics."""
    agent = [
        (
            f"`{metric._name}{'_total' if metric._type == 'counter' else ''}`",
            str(metric._type),
            _code(metric._labelnames),
            metric._documentation,
        )
        for metric in vars(AgentMetrics()).values()
        if isinstance(metric, MetricWrapperBase)
    ]
    jobs = [(f"`{name}`", text) for name, text in FAMILIES.items()]
    parts = [
        "# List of metrics",
        "The tables come from the code. [Metrics](../docs/metrics.md) explains labels, limits and queries.",
        "## Jobs",
        _table(("metric, a gauge", "meaning"), jobs),
        "## The agent",
        _table(("metric", "type", "labels", "meaning"), agent),
    ]
    return "\n\n".join(parts) + "\n"


def python() -> str:
    """Return the page of the Python API, for mkdocstrings."""
    names = sorted(logshipper.__all__, key=str.lower)
    parts = [
        "# Python API",
        "[Reading jobs from Python](../docs/python-api.md) explains the API with examples. This page lists its names.",
        *(
            f"::: {getattr(logshipper, name).__module__}.{name}\n"
            f"    options:\n      heading: logshipper.{name}\n      toc_label: {name}"
            for name in names
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _sections(config: object) -> Iterator[str]:
    """Yield headings and tables of a file's sections, which are the dataclasses in this one."""
    assert dataclasses.is_dataclass(config)
    for field in dataclasses.fields(config):
        section = type(getattr(config, field.name))
        if dataclasses.is_dataclass(section):
            yield f"### [{field.name}]"
            yield _option_table(section)


def _option_table(section: type) -> str:
    return _table(("option", "default", "meaning"), _options(section))


def _options(section: type) -> Iterator[tuple[str, ...]]:
    """Yield option, default and comment of each field, also of base classes and of dataclasses
    inside."""
    texts: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        texts |= comments(cls) if "__annotations__" in vars(cls) else {}
    for name, default in _defaults(section).items():
        if dataclasses.is_dataclass(default):
            yield from _options(type(default))
        else:
            text = _toml(default) if dataclasses.is_dataclass(section) else _yaml(default)
            yield f"`{name}`", _code([text]), texts.get(name, "")


def _defaults(section: type) -> dict[str, object]:
    """Return the default of each field, None for none. section: a dataclass or a named tuple."""
    if not dataclasses.is_dataclass(section):
        defaults = getattr(section, "_field_defaults", {})
        return {name: defaults.get(name) for name in getattr(section, "_fields", ())}
    values = section()
    return {field.name: getattr(values, field.name) for field in dataclasses.fields(section)}


def comments(cls: type) -> dict[str, str]:
    """Return the comment of each field: above it, and behind it."""
    lines = inspect.getsource(cls)
    at = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(lines).readline)
        if token.type == tokenize.COMMENT
    }
    (tree,) = ast.parse(lines).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = node.lineno
            while first - 1 in at and lines.splitlines()[first - 2].lstrip().startswith("#"):
                first -= 1
            rows = range(first, (node.end_lineno or node.lineno) + 1)
            text = " ".join(at[row] for row in rows if row in at)
            found[node.target.id] = _INTERNAL.sub("", text)
    return {name: text for name, text in found.items() if text}


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else "" if value is None else str(value)


def _yaml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, float) and value:
        return f"{value:.0f}s"
    return "on" if value is True else "off" if value in (False, 0) else str(value or "")


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
