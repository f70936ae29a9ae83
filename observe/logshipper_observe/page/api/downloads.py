"""Downloads of any length, sent piece by piece."""

from collections.abc import Iterable, Iterator

_PIECE_CHARS = 1 << 16


def pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Join texts to pieces in UTF-8. A `?` replaces each lone surrogate."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _PIECE_CHARS:
            yield "".join(batch).encode("utf-8", "replace")
            batch, size = [], 0
    yield "".join(batch).encode("utf-8", "replace")
