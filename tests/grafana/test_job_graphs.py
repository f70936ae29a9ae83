"""Numbers on a job's page: the right rows in the right order over the right X, and numbers only."""

import json
import re

import pytest

from logshipper_grafana.parts import key_queries, links
from tests.grafana.conftest import Pages
from tests.grafana.tools import printed
from tests.grafana.tools.captured import CLUSTER
from tests.grafana.tools.expected import (
    BLANK,
    DENSE,
    NO_X,
    floats,
    numbered,
    numbers,
    over,
    series_name,
)
from tests.grafana.tools.frames import NUMBER, TIME, Frame, Json
from tests.grafana.tools.interpolation import Scope
from tests.grafana.tools.pages import Page, Panel
from tests.grafana.tools.printed import Job

ALL, TABLE, OVER_TIME, REST = (
    "All keys over ",
    "Metadata: ",
    "All keys over time",
    "Records without ",
)
# job, X, rule, keys with a graph
AXES: list[tuple[Job, str, int, list[str]]] = [
    (printed.RUNNING, "step", 3, ["loss"]),
    (printed.ENDED, "epoch", 2, ["loss", "val/acc"]),
    (printed.OPTED_IN_LATE, "step", 3, ["loss"]),
    (printed.SOMETIMES_TEXT, "step", 3, ["flag", "loss"]),
    (printed.DIVERGED, "step", 3, ["loss", "lr.head"]),
    (printed.CONFIGURED, "epoch", 2, ["loss"]),
    (printed.VALIDATION, "epoch", 2, ["loss", "step", "val_loss"]),
    (printed.ALONE, "step", 3, ["loss", "temperature"]),
    (printed.SHORT, "step", 3, ["loss"]),
    (printed.LONG, "step", 3, ["loss", "lr"]),
    (printed.LATE, "step", 3, ["loss"]),
    (printed.REQUEUED, "step", 3, ["loss"]),
    (printed.THREE_NODES, "epoch", 2, ["loss"]),
    (
        printed.ODD_KEYS, "7", 3,
        ["größe", "it's", "opt.beta", "opt.sched.lr", "step", "val/acc", "with space, and = {x} (y) | z"],
    ),
    (printed.MANY_KEYS, "k000", 3, [f"k{key:03}" for key in range(1, 100)]),
    (printed.RULES[1], "progress", 1, ["epoch", "step"]),
    (printed.RULES[4], "hours", 4, ["loss"]),
    (printed.RULES[5], "left", 5, ["loss"]),
    (printed.RULES[6], "rate", 6, ["loss"]),
    (printed.RULES[7], "acc", 7, ["loss"]),
]  # fmt: skip
# for keys that never share a record with the job's X
OWN_X = {("validation", "loss"): "step"}
# the X of others has no graph
DRAWN = {
    job.name: [key for key in keys if (job.name, key) != ("validation", "step")]
    for job, _, _, keys in AXES
}
WHOLE = [printed.RUNNING, printed.ENDED, printed.SOMETIMES_TEXT, printed.DIVERGED, printed.VALIDATION, printed.SHORT,
         printed.LATE, printed.ODD_KEYS, *printed.RULES.values()]  # fmt: skip
SHOWN_LATE = [json.loads(line) for line in printed.OPTED_IN_LATE.lines[-3:]]


def ids(job: object) -> str:
    return job.name if isinstance(job, Job) else ""


def is_over(frame: Frame, x: str) -> None:
    """Check that X is the first field and numeric."""
    assert frame.fields[0].name == x
    assert frame.fields[0].kind == NUMBER
    assert {field.kind for field in frame.fields} == {NUMBER}


def _models(page: Page) -> list[tuple[Json, Scope]]:
    """Return the graphs of each family of keys."""
    return [panel for panel in page.panels() if panel[0].get("repeat") == "graph"]


def _repeated(page: Page) -> list[Panel]:
    return [page.run(*panel) for panel in _models(page)]


def with_plain_keys(rows: list[Json]) -> list[Json]:
    """Return the rows by the keys' own names. Names of series have no white space. Those that begin
    with a digit have a suffix, because JavaScript puts integer names first."""
    return [
        {key.rstrip(" \u00a0" + BLANK).replace(BLANK, " "): value for key, value in row.items()}
        for row in rows
    ]


# ---- choice of X (R25)


@pytest.mark.parametrize(("job", "x", "rule", "keys"), AXES, ids=ids)
def test_x_is_chosen_by_the_rules(
    job: Job, x: str, rule: int, keys: list[str], pages: Pages
) -> None:
    page = pages.job(job.name)
    assert page.value("xsel") == "auto"
    assert page.value("x") == x
    assert page.value("rule") == key_queries.RULES[rule]
    assert sorted(text for text, _ in page.variables["y"].options) == sorted(keys)
    assert page.variables["y"].is_all


@pytest.mark.parametrize("name", [job.name for job, *_ in AXES if job is not printed.RUNNING])
def test_x_is_what_the_product_says_at_the_end(name: str, pages: Pages) -> None:
    """The product's choice is in the event at the end of a capture."""
    page = pages.job(name, attempt="all")
    job = pages.fixture.jobs[name]
    logql = f'{{cluster="{CLUSTER}", kind="event"}} | job_id="{job.job_id}" |= "closed"'
    span = {"start": page.when.begin_ms * 10**6, "end": page.when.end_ms * 10**6}
    streams = pages.fixture.loki.get("/loki/api/v1/query_range", {"query": logql, **span})["result"]
    events = [json.loads(line) for stream in streams for _, line in stream["values"]]
    assert len(events) == len(job.job.attempts or (job.job,))
    for event in events:
        assert event["x_axis"]["key"] == page.value("x")
        assert key_queries.RULES[event["x_axis"]["rule"]] == page.value("rule")
    assert all(
        str(page.value("x")) in str(row["X axis"]) for row in page.show("How it went").rows()
    )


def test_titles_say_x_the_rule_and_that_it_is_thinned(pages: Pages) -> None:
    assert (
        pages.job("ended").show(ALL + "epoch").title == "All keys over epoch – chosen by its name "
    )
    assert (
        pages.job("long")
        .show(ALL + "step")
        .title.endswith("integers that never fall, 1 of 10 records")
    )
    assert (
        pages.job("old").show(ALL + "step").title
        == "All keys over step – integers that never fall "
    )
    assert pages.job("no-metadata").value("thinned") == " ", "there are none"


def test_x_may_be_chosen_and_given_back(pages: Pages) -> None:
    page = pages.job("ended", xsel="loss")
    assert (page.value("x"), page.value("rule")) == ("loss", "chosen by hand")
    assert [text for text, _ in page.variables["xsel"].options] == [
        "auto",
        "epoch",
        "loss",
        "val/acc",
    ]
    assert [text for text, _ in page.variables["y"].options] == ["epoch", "val/acc"]
    frame = page.show(ALL + "loss").frame
    is_over(frame, "loss")
    assert frame.rows() == over("loss", printed.ENDED.records)


def test_auto_survives_another_job(pages: Pages) -> None:
    for name, x in (("ended", "epoch"), ("running", "step"), ("no-metadata", "record number")):
        assert pages.job(name, xsel="auto").value("x") == x


@pytest.mark.parametrize(
    "x", ["größe", "it's", "opt.beta", "val/acc", "with space, and = {x} (y) | z"]
)
def test_odd_keys_may_be_x(x: str, pages: Pages) -> None:
    page = pages.job("odd-keys", xsel=x)
    assert page.value("x") == x
    frame = page.show(ALL + x).frame
    is_over(frame, x)
    assert with_plain_keys(frame.rows()) == with_plain_keys(over(x, printed.ODD_KEYS.records))


def test_a_key_that_is_a_whole_number_does_not_become_x(pages: Pages) -> None:
    """JavaScript puts such keys first, in any line."""
    page = pages.job("odd-keys", xsel="step")
    is_over(page.show(ALL + "step").frame, "step")
    assert page.show(ALL + "step").frame.column("step") == [float(step) for step in range(1, 9)]


# ---- graphs over X


@pytest.mark.parametrize("job", WHOLE, ids=ids)
def test_all_keys_over_x(job: Job, pages: Pages) -> None:
    page = pages.job(job.name)
    x = str(page.value("x"))
    frame = page.show(ALL + x).frame
    is_over(frame, x)
    assert frame.rows() == over(x, job.records)


@pytest.mark.parametrize("job", WHOLE, ids=ids)
def test_one_key_over_x(job: Job, pages: Pages) -> None:
    page = pages.job(job.name)
    x = str(page.value("x"))
    panels = _repeated(page)
    for key in DRAWN[job.name]:
        own_x = OWN_X.get((job.name, key), x)
        (panel,) = (panel for panel in panels if panel.frame.names == [own_x, series_name(key)])
        assert panel.title == re.sub("^val[/_]", "", key)
        rows_of = numbered if own_x == NO_X else over
        rows = rows_of(x if own_x == NO_X else own_x, job.records, only=key)
        assert panel.frame.rows() == rows, panel.title
        is_over(panel.frame, own_x)
    assert len(panels) == len(DRAWN[job.name])


@pytest.mark.parametrize("job", WHOLE, ids=ids)
def test_records_without_x_go_over_their_number(job: Job, pages: Pages) -> None:
    page = pages.job(job.name)
    x = str(page.value("x"))
    assert page.show(REST + x).rows() == numbered(x, job.records)


def test_strings_and_booleans_are_in_no_graph(pages: Pages) -> None:
    """R22, even if the first value of a key is a string."""
    page = pages.job("sometimes-text")
    assert page.show("loss").frame.rows() == [
        {"step": 2.0, "loss": 0.5},
        {"step": 6.0, "loss": 0.125},
    ]
    assert page.show("flag").frame.rows() == [
        {"step": 2.0, "flag": 1.0},
        {"step": 5.0, "flag": 0.0},
    ]
    assert pages.job("no-numbers").show(ALL).rows() == []
    assert pages.job("no-numbers").show(OVER_TIME).rows() == []


def test_nan_is_a_gap_in_graphs_and_a_text_in_the_table(pages: Pages) -> None:
    """R18, R22: even if a text of the record looks like NaN."""
    page = pages.job("diverged")
    assert page.show("loss").frame.rows() == [
        {"step": 1.0, "loss": 0.5},
        {"step": 4.0, "loss": 0.25},
    ]
    rows = page.show(TABLE).rows()
    assert [row["loss"] for row in rows] == [0.25, "Infinity", "NaN", 0.5]
    assert [row["text"] for row in rows] == [
        record["text"] for record in reversed(printed.DIVERGED.records)
    ]
    assert rows[1]["lr"] == {"head": "-Infinity"}
    job = pages.fixture.jobs["diverged"]
    logql = f'{{cluster="{CLUSTER}", kind="event"}} | job_id="{job.job_id}" |= "json_hint"'
    span = {"start": page.when.begin_ms * 10**6, "end": page.when.end_ms * 10**6}
    hints = pages.fixture.loki.get("/loki/api/v1/query_range", {"query": logql, **span})["result"]
    assert sum(len(stream["values"]) for stream in hints) == 1, "which marks graphs over time"


def test_the_only_key_goes_over_the_records_number(pages: Pages) -> None:
    page = pages.job("one-key")
    assert (page.value("x"), page.value("rule")) == ("record number", "only one key has numbers")
    assert [text for text, _ in page.variables["y"].options] == ["loss"]
    expected = numbered(NO_X, printed.ONE_KEY.records)
    assert len(expected) == 4
    assert page.show("loss").frame.rows() == expected
    assert page.show(ALL + NO_X).rows() == expected
    assert pages.job("one-key", xsel="loss").show("loss").frame.rows() == expected


def test_epoch_of_validation_records_is_x(pages: Pages) -> None:
    """The training records have no epoch, so their keys get another X, by the same rules (R25).
    That X itself has no graph."""
    page = pages.job("validation")
    assert [panel.frame.names for panel in _repeated(page)] == [
        ["step", "loss"],
        ["epoch", "val_loss"],
    ]


def test_a_key_that_is_alone_goes_over_the_records_number(pages: Pages) -> None:
    """This holds for a user's X, too."""
    page = pages.job("alone")
    assert page.value("x") == "step"
    assert [panel.frame.names for panel in _repeated(page)] == [
        ["step", "loss"],
        ["record number", "temperature"],
    ]
    assert page.show("temperature").frame.rows() == numbered(
        "step", printed.ALONE.records, only="temperature"
    )
    over_temperature = pages.job("alone", xsel="temperature")
    assert over_temperature.show("loss").frame.rows() == over(
        "step", printed.ALONE.records, only="loss"
    )


def test_a_job_opted_in_late_shows_what_came_after(pages: Pages) -> None:
    page = pages.job("opted-in-late")
    assert page.show(ALL + "step").rows() == over("step", SHOWN_LATE)
    answers = json.dumps([panel.rows() for panel in page.run_all()], default=str)
    assert "from here on" in answers
    assert printed.SECRET not in answers


def test_many_keys(pages: Pages) -> None:
    """Prometheus has a hundred keys; the graph of all keys has all 256."""
    page = pages.job("many-keys")
    frame = page.show(ALL + "k000").frame
    assert len(frame.fields) == 256
    assert frame.rows() == over("k000", printed.MANY_KEYS.records)
    titles = [page.text(model["title"], scope) for model, scope in _models(page)]
    assert titles == [f"k{key:03}" for key in range(1, 25)]
    heading = next(
        row["title"] for row in page.model["panels"] if "${more_keys:text}" in row["title"]
    )
    assert page.text(heading).endswith("the first 24 of 99 keys: others by Keys, above")
    chosen = pages.job("many-keys", y=["k099", "k050"])
    assert [page.text(m["title"], scope) for m, scope in _models(chosen)] == ["k050", "k099"]
    assert chosen.show("k099").frame.rows() == over("k000", printed.MANY_KEYS.records, only="k099")


def _headings(page: Page) -> list[str]:
    return [
        page.text(row["title"]) for row in page.model["panels"] if "${more_keys" in row["title"]
    ]


def test_series_stand_under_a_heading_behind_other_graphs(pages: Pages) -> None:
    page = pages.job("mixed")
    assert [page.text(model["title"], scope) for model, scope in _models(page)] == ["acc"]
    assert _headings(page)[1] == "Found in the output"
    found = [panel for panel in page.panels() if panel[0].get("repeat") == "found"]
    titles = [page.text(model["title"], scope) for model, scope in found]
    assert titles == ["loss (auto)"]
    rows = page.show("loss (auto)").frame.rows()
    assert [row["step (auto)"] for row in rows] == list(range(1, 11))


def test_the_graphs_of_a_job_with_series_alone_come_first(pages: Pages) -> None:
    page = pages.job("series")
    titles = [page.text(model["title"], scope) for model, scope in _models(page)]
    assert titles == ["loss (auto)"]
    first, second = _headings(page)
    assert first.endswith(" – found in the output")
    assert second == " "
    assert [heading.strip() for heading in _headings(pages.job("ended"))][1:] == [""]


def test_long_jobs_are_thinned_evenly(pages: Pages) -> None:
    """The place among records with the same keys decides, and the first hundred of each group stay.
    All 60 records with `lr` stay."""
    page = pages.job("long")
    assert page.value("dec") == "0"
    with_lr = [record for record in printed.LONG.records if "lr" in record]
    without_lr = [record for record in printed.LONG.records if "lr" not in record]
    sample = [
        record for place, record in enumerate(without_lr, start=1) if place < 100 or place % 10 == 0
    ] + with_lr
    sample.sort(key=lambda record: float(record["step"]))
    assert page.show(ALL + "step").frame.rows() == over("step", sample)
    assert sorted(page.show(OVER_TIME).frame.column("loss")) == [
        float(record["loss"]) for record in sample
    ]
    assert page.show("loss").frame.rows() == over("step", sample, only="loss", suffix=DENSE)
    assert page.show("lr").frame.rows() == over("step", with_lr, only="lr")


# ---- attempts and tasks


def test_the_last_attempt_is_shown_at_first(pages: Pages) -> None:
    first, last = printed.REQUEUED.attempts
    page = pages.job("requeued")
    assert [text for text, _ in page.variables["attempt"].options] == ["last", "all", "1", "2"]
    assert page.show(ALL + "step").rows() == over("step", last.records)
    assert pages.job("requeued", attempt="1").show(ALL + "step").rows() == over(
        "step", first.records
    )


def test_all_attempts_are_series_of_their_own(pages: Pages) -> None:
    rows = [
        row
        for number, attempt in enumerate(printed.REQUEUED.attempts, start=1)
        for row in over("step", attempt.records, suffix=f" · attempt {number}")
    ]
    page = pages.job("requeued", attempt="all")
    assert page.show(ALL + "step").frame.rows() == rows
    assert page.show("loss").frame.rows() == rows
    assert page.show(OVER_TIME).frame.names == [
        "printed at",
        *(
            series_name(key, f" · attempt {number}")
            for number in (1, 2)
            for key in ("loss", "step")
        ),
    ]


def test_the_lowest_task_is_shown_at_first(pages: Pages) -> None:
    page = pages.job("three-nodes")
    assert [text for text, _ in page.variables["task"].options] == ["lowest", "all", "0", "1", "2"]
    assert [text for text, _ in page.variables["host"].options] == ["n1", "n10", "n2"]
    assert page.show(ALL + "epoch").rows() == over("epoch", printed.THREE_NODES.attempts[0].records)
    second = pages.job("three-nodes", task="1")
    assert second.show(ALL + "epoch").rows() == over(
        "epoch", printed.THREE_NODES.attempts[1].records
    )


def test_all_tasks_are_series_of_their_own(pages: Pages) -> None:
    """Tasks keep their order, regardless of the first to print."""
    page = pages.job("three-nodes", task="all")
    frame = page.show(ALL + "epoch").frame
    is_over(frame, "epoch")
    names = [series_name("loss", f" · task {number}") for number in range(3)]
    assert frame.names == page.show("loss").frame.names == ["epoch", *names]
    in_time = page.show(OVER_TIME).frame.names
    assert [name for name in in_time if name in names] == names
    rows = [
        row
        for number, task in enumerate(printed.THREE_NODES.attempts)
        for row in over("epoch", task.records, suffix=f" · task {number}")
    ]
    assert frame.rows() == rows
    for number in range(3):
        ascending = [
            row["epoch"] for row in frame.rows() if series_name("loss", f" · task {number}") in row
        ]
        assert ascending == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_each_set_of_tags_is_a_series(pages: Pages) -> None:
    """Quotes in a tag become `_`, because Grafana would leave out the series."""
    page = pages.job("tagged")
    rows = [
        row
        for record in printed.TAGGED.records
        for row in over(
            "epoch",
            [record],
            suffix=f" · host {record['tags']['host']} · rank {record['tags']['rank']}",
        )
    ]
    rows = [{name.replace('"', "_"): value for name, value in row.items()} for row in rows]
    frame = page.show(ALL + "epoch").frame
    is_over(frame, "epoch")
    assert sorted(frame.rows(), key=repr) == sorted(rows, key=repr)
    assert page.show("loss").frame.names == [
        "epoch",
        *dict.fromkeys(name for row in rows for name in row if name != "epoch"),
    ]


def test_one_node_of_three(pages: Pages) -> None:
    page = pages.job("three-nodes", host=["n10"], task="all")
    assert page.show(ALL + "epoch").rows() == over(
        "epoch", printed.THREE_NODES.attempts[2].records, suffix=" · task 2"
    )


# ---- table, and graphs over time


@pytest.mark.parametrize(
    "job", [*WHOLE, printed.NO_NUMBERS, printed.MANY_KEYS, printed.OLD], ids=ids
)
def test_the_table_has_every_value_newest_first(job: Job, pages: Pages) -> None:
    """R22 and R23, exactly; records of a burst share a millisecond."""
    frame = pages.job(job.name).show(TABLE).frame
    assert next(field.kind for field in frame.fields if field.name == "printed at") == TIME
    times = frame.column("printed at")
    assert times == sorted(times, reverse=True)
    rows = [
        {key: value for key, value in row.items() if key != "printed at"}
        for row in with_plain_keys(frame.rows())
    ]
    records: list[Json] = [
        floats({k: v for k, v in record.items() if v is not None}) for record in job.records
    ]
    assert rows == records[::-1]


@pytest.mark.parametrize("job", [*WHOLE, printed.MANY_KEYS, printed.OLD], ids=ids)
def test_numbers_over_time(job: Job, pages: Pages) -> None:
    """Times ascend, as graphs need; the order within a millisecond is arbitrary."""
    frame = pages.job(job.name).show(OVER_TIME).frame
    assert {field.kind for field in frame.fields} == {TIME, NUMBER}
    times = frame.column("printed at")
    assert times == sorted(times)
    rows = [
        {key: value for key, value in row.items() if key != "printed at"}
        for row in with_plain_keys(frame.rows())
    ]
    assert sorted(map(_sorted, rows)) == sorted(_sorted(numbers(record)) for record in job.records)


def _sorted(row: Json) -> list[tuple[str, float]]:
    return sorted(row.items())


def test_without_metadata_there_is_nothing(pages: Pages) -> None:
    page = pages.job("no-metadata")
    for title in (TABLE, OVER_TIME, ALL, REST):
        panel = page.show(title)
        assert panel.rows() == [], title


# ---- last, least and largest


def test_last_least_and_largest_of_each_key(pages: Pages) -> None:
    """Values have four digits and their X. For a thinned job they cover all records, too."""
    rows = pages.job("ended").show("Last, least").rows()
    assert [row["key"] for row in rows] == ["epoch", "loss", "val/acc"]
    records = printed.ENDED.records
    extremes = {
        "last": records[-1],
        "least": min(records, key=lambda record: record["loss"]),
        "largest": max(records, key=lambda record: record["loss"]),
    }
    values = {name: f"{record['loss']:.4g}" for name, record in extremes.items()}
    at = {f"{name} at": str(record["epoch"]) for name, record in extremes.items()}
    assert rows[1] == {"key": "loss", **values, **at, "X": "epoch"}
    assert (rows[0]["largest at"], rows[0]["X"]) == ("30", "record")
    (loss, _, step) = pages.job("long").show("Last, least").rows()
    assert (loss["least"], loss["largest"]) == ("0.5", "3000")
    assert step["last"] == str(printed.LONG_RECORDS)


def test_each_task_has_its_values(pages: Pages) -> None:
    page = pages.job("three-nodes", task="all")
    keys = [row["key"] for row in page.show("Last, least").rows()]
    assert [key for key in keys if key.startswith("loss")] == [
        f"loss · task {task}" for task in range(len(printed.THREE_NODES.attempts))
    ]


def test_values_outlast_prometheus(pages: Pages) -> None:
    (loss, step) = pages.job("old").show("Last, least").rows()
    assert (loss["last at"], loss["X"]) == ("7", "step")
    assert (step["last"], step["X"]) == ("7", "record")


def test_without_numbers_one_panel_says_what_to_print(pages: Pages) -> None:
    for name in ("no-metadata", "no-numbers"):
        page = pages.job(name)
        (graph,) = _repeated(page)
        assert graph.title.startswith("No key has two numbers: print them as JSON")
        assert graph.rows() == []
        assert graph.frames[0].of(NUMBER), "or it would say that data are missing"


# ---- names of series


def shown_names(names: list[str]) -> list[str]:
    """Return the names in the legend of an XY chart since Grafana 11.1. It splits names at white
    space, and leaves out words common to all series."""
    words = [name.split() for name in names]
    return [
        " ".join(
            word for word in own if len(names) == 1 or not all(word in others for others in words)
        )
        for own in words
    ]


def test_the_rule_of_newer_legends() -> None:
    assert shown_names(["loss", "loss total"]) == ["", "total"]
    assert shown_names(["a 1", "b 1"]) == ["a", "b"]


@pytest.mark.parametrize("name", ["ended", "odd-keys", "requeued", "three-nodes", "tagged", "long"])
def test_newer_legends_leave_nothing_out_of_names(name: str, pages: Pages) -> None:
    page = pages.job(name, attempt="all", task="all")
    graphs = [panel for panel in page.panels() if panel[0]["type"] == "xychart"]
    for panel in (page.run(*graph) for graph in graphs):
        names = panel.frame.names[1:]
        assert shown_names(names) == names, panel.title


def test_newer_legends_leave_nothing_out_of_jobs_names(pages: Pages) -> None:
    jobs = [pages.fixture.jobs[name].job_id for name in ("ended", "three-nodes", "tagged")]
    page = pages.page(links.COMPARE, {"jobs": jobs})
    graphs = [panel for panel in page.panels() if panel[0]["type"] == "xychart"]
    assert graphs
    for panel in (page.run(*graph) for graph in graphs):
        names = panel.frame.names[1:]
        assert shown_names(names) == names, panel.title
