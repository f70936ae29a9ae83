"""`state.db`: the node agent's checkpoint of each capture, so that it sends every entry once.

Two readers go through a capture's segments: the shipper sends entries to Loki, and the learner
collects values for /metrics. Each has its own position. The shipper's position and account change in
one transaction, after Loki has acknowledged everything before the position. Segments before both
positions may go. Most commits wait for the shipper's next note, because each transaction costs a
sync: after a crash, an agent repeats acknowledged entries, which Loki drops.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import orjson

from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import Identity
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.sqlite_file import damaged, open_reader, store_errors, transaction
from logshipper_ingest.state.state_file import StateFile

VERSION = 1
SCHEMA = """
CREATE TABLE shipped (
    folder TEXT PRIMARY KEY,
    identity TEXT NOT NULL,
    segment INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    done INTEGER NOT NULL,
    account TEXT NOT NULL,
    counts TEXT NOT NULL,
    changed_ns INTEGER NOT NULL
);
CREATE TABLE learnt (
    folder TEXT PRIMARY KEY,
    segment INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    done INTEGER NOT NULL,
    account TEXT NOT NULL,
    x_axis TEXT NOT NULL
);
CREATE TABLE stream (
    labels TEXT PRIMARY KEY,
    newest_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE note (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID"""
STATE_FILE = "state.db"  # in the agent's state_dir
_SHIPPED = ("identity", "segment", "offset", "done", "account", "counts", "changed_ns")
_LEARNT = ("segment", "offset", "done", "account", "x_axis")
KEPT_NS = 7 * 86400 * 10**9  # age at which a finished capture is forgotten
KEPT_CAPTURES = 20_000  # finished ones at most, about 1 KB each; the oldest go sooner


@dataclass
class Counts:
    """Counts of a capture's entries. Field names are keys in the state file."""

    entries: dict[str, int] = field(default_factory=dict)  # sent and acknowledged, by kind
    bytes: int = 0  # of their lines
    refused: dict[str, int] = field(default_factory=dict)  # quarantined, by reason
    last_ns: int = 0  # the newest entry's time
    heartbeat_ns: int = 0  # the newest heartbeat's time
    report_ns: int = 0  # the newest key report's time
    ahead_ns: int = 0  # subtracted from all its times
    skipped: int = 0  # lines that other sinks got before this one was added


_COUNTS = frozenset(field.name for field in fields(Counts))
_NO_COUNTS = vars(Counts())
_NO_ACCOUNT = vars(CaptureAccount())


@dataclass
class CaptureCheckpoint:
    """A capture's progress at one sink."""

    folder: str
    identity: Identity
    account: CaptureAccount
    position: SpoolPosition = field(default_factory=SpoolPosition)
    done: bool = False  # shipped to its end
    counts: Counts = field(default_factory=Counts)
    changed_ns: int = 0


class CaptureKnowledge(NamedTuple):
    """The learner's progress and results for a capture."""

    folder: str
    position: SpoolPosition
    done: bool
    account: CaptureAccount
    axis: XAxis


def _put(table: str, columns: Sequence[str]) -> str:
    """Return a statement that updates a row in place, so that lasting rows stay close together."""
    names, places = ", ".join(("folder", *columns)), ", ".join("?" * (len(columns) + 1))
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return (
        f"INSERT INTO {table} ({names}) VALUES ({places})"  # noqa: S608  names of our own
        f" ON CONFLICT (folder) DO UPDATE SET {changes}"
    )


_PUT_SHIPPED, _PUT_KNOWLEDGE = _put("shipped", _SHIPPED), _put("learnt", _LEARNT)
_PUT_STREAM = (
    "INSERT INTO stream (labels, newest_ns) VALUES (?, ?)"
    " ON CONFLICT (labels) DO UPDATE SET newest_ns = max(newest_ns, excluded.newest_ns)"
)


def _put_commit(
    connection: sqlite3.Connection,
    rows: Mapping[str, tuple[object, ...]],
    newest_ns: Mapping[str, int],
) -> None:
    connection.executemany(_PUT_SHIPPED, rows.values())
    connection.executemany(_PUT_STREAM, newest_ns.items())


class Checkpoints(StateFile):
    """The file, open for writing."""

    def __init__(self, path: str) -> None:
        super().__init__(path, SCHEMA, VERSION)
        # of `commit`, for the next transaction
        self._waiting_rows: dict[str, tuple[object, ...]] = {}
        self._waiting_ns: dict[str, int] = {}

    def close(self) -> None:
        try:
            self.flush()
        finally:
            super().close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for one thread and one transaction, with the waiting commits."""
        with self._reading() as connection:
            with transaction(connection):
                _put_commit(connection, self._waiting_rows, self._waiting_ns)
                yield connection
            self._waiting_rows, self._waiting_ns = {}, {}

    def flush(self) -> None:
        """Write the waiting commits."""
        if self._waiting_rows or self._waiting_ns:
            with self._transaction():
                pass

    def shipped(self, folder: str | None = None) -> list[CaptureCheckpoint]:
        """Return the checkpoint of one capture, or of all."""
        if folder is None or folder in self._waiting_rows:
            self.flush()
        with self._reading() as connection:
            return read_shipped(connection, self.path, folder)

    def folders(self) -> list[str]:
        """Return all captures with shipped entries."""
        with self._reading() as connection:
            return [folder for (folder,) in connection.execute("SELECT folder FROM shipped")]

    def commit(
        self,
        captures: Iterable[CaptureCheckpoint],
        newest_ns: Mapping[str, int],
        *,
        later: bool = False,
    ) -> None:
        """Store acknowledged positions, and the newest time of each stream. later: with the next
        transaction, at the latest by `flush`."""
        rows = {
            checkpoint.folder: (
                checkpoint.folder,
                json.dumps(_identity_values(checkpoint.identity), separators=(",", ":")),
                *checkpoint.position,
                checkpoint.done,
                _account_text(checkpoint.account),
                orjson.dumps(_changed(vars(checkpoint.counts), _NO_COUNTS)).decode(),
                checkpoint.changed_ns,
            )
            for checkpoint in captures
        }
        if not later:
            with self._transaction() as connection:
                _put_commit(connection, rows, newest_ns)
            return
        with self._lock:
            self._waiting_rows |= rows
            for labels, time_ns in newest_ns.items():
                self._waiting_ns[labels] = max(time_ns, self._waiting_ns.get(labels, 0))

    def streams(self) -> dict[str, int]:
        """Return the newest sent time by stream."""
        with self._reading() as connection:
            return dict(connection.execute("SELECT labels, newest_ns FROM stream").fetchall())

    def knowledge(self, folder: str) -> CaptureKnowledge | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT folder, segment, offset, done, account, x_axis FROM learnt WHERE folder = ?",
                (folder,),
            ).fetchone()
        if row is None:
            return None
        try:
            return CaptureKnowledge(
                row[0],
                SpoolPosition(*row[1:3]),
                bool(row[3]),
                CaptureAccount.from_json(row[4]),
                XAxis.from_json(row[5]),
            )
        except (ValueError, TypeError) as error:
            raise damaged(self.path, str(error)) from None

    def put_knowledge(self, captures: Iterable[CaptureKnowledge], gone: Iterable[str] = ()) -> None:
        """Store the learner's progress, and delete it for removed captures: these were shipped to
        the end, so their checkpoint has the same account."""
        with self._transaction() as connection:
            connection.executemany(
                _PUT_KNOWLEDGE,
                (
                    (
                        knowledge.folder,
                        *knowledge.position,
                        knowledge.done,
                        _account_text(knowledge.account),
                        knowledge.axis.to_json(),
                    )
                    for knowledge in captures
                ),
            )
            connection.executemany(
                "DELETE FROM learnt WHERE folder = ?", ((folder,) for folder in gone)
            )

    def put_notes(self, notes: Mapping[str, object]) -> None:
        """Store JSON values by name, such as those that `status` reports."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO note (name, value) VALUES (?, ?)",
                ((name, json.dumps(value)) for name, value in notes.items()),
            )

    def note(self, name: str) -> Any:  # Any: JSON that an agent wrote
        """Return a note's value, or None."""
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM note WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def forget(
        self, present: Iterable[str], before_ns: int, most_captures: int = KEPT_CAPTURES
    ) -> None:
        """Forget captures that are absent from the spool and unchanged since before_ns. Also forget
        absent finished ones beyond the newest most_captures."""
        keep = set(present)
        with self._transaction() as connection:
            old = connection.execute(
                "SELECT folder FROM shipped WHERE changed_ns < ? UNION"
                " SELECT folder FROM learnt WHERE folder NOT IN (SELECT folder FROM shipped) UNION"
                " SELECT * FROM (SELECT folder FROM shipped WHERE done"
                " ORDER BY changed_ns DESC LIMIT -1 OFFSET ?)",
                (before_ns, most_captures),
            ).fetchall()
            _drop(connection, [folder for (folder,) in old if folder not in keep])

    def forget_sink(self) -> None:
        """Forget everything shipped to the sink, but keep the learner's progress."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM shipped")
            connection.execute("DELETE FROM stream")
            notes = "('agent', 'sinks', 'remote_write')"
            connection.execute(f"DELETE FROM note WHERE name NOT IN {notes}")  # noqa: S608  constants


def _drop(connection: sqlite3.Connection, folders: Iterable[str]) -> None:
    keys = [(folder,) for folder in folders]
    for table in ("shipped", "learnt"):
        connection.executemany(f"DELETE FROM {table} WHERE folder = ?", keys)  # noqa: S608  names of tables


def read_shipped(
    connection: sqlite3.Connection, path: str, folder: str | None = None
) -> list[CaptureCheckpoint]:
    """Read the checkpoint of one capture, or of all. Raises DamagedError and sqlite3.Error."""
    columns = ", ".join(("folder", *_SHIPPED))
    # Select one capture by its key: a full scan would be too slow for each new capture.
    where, keys = ("", ()) if folder is None else (" WHERE folder = ?", (folder,))
    rows = connection.execute(
        f"SELECT {columns} FROM shipped{where} ORDER BY changed_ns, folder",  # noqa: S608  names of our own
        keys,
    )
    try:
        return [
            CaptureCheckpoint(
                folder=row[0],
                identity=Identity(**_fields_of(json.loads(row[1]), Identity._fields)),
                account=CaptureAccount.from_json(row[5]),
                position=SpoolPosition(row[2], row[3]),
                done=bool(row[4]),
                counts=Counts(**_fields_of(json.loads(row[6]), _COUNTS)),
                changed_ns=row[7],
            )
            for row in rows
        ]
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error)) from None


def _account_text(account: CaptureAccount) -> str:
    return orjson.dumps(_changed(vars(account), _NO_ACCOUNT)).decode()


def _identity_values(identity: Identity) -> dict[str, Any]:  # Any: as Identity's fields
    return _changed(identity._asdict(), Identity._field_defaults)


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values (Any: fields of all types) that differ from their defaults."""
    return {
        name: value
        for name, value in values.items()
        if name not in defaults or value != defaults[name]
    }


def _fields_of(
    values: Any, names: Collection[str]
) -> dict[str, Any]:  # Any: JSON that an agent wrote
    """Return the known fields; a later version may have written others."""
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return {name: value for name, value in values.items() if name in names}


class State(NamedTuple):
    """A sink's `state.db`, for `status` and other commands."""

    checkpoints: list[CaptureCheckpoint]  # of captures with shipped entries
    accounts: dict[str, CaptureAccount]  # the learner's, of all captures, shipped or not
    notes: dict[str, Any]  # by name; Any: JSON that the agent wrote


def read_state(path: str) -> State:
    """Read the file, even while an agent runs. Raises StoreError."""
    with closing(open_reader(path, VERSION)) as connection, store_errors(path):
        rows = connection.execute("SELECT name, value FROM note").fetchall()
        notes = {name: json.loads(value) for name, value in rows}
        accounts = connection.execute("SELECT folder, account FROM learnt").fetchall()
        checkpoints = read_shipped(connection, path)
    try:
        accounts_by_folder = {
            folder: CaptureAccount.from_json(account) for folder, account in accounts
        }
    except ValueError as error:
        raise damaged(path, str(error)) from None
    return State(checkpoints, accounts_by_folder, notes)
