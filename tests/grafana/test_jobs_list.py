"""The list of captured jobs, made from the servers' answers: each running bar belongs to its job,
and the page stays within its limits of space and requests."""

import json
from typing import Any

import pytest

from logshipper_grafana.pages import jobs
from logshipper_grafana.parts.run_queries import SIGNAL_WORDS
from tests.grafana.tools.frames import NUMBER, STRING, TIME, Field, Frame, Json, loki_frame
from tests.grafana.tools.lint import panels_of
from tests.grafana.tools.transformations import applied

PAGE = jobs.dashboard()
(LIST,) = [panel for panel in PAGE["panels"] if panel["type"] == "table"]
SCREEN_PX, ABOVE_PX, UNIT_PX, GUTTER_PX = 1080, 150, 30, 8
MAX_REQUESTS = 30
AT_MS = 1_700_000_000_000


def of_prometheus(ref: str, values: dict[str, float], **labels: dict[str, str]) -> Frame:
    """Return a table by job. labels: further ones, by job. An empty answer has only time and value,
    because no series has labels."""
    fields = [Field("Time", TIME, [AT_MS] * len(values))]
    fields += [Field("job_id", STRING, [*values])] if values else []
    fields += [
        Field(name, STRING, [by_job[job] for job in values]) for name, by_job in labels.items()
    ]
    fields.append(Field(f"Value #{ref}", NUMBER, [*values.values()]))
    return Frame(tuple(fields), len(values), ref)


def of_loki(*lines: tuple[int, str, str], ref: str = "N", name: str = "bar") -> Frame:
    """Return the bars' frame in the query's line format. lines: time in ms, job, bar."""
    state = {"state": "RUNNING"} if name == "bar" else {}
    documents = [(at, json.dumps({"job_id": job, **state, name: text})) for at, job, text in lines]
    return loki_frame(ref, documents)


def listed(
    states: dict[str, str],
    *bars: tuple[int, str, str],
    printed: list[tuple[int, str, str]] | None = None,
) -> dict[str, Json]:
    """Return the rows by job. states: of each listed job, the last one as the newest; printed: as
    bars, the lines with the sought text; None without such a text."""
    started = {job: float(number) for number, job in enumerate(states)}
    frames = [
        of_prometheus(
            "A", started, user=dict.fromkeys(states, "ann"), name=dict.fromkeys(states, "x")
        ),
        # queries of the whole cluster also return other jobs
        of_prometheus("B", {**started, "bobs": 1.0}, state={**states, "bobs": "RUNNING"}),
        of_prometheus("C", {**started, "bobs": 1.0}),
        of_prometheus("I", {}),
        of_prometheus("O", started if printed is None else {}),
        of_loki(*bars),
        of_loki(*printed or (), ref="P", name="printed"),
    ]
    (frame,) = applied(LIST["transformations"], frames)
    rows = frame.rows()
    assert len({row["job_id"] for row in rows}) == len(rows), "a row for each job"
    return {row["job_id"]: row for row in rows}


def test_a_running_jobs_bar_is_the_newest_that_it_showed() -> None:
    rows = listed(
        {"1": "RUNNING", "2": "RUNNING", "3": "RUNNING"},
        (3, "1", "40%"), (9, "1", "90%"), (9, "2", "10%"), (5, "1", "50%"), (4, "2", " "),
    )  # fmt: skip
    assert {job: row.get("bar") for job, row in rows.items()} == {"3": None, "2": "10%", "1": "90%"}
    assert [*rows] == ["3", "2", "1"], "newest first"


@pytest.mark.parametrize("state", ["COMPLETED", "NODE_FAIL", "UNRESPONSIVE"])
def test_a_job_that_does_not_run_has_no_bar(state: str) -> None:
    rows = listed({"1": state, "2": "RUNNING"}, (9, "1", "90%"), (8, "1", "80%"), (7, "2", "70%"))
    assert {job: row.get("bar") for job, row in rows.items()} == {"2": "70%", "1": None}


def test_bars_of_jobs_that_are_not_listed_make_no_rows() -> None:
    rows = listed({"1": "RUNNING"}, (9, "bobs", "90%"), (8, "nobodys", "80%"), (7, "1", "70%"))
    assert {job: row["bar"] for job, row in rows.items()} == {"1": "70%"}


def test_a_printed_text_lists_the_jobs_with_it() -> None:
    states = {"1": "FAILED", "2": "RUNNING", "3": "RUNNING"}
    rows = listed(
        states, printed=[(3, "1", "out of memory"), (9, "1", "Out of memory"), (5, "bobs", "x")]
    )
    assert {job: row["printed"] for job, row in rows.items()} == {"1": "Out of memory"}
    assert [*listed(states, (9, "3", "90%"), printed=[(3, "3", "a")])] == ["3"]
    assert listed(states, printed=[]) == {}


def test_without_bars_there_is_no_such_column() -> None:
    rows = listed({"1": "RUNNING", "2": "COMPLETED"})
    assert [*rows] == ["2", "1"]
    assert not any("bar" in row for row in rows.values())


def test_a_column_that_no_job_has_a_value_in_is_not_there() -> None:
    frames = [
        of_prometheus("A", {"1": 1.0}, user={"1": "ann"}, name={"1": "x"}),
        of_prometheus("B", {"1": 0.0}, state={"1": "RUNNING"}),
        of_prometheus("C", {"1": 1.0}),
        *(of_prometheus(ref, {}) for ref in "IJKLM"),
        of_prometheus("O", {"1": 1.0}),
        of_loki(),
    ]
    (frame,) = applied(LIST["transformations"], frames)
    assert frame.names == ["state", "job_id", "name", "user", "started"]
    assert [row["job_id"] for row in frame.rows()] == ["1"]


def test_columns_stand_in_their_order() -> None:
    states = {"1": "RUNNING"}
    one = {"1": 1.0}
    frames = [
        of_prometheus("A", one, user={"1": "ann"}, name={"1": "x"}),
        of_prometheus("B", one, state=states),
        *(of_prometheus(ref, one) for ref in "CDFGHIJKLM"),
        of_prometheus("E", one, node={"1": "n1 +3"}),
        of_loki((9, "1", "90%")),
        of_loki((9, "1", "CUDA out of memory"), ref="P", name="printed"),
    ]
    (frame,) = applied(LIST["transformations"], frames)
    assert frame.names == [
        "state", "job_id", "name", "user", "started", "duration", "bar", "ended by", "restarts", "node",
        "printed", "lost", "key1", "key2", "key3", "from", "to",
    ]  # fmt: skip


def overrides(name: str) -> dict[str, Any]:  # Any: JSON
    (override,) = [
        override
        for override in LIST["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == name
    ]
    return {setting["id"]: setting["value"] for setting in override["properties"]}


def test_a_signal_is_called_by_its_name() -> None:
    (mapping,) = overrides("ended by")["mappings"]
    texts = {number: result["text"] for number, result in mapping["options"].items()}
    assert (texts["1009"], texts["1015"], texts["1036"]) == ("SIGKILL", "SIGTERM", "signal 36")
    assert texts == {str(number): text for number, text in SIGNAL_WORDS.items()}
    assert min(SIGNAL_WORDS) > 255, "exit codes stay numbers"
    assert overrides("ended by")["unit"] == "prefix:exit code "


def test_the_page_fits_on_a_screen() -> None:
    units = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in PAGE["panels"])
    assert ABOVE_PX + units * (UNIT_PX + GUTTER_PX) - GUTTER_PX <= SCREEN_PX


def test_a_refresh_asks_for_no_more_than_it_may() -> None:
    targets = sum(len(panel["targets"]) for panel in panels_of(PAGE))
    variables = [model for model in PAGE["templating"]["list"] if model["type"] == "query"]
    assert targets + len(variables) <= MAX_REQUESTS


def test_bars_come_behind_the_jobs() -> None:
    """The first merged answer determines the rows. Grafana queries data sources in the order of
    their first queries."""
    types = [target["datasource"]["type"] for target in LIST["targets"]]
    assert types == sorted(types, reverse=True)
    assert LIST["datasource"]["uid"] == "-- Mixed --"
