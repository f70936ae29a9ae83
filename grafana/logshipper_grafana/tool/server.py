"""Grafana's HTTP interface. Paths and verbs come from grafana-client; the calls are this project's
own: bounded, without redirects or visible secrets. Every failure names the address, the option, and
the remedy."""

import re
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from json import dumps, loads
from typing import Any

from logshipper.errors import ConfigError, QueryError
from logshipper_grafana.parts import Json
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.servers.server_calls import NoAnswer, Server, ServerAnswer

TAG = "logshipper"  # of all our dashboards
MAX_ANSWER_BYTES = 64 << 20
FIRST_BY_UID = 11  # version from which data sources have requests by uid
MAX_HITS = 5000  # of a search: Grafana's limit
_FIRST = "Initial save"
IN_NEW_FORM = 406  # status of a dashboard saved in the new editor's form, v2
NEEDS = "the token needs a service account with the role Admin for data sources, Editor for folder and dashboards"
_FIXES = {
    401: "the token may have expired, or be of another Grafana",
    403: NEEDS,
    429: "too many calls at once: try later",
}
_OPTIONS = re.compile(
    r"\b(token_file|password_file|ca_file|timeout_secs|username)\b|\burl (?=must|is http|begins)"
)
_FLAGS = {"url ": "--url "}


class GrafanaRefusal(QueryError):
    """An unsuccessful answer. kind: Grafana's word for it, such as `version-mismatch`, "" for none."""

    def __init__(self, server: str, status: int, excerpt: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(server, status, excerpt)


def as_options(words: str) -> str:
    """Replace names of settings by this command's options."""
    return _OPTIONS.sub(
        lambda match: _FLAGS.get(match[0], f"--{match[0].replace('_', '-')}"), words
    )


class GrafanaServer:
    """A Grafana. Use it in one thread. Every method raises QueryError.

    Raises ConfigError without grafana-client.
    """

    def __init__(self, access: ServerAccess) -> None:
        try:
            from grafana_client import GrafanaApi  # late: not every installation has it
        except ImportError:
            fix = "isn't installed here: pip install 'grafana-client>=3.11.2,<4'"
            raise ConfigError("grafana-client", [fix]) from None
        self.access = access
        self._server = Server("Grafana", access, MAX_ANSWER_BYTES)
        self._api = GrafanaApi()
        self._api.client.s.close()
        self._api.client.s = _Session(self._server)
        self._api.client.url = "/api"

    def __enter__(self) -> "GrafanaServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    @property
    def name(self) -> str:
        """The name for messages, such as `Grafana at http://...`."""
        return self._server.name

    def proxied(self, source: Json, version: str) -> ServerAccess:
        """Return the access to a data source's server through Grafana, with Grafana's credentials.

        version: Grafana's, because 9.4 fails for uids with a `-`, and later versions will drop
        numbers.
        """
        major = version.partition(".")[0]
        is_old = major.isdecimal() and int(major) < FIRST_BY_UID
        way = f"uid/{urllib.parse.quote(str(source['uid']), safe='')}"
        if is_old and type(source.get("id")) is int:
            way = str(source["id"])
        url = f"{self.access.url.rstrip('/')}/api/datasources/proxy/{way}"
        return replace(self.access, url=url)

    def version(self) -> str:
        """Return Grafana's version, or "". Needs no token."""
        return str(self._object(self._api.health.check()).get("version") or "")

    # ---- data sources

    def data_sources(self) -> list[Json]:
        return self._list(self._api.datasource.list_datasources())

    def data_source(self, uid: str) -> Json:
        """Return a data source, with its version for `change_data_source`."""
        return self._object(self._api.datasource.get_datasource_by_uid(uid))

    def add_data_source(self, source: Json) -> None:
        self._api.datasource.create_datasource(source)

    def change_data_source(self, uid: str, source: Json) -> None:
        """Change a data source; its secrets stay. Raises GrafanaRefusal (409) after another change
        meanwhile."""
        self._api.datasource.update_datasource_by_uid(uid, source)

    # ---- folders

    def folder(self, uid: str) -> Json | None:
        return self._unless_missing(self._api.folder.get_folder, uid)

    def folders(self) -> list[Json]:
        """Return the folders at the top level."""
        return self._list(self._api.folder.get_all_folders())

    def add_folder(self, title: str, uid: str | None) -> str:
        """Returns its uid."""
        return str(self._object(self._api.folder.create_folder(title, uid))["uid"])

    # ---- dashboards

    def dashboard(self, uid: str) -> Json | None:
        """Return `dashboard` and `meta`. Raises GrafanaRefusal (IN_NEW_FORM) without a classic
        form."""
        return self._unless_missing(self._api.dashboard.get_dashboard, uid)

    def newest_message(self, uid: str) -> str | None:
        """Return the message of the dashboard's newest version; None if Grafana does not report it."""
        try:
            answer = self._api.dashboard_versions.get_dashboard_versions_by_uid(uid, limit=1)
        except QueryError as error:
            if error.status in (403, 404):
                return None
            raise
        # from Grafana 11 on in an object
        versions = answer.get("versions") if isinstance(answer, dict) else answer
        versions = versions if isinstance(versions, list) else []
        entries = [entry for entry in versions if isinstance(entry, dict)]
        newest = max(entries, key=lambda entry: int(entry.get("version") or 0), default=None)
        if newest is None:
            return None
        message = str(newest.get("message") or "")
        if not message.startswith(_FIRST):
            return message
        # the list has this in place of the message; the version itself has it
        read = self._api.dashboard_versions.get_dashboard_version_by_uid
        first = self._unless_missing(read, uid, newest.get("version"))
        return str((first or {}).get("message") or "")

    def save_dashboard(
        self, dashboard: Json, folder_uid: str, message: str, *, overwrite: bool = False
    ) -> None:
        """Save a dashboard. Raises GrafanaRefusal (412) if its `version` is not the newest, after a
        save by others.

        overwrite: replaces any version.
        """
        saving = {"message": message, "overwrite": overwrite}
        self._api.dashboard.update_dashboard(
            {"dashboard": dashboard, "folderUid": folder_uid, **saving}
        )

    def remove_dashboard(self, uid: str) -> None:
        self._api.dashboard.delete_dashboard(uid)

    def tagged(self) -> list[Json]:
        """All dashboards with our tag, as a search finds them."""
        search = self._api.search.search_dashboards
        return self._list(search(tag=TAG, type_="dash-db", limit=MAX_HITS))

    # ---- answers

    def _unless_missing(
        self, ask: Callable[..., Any], *args: object
    ) -> Json | None:  # Any: JSON, looked at here
        try:
            return self._object(ask(*args))
        except QueryError as error:
            if error.status == 404:
                return None
            raise

    def _object(self, document: Any) -> Json:  # Any: JSON
        if not isinstance(document, dict):
            raise self._odd()
        return document

    def _list(self, document: Any) -> list[Json]:  # Any: JSON
        if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
            raise self._odd()
        return document

    def _odd(self) -> QueryError:
        return QueryError(
            self.name, 200, "this isn't how Grafana answers: is --url what stands before /api?"
        )


class _Response:
    """The parts of an answer that grafana-client reads."""

    def __init__(self, answer: ServerAnswer, document: Any) -> None:  # Any: JSON
        self.status_code = answer.status
        self.headers = {"Content-Type": "application/json"}
        self.text = answer.body.decode("utf-8", "replace")
        self._document = document

    def json(self) -> Any:
        return self._document


class _Session:
    """Replaces requests' session for grafana-client, and ignores its credentials, TLS settings and
    time-outs."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def _call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,  # Any: JSON
        **_: object,
    ) -> _Response:
        headers = {"Accept": "application/json"}
        body = None
        if json is not None:
            body = dumps(json).encode()
            headers["Content-Type"] = "application/json"
        try:
            answer = self._server.call(method, path, body, headers)
        except NoAnswer as error:
            words = as_options(str(error))
            if ";" not in words:  # or they have a fix
                words += "; does Grafana run there, is --url right, does a firewall stand between?"
            raise QueryError(self._server.name, 0, words) from None
        if not answer.complete:
            raise QueryError(self._server.name, 0, "the answer was cut off")
        reply = _parse(answer.body)
        if answer.status >= 300:
            raise self._refusal(answer, reply)
        if reply is None:
            words = "no JSON came: is --url what stands before /api, with any path that Grafana is served below?"
            raise QueryError(self._server.name, answer.status, words)
        return _Response(answer, reply)

    get = partialmethod(_call, "GET")
    post = partialmethod(_call, "POST")
    put = partialmethod(_call, "PUT")
    delete = partialmethod(_call, "DELETE")

    def _refusal(self, answer: ServerAnswer, reply: Any) -> GrafanaRefusal:
        words = as_options(self._server.refusal(answer))
        fix = _FIXES.get(answer.status, "")
        # Grafana's own refusals have a message in JSON
        if answer.status == 404 and not isinstance(reply, dict):
            fix = "is --url what stands before /api, with any path that Grafana is served below?"
        elif answer.status >= 500:
            fix = "Grafana's own log, or that of a gateway before it, tells more"
        kind = str(reply.get("status") or "") if isinstance(reply, dict) else ""
        return GrafanaRefusal(
            self._server.name, answer.status, f"{words}; {fix}" if fix else words, kind
        )


def _parse(body: bytes) -> Any:
    """Parse JSON; None for other bodies. Grafana 9 answers a removal with an empty body."""
    if not body.strip():
        return ""
    try:
        return loads(body)
    except (ValueError, RecursionError):
        return None
