"""A bounded cache for all threads of the server."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class Cache(Generic[KeyT, ValueT]):
    """The most recently used values, by key."""

    def __init__(self, make: Callable[[KeyT], ValueT], capacity: int) -> None:
        self._make = make  # of a missing key
        self._capacity = capacity
        self._lock = threading.Lock()
        self._values: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT:
        """Return the value of a key, which becomes the most recently used one."""
        with self._lock:
            value = self._values.pop(key, None) or self._make(key)
            self._values[key] = value
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)
            return value
