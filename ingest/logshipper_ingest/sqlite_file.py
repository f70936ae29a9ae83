"""SQLite files of a store: opens them for writing or reading, checks versions, and words errors.

A write-ahead log lets readers and the writer work at the same time, but needs shared memory. So
only local file systems get one; others have the rollback journal. Reading works without write
access, too.
"""

import os
import sqlite3
import stat
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from logshipper.errors import StoreError, os_words

APPLICATION_ID = 0x4C4F4753  # "LOGS"
BUSY_SECS = 10.0
SUFFIXES = ("", "-wal", "-shm", "-journal")  # a database's own files
_OPEN = 0o177  # rights that nobody needs

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_NOT_WRITABLE = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
)


class DamagedError(StoreError):
    """The file is half-written, truncated, or no database."""


class UnfinishedError(DamagedError):
    """The file has no commit: its creator is at work, or was stopped."""


class UnwritableError(StoreError):
    """The file cannot be written now: no room, no permission, locked; its content may be readable."""


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turns SQLite's errors about the file at path into StoreError, in words, with the fix."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(path, error) from None


def _store_error(path: str, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED:
        return damaged(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        words = (
            "no room left on the disk; free some: nothing is lost, the spool keeps what came later"
        )
    elif code == sqlite3.SQLITE_IOERR:
        words = f"reading or writing failed ({error}): is the disk full, over quota, or failing?"
    elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        words = "another program has locked it for too long; try again"
    elif code in _NOT_WRITABLE:
        words = f"can't be opened or written ({error}): look at its permissions and its folder's"
    else:
        return StoreError(path, str(error))
    return UnwritableError(path, words)


def damaged(path: str, detail: str) -> DamagedError:
    remedy = "move it away, then the rest of the store works as before"
    return DamagedError(path, f"is damaged or half-written ({detail}); {remedy}")


def unfinished(path: str, detail: str) -> UnfinishedError:
    return UnfinishedError(path, damaged(path, detail).reason)


def open_writer(
    path: str,
    schema: str,
    version: int,
    *,
    wal: bool,
    create: bool = True,
    shared: bool = False,
    synced: bool = True,
    page_bytes: int = 0,
) -> sqlite3.Connection:
    """Open a connection for writing, in autocommit mode.

    version: the schema's; a newer file is refused. create: creates a missing file with its tables.
    shared: several threads use it, one at a time. synced: commits reach the disk; False for a file
    that is worthless until finished: the caller syncs the closed file. page_bytes: of a new file, 0
    for SQLite's default. Raises StoreError; UnfinishedError for missing tables without create.
    """
    if not create and not os.path.exists(path):
        raise UnfinishedError(path, "is missing")
    if path != ":memory:":
        _make_private(path, create=create)
    with store_errors(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_SECS, isolation_level=None, check_same_thread=not shared
        )
        with _closed_on_error(connection):
            file_version = _check_version(connection, path, version)
            if file_version == 0 and not create:
                raise unfinished(path, "it has no tables")
            # commits reach the disk, because segments are removed afterwards
            connection.execute(f"PRAGMA synchronous={'FULL' if synced else 'OFF'}")
            if page_bytes:
                connection.execute(f"PRAGMA page_size={page_bytes}")
            journal = "MEMORY" if not synced else "WAL" if wal else "DELETE"
            connection.execute(f"PRAGMA journal_mode={journal}")
            connection.execute("PRAGMA trusted_schema=OFF")
            # overwrites removed and replaced data
            connection.execute("PRAGMA secure_delete=ON")
            if file_version == 0:
                _create(connection, schema, version)
    return connection


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _make_private(path: str, *, create: bool) -> None:
    """SQLite makes files as the umask has it; those next to a database get the database's mode.
    Nothing is opened: a descriptor that is closed takes the locks of others in this process with
    it."""
    if create:
        with suppress(OSError):  # SQLite reports the fault
            os.mknod(path, 0o600)
    for suffix in SUFFIXES:
        with suppress(OSError):
            mode = os.stat(path + suffix, follow_symlinks=False).st_mode
            if mode & _OPEN and stat.S_ISREG(mode):
                os.chmod(path + suffix, stat.S_IMODE(mode) & ~_OPEN)


def _create(connection: sqlite3.Connection, schema: str, version: int) -> None:
    with transaction(connection):
        if _user_version(connection) == 0:  # no other process was faster
            for statement in schema.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={version}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is done with the connection meanwhile is committed, or none of it. Raises SQLite's
    own errors."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled back already
            connection.execute("ROLLBACK")
        raise


def rewrite(connection: sqlite3.Connection) -> bool:
    """Overwrite removed and replaced data of all writers, in free places and in the write-ahead
    log.

    Returns False while that log is in use: the last user of the file removes it. Raises SQLite's
    errors.
    """
    connection.execute("VACUUM")
    return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def rewrite_wholly(connection: sqlite3.Connection, path: str) -> None:
    """`rewrite`; raises UnwritableError where the log is in use."""
    if not rewrite(connection):
        words = "another program reads it: what was purged is gone, but may stand in its -wal file: try again"
        raise UnwritableError(path, words)


def open_reader(path: str, version: int) -> sqlite3.Connection:
    """A connection that only reads. Raises StoreError: missing, newer, damaged, unreadable."""
    if not os.path.exists(path):
        raise StoreError(path, "is missing")
    if not os.access(path, os.R_OK):
        raise StoreError(path, "cannot be read: check its permissions and its folder's")
    with store_errors(path):
        connection = _connect_reader(path)
        with _closed_on_error(connection):
            if _check_version(connection, path, version) == 0:
                raise unfinished(path, "it has no tables")
    return connection


def _connect_reader(path: str) -> sqlite3.Connection:
    """Open for reading, by the first way that works: as an equal of others, without writing, as an
    immutable file, a copy."""
    uri = "file://" + urllib.parse.quote(os.fsencode(os.path.abspath(path)))
    may_write = os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK)
    has_log = _size(path + "-wal") > 0
    ways = {"?mode=rw": may_write, "?mode=ro": True, "?immutable=1&mode=ro": not has_log}
    for way in (way for way, is_possible in ways.items() if is_possible):
        connection = sqlite3.connect(uri + way, uri=True, timeout=BUSY_SECS, isolation_level=None)
        try:
            with _closed_on_error(connection):
                connection.execute("PRAGMA query_only=ON")
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError as error:
            others = sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL
            if error.sqlite_errorcode & 0xFF not in (*_NOT_WRITABLE, *others):
                raise
            last = error
    if not has_log:
        raise last
    return _connect_copy(path)


def _size(path: str) -> int:
    """Return a file's size; 0 for a missing one: the last user of a database removes its log."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _connect_copy(path: str) -> sqlite3.Connection:
    """Copy a file whose write-ahead log cannot be read in place, in a folder without write access."""
    import shutil  # late: only here
    import tempfile

    with tempfile.TemporaryDirectory(prefix="logshipper-") as folder:
        copy = os.path.join(folder, "copy.db")
        try:
            for suffix in ("", "-wal"):
                shutil.copyfile(path + suffix, copy + suffix)
        except OSError as error:
            raise StoreError(path, f"can't be copied to be read: {os_words(error)}") from None
        connection = sqlite3.connect(copy, isolation_level=None)
        with _closed_on_error(connection):
            # one file, which survives its name's removal
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA query_only=ON")
    return connection


def _check_version(connection: sqlite3.Connection, path: str, version: int) -> int:
    """The file's version, 0 for a file without tables."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    file_version = _user_version(connection)
    # last: a creator commits all of this at once
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID and (file_version or tables):
        raise StoreError(path, "isn't a store's file: another program made it")
    if file_version > version:
        versions = f"version {file_version}, this one knows {version}"
        raise StoreError(path, f"was written by a newer logshipper ({versions}): upgrade")
    return file_version


def _user_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def remove_database(path: str) -> None:
    """Removes a database's files, those that are there."""
    for suffix in reversed(SUFFIXES):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)
