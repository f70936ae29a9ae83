"""The site file: where a site's Loki and Prometheus are, for those who read jobs there (docs/reading.md).

    [loki]
    url = "https://loki.example.org"
    token_file = "/etc/logshipper/reader.token"

    [prometheus]
    url = "https://prometheus.example.org"

Both tables have the options of ServerAccess. Flags and environment give addresses of their own; the file's credentials
go to no other server than the one that it names.
"""

import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ingest.server_access import ServerAccess
from ingest.toml_section import fill, hint, read_toml
from logshipper.errors import ConfigError

SYSTEM_PATH = "/etc/logshipper/site.toml"
FILE_SETTING = "LOGSHIPPER_SITE"
LOKI_SETTING = "LOGSHIPPER_LOKI_URL"
PROMETHEUS_SETTING = "LOGSHIPPER_PROMETHEUS_URL"
SECTIONS = ("loki", "prometheus")


@dataclass(frozen=True)
class Site:
    """prometheus: its url is "" where there is none; path: of the file that says so, "" for none."""

    loki: ServerAccess = field(default_factory=ServerAccess)
    prometheus: ServerAccess = field(default_factory=ServerAccess)
    path: str = ""


def find(
    environment: Mapping[str, str],
    *,
    path: str | None = None,
    loki_url: str | None = None,
    prometheus_url: str | None = None,
) -> Site:
    """The site that options (path, loki_url, prometheus_url), else the environment, else the user's file, else the
    system's say. Raises ConfigError with all that is wrong in one place, also where nothing says where Loki is."""
    file = path or environment.get(FILE_SETTING) or _usual_file(environment)
    site, problems = read(file) if file else (Site(), [])
    loki = _moved(site.loki, _given_url("--loki-url", loki_url, LOKI_SETTING, environment))
    prometheus_url = _given_url("--prometheus-url", prometheus_url, PROMETHEUS_SETTING, environment)
    prometheus = _moved(site.prometheus, prometheus_url)
    problems += loki.problems("loki") + prometheus.problems("prometheus")
    if problems:
        raise ConfigError(site.path or "--from loki", problems)
    if not loki.url:
        raise ConfigError(
            site.path or "--from loki",
            [
                f"nothing says where Loki is: give --loki-url URL, set ${LOKI_SETTING}, or write `url` into the table "
                f"[loki] of {_user_file(environment)} or {SYSTEM_PATH}"
            ],
        )
    return Site(loki, prometheus, site.path)


def is_known(environment: Mapping[str, str]) -> bool:
    """Whether something here says where a Loki is: the environment, or a site file, which isn't read."""
    settings = (FILE_SETTING, LOKI_SETTING)
    return any(environment.get(name) for name in settings) or bool(_usual_file(environment))


def read(path: str) -> tuple[Site, list[str]]:
    """What a file says, and a sentence for each problem. Raises ConfigError where it can't be read, or isn't TOML."""
    tables = read_toml(path)
    problems = [
        f"[{name}]: there is no such table{hint(name, list(SECTIONS))}" for name in tables if name not in SECTIONS
    ]
    loki = fill(ServerAccess, tables.get("loki", {}), "loki", problems)
    prometheus = fill(ServerAccess, tables.get("prometheus", {}), "prometheus", problems)
    return Site(loki, prometheus, path), problems


def _usual_file(environment: Mapping[str, str]) -> str:
    return next((path for path in (_user_file(environment), SYSTEM_PATH) if os.path.exists(path)), "")


def _user_file(environment: Mapping[str, str]) -> str:
    folder = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return os.path.join(folder, "logshipper", "site.toml")


def _given_url(option: str, url: str | None, setting: str, environment: Mapping[str, str]) -> str:
    """The address that an option gives, or else a setting; "" for none. Raises ConfigError, which names the one."""
    source, url = (option, url) if url else (f"${setting}", environment.get(setting, ""))
    problems = [problem.removeprefix("[url] url: ") for problem in ServerAccess(url=url).problems("url")]
    if problems:
        raise ConfigError(source, problems)
    return url


def _moved(access: ServerAccess, url: str) -> ServerAccess:
    """The access with another address. To another server no credentials go."""
    if not url:
        return access
    if access.url and _origin(access.url) == _origin(url):
        return replace(access, url=url)
    return ServerAccess(url=url, tenant=access.tenant, ca_file=access.ca_file, timeout_secs=access.timeout_secs)


def _origin(url: str) -> tuple[str, str]:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "", url
    return parts.scheme, parts.netloc
