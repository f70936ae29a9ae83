"""`state.db`: what the node agent remembers of each capture, so that nothing is sent again that was
taken, and nothing is left out.

Two parties go through a capture's segments: the shipper, which brings entries to Loki, and the
learner, which follows what /metrics shows. Each has a position of its own; what the shipper knows
and its position change in one transaction, after everything up to there was acknowledged. Segments
before both positions may go.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import orjson

from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import Identity
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.sqlite_file import damaged, open_reader, store_errors
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
KEPT_NS = 7 * 86400 * 10**9  # how long a capture that is done is remembered
KEPT_CAPTURES = 20_000  # that are done: beyond, the oldest are forgotten sooner. About a KB each


@dataclass
class Counts:
    """What became of a capture's entries; its fields are keys in the state file."""

    entries: dict[str, int] = field(default_factory=dict)  # sent and acknowledged, by kind
    bytes: int = 0  # of their lines
    refused: dict[str, int] = field(default_factory=dict)  # quarantined, by reason
    last_ns: int = 0  # the newest entry's time
    heartbeat_ns: int = 0  # the newest heartbeat's time
    report_ns: int = 0  # that of the newest report of its keys
    ahead_ns: int = 0  # by which all its times are set back
    skipped: int = 0  # lines that others got before this sink was there


_COUNTS = frozenset(field.name for field in fields(Counts))
_NO_COUNTS = vars(Counts())
_NO_ACCOUNT = vars(CaptureAccount())


@dataclass
class CaptureCheckpoint:
    """How far a capture is shipped to a sink."""

    folder: str
    identity: Identity
    account: CaptureAccount
    position: SpoolPosition = field(default_factory=SpoolPosition)
    done: bool = False  # all of it is shipped
    counts: Counts = field(default_factory=Counts)
    changed_ns: int = 0


class CaptureKnowledge(NamedTuple):
    """What the learner knows of a capture."""

    folder: str
    position: SpoolPosition
    done: bool
    account: CaptureAccount
    axis: XAxis


def _put(table: str, columns: Sequence[str]) -> str:
    """Where a row stands it is changed: those that stay lie close together."""
    names, places = ", ".join(("folder", *columns)), ", ".join("?" * (len(columns) + 1))
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return (
        f"INSERT INTO {table} ({names}) VALUES ({places})"  # noqa: S608  names of our own
        f" ON CONFLICT (folder) DO UPDATE SET {changes}"
    )


_PUT_SHIPPED, _PUT_LEARNT = _put("shipped", _SHIPPED), _put("learnt", _LEARNT)


class Checkpoints(StateFile):
    """The file, open for writing."""

    def __init__(self, path: str) -> None:
        super().__init__(path, SCHEMA, VERSION)

    def shipped(self, folder: str | None = None) -> list[CaptureCheckpoint]:
        """Of one capture, or of all."""
        with self._reading() as connection:
            return read_shipped(connection, self.path, folder)

    def folders(self) -> list[str]:
        """Of all captures of which something was shipped."""
        with self._reading() as connection:
            return [
                folder for (folder,) in connection.execute("SELECT folder FROM shipped").fetchall()
            ]

    def commit(self, captures: Iterable[CaptureCheckpoint], newest_ns: Mapping[str, int]) -> None:
        """Everything up to these positions was acknowledged. newest_ns: of each stream that was
        sent to."""
        with self._transaction() as connection:
            connection.executemany(
                _PUT_SHIPPED,
                (
                    (
                        checkpoint.folder,
                        json.dumps(_identity_values(checkpoint.identity), separators=(",", ":")),
                        *checkpoint.position,
                        checkpoint.done,
                        _account_text(checkpoint.account),
                        orjson.dumps(_changed(vars(checkpoint.counts), _NO_COUNTS)).decode(),
                        checkpoint.changed_ns,
                    )
                    for checkpoint in captures
                ),
            )
            connection.executemany(
                "INSERT INTO stream (labels, newest_ns) VALUES (?, ?)"
                " ON CONFLICT (labels) DO UPDATE SET newest_ns = max(newest_ns, excluded.newest_ns)",
                newest_ns.items(),
            )

    def streams(self) -> dict[str, int]:
        """The newest time sent, by stream."""
        with self._reading() as connection:
            return dict(connection.execute("SELECT labels, newest_ns FROM stream").fetchall())

    def learnt(self, folder: str) -> CaptureKnowledge | None:
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

    def put_learnt(self, captures: Iterable[CaptureKnowledge], gone: Iterable[str] = ()) -> None:
        """gone: captures that are shipped to the end and removed. What is shipped says as much of
        them as what is learnt."""
        with self._transaction() as connection:
            connection.executemany(
                _PUT_LEARNT,
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
        """What `status` reports of the agent itself: JSON by name."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO note (name, value) VALUES (?, ?)",
                ((name, json.dumps(value)) for name, value in notes.items()),
            )

    def note(self, name: str) -> Any:  # Any: JSON that an agent wrote
        """None where there is none."""
        with self._reading() as connection:
            row = connection.execute("SELECT value FROM note WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def forget(
        self, present: Iterable[str], before_ns: int, most_captures: int = KEPT_CAPTURES
    ) -> None:
        """Forgets captures that are done since before a time, and aren't in the spool any more; of
        those that are done, the newest most_captures are kept at most."""
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
        """Forgets what was shipped, and to which streams; not what is learnt."""
        with self._transaction() as connection:
            for statement in (
                "shipped",
                "stream",
                "note WHERE name NOT IN ('agent', 'sinks', 'remote_write')",
            ):
                connection.execute(f"DELETE FROM {statement}")  # noqa: S608  as above


def _drop(connection: sqlite3.Connection, folders: Iterable[str]) -> None:
    keys = [(folder,) for folder in folders]
    for table in ("shipped", "learnt"):
        connection.executemany(f"DELETE FROM {table} WHERE folder = ?", keys)  # noqa: S608  names of tables


def read_shipped(
    connection: sqlite3.Connection, path: str, folder: str | None = None
) -> list[CaptureCheckpoint]:
    """Raises DamagedError and SQLite's own."""
    columns = ", ".join(("folder", *_SHIPPED))
    # of one capture by its key, else each look would go through all that are remembered
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
    """Without what has its default (Any: fields of all types), which reading puts in again."""
    return {
        name: value
        for name, value in values.items()
        if name not in defaults or value != defaults[name]
    }


def _fields_of(
    values: Any, names: Collection[str]
) -> dict[str, Any]:  # Any: JSON that an agent wrote
    """Without what a later version put in."""
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return {name: value for name, value in values.items() if name in names}


class State(NamedTuple):
    """What the agent remembers, as `status` reads it."""

    checkpoints: list[CaptureCheckpoint]  # of captures of which something was shipped
    learnt: dict[str, CaptureAccount]  # what is known of captures, shipped or not
    notes: dict[str, Any]  # by name; Any: JSON that the agent wrote


def read_state(path: str) -> State:
    """Next to a running agent. Raises StoreError."""
    connection = open_reader(path, VERSION)
    try:
        with store_errors(path):
            notes = {
                name: json.loads(value)
                for name, value in connection.execute("SELECT name, value FROM note")
            }
            rows = connection.execute("SELECT folder, account FROM learnt").fetchall()
            checkpoints = read_shipped(connection, path)
        try:
            learnt = {folder: CaptureAccount.from_json(account) for folder, account in rows}
        except ValueError as error:
            raise damaged(path, str(error)) from None
        return State(checkpoints, learnt, notes)
    finally:
        connection.close()
