"""`logshipper-grafana apply`: brings folder, data sources and dashboards into a Grafana. Changes by
others stay, unless forced."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, ParamSpec

from logshipper.errors import ConfigError, QueryError
from logshipper_grafana.parts import Json
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

    # result, real or planned; kept: differs from the code, perhaps on purpose; refused: needs
    # attention
    done: Done
    words: str = ""  # the reason
    diff: str = ""  # "" without one
    subject: str = ""  # such as `dashboard logshipper-job`


def apply_steps(grafana: GrafanaServer, wish: Wish) -> Iterator[Step]:
    """Yield each step after its completion. Raises ConfigError, and QueryError if Grafana does not
    answer."""
    for source in wanted_data_sources():
        yield _step(f"data source {source['uid']}", _data_source, grafana, wish, source)
    folder_uid, step = _folder(grafana, wish)
    yield step._replace(subject=f"folder {wish.folder}")
    dashboards = wanted_dashboards()
    for uid, dashboard in dashboards.items():
        yield _step(f"dashboard {uid}", _dashboard, grafana, wish, dashboard, folder_uid)
    if wish.prune and folder_uid:
        for uid in _stale_uids(grafana, dashboards, folder_uid):
            yield _step(f"dashboard {uid}", _remove_dashboard, grafana, wish, uid, folder_uid)


_Parts = ParamSpec("_Parts")


def _step(
    subject: str, call: Callable[_Parts, Step], *args: _Parts.args, **kwargs: _Parts.kwargs
) -> Step:
    """Return the step, or Grafana's reason against it. Raises QueryError for faults that the next
    step would share."""
    try:
        return call(*args, **kwargs)._replace(subject=subject)
    except QueryError as error:
        if error.status not in _ABOUT_ONE:
            raise
        fix = _FIXES.get(error.kind, "") if isinstance(error, GrafanaRefusal) else ""
        if error.status == 409 and not fix:
            fix = "if somebody changed it just now, run this again"
        return Step("refused", f"{error}; {fix}" if fix else str(error), subject=subject)


# ---- data sources


def _data_source(grafana: GrafanaServer, wish: Wish, source: Json) -> Step:
    uid, kind, url = source["uid"], source["type"], _address(wish, source)
    try:
        sources = grafana.data_sources()
    except QueryError as error:
        if error.status == 403 and not url:
            words = f"the token may not read data sources, and there is no --{kind}-url"
            return Step("kept", words)
        raise
    current = next((entry for entry in sources if entry.get("uid") == uid), None)
    if current is None:
        return _add_data_source(grafana, wish, source, url, sources)
    if current.get("type") != kind:
        words = f"its type is {current.get('type')}: the uid belongs to something else; remove it, or change its uid"
        return Step("refused", words)
    current = grafana.data_source(uid)
    body, deviations = merge_source(current, source, url, force=wish.force)
    words = f"set otherwise there: {', '.join(deviations)} ({_FORCE})" if deviations else ""
    diff = _source_difference(current, body)
    if not diff and deviations:
        forced, _ = merge_source(current, source, "", force=True)
        return Step("kept", words, _source_difference(current, forced))
    if not diff:
        return Step("unchanged")
    if current.get("readOnly"):
        return Step("refused", f"it isn't as it should be, but {_FROM_A_FILE}", diff)
    if not wish.dry_run:
        grafana.change_data_source(uid, body)
    return Step("changed", words, diff)


def _address(wish: Wish, source: Json) -> str:
    """Return the new address; "" keeps the present one."""
    if source["uid"] != VALUES_UID:
        return wish.addresses.get(source["type"], "")
    loki = wish.addresses.get("loki", "")
    return f"{loki.rstrip('/')}/loki" if loki else ""


def _source_difference(current: Json, target: Json) -> str:
    name = f"data source {current['uid']}"
    return difference(settings_of(current), settings_of(target), name)


def _add_data_source(
    grafana: GrafanaServer, wish: Wish, source: Json, url: str, sources: list[Json]
) -> Step:
    kind = source["type"]
    if not url and source["uid"] == VALUES_UID:
        words = "isn't there: pages of jobs that Prometheus has forgotten have no X; --loki-url URL makes it"
        return Step("kept", words)
    if not url:
        others = ", ".join(str(entry.get("name")) for entry in of_kind(sources, kind))
        if others:
            return Step("kept", f"isn't there; the pages take another one of its type: {others}")
        words = f"there is no data source of the type {kind}: give --{kind}-url URL"
        return Step("refused", words)
    name = source["name"]
    if name in {str(entry.get("name")) for entry in sources}:
        name = f"{name} (logshipper)"
    if not wish.dry_run:
        grafana.add_data_source({**source, "name": name, "url": url})
    return Step("added", f"{name}, {url}")


# ---- folder


def _folder(grafana: GrafanaServer, wish: Wish) -> tuple[str | None, Step]:
    """Return the folder's uid; None if it would only be created."""
    if _may_be_uid(wish.folder) and (folder := grafana.folder(wish.folder)) is not None:
        return str(folder["uid"]), Step("unchanged")
    uids = [
        str(folder.get("uid")) for folder in grafana.folders() if folder.get("title") == wish.folder
    ]
    if len(uids) > 1:
        words = f"several are called {wish.folder!r}: give the uid of one, {', '.join(uids)}"
        raise ConfigError("--folder", [words])
    if uids:
        return uids[0], Step("unchanged")
    if wish.dry_run:
        return None, Step("added")
    # a uid of ours unless somebody chose a name
    uid = grafana.add_folder(wish.folder, FOLDER if wish.folder == FOLDER else None)
    return uid, Step("added")


def _may_be_uid(text: str) -> bool:
    return len(text) <= 40 and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


# ---- dashboards


def _dashboard(grafana: GrafanaServer, wish: Wish, dashboard: Json, folder_uid: str | None) -> Step:
    uid, new_message = dashboard["uid"], message_for(dashboard)
    try:
        answer = grafana.dashboard(uid)
    except GrafanaRefusal as error:
        if error.status != IN_NEW_FORM:
            raise
        if not wish.force:
            words = f"{_NEW_FORM}; --force puts the code's in its place (save it under a new name first, to keep it)"
            return Step("refused", words)
        if not wish.dry_run:
            grafana.save_dashboard(dashboard, folder_uid or "", new_message, overwrite=True)
        return Step("changed", _NEW_FORM)
    if answer is None:
        if not wish.dry_run and folder_uid is not None:
            grafana.save_dashboard(dashboard, folder_uid, new_message)
        return Step("added", dashboard["title"])
    current, meta = answer.get("dashboard") or {}, answer.get("meta") or {}
    message = grafana.newest_message(uid)
    is_elsewhere = meta.get("folderUid", "") != folder_uid
    folder = f"it lies in the folder {meta.get('folderTitle') or 'General'}"
    if is_saved(dashboard, current, message):
        if not is_elsewhere or meta.get("provisioned"):
            return Step("unchanged")
        if not wish.force:
            return Step("kept", f"{folder}; --force moves it")
    diff = difference(current, dashboard, f"dashboard {uid}")
    if meta.get("provisioned"):
        return Step("refused", f"it differs, but {_FROM_A_FILE}", diff)
    if not is_ours(message) and content(current) != content(dashboard) and not wish.force:
        by = f" by {meta['updatedBy']}" if meta.get("updatedBy") else ""
        words = f"it was changed{by}, in version {meta.get('version')}; {_FORCE}"
        return Step("refused", words, diff)
    if not wish.dry_run:
        target = folder_uid if wish.force and folder_uid else str(meta.get("folderUid") or "")
        # with the version that was read: a later save is not lost
        versioned = {**dashboard, "version": meta.get("version")}
        grafana.save_dashboard(versioned, target, new_message)
    stays = f"{folder}, and stays there" if is_elsewhere and not wish.force else ""
    return Step("changed", stays, diff)


def _stale_uids(
    grafana: GrafanaServer, dashboards: Mapping[str, Json], folder_uid: str
) -> list[str]:
    """Return dashboards in our folder, with our tag and uids, that the code lacks."""
    hits = [hit for hit in grafana.tagged() if hit.get("folderUid") == folder_uid]
    uids = [str(hit.get("uid") or "") for hit in hits]
    return sorted(uid for uid in uids if uid.startswith(UID_PREFIX) and uid not in dashboards)


def _remove_dashboard(grafana: GrafanaServer, wish: Wish, uid: str, folder_uid: str) -> Step:
    gone = "the code no longer has it, but"
    try:
        answer = grafana.dashboard(uid)
    except GrafanaRefusal as error:
        if error.status != IN_NEW_FORM:
            raise
        if not wish.force:
            return Step("refused", f"{gone} {_NEW_FORM}: --force removes it all the same")
        title = _NEW_FORM
    else:
        meta = (answer or {}).get("meta") or {}
        if answer is None or meta.get("folderUid") != folder_uid:  # a search may lag behind
            return Step("unchanged")
        if meta.get("provisioned"):
            return Step("refused", f"{gone} {_FROM_A_FILE}")
        if not is_ours(grafana.newest_message(uid)) and not wish.force:
            words = f"{gone} somebody changed it: --force removes it all the same"
            return Step("refused", words)
        title = str((answer.get("dashboard") or {}).get("title") or "")
    if not wish.dry_run:
        grafana.remove_dashboard(uid)
    return Step("removed", title)
