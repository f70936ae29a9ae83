"""The base of databases in an agent's state_dir."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from logshipper_ingest.sqlite_file import open_writer, store_errors, transaction


class StateFile:
    """A database open for writing. The agent's lock admits one process, whose threads share this
    object. Raises StoreError."""

    def __init__(self, path: str, schema: str, version: int) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = open_writer(path, schema, version, wal=True, shared=True)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for one thread."""
        with self._lock, store_errors(self.path):
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for one thread and one transaction."""
        with self._reading() as connection, transaction(connection):
            yield connection
