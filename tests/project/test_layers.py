"""Allowed imports between packages, and between folders of a package, including late and type-only
imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sources import GRAFANA, INGEST, LOGSHIPPER, OBSERVE, PACKAGES

MAY_IMPORT = {
    "logshipper": (),
    "logshipper_ingest": ("logshipper",),
    "logshipper_observe": ("logshipper", "logshipper_ingest"),
    "logshipper_grafana": ("logshipper", "logshipper_ingest"),
}
# the import for users' code, modules that start a command of the command line and a capture, and
# the sender of messages, which reads the site's file
WIRING = {
    "logshipper/__init__.py": "logshipper_observe",
    "logshipper/notify/sender.py": "logshipper_ingest",
    "logshipper/start/cli.py": "logshipper_observe",
    "logshipper/start/preparation.py": "logshipper_ingest",
}
# by package and folder ("" the package's own modules). The dependencies have no cycle.
FOLDERS = {
    LOGSHIPPER: {
        "": (),
        "masks": ("",),
        "spool": ("",),
        "render": ("", "spool"),
        "classify": ("", "masks", "spool", "render"),
        "relay": ("",),
        "telegraf": ("",),
        "process": ("", "spool", "relay", "telegraf"),
        "notify": ("", "masks", "spool", "render", "classify"),
        "sidecar": ("", "masks", "spool", "render", "classify", "relay", "telegraf", "notify"),
        "start": (
            "",
            "masks",
            "spool",
            "render",
            "classify",
            "relay",
            "telegraf",
            "process",
            "notify",
            "sidecar",
        ),
    },
    INGEST: {
        "": (),
        "console": (),
        "servers": (),
        "sockets": ("",),
        "model": ("",),
        "config": ("model", "servers"),
        "spool": ("model", "servers"),
        "store": ("", "console", "model", "spool"),
        "loki": ("model", "servers"),
        "imports": ("", "model", "store"),
        "state": ("", "config", "model", "servers", "spool"),
        "metrics": ("config", "console", "model", "servers", "spool"),
        "shipping": ("config", "console", "metrics", "model", "servers", "spool", "state"),
        "influxdb": ("config", "metrics", "model", "servers", "shipping"),
        "otlp": ("config", "console", "metrics", "model", "servers", "shipping"),
        "slurm": ("", "config", "loki", "metrics", "model", "servers", "shipping", "state"),
        "telegraf": ("", "config", "console", "metrics", "shipping", "sockets", "spool"),
        "agent": (
            "",
            "config",
            "console",
            "influxdb",
            "loki",
            "metrics",
            "model",
            "otlp",
            "servers",
            "shipping",
            "slurm",
            "sockets",
            "spool",
            "state",
            "store",
            "telegraf",
        ),
        "checks": (
            "agent",
            "config",
            "influxdb",
            "loki",
            "metrics",
            "otlp",
            "servers",
            "shipping",
            "slurm",
        ),
        "admin": (
            "",
            "agent",
            "config",
            "console",
            "influxdb",
            "loki",
            "metrics",
            "model",
            "servers",
            "shipping",
            "slurm",
            "spool",
            "state",
            "store",
            "telegraf",
        ),
    },
    OBSERVE: {
        "": (),
        "base": (),
        "model": ("base",),
        "query": ("base", "model"),
        "search": ("base",),
        "api": ("base", "model", "query", "search"),
        "analytics": ("api", "base", "model", "query"),
        "formats": ("base", "model"),
        "graphs": ("analytics", "base", "model", "query"),
        "follow": ("base", "model"),
        "trackers": ("base", "follow", "graphs", "model", "query"),
        "page": ("api", "base", "formats", "graphs", "model", "query", "search"),
        "commands": (
            "analytics",
            "api",
            "base",
            "follow",
            "formats",
            "graphs",
            "model",
            "page",
            "query",
            "search",
            "trackers",
        ),
    },
    GRAFANA: {"": (), "parts": (), "pages": ("parts",), "tool": ("pages", "parts")},
}
ENTRIES = {
    "logshipper/__main__.py",
    "logshipper/slurm_sidecar.py",
    "logshipper/batch_output.py",
    "logshipper_grafana/__main__.py",
    "logshipper_ingest/__main__.py",
    "logshipper_ingest/cli.py",
}


def modules(path: Path) -> Iterator[str]:
    """Yield the dotted names of imported modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(path: Path) -> set[str]:
    """Return the first part of each module's name."""
    return {name.partition(".")[0] for name in modules(path)}


def folder_of(package: Path, name: str) -> str:
    """Return the folder of a dotted name in a package."""
    folder = name.split(".")[1] if "." in name else ""
    return folder if (package / folder).is_dir() else ""


def test_packages_import_only_what_they_may() -> None:
    wiring = {
        (str(path.relative_to(package.parent)), name)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for name in imports(path)
        if name in MAY_IMPORT and name not in (package.name, *MAY_IMPORT[package.name])
    }
    assert wiring == set(WIRING.items())


@pytest.mark.parametrize("package", FOLDERS, ids=lambda package: package.name)
def test_folders_import_only_what_they_may(package: Path) -> None:
    arrows = FOLDERS[package]
    assert {path.parent.name for path in package.glob("*/__init__.py")} == {*arrows} - {""}
    order = list(arrows)
    assert all(
        order.index(lower) < order.index(folder) for folder in arrows for lower in arrows[folder]
    )
    against = [
        f"{path.relative_to(package.parent)} imports {name}"
        for path in package.rglob("*.py")
        if str(path.relative_to(package.parent)) not in ENTRIES
        for folder in ["" if path.parent == package else path.relative_to(package).parts[0]]
        for name in modules(path)
        if name.startswith(f"{package.name}.")
        and folder_of(package, name) not in (folder, *arrows[folder])
    ]
    assert against == []


def test_nobody_imports_names_that_users_have() -> None:
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            assert not {"ingest", "observe", "grafana", "tests"} & imports(path), path
