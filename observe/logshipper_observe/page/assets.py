"""The page's files from the package. The table is fixed, so no part of a request becomes a path on
disk."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX = "index.html"
NAMES = (
    INDEX, "style.css", "icon.svg", "app.js", "api.js", "dom.js", "format.js", "jobs.js", "job.js", "console.js",
    "console_search.js", "keys.js", "line_rows.js", "ansi.js", "lines.js", "row_heights.js", "scroller.js",
    "graphs.js", "asking.js", "graph_controls.js", "graph_data.js", "graph_panel.js", "panel_grid.js", "chart.css",
    "chart.js", "chart_input.js", "curve.js", "legend.js", "paint.js", "save.js", "scale.js", "metadata.js",
    "column_chooser.js", "job_columns.js", "settings.js", "storage.js", "records.css", "events.js", "marks.js",
    "compare.js", "full_screen.js", "group_data.js", "point_lines.js",
)  # fmt: skip


class Asset(NamedTuple):
    body: bytes
    content_type: str
    etag: str


def load() -> dict[str, Asset]:
    """Read all files, by name. The index is also at ""."""
    folder = files("logshipper_observe.page") / "assets"
    assets = {}
    for name in NAMES:
        body = (folder / name).read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        assets[name] = Asset(body, _TYPES[name.rpartition(".")[2]], etag)
    assets[""] = assets[INDEX]
    return assets
