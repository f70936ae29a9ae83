"""Tags, notes and stars: the readers' own marks on jobs, apart from captured data.

They lie in one SQLite file of the user: beside the user's own local store, else in the user's data
folder (for jobs in Loki and others' stores). Other users cannot see it. The last change counts. Each call
opens and closes the file, so threads and programs may share it.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from logshipper.errors import ConfigError, SpoolError, StoreError, UsageError
from logshipper.filesystem import network_type
from logshipper.private_folder import claim_folder
from logshipper.spool.captures import OWN_NAMES, host_local_root
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.sqlite_file import (
    UnfinishedError,
    open_reader,
    open_writer,
    store_errors,
    transaction,
)
from logshipper_ingest.store.marks_file import FILE, OF_STORE, SCHEMA, VERSION

if TYPE_CHECKING:
    from logshipper_ingest.store.local_store import LocalStore

MAX_TAGS = 64  # of a job
MAX_NAME_CHARS = 64
MAX_VALUE_CHARS = 1000
MAX_NOTE_CHARS = 16_384

_SELECT = "SELECT tags, note, starred, changed_ns FROM mark WHERE source = ? AND job_id = ?"


@dataclass(frozen=True)
class Marks:
    """A job's tags, note and star."""

    # values by name, "" for a tag that is just a word
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    starred: bool = False
    changed_ns: int = 0  # 0 for never

    def tag_words(self) -> list[str]:
        """`word` and `key=value`, in alphabetical order."""
        return [f"{name}={value}" if value else name for name, value in sorted(self.tags.items())]


class MarkChange(NamedTuple):
    """One of `+TAG`, `-TAG`, `KEY=VALUE`. value: None takes the tag away."""

    name: str
    value: str | None


NO_MARKS = Marks()


class Overlay:
    """The marks of one source's jobs.

    path: the file, created by the first mark; source: tells others' stores apart in the same file;
    tell: gets the fault of an unreadable file, and jobs appear without marks. Raises StoreError on
    writes, and on reads without `tell`.
    """

    def __init__(
        self, path: str, *, source: str = OF_STORE, tell: Callable[[str], object] | None = None
    ) -> None:
        self.path = path
        self._source = source
        self._tell = tell

    @classmethod
    def of_local(
        cls, store: "LocalStore", *, tell: Callable[[str], object] | None = None
    ) -> "Overlay":
        """Open the marks beside the user's own store; in the user's data folder for a store without
        write access."""
        if store.is_writable:
            return cls(os.path.join(store.root, FILE), tell=tell)
        return cls(own_file(os.environ), source=f"store:{store.root}", tell=tell)

    @classmethod
    def of_loki(cls, *, tell: Callable[[str], object] | None = None) -> "Overlay":
        """Open the marks of jobs in Loki, which the cluster tells apart."""
        return cls(own_file(os.environ), tell=tell)

    # ---- reading

    def of(self, place: JobKey) -> Marks:
        rows = self._rows(_SELECT, *self._key(place))
        return _marks(rows[0]) if rows else NO_MARKS

    def all(self) -> dict[JobKey, Marks]:
        """Every job that has any."""
        rows = self._rows("SELECT source, job_id, tags, note, starred, changed_ns FROM mark")
        keyed_rows = ((self._place(source, job_id), row) for source, job_id, *row in rows)
        return {place: _marks(row) for place, row in keyed_rows if place is not None}

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:  # Any: columns
        if not os.path.exists(self.path):
            return []
        try:
            with closing(open_reader(self.path, VERSION)) as connection, store_errors(self.path):
                return connection.execute(query, values).fetchall()
        except UnfinishedError:
            return []  # the first mark is on its way
        except StoreError as error:
            if self._tell is None:
                raise
            self._tell(f"{error}: jobs are shown without tags and notes")
            return []

    # ---- writing

    def tag(self, place: JobKey, changes: Collection[MarkChange]) -> Marks:
        """Make changes in their order; return the result. Raises ConfigError for too many tags."""

        def apply(marks: Marks) -> Marks:
            tags = dict(marks.tags)
            for change in changes:
                if change.value is None:
                    tags.pop(change.name, None)
                else:
                    tags[change.name] = change.value
            if len(tags) > MAX_TAGS:
                raise ConfigError(
                    "tags", [f"a job has at most {MAX_TAGS}; this would make it {len(tags)}"]
                )
            return replace(marks, tags=tags)

        return self._change(place, apply)

    def annotate(self, place: JobKey, text: str) -> Marks:
        """Replace a note; "" removes it. Raises ConfigError for a too long one."""
        if len(text) > MAX_NOTE_CHARS:
            raise ConfigError(
                "TEXT",
                [f"a note has at most {MAX_NOTE_CHARS:,} characters; this one has {len(text):,}"],
            )
        return self._change(place, lambda marks: replace(marks, note=text))

    def star(self, place: JobKey, starred: bool) -> Marks:
        return self._change(place, lambda marks: replace(marks, starred=starred))

    def change_all(
        self, changes: Collection[tuple[JobKey, Callable[[Marks], Marks]]]
    ) -> list[Marks]:
        """Change the marks of many jobs at once; return the results."""
        with self._writing() as connection:
            return [self._change_in(connection, place, change) for place, change in changes]

    def _change(self, place: JobKey, change: Callable[[Marks], Marks]) -> Marks:
        return self.change_all([(place, change)])[0]

    def _change_in(
        self, connection: sqlite3.Connection, place: JobKey, change: Callable[[Marks], Marks]
    ) -> Marks:
        key = self._key(place)
        row = connection.execute(_SELECT, key).fetchone()
        marks = replace(change(NO_MARKS if row is None else _marks(row)), changed_ns=time.time_ns())
        if not (marks.tags or marks.note or marks.starred):
            connection.execute("DELETE FROM mark WHERE source = ? AND job_id = ?", key)
            return NO_MARKS
        tags = json.dumps(dict(sorted(marks.tags.items())))
        connection.execute(
            "INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?, ?, ?)",
            (*key, tags, marks.note, marks.starred, marks.changed_ns),
        )
        return marks

    # ---- the file

    def _key(self, place: JobKey) -> tuple[str, str]:
        return (f"cluster:{place.cluster}" if place.cluster else self._source), place.job_id

    def _place(self, source: str, job_id: str) -> JobKey | None:
        """None for another source's job."""
        if source == self._source:
            return JobKey(job_id)
        if not self._source and source.startswith("cluster:"):
            return JobKey(job_id, source.removeprefix("cluster:"))
        return None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        folder = os.path.dirname(self.path)
        try:
            claim_folder(folder, OWN_NAMES)
        except SpoolError as error:
            raise StoreError(error.path, error.reason) from None
        wal = network_type(folder) is None
        with (
            closing(open_writer(self.path, SCHEMA, VERSION, wal=wal)) as connection,
            store_errors(self.path),
            transaction(connection),
        ):
            yield connection


def _marks(row: Sequence[Any]) -> Marks:  # Any: columns, as the schema has them
    tags, note, starred, changed_ns = row
    try:
        tag_values = {str(name): str(value) for name, value in json.loads(tags).items()}
    except (ValueError, AttributeError):
        tag_values = {}  # a file that another program wrote into: the rest still counts
    return Marks(tag_values, str(note), bool(starred), int(changed_ns))


def own_file(environment: Mapping[str, str]) -> str:
    """Return the file for jobs outside the user's own store."""
    return os.path.join(own_folder(environment, "overlay"), FILE)


def own_folder(environment: Mapping[str, str], name: str) -> str:
    """Return a folder of the user's files: in the data folder, or on this host without a home."""
    data = environment.get("XDG_DATA_HOME") or os.path.join(
        environment.get("HOME") or "/nonexistent", ".local/share"
    )
    if data.startswith("/nonexistent/") or not os.path.isabs(data):
        return f"{host_local_root()}-{name}"
    return os.path.join(data, f"logshipper-{name}")


def parse_change(word: str) -> MarkChange:
    """Parse `+TAG`, `-TAG`, `KEY=VALUE`, `+KEY=VALUE` or `TAG`. Raises UsageError."""
    if word.startswith("-"):
        if "=" in word:
            raise UsageError(
                word, [f"takes no value: `-{word[1:].partition('=')[0]}` takes the tag away"]
            )
        return MarkChange(_tag_name(word[1:], word), None)
    name, _, value = word.removeprefix("+").partition("=")
    if len(value) > MAX_VALUE_CHARS or not value.isprintable():
        raise UsageError(
            name, [f"a tag's value is at most {MAX_VALUE_CHARS:,} printable characters"]
        )
    return MarkChange(_tag_name(name, word), value)


def _tag_name(name: str, word: str) -> str:
    is_valid = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and name[0] not in "+-"
    if not is_valid or any(char in " ,=" for char in name):
        looks = f"1 to {MAX_NAME_CHARS} printable characters without blank, comma and `=`, no `+` or `-` first"
        raise UsageError(repr(word), [f"isn't a tag: its name is {looks}"])
    return name
