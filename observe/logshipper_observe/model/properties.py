"""Fields for listing, filtering and sorting jobs: properties, tags, values of metadata. Pure.

A bare name is a property, or else a key of the metadata with its last value; `tags.NAME` is a tag,
`metadata.KEY` always a key (also `metrics.KEY` and `hparams.KEY`). `KEY.min`, `KEY.max`, `KEY.last`
and `KEY.count` are roll-ups of a key. A job's key with exactly the given name precedes these
meanings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from logshipper_ingest.model.metadata_keys import full_name
from logshipper_observe.base.words import NS
from logshipper_observe.model.documents import duration_secs
from logshipper_observe.model.overlay import Marks
from logshipper_observe.model.records import is_number, text_of

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.key_values import KeyValues


class Missing(Enum):
    """A missing value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
Value: TypeAlias = str | int | float | bool | Literal[Missing.MISSING] | None
ByKey: TypeAlias = "Mapping[str, KeyValues]"

TAGS = "tags."
METADATA = "metadata."
METRICS, HPARAMS = "metrics.", "hparams."
_ALIASES = (METADATA, METRICS, HPARAMS, "hp.")
# fields of KeyValues
ROLL_UPS: Final = {"last": "last", "min": "min", "max": "max", "count": "records"}


class PropertyKind(Enum):
    """Kind of a property, which decides about comparisons."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"  # nanoseconds since 1970
    SPAN = "span"  # seconds
    STATE = "state"
    FLAG = "flag"
    TAG = "tag"
    KEY = "key"


@dataclass(eq=False)
class JobRow:
    """A job as lists see it. load: gets the values of its metadata, at their first use."""

    job: "JobSummary"
    marks: Marks
    now_ns: int
    load: Callable[["JobSummary"], ByKey]

    @cached_property
    def keys(self) -> ByKey:
        return self.load(self.job) if self.job.records else {}


def _of_job(field: str) -> Callable[[JobRow], Value]:
    def get(row: JobRow) -> Value:
        value: Value = getattr(row.job, field)
        return MISSING if value is None or value == "" else value

    return get


_Property: TypeAlias = tuple[PropertyKind, Callable[[JobRow], Value]]
_TEXTS = (
    "job_id", "name", "user", "host", "reason", "mode", "cluster", "account", "partition", "origin", "parent",
    "allocation",
)  # fmt: skip
_NUMBERS = (
    "exit_code", "signal", "attempts", "lines", "records", "lost", "bytes_printed", "bytes_logged", "children",
    "children_finished", "children_failed",
)  # fmt: skip
_TIMES = ("started", "ended")

PROPERTIES: Final[dict[str, _Property]] = {
    **{name: (PropertyKind.TEXT, _of_job(name)) for name in _TEXTS},
    **{name: (PropertyKind.NUMBER, _of_job(name)) for name in _NUMBERS},
    **{name: (PropertyKind.TIME, _of_job(f"{name}_ns")) for name in _TIMES},
    # imported jobs send none
    "heartbeat": (PropertyKind.TIME, lambda row: row.job.heartbeat_ns or MISSING),
    "state": (PropertyKind.STATE, _of_job("state")),
    "duration_secs": (PropertyKind.SPAN, lambda row: duration_secs(row.job, row.now_ns)),
    "age_secs": (PropertyKind.SPAN, lambda row: max(row.now_ns - row.job.started_ns, 0) / NS),
    "note": (PropertyKind.TEXT, lambda row: row.marks.note or MISSING),
    "starred": (PropertyKind.FLAG, lambda row: row.marks.starred),
    "tags": (PropertyKind.TEXT, lambda row: " ".join(row.marks.tag_words()) or MISSING),
}
_SHORT = {
    "id": "job_id",
    "exit": "exit_code",
    "duration": "duration_secs",
    "took": "duration_secs",
    "age": "age_secs",
}


@dataclass(eq=False)
class Field:
    """A named field, and its values in jobs.

    exists: of a key, whether a job had it; None before the first look; is_auto: whether a job's
    value is that of a series.
    """

    name: str
    kind: PropertyKind
    get: Callable[[JobRow], Value]
    exists: bool | None = None
    is_auto: bool = False

    @cached_property
    def _sources(self) -> list[tuple[str, str]]:
        """Keys and fields of KeyValues; the first key that a job has counts."""
        sources = [(self.name, "last"), (without_alias(self.name), "last")]
        key, _, part = self.name.rpartition(".")
        if part in ROLL_UPS:
            sources += [(key, ROLL_UPS[part]), (without_alias(key), ROLL_UPS[part])]
        return sources

    @property
    def cheap(self) -> bool:
        """Whether the field needs no metadata."""
        return self.kind is not PropertyKind.KEY

    def raw(self, row: JobRow) -> str | None:
        """Return the JSON text of a key's last value, or of its roll-up."""
        self.exists = self.exists or False
        for name, part in self._sources:
            key = full_name(name, row.keys)
            if key in row.keys:
                self.exists = True
                self.is_auto = self.is_auto or key != name
                return str(getattr(row.keys[key], part)) or None
        return None


def without_alias(name: str) -> str:
    """Return the key in `hparams.lr` and similar names."""
    return next((name.removeprefix(alias) for alias in _ALIASES if name.startswith(alias)), name)


def field_of(name: str) -> Field:
    """Return the property, tag or key with this name."""
    listed_property = PROPERTIES.get(_SHORT.get(name, name))
    if listed_property is not None:
        return Field(name, *listed_property)
    if name.startswith(TAGS):
        tag = name.removeprefix(TAGS)
        return Field(name, PropertyKind.TAG, lambda row: row.marks.tags.get(tag, MISSING))

    def get(row: JobRow) -> Value:
        raw = field.raw(row)
        return MISSING if raw is None else json_value(raw)

    field = Field(name, PropertyKind.KEY, get)
    return field


def json_value(raw: str) -> Value:
    """A JSON text as a value: integers exact, objects and arrays as their text."""
    if raw.startswith('"'):
        return text_of(raw)
    if raw in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[raw]
    number = number_of(raw)
    return raw if number is None else number


def number_of(text: str) -> int | float | None:
    """Parse a number in JSON's notation, integers exactly; None for other texts."""
    if not is_number(text):
        return None
    try:
        return float(text) if any(mark in text for mark in ".eE") else int(text)
    except ValueError:  # more digits than Python works with
        return float(text)
