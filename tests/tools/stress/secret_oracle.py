"""An oracle for `purge` and `rm` that finds a secret in any form on a disk.

It shares no search code with the product. It reads the bytes of every file below the folders, so
also free pages, write-ahead logs and journals. In SQLite files it also reads every value of every
table, and decompresses compressed ones.

It searches each text as it is, without colours, and with JSON's escapes resolved a few levels deep.
It also searches for the secret in base64.
"""

import base64
import json
import re
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import cramjam

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LEVELS = 4
_TELLING_CHARS = 8  # of base64: fewer characters match by chance
_ZSTD = b"\x28\xb5\x2f\xfd"
_SQLITE = b"SQLite format 3\0"


class Secret(NamedTuple):
    """A secret. text: the argument of a purge; printed: the job's output with it."""

    text: str
    printed: str


SECRETS = {
    "plain": Secret("hunter2plain", "hunter2plain"),
    "umlauts": Secret("gehäimes Wört", "gehäimes Wört"),
    "beyond 16 bits": Secret("key🔑key", "key🔑key"),
    "quotes": Secret('say "open" now', 'say "open" now'),
    "backslashes": Secret("C:\\pass\\new\\u", "C:\\pass\\new\\u"),
    "coloured": Secret("hunter2red", "hun\x1b[31mter2\x1b[0mred"),
    "coloured umlauts": Secret('ge"häim\\Wört', 'ge"h\x1b[1;31mäi\x1b[0mm\\Wört'),
}


def holding(secret: str, *folders: Path) -> list[str]:
    """Return the places of a secret as `FILE: part of the file`, each once."""
    places: dict[str, None] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if has(secret, str(path.relative_to(folder))):
                places[f"{path.relative_to(folder)}: its name"] = None
            if path.is_file() and not path.is_symlink():
                places.update(
                    (f"{path.relative_to(folder)}: {place}", None)
                    for place in _in_file(secret, path)
                )
    return list(places)


def stored_texts(*folders: Path) -> Iterator[str]:
    """Yield all texts in the folders: names, bytes and databases' values, also without colours."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            yield str(path.relative_to(folder))
            if path.is_file() and not path.is_symlink():
                for _, content in _contents(path):
                    text = content if isinstance(content, str) else content.decode(errors="replace")
                    yield text
                    yield _COLOUR.sub("", text)


def _in_file(secret: str, path: Path) -> Iterator[str]:
    for place, content in _contents(path):
        if has(secret, content):
            yield place


def _contents(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yield the contents of a file, each with its place."""
    content = path.read_bytes()
    yield "its bytes", content
    if content.startswith(_SQLITE):
        for place, value in _values(path):
            yield place, value
            if isinstance(value, bytes):
                yield from ((place, text) for text in _decompressed(value))


def _values(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yield all values in the tables of a database, with those in its write-ahead log."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", "-wal"):
            if Path(f"{path}{suffix}").exists():
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as connection:
            names = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            for table in names:
                cursor = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608  its own names
                columns = [column[0] for column in cursor.description]
                for row in cursor:
                    for column, value in zip(columns, row, strict=True):
                        if value is not None:
                            yield (
                                f"{table}.{column}",
                                value if isinstance(value, bytes) else str(value),
                            )


def _decompressed(value: bytes) -> list[bytes]:
    if value.startswith(_ZSTD):
        return [bytes(cramjam.zstd.decompress(value))]
    try:
        return [zlib.decompress(value)]
    except zlib.error:
        return []


def has(secret: str, text: str | bytes) -> bool:
    """Return whether the text contains the secret, in any form."""
    display = text if isinstance(text, str) else text.decode("utf-8", "replace")
    if any(word in display for word in _encoded(secret)):
        return True
    for _ in range(_LEVELS):
        if secret in display or secret in _COLOUR.sub("", display):
            return True
        display = _ESCAPES.sub(_resolved, _COLOUR.sub("", display))
        display = display.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return secret in display


def _resolved(match: "re.Match[str]") -> str:
    return chr(int(match[1], 16)) if match[1] else _NAMED.get(match[2], match[2])


def _encoded(secret: str) -> list[str]:
    """Return the secret as JSON, and in base64 at each of its three possible offsets."""
    raw = secret.encode()
    at_each = [
        base64.b64encode(b"\0" * shift + raw).decode()[(0, 2, 3)[shift] : -4] for shift in range(3)
    ]
    telling = [piece for piece in at_each if len(piece) >= _TELLING_CHARS]
    return [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], *telling]
