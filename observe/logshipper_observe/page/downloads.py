"""Files that the page's server sends piece by piece, however long they are."""

from collections.abc import Iterable, Iterator

_PIECE_CHARS = 1 << 16


def pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """The texts in UTF-8, many at a time; what UTF-8 can't hold is replaced."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _PIECE_CHARS:
            yield "".join(batch).encode("utf-8", "replace")
            batch, size = [], 0
    yield "".join(batch).encode("utf-8", "replace")
