"""The page's files from the package, read at start, so no part of a request becomes a path on disk."""

import hashlib
from importlib.resources import files

from logshipper_observe.page.api.request import PageAnswer

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX = "index.html"


def load() -> dict[str, PageAnswer]:
    """Read all files, by name. The index is also at ""."""
    assets = {}
    for file in (files("logshipper_observe.page") / "assets").iterdir():
        content_type = _TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            body = file.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            assets[file.name] = PageAnswer(body, content_type, etag=etag)
    assets[""] = assets[INDEX]
    return assets
