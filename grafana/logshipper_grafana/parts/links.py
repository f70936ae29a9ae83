"""Addresses of the pages, and of Explore. `${...}` is filled in by Grafana."""

import json
from collections.abc import Sequence
from urllib.parse import quote

from logshipper_grafana.parts import Json

JOBS, JOB, COMPARE, CLUSTER = (
    "logshipper-jobs",
    "logshipper-job",
    "logshipper-compare",
    "logshipper-cluster",
)
SAME_TIME = (
    "${__url_time_range}"  # as it was chosen: `now-1h` stays so, where ${__from} is a number
)
_SOURCES = "var-loki=${loki}&var-prometheus=${prometheus}&var-cluster=${cluster:percentencode}"


def page(uid: str, *, when: str = SAME_TIME, kept: Sequence[str] = (), **variables: str) -> str:
    """Return the address of a page with the same data sources and cluster.

    when: its time, "" if the link itself keeps it; kept: further variables to keep; variables:
    values of others, in an address' form.
    """
    values = [f"var-{name}={value}" for name, value in variables.items()]
    values += [f"${{{name}:queryparam}}" for name in kept]
    return f"/d/{uid}?{'&'.join((_SOURCES, *values, *filter(None, [when])))}"


def of_job(title: str = "Open ${__value.text}") -> list[Json]:
    """A column's links to the page of the job that it names."""
    return [link(title, page(JOB, job="${__value.text:percentencode}"))]


def of_user(title: str = "Jobs of ${__value.text}", *, kept: Sequence[str] = ()) -> list[Json]:
    """A column's links to the list of jobs of the user that it names."""
    return [link(title, page(JOBS, kept=kept, user="${__value.text:percentencode}"))]


def link(title: str, url: str) -> Json:
    """A link of a panel or a column."""
    return {"title": title, "url": url, "targetBlank": False}


def explore(data_source: str, expr: str) -> str:
    """Explore with this query. data_source: the variable that holds it."""
    query = {"refId": "A", "expr": expr, "queryType": "range"}
    state = {
        "datasource": f"${{{data_source}}}",
        "queries": [query],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    return f"/explore?orgId=${{__org.id}}&left={quote(json.dumps(state), safe='${}:,')}"


def page_link(
    title: str,
    tooltip: str,
    uid: str,
    *,
    icon: str = "dashboard",
    when: str = "",
    kept: Sequence[str] = (),
    **variables: str,
) -> Json:
    """A link above a page to one, at the same time unless `when` is another. Otherwise as page."""
    link = _link(title, tooltip, page(uid, when=when, kept=kept, **variables), icon)
    return link | {"keepTime": not when}  # Grafana 9.4 does not know SAME_TIME there


def explore_link(title: str, tooltip: str, url: str) -> Json:
    """A link above a page to Explore."""
    return _link(title, tooltip, url, "doc")


def _link(title: str, tooltip: str, url: str, icon: str) -> Json:
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
