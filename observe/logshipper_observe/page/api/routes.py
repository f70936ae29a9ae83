"""The functions behind the paths below `api/`."""

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import unquote

from logshipper_observe.page.api import (
    compare,
    console,
    events,
    graphs,
    groups,
    jobs,
    line_search,
    points,
    records,
    reread,
)
from logshipper_observe.page.api.request import PageAnswer, Request, RequestRefusal

AnswerFunction: TypeAlias = Callable[[Request], PageAnswer]

# a `*` matches one piece of a path, which becomes a part of the request
ROUTES: dict[str, AnswerFunction] = {
    "jobs": jobs.jobs,
    "last": jobs.last,
    "grep": line_search.grep,
    "jobs/*": jobs.job,
    "jobs/*/start": jobs.start,
    "jobs/*/lines": console.lines,
    "jobs/*/search": console.search,
    "jobs/*/marks": console.marks,
    "jobs/*/at": console.at,
    "jobs/*/text": console.text,
    "jobs/*/events": events.events,
    "jobs/*/axes": graphs.axes,
    "jobs/*/graphs": graphs.graphs,
    "jobs/*/graph.csv": graphs.graph_csv,
    "jobs/*/point": points.point,
    "jobs/*/reread": reread.reread,
    "compare": compare.compare,
    "groups": groups.groups,
    "jobs/*/records": records.records,
    "jobs/*/records.csv": records.as_csv,
    "jobs/*/records.jsonl": records.as_jsonl,
}
_BY_PIECES = {tuple(path.split("/")): answer for path, answer in ROUTES.items()}


def find(path: str) -> tuple[AnswerFunction, tuple[str, ...]]:
    """Return the function of a path such as `jobs/k3f9x2`, and the pieces that match a `*`. Raises
    RequestRefusal (404)."""
    pieces = path.split("/")
    for pattern, answer in _BY_PIECES.items():
        if len(pattern) == len(pieces):
            pairs = list(zip(pattern, pieces, strict=True))
            if all(expected in ("*", piece) for expected, piece in pairs):
                return answer, tuple(unquote(piece) for expected, piece in pairs if expected == "*")
    raise RequestRefusal("there is no such page", HTTPStatus.NOT_FOUND)
