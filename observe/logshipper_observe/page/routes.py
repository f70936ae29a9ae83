"""Which function answers which path below `api/`. A `*` stands for one piece of the path, given in
`Ask.parts`."""

from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from logshipper_observe.page import (
    compare_api,
    console_api,
    events_api,
    graphs_api,
    groups_api,
    jobs_api,
    metadata_api,
    point_lines_api,
)
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal

AnswerFunction: TypeAlias = Callable[[Ask], PageAnswer]


class Route(NamedTuple):
    path: str
    answer: AnswerFunction


ROUTES = (
    Route("jobs", jobs_api.jobs),
    Route("last", jobs_api.last),
    Route("jobs/*", jobs_api.job),
    Route("jobs/*/lines", console_api.lines),
    Route("jobs/*/search", console_api.search),
    Route("jobs/*/marks", console_api.marks),
    Route("jobs/*/at", console_api.at),
    Route("jobs/*/text", console_api.text),
    Route("jobs/*/events", events_api.events),
    Route("jobs/*/axes", graphs_api.axes),
    Route("jobs/*/graphs", graphs_api.graphs),
    Route("jobs/*/graph.csv", graphs_api.graph_csv),
    Route("jobs/*/point", point_lines_api.point),
    Route("compare", compare_api.compare),
    Route("groups", groups_api.groups),
    Route("jobs/*/records", metadata_api.records),
    Route("jobs/*/records.csv", metadata_api.as_csv),
    Route("jobs/*/records.jsonl", metadata_api.as_jsonl),
)
_BY_PIECES = {tuple(route.path.split("/")): route.answer for route in ROUTES}


def find(path: str) -> tuple[AnswerFunction, tuple[str, ...]]:
    """What answers a path such as `jobs/k3f9x2`, and what stands for its `*`. Raises RequestRefusal:
    404."""
    pieces = path.split("/")
    for route_pieces, answer in _BY_PIECES.items():
        if len(route_pieces) == len(pieces):
            pairs = list(zip(route_pieces, pieces, strict=True))
            if all(pattern in ("*", piece) for pattern, piece in pairs):
                return answer, tuple(unquote(piece) for pattern, piece in pairs if pattern == "*")
    raise RequestRefusal(HTTPStatus.NOT_FOUND, "there is no such page")
