"""`logshipper-grafana apply`: brings folder, data sources and dashboards into a Grafana. Changes by
others stay, unless forced."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from logshipper.errors import ConfigError, QueryError
from logshipper_grafana.parts.panels import Json
from logshipper_grafana.tool.content import (
    FOLDER,
    UID_PREFIX,
    VALUES_UID,
    content,
    difference,
    is_ours,
    is_saved,
    merge_source,
    message_for,
    of_kind,
    settings_of,
    wanted_dashboards,
    wanted_data_sources,
)
from logshipper_grafana.tool.server import IN_NEW_FORM, GrafanaRefusal, GrafanaServer

Done = Literal["added", "changed", "removed", "unchanged", "kept", "refused"]
CHANGES: tuple[Done, ...] = ("added", "changed", "removed")
_FROM_A_FILE = (
    "it comes from a file on Grafana's machine: change that, or take it away (docs/grafana.md)"
)
_FORCE = "--force puts the code's in its place, --dry-run shows what differs"
_NEW_FORM = "somebody saved it in the new editor's form (v2), which can't be compared"
# statuses that say nothing about the next call
_ABOUT_ONE = (400, 403, 404, 409, 412, 422)
_FIXES = {
    "version-mismatch": "somebody saved it just now: run this again",
    "name-exists": "rename the other one, or give another --folder",
}


@dataclass(frozen=True)
class Wish:
    """The content that `apply` brings into a Grafana, with its options."""

    folder: str = FOLDER  # title or uid
    # of the servers by kind (`loki`, `prometheus`); without one, a data source keeps its own
    addresses: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False  # nothing is changed
    prune: bool = False  # dashboards of ours that the code no longer has are removed
    force: bool = False  # also reverts changes by others


class Step(NamedTuple):
    """One change of a Grafana, or why there is none."""

    subject: str  # such as `dashboard logshipper-job`
    # result, real or planned; kept: differs from the code, perhaps on purpose; refused: needs
    # attention
    done: Done
    words: str = ""  # the reason
    diff: str = ""  # "" without one


def apply_steps(grafana: GrafanaServer, wish: Wish) -> Iterator[Step]:
    """Yield each step after its completion. Raises ConfigError, and QueryError if Grafana does not
    answer."""
    for source in wanted_data_sources():
        yield _step_or_refusal(
            f"data source {source['uid']}", partial(_data_source, grafana, wish, source)
        )
    folder_uid, step = _folder(grafana, wish)
    yield step
    dashboards = wanted_dashboards()
    for uid, dashboard in dashboards.items():
        yield _step_or_refusal(
            f"dashboard {uid}", partial(_dashboard, grafana, wish, dashboard, folder_uid)
        )
    if wish.prune and folder_uid:
        for uid in _stale_uids(grafana, dashboards, folder_uid):
            yield _step_or_refusal(
                f"dashboard {uid}", partial(_remove_dashboard, grafana, wish, uid, folder_uid)
            )


def _step_or_refusal(subject: str, call: Callable[[str], Step]) -> Step:
    """Return the step, or Grafana's reason against it. Raises QueryError for faults that the next
    step would share."""
    try:
        return call(subject)
    except QueryError as error:
        if error.status not in _ABOUT_ONE:
            raise
        fix = _FIXES.get(error.kind, "") if isinstance(error, GrafanaRefusal) else ""
        if error.status == 409 and not fix:
            fix = "if somebody changed it just now, run this again"
        return Step(subject, "refused", f"{error}; {fix}" if fix else str(error))


# ---- data sources


def _data_source(grafana: GrafanaServer, wish: Wish, source: Json, subject: str) -> Step:
    url = _address(wish, source)
    try:
        sources = grafana.data_sources()
    except QueryError as error:
        if error.status == 403 and not url:
            return Step(
                subject,
                "kept",
                f"the token may not read data sources, and there is no --{source['type']}-url",
            )
        raise
    current = next((entry for entry in sources if entry.get("uid") == source["uid"]), None)
    if current is None:
        return _add_data_source(grafana, wish, source, url, sources, subject)
    if current.get("type") != source["type"]:
        words = f"its type is {current.get('type')}: the uid belongs to something else; remove it, or change its uid"
        return Step(subject, "refused", words)
    current = grafana.data_source(source["uid"])
    body, deviations = merge_source(current, source, url, force=wish.force)
    words = f"set otherwise there: {', '.join(deviations)} ({_FORCE})" if deviations else ""
    diff = difference(settings_of(current), settings_of(body), subject)
    if not diff:
        return (
            Step(subject, "kept", words, _forced_difference(current, source, subject))
            if deviations
            else Step(subject, "unchanged")
        )
    if current.get("readOnly"):
        return Step(subject, "refused", f"it isn't as it should be, but {_FROM_A_FILE}", diff)
    if not wish.dry_run:
        grafana.change_data_source(source["uid"], body)
    return Step(subject, "changed", words, diff)


def _address(wish: Wish, source: Json) -> str:
    """Return the new address; "" keeps the present one."""
    if source["uid"] != VALUES_UID:
        return wish.addresses.get(source["type"], "")
    loki = wish.addresses.get("loki", "")
    return f"{loki.rstrip('/')}/loki" if loki else ""


def _forced_difference(current: Json, source: Json, subject: str) -> str:
    return difference(
        settings_of(current), settings_of(merge_source(current, source, "", force=True)[0]), subject
    )


def _add_data_source(
    grafana: GrafanaServer, wish: Wish, source: Json, url: str, sources: list[Json], subject: str
) -> Step:
    kind = source["type"]
    if not url and source["uid"] == VALUES_UID:
        words = "isn't there: pages of jobs that Prometheus has forgotten have no X; --loki-url URL makes it"
        return Step(subject, "kept", words)
    if not url:
        alternatives = [str(entry.get("name")) for entry in of_kind(sources, kind)]
        if alternatives:
            return Step(
                subject,
                "kept",
                f"isn't there; the pages take another one of its type: {', '.join(alternatives)}",
            )
        return Step(
            subject, "refused", f"there is no data source of the type {kind}: give --{kind}-url URL"
        )
    names = {str(entry.get("name")) for entry in sources}
    name = source["name"] if source["name"] not in names else f"{source['name']} (logshipper)"
    body = {**source, "name": name, "url": url}
    if not wish.dry_run:
        grafana.add_data_source(body)
    return Step(subject, "added", f"{name}, {url}")


# ---- folder


def _folder(grafana: GrafanaServer, wish: Wish) -> tuple[str | None, Step]:
    """Return the folder's uid; None if it would only be created."""
    subject = f"folder {wish.folder}"
    by_uid = grafana.folder(wish.folder) if _may_be_uid(wish.folder) else None
    if by_uid is not None:
        return str(by_uid["uid"]), Step(subject, "unchanged")
    matches = [folder for folder in grafana.folders() if folder.get("title") == wish.folder]
    if len(matches) > 1:
        uids = ", ".join(str(folder.get("uid")) for folder in matches)
        raise ConfigError(
            "--folder", [f"several are called {wish.folder!r}: give the uid of one, {uids}"]
        )
    if matches:
        return str(matches[0]["uid"]), Step(subject, "unchanged")
    if wish.dry_run:
        return None, Step(subject, "added")
    # a uid of ours unless somebody chose a name
    return grafana.add_folder(wish.folder, FOLDER if wish.folder == FOLDER else None), Step(
        subject, "added"
    )


def _may_be_uid(text: str) -> bool:
    return len(text) <= 40 and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


# ---- dashboards


def _dashboard(
    grafana: GrafanaServer, wish: Wish, dashboard: Json, folder_uid: str | None, subject: str
) -> Step:
    uid = dashboard["uid"]
    try:
        answer = grafana.dashboard(uid)
    except GrafanaRefusal as error:
        if error.status != IN_NEW_FORM:
            raise
        return _dashboard_in_new_form(grafana, wish, dashboard, folder_uid, subject)
    if answer is None:
        if not wish.dry_run and folder_uid is not None:
            grafana.save_dashboard(dashboard, folder_uid, message_for(dashboard))
        return Step(subject, "added", dashboard["title"])
    current, meta = answer.get("dashboard") or {}, answer.get("meta") or {}
    message = grafana.newest_message(uid)
    elsewhere = meta.get("folderUid", "") != folder_uid
    folder = f"it lies in the folder {meta.get('folderTitle') or 'General'}"
    if is_saved(dashboard, current, message):
        if not elsewhere or meta.get("provisioned"):
            return Step(subject, "unchanged")
        if not wish.force:
            return Step(subject, "kept", f"{folder}; --force moves it")
    diff = difference(current, dashboard, subject)
    if meta.get("provisioned"):
        return Step(subject, "refused", f"it differs, but {_FROM_A_FILE}", diff)
    if not is_ours(message) and content(current) != content(dashboard) and not wish.force:
        by = f" by {meta['updatedBy']}" if meta.get("updatedBy") else ""
        return Step(
            subject,
            "refused",
            f"it was changed{by}, in version {meta.get('version')}; {_FORCE}",
            diff,
        )
    if not wish.dry_run:
        # with the version that was read: a later save is not lost
        target = folder_uid if wish.force and folder_uid else str(meta.get("folderUid") or "")
        grafana.save_dashboard(
            {**dashboard, "version": meta.get("version")}, target, message_for(dashboard)
        )
    return Step(
        subject,
        "changed",
        f"{folder}, and stays there" if elsewhere and not wish.force else "",
        diff,
    )


def _dashboard_in_new_form(
    grafana: GrafanaServer, wish: Wish, dashboard: Json, folder_uid: str | None, subject: str
) -> Step:
    if not wish.force:
        words = f"{_NEW_FORM}; --force puts the code's in its place (save it under a new name first, to keep it)"
        return Step(subject, "refused", words)
    if not wish.dry_run:
        grafana.save_dashboard(dashboard, folder_uid or "", message_for(dashboard), overwrite=True)
    return Step(subject, "changed", _NEW_FORM)


def _stale_uids(
    grafana: GrafanaServer, dashboards: Mapping[str, Json], folder_uid: str
) -> list[str]:
    """Return dashboards in our folder, with our tag and uids, that the code lacks."""
    hits = [hit for hit in grafana.tagged() if hit.get("folderUid") == folder_uid]
    uids = [str(hit.get("uid") or "") for hit in hits]
    return sorted(uid for uid in uids if uid.startswith(UID_PREFIX) and uid not in dashboards)


def _remove_dashboard(
    grafana: GrafanaServer, wish: Wish, uid: str, folder_uid: str, subject: str
) -> Step:
    try:
        answer = grafana.dashboard(uid)
    except GrafanaRefusal as error:
        if error.status != IN_NEW_FORM:
            raise
        if not wish.force:
            words = f"the code no longer has it, but {_NEW_FORM}: --force removes it all the same"
            return Step(subject, "refused", words)
        if not wish.dry_run:
            grafana.remove_dashboard(uid)
        return Step(subject, "removed", _NEW_FORM)
    meta = (answer or {}).get("meta") or {}
    if answer is None or meta.get("folderUid") != folder_uid:  # a search may lag behind
        return Step(subject, "unchanged")
    if meta.get("provisioned"):
        return Step(subject, "refused", f"the code no longer has it, but {_FROM_A_FILE}")
    if not is_ours(grafana.newest_message(uid)) and not wish.force:
        words = (
            "the code no longer has it, but somebody changed it: --force removes it all the same"
        )
        return Step(subject, "refused", words)
    if not wish.dry_run:
        grafana.remove_dashboard(uid)
    return Step(subject, "removed", str((answer.get("dashboard") or {}).get("title") or ""))
