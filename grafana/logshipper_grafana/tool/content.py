"""The content of `logshipper-grafana` for a Grafana, and its comparison with present content. Pure,
except for the data sources' file."""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from logshipper import __version__
from logshipper_grafana.parts import Json
from logshipper_grafana.parts.variables import VALUES_NAME
from logshipper_grafana.tool.render import dashboards, text_of

DATA_SOURCES = Path(__file__).parent.parent / "provisioning" / "datasources" / "logshipper.yaml"
FOLDER = "logshipper"
VALUES_UID = "logshipper-loki-values"  # of the type Prometheus, with Loki's address
UID_PREFIX = "logshipper-"  # of our dashboards and data sources
_MESSAGE = re.compile(r"logshipper-grafana \S+, content ([0-9a-f]{16})")
_USER_INFO = re.compile(r"//[^/]*@")
_GRAFANAS_OWN = ("id", "version")  # numbers that Grafana gives
# of a data source: cannot be sent back
_READ_ONLY = frozenset(
    "id orgId typeLogoUrl typeName readOnly secureJsonFields accessControl apiVersion".split()
)


def wanted_dashboards() -> dict[str, Json]:
    """Return the code's dashboards by uid."""
    return {str(dashboard["uid"]): dashboard for dashboard in dashboards().values()}


def wanted_data_sources() -> list[Json]:
    """Return the data sources of the provisioning file, with `$$` for `$`; their addresses are
    examples."""
    document = yaml.safe_load(DATA_SOURCES.read_text("utf-8"))["datasources"]
    sources: list[Json] = json.loads(json.dumps(document).replace("$$", "$"))
    return sources


def is_prometheus(source: Mapping[str, Any]) -> bool:  # Any: JSON
    """Return whether the pages treat it as Prometheus, and not as Loki for variables."""
    is_loki = re.match(VALUES_NAME, str(source.get("name")), re.IGNORECASE)
    return source.get("type") == "prometheus" and is_loki is None


def of_kind(sources: Iterable[Json], kind: str) -> list[Json]:
    """Those that the pages may take for Loki (`loki`) or Prometheus (`prometheus`)."""
    if kind == "prometheus":
        return [source for source in sources if is_prometheus(source)]
    return [source for source in sources if source.get("type") == kind]


# ---- dashboards


def content(dashboard: Json) -> Json:
    """Return a dashboard without Grafana's numbers."""
    return {name: value for name, value in dashboard.items() if name not in _GRAFANAS_OWN}


def message_for(dashboard: Json) -> str:
    """The message that a dashboard is saved with, by which it is recognized."""
    return f"logshipper-grafana {__version__}, content {_digest(dashboard)}"


def is_ours(message: str | None) -> bool:
    """Return whether this program saved it last."""
    return message is not None and _MESSAGE.fullmatch(message) is not None


def is_saved(dashboard: Json, current: Json, message: str | None) -> bool:
    """Return whether the current dashboard is this one. Newer Grafanas return a converted form: the
    message shows it then."""
    match = _MESSAGE.fullmatch(message or "")
    return (match is not None and match[1] == _digest(dashboard)) or content(current) == content(
        dashboard
    )


def _digest(dashboard: Json) -> str:
    text = json.dumps(content(dashboard), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def difference(current: Json, target: Json, name: str) -> str:
    """A unified diff."""
    before, after = (
        text_of(content(document)).splitlines(keepends=True) for document in (current, target)
    )
    return "".join(difflib.unified_diff(before, after, f"{name} (Grafana)", f"{name} (code)"))


# ---- data sources


def merge_source(current: Json, source: Json, url: str, *, force: bool) -> tuple[Json, list[str]]:
    """Return the current data source with missing settings added, and the names of different ones,
    which stay as somebody's choice.

    force: replaces them; url: "" keeps the address.
    """
    body = {name: value for name, value in current.items() if name not in _READ_ONLY}
    deviations: list[str] = []
    if url:
        body["url"] = url
    if current.get("access") != source["access"]:
        body["access"] = source["access"] if force else current.get("access")
        deviations += [] if force else ["access"]
    options = current.get("jsonData")
    body["jsonData"] = dict(options) if isinstance(options, dict) else {}
    for name, value in source["jsonData"].items():
        current_value = body["jsonData"].get(name)
        if name not in body["jsonData"] or force:
            body["jsonData"][name] = _override(current_value, value)
        elif isinstance(value, list):
            body["jsonData"][name], differ = _supplement(current_value, value)
            deviations += [f"{name} {entry_name}" for entry_name in differ]
        elif current_value != value:
            deviations.append(f"{name} {current_value}")
    return body, deviations


def settings_of(source: Mapping[str, Any]) -> Json:  # Any: JSON
    """Return the settings of this program, without a password in the address."""
    settings = {name: source.get(name) for name in ("name", "type", "access", "url", "jsonData")}
    return settings | {"url": _USER_INFO.sub("//...@", str(settings["url"] or ""))}


def _override(current_value: object, value: Any) -> Any:  # Any: JSON
    """Return the value; for a list, with the current entries of other names."""
    if not isinstance(value, list) or not isinstance(current_value, list):
        return value
    names = {entry["name"] for entry in value}
    others = (
        entry
        for entry in current_value
        if not (isinstance(entry, dict) and entry.get("name") in names)
    )
    return [*others, *value]


def _supplement(
    current_value: object, our_entries: list[Json]
) -> tuple[list[Any], list[str]]:  # Any: JSON
    """The current entries and those of ours that they lack, by name; the names of those that
    differ."""
    entries = list(current_value) if isinstance(current_value, list) else []
    by_name = {entry.get("name"): entry for entry in entries if isinstance(entry, dict)}
    lacking = [entry for entry in our_entries if entry["name"] not in by_name]
    differ = [entry["name"] for entry in our_entries if by_name.get(entry["name"], entry) != entry]
    return entries + lacking, differ
