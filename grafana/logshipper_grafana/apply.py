"""`logshipper-grafana apply`: brings folder, data sources and dashboards into a Grafana. What
somebody changed there stays, unless it is to be forced."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from logshipper.errors import ConfigError, QueryError
from logshipper_grafana.panels import Json
from logshipper_grafana.server import GrafanaServer, Refused
from logshipper_grafana.wanted import (
    FOLDER,
    UID_PREFIX,
    content,
    difference,
    is_ours,
    is_saved,
    merged,
    message_for,
    shown,
    wanted_dashboards,
    wanted_data_sources,
)

Done = Literal["added", "changed", "removed", "unchanged", "kept", "refused"]
CHANGES: tuple[Done, ...] = ("added", "changed", "removed")
_FROM_A_FILE = (
    "it comes from a file on Grafana's machine: change that, or take it away (docs/grafana.md)"
)
_FORCE = "--force puts the code's in its place, --dry-run shows what differs"
_ABOUT_ONE = (
    400,
    403,
    404,
    409,
    412,
    422,
)  # of answers, those that say nothing about the next call
_FIXES = {
    "version-mismatch": "somebody saved it just now: run this again",
    "name-exists": "rename the other one, or give another --folder",
}


@dataclass(frozen=True)
class Wish:
    """folder: title or uid; addresses: of the servers by kind (`loki`, `prometheus`), none where a
    data source's stays as it is; dry_run: nothing is changed; prune: dashboards of ours that the
    code no longer has are removed; force: what somebody changed is put right, too."""

    folder: str = FOLDER
    addresses: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    prune: bool = False
    force: bool = False


class Step(NamedTuple):
    """done: what became of it, or would. kept: it isn't as the code has it, which may be meant;
    refused: it has to be seen to. words: why; diff: "" where there is none."""

    what: str
    done: Done
    words: str = ""
    diff: str = ""


def applied(grafana: GrafanaServer, wish: Wish) -> Iterator[Step]:
    """Step by step, each told once it is done. Raises QueryError where Grafana can't be spoken to
    at all, and ConfigError."""
    for source in wanted_data_sources():
        yield _tried(f"data source {source['uid']}", partial(_data_source, grafana, wish, source))
    folder_uid, step = _folder(grafana, wish)
    yield step
    wanted = wanted_dashboards()
    for uid, dashboard in wanted.items():
        yield _tried(f"dashboard {uid}", partial(_dashboard, grafana, wish, dashboard, folder_uid))
    if wish.prune and folder_uid:
        for uid in _left_over(grafana, wanted, folder_uid):
            yield _tried(f"dashboard {uid}", partial(_removed, grafana, wish, uid, folder_uid))


def _tried(what: str, call: Callable[[str], Step]) -> Step:
    """The step, or why Grafana refused it. Raises QueryError for what would befall the next one,
    too."""
    try:
        return call(what)
    except QueryError as error:
        if error.status not in _ABOUT_ONE:
            raise
        fix = _FIXES.get(error.kind, "") if isinstance(error, Refused) else ""
        if error.status == 409 and not fix:
            fix = "if somebody changed it just now, run this again"
        return Step(what, "refused", f"{error}; {fix}" if fix else str(error))


# ---- data sources


def _data_source(grafana: GrafanaServer, wish: Wish, wanted: Json, what: str) -> Step:
    url = wish.addresses.get(wanted["type"], "")
    try:
        known = grafana.data_sources()
    except QueryError as error:
        if error.status == 403 and not url:
            return Step(
                what,
                "kept",
                f"the token may not read data sources, and there is no --{wanted['type']}-url",
            )
        raise
    there = next((source for source in known if source.get("uid") == wanted["uid"]), None)
    if there is None:
        return _added_data_source(grafana, wish, wanted, url, known, what)
    if there.get("type") != wanted["type"]:
        words = f"its type is {there.get('type')}: the uid belongs to something else; remove it, or change its uid"
        return Step(what, "refused", words)
    there = grafana.data_source(wanted["uid"])
    made, kept = merged(there, wanted, url, force=wish.force)
    words = f"set otherwise there: {', '.join(kept)} ({_FORCE})" if kept else ""
    diff = difference(shown(there), shown(made), what)
    if not diff:
        return (
            Step(what, "kept", words, _against(there, wanted, what))
            if kept
            else Step(what, "unchanged")
        )
    if there.get("readOnly"):
        return Step(what, "refused", f"it isn't as it should be, but {_FROM_A_FILE}", diff)
    if not wish.dry_run:
        grafana.change_data_source(wanted["uid"], made)
    return Step(what, "changed", words, diff)


def _against(there: Json, wanted: Json, what: str) -> str:
    return difference(shown(there), shown(merged(there, wanted, "", force=True)[0]), what)


def _added_data_source(
    grafana: GrafanaServer, wish: Wish, wanted: Json, url: str, known: list[Json], what: str
) -> Step:
    kind = wanted["type"]
    if not url:
        others = [str(source.get("name")) for source in known if source.get("type") == kind]
        if others:
            return Step(
                what,
                "kept",
                f"isn't there; the pages take another one of its type: {', '.join(others)}",
            )
        return Step(
            what, "refused", f"there is no data source of the type {kind}: give --{kind}-url URL"
        )
    names = {str(source.get("name")) for source in known}
    name = wanted["name"] if wanted["name"] not in names else f"{wanted['name']} (logshipper)"
    made = {**wanted, "name": name, "url": url}
    if not wish.dry_run:
        grafana.add_data_source(made)
    return Step(what, "added", f"{name}, {url}")


# ---- folder


def _folder(grafana: GrafanaServer, wish: Wish) -> tuple[str | None, Step]:
    """The folder's uid; None where it would only be made."""
    what = f"folder {wish.folder}"
    by_uid = grafana.folder(wish.folder) if _may_be_uid(wish.folder) else None
    if by_uid is not None:
        return str(by_uid["uid"]), Step(what, "unchanged")
    titled = [folder for folder in grafana.folders() if folder.get("title") == wish.folder]
    if len(titled) > 1:
        uids = ", ".join(str(folder.get("uid")) for folder in titled)
        raise ConfigError(
            "--folder", [f"several are called {wish.folder!r}: give the uid of one, {uids}"]
        )
    if titled:
        return str(titled[0]["uid"]), Step(what, "unchanged")
    if wish.dry_run:
        return None, Step(what, "added")
    # a uid of its own only where nobody chose a name
    return grafana.add_folder(wish.folder, FOLDER if wish.folder == FOLDER else None), Step(
        what, "added"
    )


def _may_be_uid(text: str) -> bool:
    return len(text) <= 40 and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


# ---- dashboards


def _dashboard(
    grafana: GrafanaServer, wish: Wish, wanted: Json, folder_uid: str | None, what: str
) -> Step:
    uid = wanted["uid"]
    found = grafana.dashboard(uid)
    if found is None:
        if not wish.dry_run and folder_uid is not None:
            grafana.save_dashboard(wanted, folder_uid, message_for(wanted))
        return Step(what, "added", wanted["title"])
    there, meta = found.get("dashboard") or {}, found.get("meta") or {}
    message = grafana.newest_message(uid)
    elsewhere = meta.get("folderUid", "") != folder_uid
    folder = f"it lies in the folder {meta.get('folderTitle') or 'General'}"
    if is_saved(wanted, there, message):
        if not elsewhere or meta.get("provisioned"):
            return Step(what, "unchanged")
        if not wish.force:
            return Step(what, "kept", f"{folder}; --force moves it")
    diff = difference(there, wanted, what)
    if meta.get("provisioned"):
        return Step(what, "refused", f"it differs, but {_FROM_A_FILE}", diff)
    if not is_ours(message) and content(there) != content(wanted) and not wish.force:
        by = f" by {meta['updatedBy']}" if meta.get("updatedBy") else ""
        return Step(
            what, "refused", f"it was changed{by}, in version {meta.get('version')}; {_FORCE}", diff
        )
    if not wish.dry_run:
        # with the version that was looked at: what is saved in the meantime isn't lost
        target = folder_uid if wish.force and folder_uid else str(meta.get("folderUid") or "")
        grafana.save_dashboard(
            {**wanted, "version": meta.get("version")}, target, message_for(wanted)
        )
    return Step(
        what, "changed", f"{folder}, and stays there" if elsewhere and not wish.force else "", diff
    )


def _left_over(grafana: GrafanaServer, wanted: Mapping[str, Json], folder_uid: str) -> list[str]:
    """Dashboards in our folder, with our tag and the beginning of our uids, that the code doesn't
    have."""
    hits = [hit for hit in grafana.tagged() if hit.get("folderUid") == folder_uid]
    uids = [str(hit.get("uid") or "") for hit in hits]
    return sorted(uid for uid in uids if uid.startswith(UID_PREFIX) and uid not in wanted)


def _removed(grafana: GrafanaServer, wish: Wish, uid: str, folder_uid: str, what: str) -> Step:
    found = grafana.dashboard(uid)
    meta = (found or {}).get("meta") or {}
    if found is None or meta.get("folderUid") != folder_uid:  # a search may be behind
        return Step(what, "unchanged")
    if meta.get("provisioned"):
        return Step(what, "refused", f"the code no longer has it, but {_FROM_A_FILE}")
    if not is_ours(grafana.newest_message(uid)) and not wish.force:
        words = (
            "the code no longer has it, but somebody changed it: --force removes it all the same"
        )
        return Step(what, "refused", words)
    if not wish.dry_run:
        grafana.remove_dashboard(uid)
    return Step(what, "removed", str((found.get("dashboard") or {}).get("title") or ""))
