"""What is common to the databases in an agent's state_dir: one process writes, and its threads
share a connection."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from logshipper_ingest.sqlite_file import open_writer, store_errors, transaction


class StateFile:
    """The file, open for writing. One process at a time: the agent's lock sees to it; its threads
    share this object. Raises StoreError."""

    def __init__(self, path: str, schema: str, version: int) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = open_writer(path, schema, version, wal=True, shared=True)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, no other thread's meanwhile."""
        with self._lock, store_errors(self.path):
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Likewise; what is done with it is one transaction."""
        with self._reading() as connection, transaction(connection):
            yield connection
