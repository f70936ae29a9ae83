"""Locations of our packages."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = (ROOT, ROOT / "ingest", ROOT / "observe", ROOT / "grafana")  # for Python's path
LOGSHIPPER = ROOT / "logshipper"
INGEST = ROOT / "ingest" / "logshipper_ingest"
OBSERVE = ROOT / "observe" / "logshipper_observe"
GRAFANA = ROOT / "grafana" / "logshipper_grafana"
PACKAGES = (LOGSHIPPER, INGEST, OBSERVE, GRAFANA)
SOURCES = os.pathsep.join(map(str, FOLDERS))  # for PYTHONPATH
UNTRACKED = (".venv", ".git", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "demo-out")


def copy_sources(place: Path, source: Path = ROOT) -> None:
    """Copy a clone without its generated files."""
    shutil.copytree(source, place, ignore=shutil.ignore_patterns(*UNTRACKED), symlinks=True)
