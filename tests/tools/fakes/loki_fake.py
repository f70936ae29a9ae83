"""A Loki in memory for the LogQL of reading: selectors, and filters on structured metadata and
lines."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from logshipper.errors import QueryError
from logshipper_ingest.servers.loki_push import Entry

_STRING = r'"(?:[^"\\]|\\.)*"'
_MATCHER = re.compile(rf"([a-z_]+)(=~|!~|!=|=)({_STRING}),?")
_SELECTOR = re.compile(rf"\{{((?:[a-z_]+(?:=~|!~|!=|=){_STRING},?)+)\}}")
_STAGE = re.compile(rf" (?:\| ([a-z_]+)(=~|=)({_STRING})|(\|~|!~) ({_STRING}))")


class Asked(NamedTuple):
    logql: str
    begin_ns: int
    end_ns: int
    direction: str
    page: int


class FakeLoki:
    """Entries in memory. queries: received so far; handed: number of returned entries; broken:
    raised instead of an answer."""

    name = "Loki in memory"

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.queries: list[Asked] = []
        self.handed = 0
        self.broken: QueryError | None = None

    def push(self, labels: Mapping[str, str], entries: Sequence[Entry]) -> None:
        self._entries += [entry._replace(labels=labels) for entry in entries]

    def close(self) -> None:
        pass

    def entries(
        self,
        logql: str,
        begin_ns: int,
        end_ns: int,
        *,
        direction: Literal["forward", "backward"] = "forward",
        page: int = 5000,
    ) -> Iterator[Entry]:
        """Yield entries lazily, like the client, so that `handed` counts only those that the caller
        took.

        Entries of one time keep the order of arrival; Loki promises no order for them.
        """
        if self.broken is not None:
            raise self.broken
        self.queries.append(Asked(logql, begin_ns, end_ns, direction, page))
        entries = [
            entry
            for entry in self._entries
            if begin_ns <= entry.time_ns < end_ns and matches(logql, entry)
        ]
        for entry in sorted(
            entries, key=lambda entry: entry.time_ns, reverse=direction == "backward"
        ):
            self.handed += 1
            yield entry


def matches(logql: str, entry: Entry) -> bool:
    selector = _SELECTOR.match(logql)
    assert selector, logql
    for name, operator, value in _MATCHER.findall(selector[1]):
        if not _holds(operator, json.loads(value), entry.labels.get(name, "")):
            return False
    at = selector.end()
    while at < len(logql):
        stage = _STAGE.match(logql, at)
        assert stage, logql[at:]
        name, compared, value, operator, pattern = stage.groups()
        if name is not None and not _holds(
            compared, json.loads(value), entry.metadata.get(name, "")
        ):
            return False
        if pattern is not None and bool(re.search(json.loads(pattern), entry.line)) != (
            operator == "|~"
        ):
            return False
        at = stage.end()
    return True


def _holds(operator: str, value: str, label: str) -> bool:
    if operator in ("=", "!="):
        return (label == value) == (operator == "=")
    return bool(re.fullmatch(value, label)) == (operator == "=~")
