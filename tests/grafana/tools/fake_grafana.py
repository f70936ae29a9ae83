"""In-memory fake of Grafana's HTTP API for `logshipper-grafana`.

Status codes and JSON follow Grafana 9.4 (its source) and 11 and newer (its documentation). The
data-source proxy forwards to real servers.
"""

import base64
import copy
import json
import re
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.grafana.tools.frames import Json
from tests.tools.fakes.server_thread import ServerThread, forwarded

ADMIN, EDITOR, VIEWER = "admin-token", "editor-token", "viewer-token"
USER, PASSWORD = "ann", "pass word"
_NOT_PASSED_ON = ("authorization", "host", "accept-encoding")
_POSTS_TO_PROMETHEUS = ("api/v1/query", "api/v1/query_range", "api/v1/series", "api/v1/labels")


class Response(NamedTuple):
    status: int
    document: Any  # JSON, or bytes to forward unchanged
    kind: str = "application/json; charset=UTF-8"


class Request(NamedTuple):
    method: str
    path: str
    document: Any  # JSON


class FakeGrafana(ServerThread):
    """version: reported version; prefix: path prefix of its addresses; converts: returns dashboards
    in a newer form than saved, as Grafana 12 may. requests: in order; meddle: called before each
    answer."""

    def __init__(self, version: str = "9.4.3", *, prefix: str = "", converts: bool = False) -> None:
        self.version = version
        self.prefix = prefix
        self.converts = converts
        self.folders: dict[str, str] = {}  # titles by uid
        self.sources: dict[str, Json] = {}
        self.versions: dict[str, list[Json]] = {}  # versions by uid: dashboard, folder, message, by
        self.provisioned: set[str] = set()
        self.reads_for_all = True  # as without a licence
        self.requests: list[Request] = []
        self.meddle: Callable[[str, str], Response | None] = lambda method, path: None
        outer = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one piece per answer: several pieces wait for each other

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                response = outer._answer(self.command, self.path, dict(self.headers), body)
                text = (
                    response.document
                    if isinstance(response.document, bytes)
                    else json.dumps(response.document).encode()
                )
                self.send_response_only(response.status)
                self.send_header("Content-Type", response.kind)
                self.send_header("Content-Length", str(len(text)))
                if response.status == 302:
                    self.send_header("Location", "/login")
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  http.server's names

            def log_message(self, *_: Any) -> None:  # Any: as in the base
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        server.daemon_threads = True
        super().__init__(server)

    @property
    def is_new(self) -> bool:
        return int(self.version.partition(".")[0]) >= 11

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}{self.prefix}"

    def changes(self) -> list[str]:
        """Return method and path of all modifying calls so far."""
        return [
            f"{request.method} {request.path}"
            for request in self.requests
            if request.method != "GET"
        ]

    # ---- preparation by tests

    def save_by_hand(self, uid: str, **changed: object) -> None:
        """Save a dashboard with an empty message, as a user does in the editor."""
        newest = self.versions[uid][-1]
        dashboard = {
            **newest["dashboard"],
            **changed,
            "version": newest["dashboard"]["version"] + 1,
        }
        self.versions[uid].append({**newest, "dashboard": dashboard, "message": "", "by": USER})

    def save_in_new_editor(self, uid: str) -> None:
        """Save a dashboard in the form v2, like the editor of Grafana 13."""
        self.save_by_hand(uid)
        self.versions[uid][-1]["api_version"] = "v2"

    def add_dashboard(
        self, uid: str, folder: str, *, tags: tuple[str, ...] = ("logshipper",), message: str = ""
    ) -> None:
        dashboard = {
            "uid": uid,
            "title": uid,
            "tags": list(tags),
            "panels": [],
            "id": 1000 + len(self.versions),
        }
        version = {
            "dashboard": {**dashboard, "version": 1},
            "folder": folder,
            "message": message,
            "by": "x",
        }
        self.versions[uid] = [version]

    def add_source(self, uid: str, kind: str, url: str, **more: object) -> None:
        number = len(self.sources) + 1
        self.sources[uid] = {
            "id": number, "uid": uid, "orgId": 1, "name": more.pop("name", uid), "type": kind, "access": "proxy",
            "url": url, "user": "", "database": "", "basicAuth": False, "isDefault": False, "jsonData": {},
            "secureJsonFields": {}, "version": 1, "readOnly": False, **more,
        }  # fmt: skip

    # ---- answers

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        parts = urllib.parse.urlsplit(target)
        if not parts.path.startswith(f"{self.prefix}/api/"):
            return Response(302, b'<a href="/login">Found</a>', "text/html; charset=utf-8")
        path = parts.path.removeprefix(self.prefix)
        document = (
            json.loads(body)
            if body and path.startswith(("/api/da", "/api/fo")) and "/proxy/" not in path
            else None
        )
        self.requests.append(Request(method, path, document))
        response = self.meddle(method, path)
        if response is not None:
            return response
        if path == "/api/health":
            return Response(200, {"commit": "abc", "database": "ok", "version": self.version})
        role = _role(headers)
        if role is None:
            return self._error(401, "Invalid API key")
        if proxy_match := re.fullmatch(r"/api/datasources/proxy/(uid/)?([^/]+)/.*", path):
            query = f"?{parts.query}" if parts.query else ""
            source_id = urllib.parse.unquote(proxy_match[2])
            by_number = next(
                (uid for uid, source in self.sources.items() if str(source["id"]) == source_id), ""
            )
            # 9.4 removes its guess of the path's beginning, and mistakes `-` for the uid's end
            beginning = (
                r"/api/datasources/proxy/(\d+|uid/[\w-]+)/?"
                if self.is_new
                else r"/api/datasources/proxy/(\d+|uid/\w+)/?"
            )
            rest = re.sub(beginning, "", path, count=1)
            return self._proxied(
                method, source_id if proxy_match[1] else by_number, rest, query, headers, body
            )
        for pattern, answer in (
            (r"/api/datasources(?:/uid/([^/]+))?", self._of_sources),
            (r"/api/folders(?:/([^/]+))?", self._of_folders),
            (r"/api/dashboards/(?:uid/([^/]+)|db)", self._of_dashboards),
            (r"/api/dashboards/uid/([^/]+)/versions", self._of_versions),
            (r"/api/dashboards/uid/([^/]+/versions/\d+)", self._of_version),
        ):
            if match := re.fullmatch(pattern, path):
                return answer(method, urllib.parse.unquote(match[1] or ""), document, role)
        if path == "/api/search":
            return self._search(urllib.parse.parse_qs(parts.query))
        return self._error(404, "Not found")

    def _error(self, code: int, message: str, **more: str) -> Response:
        new = (
            {"messageId": "x", "statusCode": code, "traceID": ""}
            if self.is_new and not more
            else {}
        )
        return Response(code, {"message": message, **more, **new})

    def _denied(self, permission: str) -> Response:
        words = f"You'll need additional permissions to perform this action. Permissions needed: {permission}"
        return Response(403, {"accessErrorId": "ACE1", "message": words, "title": "Access denied"})

    # ---- data sources

    def _of_sources(self, method: str, uid: str, document: Any, role: str) -> Response:
        if role != ADMIN and (method != "GET" or not self.reads_for_all):
            return self._denied("datasources:read" if method == "GET" else "datasources:write")
        if method == "GET" and not uid:
            hidden_fields = ("secureJsonFields", "version")
            rows = [
                {k: v for k, v in entry.items() if k not in hidden_fields}
                for entry in self.sources.values()
            ]
            return Response(200, sorted(rows, key=lambda entry: entry["name"]))
        if method == "POST":
            name_clash = any(document["name"] == entry["name"] for entry in self.sources.values())
            if name_clash or document["uid"] in self.sources:
                field = "name" if name_clash else "uid"
                return self._error(409, f"data source with the same {field} already exists")
            identity = {name: document.pop(name) for name in ("uid", "type", "url")}
            self.add_source(identity["uid"], identity["type"], identity["url"], **document)
            return Response(200, {"id": 1, "message": "Datasource added", "name": document["name"]})
        source = self.sources.get(uid)
        if source is None:
            return self._error(404, "Data source not found")
        if method == "GET":
            return Response(200, source)
        if source["readOnly"]:
            return self._error(403, "Cannot update read-only data source")
        if document.get("version", source["version"]) != source["version"]:
            words = (
                "Datasource has already been updated by someone else. Please reload and try again"
            )
            return self._error(409, words)
        self.sources[uid] = {**source, **document, "version": source["version"] + 1}
        return Response(
            200, {"id": source["id"], "message": "Datasource updated", "name": source["name"]}
        )

    # ---- folders

    def _of_folders(self, method: str, uid: str, document: Any, role: str) -> Response:
        if method == "GET" and uid:
            if uid not in self.folders:
                return self._error(404, "folder not found", status="not-found")
            return Response(200, {"id": 1, "uid": uid, "title": self.folders[uid], "version": 1})
        if method == "GET":
            return Response(
                200, [{"id": 1, "uid": uid, "title": title} for uid, title in self.folders.items()]
            )
        if role == VIEWER:
            return self._denied("folders:create")
        new_uid = document.get("uid") or f"made{len(self.folders)}"
        if new_uid in self.folders:
            words = "a folder/dashboard with the same uid already exists"
            return self._error(412 if self.is_new else 409, words)
        if document["title"] in self.folders.values() and not self.is_new:
            return self._error(
                409, "a folder or dashboard in the general folder with the same name already exists"
            )
        self.folders[new_uid] = document["title"]
        return Response(200, {"id": 1, "uid": new_uid, "title": document["title"], "version": 1})

    # ---- dashboards

    def _of_dashboards(self, method: str, uid: str, document: Any, role: str) -> Response:
        if method == "POST":
            return self._save(document, role)
        if uid not in self.versions:
            return self._error(404, "Dashboard not found")
        newest = self.versions[uid][-1]
        if method == "DELETE":
            if uid in self.provisioned:
                return self._error(400, "provisioned dashboard cannot be deleted")
            del self.versions[uid]
            return Response(
                200,
                {
                    "id": 1,
                    "message": f"Dashboard {uid} deleted",
                    "title": newest["dashboard"]["title"],
                },
            )
        if newest.get("api_version") == "v2":
            place = f"/apis/dashboard.grafana.app/v2/namespaces/default/dashboards/{uid}"
            words = f"dashboard api version not supported, use {place} instead"
            return self._error(406, words)
        dashboard = copy.deepcopy(newest["dashboard"])
        if self.converts:
            dashboard |= {"schemaVersion": 41, "preload": False}
        meta = {
            "version": newest["dashboard"]["version"], "folderUid": newest["folder"], "isFolder": False,
            "folderTitle": self.folders.get(newest["folder"], "General"), "updatedBy": newest["by"],
            "provisioned": uid in self.provisioned, "provisionedExternalId": "",
        }  # fmt: skip
        return Response(200, {"dashboard": dashboard, "meta": meta})

    def _save(self, document: Json, role: str) -> Response:
        if role == VIEWER:
            return self._denied("dashboards:create")
        dashboard, folder = document["dashboard"], document.get("folderUid", "")
        uid, title = dashboard["uid"], dashboard["title"]
        if folder and folder not in self.folders:
            return self._error(400, "Folder not found")
        if uid in self.provisioned:
            return self._error(400, "Cannot save provisioned dashboard")
        other_dashboards = [
            history[-1] for other_uid, history in self.versions.items() if other_uid != uid
        ]
        title_clash = any(
            version["folder"] == folder and version["dashboard"]["title"] == title
            for version in other_dashboards
        )
        if title_clash and not self.is_new and not document.get("overwrite"):
            words = "A dashboard with the same name in the folder already exists"
            return self._error(412, words, status="name-exists")
        versions = self.versions.setdefault(uid, [])
        number = versions[-1]["dashboard"]["version"] if versions else 0
        if versions and dashboard.get("version") != number and not document.get("overwrite"):
            words = "The dashboard has been changed by someone else"
            return self._error(412, words, status="version-mismatch")
        own_id = versions[-1]["dashboard"]["id"] if versions else 10 + len(self.versions)
        new_dashboard = {**dashboard, "id": own_id, "version": number + 1}
        versions.append(
            {
                "dashboard": new_dashboard,
                "folder": folder,
                "message": document.get("message", ""),
                "by": "sa-1",
            }
        )
        return Response(
            200, {"id": own_id, "slug": uid, "status": "success", "uid": uid, "version": number + 1}
        )

    def _of_versions(self, method: str, uid: str, document: Any, role: str) -> Response:
        if role == VIEWER:
            return self._denied("dashboards:write")
        if uid not in self.versions:
            return self._error(404, "Dashboard not found")
        rows = [
            {
                "id": number,
                "uid": uid,
                "version": version["dashboard"]["version"],
                "message": version["message"],
            }
            for number, version in enumerate(self.versions[uid], start=1)
        ][::-1]
        rows[-1]["message"] = "Initial save"
        return Response(200, {"continueToken": "", "versions": rows} if self.is_new else rows)

    def _of_version(self, method: str, path: str, document: Any, role: str) -> Response:
        uid, _, number = path.partition("/versions/")
        matches = [
            version
            for version in self.versions.get(uid, [])
            if version["dashboard"]["version"] == int(number)
        ]
        if role == VIEWER or not matches:
            return (
                self._denied("dashboards:write")
                if matches
                else self._error(404, "Dashboard not found")
            )
        return Response(
            200,
            {
                "uid": uid,
                "version": int(number),
                "message": matches[0]["message"],
                "data": matches[0]["dashboard"],
            },
        )

    def _search(self, query: Mapping[str, list[str]]) -> Response:
        hits = []
        for uid, versions in self.versions.items():
            newest = versions[-1]
            if {*query.get("tag", [])} <= {*newest["dashboard"]["tags"]}:
                folder = {"folderUid": newest["folder"]} if newest["folder"] else {}
                hits.append(
                    {
                        "id": 1,
                        "uid": uid,
                        "title": newest["dashboard"]["title"],
                        "type": "dash-db",
                        **folder,
                    }
                )
        return Response(200, hits)

    # ---- data-source proxy

    def _proxied(
        self, method: str, uid: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        source = self.sources.get(uid)
        if source is None:
            return self._error(404, "Unable to find datasource")
        if (
            source["type"] == "prometheus"
            and method == "POST"
            and not path.startswith(_POSTS_TO_PROMETHEUS)
        ):
            return self._error(
                403, "non allow-listed POSTs not allowed on proxied Prometheus datasource"
            )
        target = urllib.parse.urlsplit(source["url"])
        proxy_headers = {
            name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON
        }
        try:
            status, kind, answer = forwarded(
                target, method, f"{target.path}/{path}{query}", proxy_headers, body
            )
        except OSError:
            return Response(502, b"", "text/plain")
        if status == 401:
            return Response(400, b"Authentication to data source failed", "text/plain")
        return Response(status, answer, kind)


def _role(headers: Mapping[str, str]) -> str | None:
    kind, _, secret = headers.get("Authorization", "").partition(" ")
    if kind == "Basic":
        return ADMIN if base64.b64decode(secret).decode() == f"{USER}:{PASSWORD}" else None
    return secret if kind == "Bearer" and secret in (ADMIN, EDITOR, VIEWER) else None
