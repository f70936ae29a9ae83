"""Writes the dashboards as JSON, and the file of alerts, always with the same bytes: `python -m
logshipper_grafana.tool.render`; `--check` compares.

Exit code 1 if a file differs from the code, or is unknown; standard output has the difference.
"""

import argparse
import difflib
import json
import sys
from itertools import chain
from pathlib import Path

from logshipper_grafana.pages import cluster, compare, job, jobs
from logshipper_grafana.parts import Json
from logshipper_grafana.tool import alert_rules

FOLDER = Path(__file__).parent.parent / "dashboards"
_COMMON: Json = {
    "id": None,
    "annotations": {"list": []},
    "editable": True,
    "fiscalYearStartMonth": 0,
    "graphTooltip": 1,
    "liveNow": False,
    "schemaVersion": 37,  # Grafana 9.4's; newer versions migrate it
    "style": "dark",
    "tags": ["logshipper"],
    "timepicker": {},
    "timezone": "browser",
    "version": 1,
    "weekStart": "",
}


def dashboards() -> dict[str, Json]:
    """All dashboards, whole, by file name."""
    pages = [module.dashboard() for module in (jobs, job, compare, cluster)]
    return {f"{page['uid']}.json": {**_COMMON, **page} for page in pages}


def text_of(dashboard: Json) -> str:
    return json.dumps(dashboard, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write(folder: Path) -> list[Path]:
    """Writes all files, removes dashboards that the code no longer makes; returns those that
    changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for path, (file_text, code_text) in _texts_by_path(folder).items():
        if file_text == code_text:
            continue
        if code_text:
            path.write_text(code_text, encoding="utf-8")
        else:
            path.unlink()
        changed.append(path)
    return changed


def differences(folder: Path) -> str:
    """Return the changes of `write` as a diff; "" for none."""
    diffs = (
        difflib.unified_diff(
            file_text.splitlines(keepends=True),
            code_text.splitlines(keepends=True),
            f"{path.name} (file)",
            f"{path.name} (code)",
        )
        for path, (file_text, code_text) in _texts_by_path(folder).items()
    )
    return "".join(chain.from_iterable(diffs))


def _texts_by_path(folder: Path) -> dict[Path, tuple[str, str]]:
    """Return present and wanted text by path; "" for no file."""
    texts = {folder / name: text_of(dashboard) for name, dashboard in dashboards().items()}
    if folder == FOLDER:
        texts[alert_rules.FILE] = alert_rules.text()
    paths = sorted({*texts, *folder.glob("*.json")})
    return {
        path: (path.read_text("utf-8") if path.exists() else "", texts.get(path, ""))
        for path in paths
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m logshipper_grafana.tool.render",
        description="Writes the dashboards as JSON, and Grafana's file of alerts for users.",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; show what differs, and fail if anything does",
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="of dashboards alone (default: %(default)s)"
    )
    options = parser.parse_args()
    if options.check:
        difference = differences(options.folder)
        sys.stdout.write(difference)
        if difference:
            sys.stderr.write(
                "the files aren't what the code makes: python -m logshipper_grafana.tool.render\n"
            )
        return 1 if difference else 0
    for path in write(options.folder):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
