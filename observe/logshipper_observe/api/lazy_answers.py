"""Base of `Store.jobs` and queries of events: read again in each pass, with length, indexes, and a
table for shells and notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar, Generic, TypeVar, overload

from logshipper.errors import LogshipperError
from logshipper_observe.base.notebook import MAX_ROWS, html_table

T = TypeVar("T")
SHOWN = 10  # in a shell


class LazyAnswers(ABC, Generic[T]):
    """Items of a store, read again in each pass.

    `answers[3]` and `answers[:10]` read no further than needed; a length, and indexes from the end,
    read all.
    """

    _TITLES: ClassVar[Sequence[str]]  # of a notebook's table
    _items: list[T] | None = None  # read for the length, for the iterator that is older

    @abstractmethod
    def _read(self) -> Iterator[T]: ...

    @abstractmethod
    def _cells(self, item: T) -> Sequence[object]: ...

    def __iter__(self) -> Iterator[T]:
        self._items = None
        return self._counted_or_read()

    def _counted_or_read(self) -> Iterator[T]:
        """list() makes an iterator, asks for the length, and only then reads: once, so."""
        items, self._items = self._items, None
        yield from self._read() if items is None else items

    def __len__(self) -> int:
        self._items = list(self._read())
        return len(self._items)

    def __bool__(self) -> bool:
        return any(True for _ in self._read())

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            ends = (at.start or 0, at.stop or 0, (at.step or 1) - 1)
            if min(ends) < 0:
                return list(self._read())[at]
            return list(islice(self._read(), at.start, at.stop, at.step))
        if at < 0:
            return list(self._read())[at]
        for item in islice(self._read(), at, None):
            return item
        raise IndexError(f"there are no more than {at}")

    def first(self) -> T:
        """Return the first item. Raises IndexError without one."""
        return self[0]

    def count(self) -> int:
        return sum(1 for _ in self._read())

    def __repr__(self) -> str:
        items, fault = self._beginning(SHOWN + 1)
        texts = [fault] if fault else [repr(item) for item in items[:SHOWN]]
        more = ["..."] if len(items) > SHOWN else []
        return f"<{type(self).__name__} [{', '.join(texts + more)}]>"

    def _repr_html_(self) -> str:
        items, fault = self._beginning(MAX_ROWS + 1)
        return html_table(self._TITLES, map(self._cells, items), fault)

    def _beginning(self, most: int) -> tuple[list[T], str]:
        """The first ones, and why there are none: looking at an answer raises nothing."""
        try:
            return list(islice(self._read(), most)), ""
        except (LogshipperError, OSError, ValueError) as error:
            return [], str(error)
