"""What `logshipper-grafana` puts into a Grafana, and how that is compared with what is there. Pure,
but for the file of the data sources."""

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from logshipper import __version__
from logshipper_grafana.panels import Json
from logshipper_grafana.render import dashboards, text_of

DATA_SOURCES = Path(__file__).parent / "provisioning" / "datasources" / "logshipper.yaml"
FOLDER = "logshipper"
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
    found = yaml.safe_load(DATA_SOURCES.read_text("utf-8"))["datasources"]
    sources: list[Json] = json.loads(json.dumps(found).replace("$$", "$"))
    return sources


# ---- dashboards


def content(dashboard: Json) -> Json:
    """Without what Grafana numbers."""
    return {name: value for name, value in dashboard.items() if name not in _GRAFANAS_OWN}


def message_for(dashboard: Json) -> str:
    """What is said when a dashboard is saved, by which it is known again."""
    return f"logshipper-grafana {__version__}, content {_digest(dashboard)}"


def is_ours(message: str | None) -> bool:
    """Whether who saved it last was this program."""
    return message is not None and _MESSAGE.fullmatch(message) is not None


def is_saved(dashboard: Json, there: Json, message: str | None) -> bool:
    """Whether what is there is this dashboard. Newer Grafanas hand out a converted form: then the
    message tells."""
    found = _MESSAGE.fullmatch(message or "")
    return (found is not None and found[1] == _digest(dashboard)) or content(there) == content(
        dashboard
    )


def _digest(dashboard: Json) -> str:
    return hashlib.sha256(text_of(content(dashboard)).encode()).hexdigest()[:16]


def difference(there: Json, wanted: Json, called: str) -> str:
    """A unified diff."""
    before, after = (text_of(content(one)).splitlines(keepends=True) for one in (there, wanted))
    return "".join(difflib.unified_diff(before, after, f"{called} (Grafana)", f"{called} (code)"))


# ---- data sources


def data_source_body(there: Json) -> Json:
    """What may be sent back of a data source that Grafana handed out."""
    return {name: value for name, value in there.items() if name not in _READ_ONLY}


def merged(there: Json, wanted: Json, url: str, *, force: bool) -> tuple[Json, list[str]]:
    """The data source that is there with what it lacks, and the names of what differs and stays,
    since somebody chose it: force takes ours. url: "" leaves the address."""
    made = data_source_body(there)
    kept: list[str] = []
    if url:
        made["url"] = url
    if there.get("access") != wanted["access"]:
        made["access"] = wanted["access"] if force else there.get("access")
        kept += [] if force else ["access"]
    own = there.get("jsonData")
    made["jsonData"] = dict(own) if isinstance(own, dict) else {}
    for name, ours in wanted["jsonData"].items():
        theirs = made["jsonData"].get(name)
        if name not in made["jsonData"] or force:
            made["jsonData"][name] = _with_others(theirs, ours)
        elif isinstance(ours, list):
            made["jsonData"][name], differ = _with_ours(theirs, ours)
            kept += [f"{name} {one}" for one in differ]
        elif theirs != ours:
            kept.append(f"{name} {theirs}")
    return made, kept


def shown(source: Mapping[str, Any]) -> Json:  # Any: JSON
    """Of a data source what this program sets, without a password in its address."""
    found = {name: source.get(name) for name in ("name", "type", "access", "url", "jsonData")}
    return found | {"url": _USER_INFO.sub("//...@", str(found["url"] or ""))}


def _with_others(there: object, ours: Any) -> Any:  # Any: JSON
    """Ours, and of a list with names the entries that aren't."""
    if not isinstance(ours, list) or not isinstance(there, list):
        return ours
    names = {one["name"] for one in ours}
    return [one for one in there if not (isinstance(one, dict) and one.get("name") in names)] + ours


def _with_ours(there: object, ours: list[Json]) -> tuple[list[Any], list[str]]:  # Any: JSON
    """Theirs and what it lacks of ours, by name; and the names of those that differ."""
    known = list(there) if isinstance(there, list) else []
    by_name = {one.get("name"): one for one in known if isinstance(one, dict)}
    lacking = [one for one in ours if one["name"] not in by_name]
    differ = [one["name"] for one in ours if one["name"] in by_name and by_name[one["name"]] != one]
    return known + lacking, differ
