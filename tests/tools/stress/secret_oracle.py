"""Finds a secret wherever it lies on a disk, in whatever form: an oracle for what `purge` and `rm`
promise.

It knows nothing of how the product finds secrets. Every file below the folders is read: its bytes
as they are (so free pages, write-ahead logs and journals, too), and, of an SQLite file, every
table's every value, what is compressed in it decompressed. Each text is looked at as it stands,
without colours, and with the escapes of JSON resolved, a few levels deep; and for the secret in
base64.
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
_TELLING_CHARS = 8  # of base64: less stands anywhere
_ZSTD = b"\x28\xb5\x2f\xfd"
_SQLITE = b"SQLite format 3\0"


class Secret(NamedTuple):
    """text: what somebody asks to purge; printed: what a job printed of it."""

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
    """Where it stands: `FILE: what of it`, each place once."""
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
    """All that lies there: names, bytes, values of databases, and without their colours."""
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
    """What a file has, and where."""
    content = path.read_bytes()
    yield "its bytes", content
    if content.startswith(_SQLITE):
        for place, value in _values(path):
            yield place, value
            if isinstance(value, bytes):
                yield from ((place, text) for text in _decompressed(value))


def _values(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """All that the tables of a database hold, with what its write-ahead log has."""
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
    """Whether it stands there, in any form."""
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
    """As JSON has it, and in base64 at each of the three places where it may begin."""
    raw = secret.encode()
    at_each = [
        base64.b64encode(b"\0" * shift + raw).decode()[(0, 2, 3)[shift] : -4] for shift in range(3)
    ]
    telling = [piece for piece in at_each if len(piece) >= _TELLING_CHARS]
    return [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], *telling]
