"""What `logshipper-grafana` puts into a Grafana, and how that is compared with what is there. Pure,
but for the file of the data sources."""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from logshipper import __version__
from logshipper_grafana.parts.panels import Json
from logshipper_grafana.parts.variables import VALUES_NAME
from logshipper_grafana.tool.render import dashboards, text_of

DATA_SOURCES = Path(__file__).parent.parent / "provisioning" / "datasources" / "logshipper.yaml"
FOLDER = "logshipper"
VALUES_UID = "logshipper-loki-values"  # of the type Prometheus, with Loki's address
UID_PREFIX = "logshipper-"  # of our dashboards and data sources
_MESSAGE = re.compile(r"logshipper-grafana \S+, content ([0-9a-f]{16})")
_USER_INFO = re.compile(r"//[^/]*@")
_GRAFANAS_OWN = ("id", "version")  # numbers that Grafana gives
_READ_ONLY = (
    "id",
    "orgId",
    "typeLogoUrl",
    "typeName",
    "readOnly",
    "secureJsonFields",
    "accessControl",
    "apiVersion",
)


def wanted_dashboards() -> dict[str, Json]:
    """By uid, as the code makes them."""
    return {str(dashboard["uid"]): dashboard for dashboard in dashboards().values()}


def wanted_data_sources() -> list[Json]:
    """As they are provisioned by file, where `$$` stands for `$`; their addresses are examples."""
    document = yaml.safe_load(DATA_SOURCES.read_text("utf-8"))["datasources"]
    sources: list[Json] = json.loads(json.dumps(document).replace("$$", "$"))
    return sources


def is_prometheus(source: Mapping[str, Any]) -> bool:  # Any: JSON
    """Whether the pages take it for Prometheus, and not for Loki as variables ask it."""
    is_loki = re.match(VALUES_NAME, str(source.get("name")), re.IGNORECASE)
    return source.get("type") == "prometheus" and is_loki is None


def of_kind(sources: Iterable[Json], kind: str) -> list[Json]:
    """Those that the pages may take for Loki (`loki`) or Prometheus (`prometheus`)."""
    if kind == "prometheus":
        return [source for source in sources if is_prometheus(source)]
    return [source for source in sources if source.get("type") == kind]


# ---- dashboards


def content(dashboard: Json) -> Json:
    """Without what Grafana numbers."""
    return {name: value for name, value in dashboard.items() if name not in _GRAFANAS_OWN}


def message_for(dashboard: Json) -> str:
    """The message that a dashboard is saved with, by which it is recognized."""
    return f"logshipper-grafana {__version__}, content {_digest(dashboard)}"


def is_ours(message: str | None) -> bool:
    """Whether who saved it last was this program."""
    return message is not None and _MESSAGE.fullmatch(message) is not None


def is_saved(dashboard: Json, current: Json, message: str | None) -> bool:
    """Whether the current dashboard is this one. Newer Grafanas hand out a converted form: then the
    message shows it."""
    match = _MESSAGE.fullmatch(message or "")
    return (match is not None and match[1] == _digest(dashboard)) or content(current) == content(
        dashboard
    )


def _digest(dashboard: Json) -> str:
    return hashlib.sha256(text_of(content(dashboard)).encode()).hexdigest()[:16]


def difference(current: Json, target: Json, name: str) -> str:
    """A unified diff."""
    before, after = (
        text_of(content(document)).splitlines(keepends=True) for document in (current, target)
    )
    return "".join(difflib.unified_diff(before, after, f"{name} (Grafana)", f"{name} (code)"))


# ---- data sources


def data_source_body(current: Json) -> Json:
    """What may be sent back of a data source that Grafana handed out."""
    return {name: value for name, value in current.items() if name not in _READ_ONLY}


def merge_source(current: Json, source: Json, url: str, *, force: bool) -> tuple[Json, list[str]]:
    """The current data source with what it lacks, and the names of the settings that differ and
    stay, since somebody chose them: force takes ours. url: "" leaves the address."""
    body = data_source_body(current)
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
    """Of a data source what this program sets, without a password in its address."""
    settings = {name: source.get(name) for name in ("name", "type", "access", "url", "jsonData")}
    return settings | {"url": _USER_INFO.sub("//...@", str(settings["url"] or ""))}


def _override(current_value: object, value: Any) -> Any:  # Any: JSON
    """The value; of a list also the current entries whose names it doesn't have."""
    if not isinstance(value, list) or not isinstance(current_value, list):
        return value
    names = {entry["name"] for entry in value}
    return [
        entry
        for entry in current_value
        if not (isinstance(entry, dict) and entry.get("name") in names)
    ] + value


def _supplement(
    current_value: object, our_entries: list[Json]
) -> tuple[list[Any], list[str]]:  # Any: JSON
    """The current entries and those of ours that they lack, by name; the names of those that
    differ."""
    entries = list(current_value) if isinstance(current_value, list) else []
    by_name = {entry.get("name"): entry for entry in entries if isinstance(entry, dict)}
    lacking = [entry for entry in our_entries if entry["name"] not in by_name]
    differ = [
        entry["name"]
        for entry in our_entries
        if entry["name"] in by_name and by_name[entry["name"]] != entry
    ]
    return entries + lacking, differ
