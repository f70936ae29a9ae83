"""The site file: addresses of a site's Loki, Prometheus and Grafana, for readers of jobs
(docs/reading-from-loki.md).

    [loki]
    url = "https://loki.example.org"
    token_file = "/etc/logshipper/reader.token"

    [prometheus]
    url = "https://prometheus.example.org"

    [grafana]
    url = "https://grafana.example.org"

    [reading]
    default_source = "loki"

The first two have the options of ServerAccess. Their files may begin with `~/`, the reader's
home. Flags and environment override addresses. The file's credentials go only to the file's
server.
"""

import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from logshipper.errors import ConfigError
from logshipper_ingest.config.toml_section import fill, read_toml, unknown_tables
from logshipper_ingest.model.job import NAME
from logshipper_ingest.servers.server_access import ServerAccess, split_url

SYSTEM_PATH = "/etc/logshipper/site.toml"
FILE_SETTING = "LOGSHIPPER_SITE"
LOKI_SETTING = "LOGSHIPPER_LOKI_URL"
PROMETHEUS_SETTING = "LOGSHIPPER_PROMETHEUS_URL"
SECTIONS = ("loki", "prometheus", "grafana", "reading")
SOURCES = ("local", "loki")
_FILES = ("password_file", "token_file", "ca_file", "cert_file", "key_file")
_DASHBOARD_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")  # as Grafana takes it


@dataclass(frozen=True)
class Grafana:
    """Grafana, for links to jobs' pages."""

    url: str = ""  # with any path before `/d`, "" for none
    job_dashboard: str = "logshipper-job"  # the job page's uid
    org_id: int = 0  # 0 for the reader's organisation
    cluster: str = ""  # of jobs outside of Loki, "" for the page's choice

    def problems(self) -> list[str]:
        """Return a sentence for each problem, with the option's name."""
        problems = []
        if self.url and not _is_page(self.url):
            form = (
                "an address without `?`, `#` and credentials, such as https://grafana.example.org"
            )
            problems.append(f"url: must be {form}")
        if not _DASHBOARD_UID.fullmatch(self.job_dashboard):
            form = "a dashboard's uid: letters, digits, `_`, `-`, at most 40"
            problems.append(f"job_dashboard: must be {form}")
        if self.org_id < 0:
            problems.append("org_id: must be an organisation's number, or 0 for the reader's own")
        if self.cluster and not NAME.fullmatch(self.cluster):
            problems.append("cluster: must be letters, digits, `.`, `_`, `-`, at most 64")
        return [f"[grafana] {problem}" for problem in problems]

    def job_page(self, job_id: str, cluster: str, begin_ms: int | None, end_ms: int | None) -> str:
        """Return the address of a job's page. cluster: "" if unknown. Milliseconds since 1970;
        begin_ms: None for the page's own range, end_ms: None for now."""
        values = {"orgId": str(self.org_id)} if self.org_id else {}
        values |= {"var-cluster": cluster} if cluster else {}
        values["var-job"] = job_id
        if begin_ms is not None:
            values |= {"from": str(begin_ms), "to": "now" if end_ms is None else str(end_ms)}
        query = urllib.parse.urlencode(
            values, quote_via=urllib.parse.quote, safe="", errors="replace"
        )
        return f"{self.url.rstrip('/')}/d/{self.job_dashboard}?{query}"


@dataclass(frozen=True)
class Reading:
    """Defaults for reading jobs. default_source: `local` or `loki`."""

    default_source: str = "local"  # of reading commands: local or loki

    def problems(self) -> list[str]:
        """Return a sentence for each problem, with the option's name."""
        if self.default_source in SOURCES:
            return []
        return [f"[reading] default_source: must be `local` or `loki`, not {self.default_source!r}"]


@dataclass(frozen=True)
class Site:
    """A site's servers and its defaults for reading jobs."""

    loki: ServerAccess = field(default_factory=ServerAccess)
    prometheus: ServerAccess = field(default_factory=ServerAccess)  # url: "" for none
    grafana: Grafana = field(default_factory=Grafana)  # likewise
    reading: Reading = field(default_factory=Reading)
    path: str = ""  # of the file, "" for none


def find(
    environment: Mapping[str, str],
    *,
    path: str | None = None,
    loki_url: str | None = None,
    prometheus_url: str | None = None,
) -> Site:
    """Return the site from options (path, loki_url, prometheus_url), else the environment, the
    user's file, or the system's file. Raises ConfigError with all problems of one source, and
    without any Loki."""
    site, problems = look(environment, path=path, loki_url=loki_url, prometheus_url=prometheus_url)
    if problems:
        raise ConfigError(site.path or "--from loki", problems)
    if not site.loki.url:
        words = f"nothing says where Loki is: give --loki-url URL, set ${LOKI_SETTING}, or write `url` into the table"
        words += f" [loki] of {user_file(environment)} or {SYSTEM_PATH}"
        raise ConfigError(site.path or "--from loki", [words])
    return site


def look(
    environment: Mapping[str, str],
    *,
    path: str | None = None,
    loki_url: str | None = None,
    prometheus_url: str | None = None,
) -> tuple[Site, list[str]]:
    """Return the site as far as possible, and a sentence for each problem. Raises ConfigError
    for an unreadable file, and for a malformed address in an option or the environment."""
    file = _file(environment, path)
    site, problems = read(file) if file else (Site(), [])
    loki = _with_url(site.loki, _override_url("--loki-url", loki_url, LOKI_SETTING, environment))
    prometheus_url = _override_url(
        "--prometheus-url", prometheus_url, PROMETHEUS_SETTING, environment
    )
    prometheus = _with_url(site.prometheus, prometheus_url)
    problems += loki.problems("loki") + prometheus.problems("prometheus") + site.grafana.problems()
    problems += site.reading.problems()
    return replace(site, loki=loki, prometheus=prometheus), problems


def default_source(environment: Mapping[str, str], *, path: str | None = None) -> str:
    """Return the default source of jobs. Raises ConfigError for an unreadable file or an invalid
    source."""
    file = _file(environment, path)
    if not file:
        return SOURCES[0]
    reading = read(file)[0].reading
    if problems := reading.problems():
        raise ConfigError(file, problems)
    return reading.default_source


def _file(environment: Mapping[str, str], path: str | None) -> str:
    return path or environment.get(FILE_SETTING) or _usual_file(environment)


def is_known(environment: Mapping[str, str]) -> bool:
    """Whether the environment or an existing site file may name a Loki. Reads no file."""
    settings = (FILE_SETTING, LOKI_SETTING)
    return any(environment.get(name) for name in settings) or bool(_usual_file(environment))


def read(path: str) -> tuple[Site, list[str]]:
    """Return a file's content and a sentence for each problem. Raises ConfigError if unreadable
    or not TOML."""
    tables = read_toml(path)
    problems = unknown_tables(tables, SECTIONS)
    loki = fill(ServerAccess, tables.get("loki", {}), "loki", problems)
    prometheus = fill(ServerAccess, tables.get("prometheus", {}), "prometheus", problems)
    grafana = fill(Grafana, tables.get("grafana", {}), "grafana", problems)
    reading = fill(Reading, tables.get("reading", {}), "reading", problems)
    return Site(_at_home(loki), _at_home(prometheus), grafana, reading, path), problems


def _at_home(access: ServerAccess) -> ServerAccess:
    """Expand `~/` in file names to the reader's home. So one site file serves all, each with
    their own token."""
    files = {name: value for name in _FILES if (value := getattr(access, name)).startswith("~/")}
    return replace(access, **{name: os.path.expanduser(value) for name, value in files.items()})


def _usual_file(environment: Mapping[str, str]) -> str:
    return next(filter(os.path.exists, (user_file(environment), SYSTEM_PATH)), "")


def user_file(environment: Mapping[str, str]) -> str:
    """Return the path of the user's own site file, even if missing."""
    home = environment.get("HOME", "/")
    folder = environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(folder, "logshipper", "site.toml")


def _override_url(
    option: str, url: str | None, setting: str, environment: Mapping[str, str]
) -> str:
    """Return the address from an option, else from a setting, else "". Raises ConfigError with
    the name of its source."""
    source, url = (option, url) if url else (f"${setting}", environment.get(setting, ""))
    if problems := ServerAccess(url=url).problems("url"):
        raise ConfigError(source, [problem.removeprefix("[url] url: ") for problem in problems])
    return url


def _with_url(access: ServerAccess, url: str) -> ServerAccess:
    """Return the access with another address, without credentials if the server differs."""
    if not url:
        return access
    if access.url and _origin(access.url) == _origin(url):
        return replace(access, url=url)
    return ServerAccess(
        url=url, tenant=access.tenant, ca_file=access.ca_file, timeout_secs=access.timeout_secs
    )


def _origin(url: str) -> tuple[str, str]:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "", url
    return parts.scheme, parts.netloc


def _is_page(url: str) -> bool:
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    return url.isascii() and url.isprintable() and not any(char in url for char in ' <>"?#@')
