"""Addresses of the pages, and of Explore. `${...}` is filled in by Grafana."""

import json
from urllib.parse import quote

from logshipper_grafana.parts.panels import Json

JOBS, JOB, COMPARE, CLUSTER = (
    "logshipper-jobs",
    "logshipper-job",
    "logshipper-compare",
    "logshipper-cluster",
)
SAME_TIME = "from=${__from}&to=${__to}"
_SOURCES = "var-loki=${loki}&var-prometheus=${prometheus}&var-cluster=${cluster:percentencode}"


def page(uid: str, *, when: str = SAME_TIME, parameters: str = "", **variables: str) -> str:
    """A page with the same data sources and cluster. when: its time; parameters: further
    variables that stay, as Grafana writes them into an address (`${job:queryparam}`); variables: values of others,
    as they stand in an address."""
    values = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return f"/d/{uid}?{_SOURCES}{values}{'&' if parameters else ''}{parameters}&{when}"


def explore(data_source: str, expr: str) -> str:
    """Explore with this query. data_source: the variable that holds it."""
    query = {"refId": "A", "expr": expr, "queryType": "range"}
    state = {
        "datasource": f"${{{data_source}}}",
        "queries": [query],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    return f"/explore?orgId=${{__org.id}}&left={quote(json.dumps(state), safe='${}:,')}"


def dashboard_link(title: str, tooltip: str, url: str, *, icon: str = "dashboard") -> Json:
    """A link above a page."""
    return {
        "type": "link",
        "title": title,
        "tooltip": tooltip,
        "url": url,
        "icon": icon,
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
        "targetBlank": False,
    }
