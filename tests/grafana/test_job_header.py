"""A job's page besides its graphs: the header, the log, marks and links, for each kind of job."""

import json
import re
from urllib.parse import parse_qs

import pytest

from logshipper_grafana.pages.job_variables import RECORDS
from logshipper_grafana.parts import links, queries
from tests.grafana.conftest import Pages
from tests.grafana.tools import printed
from tests.grafana.tools.captured import ACCOUNT, CLUSTER, HOSTS, PARTITION, USER
from tests.grafana.tools.expected import BLANK
from tests.grafana.tools.frames import NUMBER, Json
from tests.grafana.tools.pages import Page
from tests.grafana.tools.printed import Job
from tests.grafana.tools.sources import Range

LOG = "Console log"
COUNTS = "Lines and records"
_, WITH_RECORDS = RECORDS
ENDS = {job.name: "COMPLETED" for job in printed.EVERY} | {
    "running": "RUNNING",
    "no-metadata": "FAILED",
    "killed": "KILLED",
    "timed-out": "TIMEOUT",
}


def state_of(page: Page) -> str:
    names = {float(number): name for name, number in queries.STATES.items()}
    value = page.show("State").stat()
    assert isinstance(value, float)
    return names[value]


def end_of(page: Page) -> str:
    (row,) = page.show("Ended by").rows()
    return str(row["end"])


def counts_of(page: Page) -> dict[str, float]:
    """Return the shown counts by the query: lost lines A, on stderr B, records C and so on."""
    return {frame.ref: frame.of(NUMBER)[0].values[0] for frame in page.show(COUNTS).frames}


def log_of(page: Page) -> list[str]:
    """Return the page's log lines in order of time."""
    rows = sorted(page.show(LOG).rows(), key=lambda row: int(row["tsNs"]))
    return [row["Line"] for row in rows]


# ---- header


@pytest.mark.parametrize("name", list(ENDS))
def test_state_and_exit_code(name: str, pages: Pages) -> None:
    page = pages.job(name)
    assert state_of(page) == ENDS[name]
    words = {"running": "not yet", "no-metadata": "exit code 3", "timed-out": "exit code 143",
             "killed": "SIGKILL: perhaps out of memory"}  # fmt: skip
    assert end_of(page).startswith(words.get(name, "exit code 0"))
    assert counts_of(page)["A"] == 0
    (who,) = page.show("Job").rows()
    assert who["who"].startswith(f"{name} – ")
    assert [row["mode"] for row in page.show("Mode now").rows()] == ["enabled"]


def test_a_killed_job_says_why(pages: Pages) -> None:
    (row,) = pages.job("killed").show("Captured job ").rows()
    assert row["reason"].startswith("perhaps out of memory: ")
    assert (row["name"], row["nodes"]) == ("killed", "n2")
    assert "reason" not in pages.job("ended").show("Captured job ").rows()[0]


def test_an_id_that_nobody_has_looks_different(pages: Pages) -> None:
    page = pages.page(links.JOB, {"job": "never.heard"})
    state = page.show("State")
    assert state.rows() == []
    assert state.model["fieldConfig"]["defaults"]["noValue"] == "no such job here"
    end = page.show("Ended by")
    assert (end.rows(), end.model["fieldConfig"]["defaults"]["noValue"]) == ([], "–")


def test_each_attempt_has_its_own_end(pages: Pages) -> None:
    assert state_of(pages.job("requeued", attempt="1")) == "FAILED"
    assert state_of(pages.job("requeued", attempt="2")) == "COMPLETED"
    assert end_of(pages.job("requeued", attempt="1")) == "exit code 1"
    assert end_of(pages.job("requeued")) == "exit code 0"
    assert pages.job("requeued").show("Restarts").stat() == 1
    assert pages.job("ended").show("Restarts").stat() == 0
    assert [row["attempt"] for row in pages.job("requeued").show("Captured job ").rows()] == [
        "2",
        "1",
    ]


@pytest.mark.parametrize(
    ("name", "records"),
    [("ended", 30), ("no-metadata", 0), ("no-numbers", 2), ("opted-in-late", 3), ("three-nodes", 15), ("long", 6000),
     ("old", 7), ("late", 5)],
)  # fmt: skip
def test_records_are_counted(name: str, records: int, pages: Pages) -> None:
    assert counts_of(pages.job(name))["C"] == records


def test_what_graphs_leave_out_is_counted(pages: Pages) -> None:
    """NaN and infinities count, but not texts that look like them; so do lines left out by a mode."""
    assert counts_of(pages.job("diverged")) == {"A": 0, "B": 0, "C": 4, "D": 2}
    assert counts_of(pages.job("opted-in-late")) == {"A": 0, "B": 0, "C": 3, "E": 2}
    assert [*counts_of(pages.job("ended"))] == ["A", "B", "C"]


def test_a_job_of_five_seconds(pages: Pages) -> None:
    page = pages.job("short")
    ran = page.show("Ran for").stat()
    assert isinstance(ran, float)
    assert 5 <= ran < 15
    graph = pages.job("short", lines=WITH_RECORDS).show("Lines over time").frame
    assert sum(graph.column("stdout")) == 3
    assert (
        len(
            {
                at
                for at, value in zip(graph.column("Time"), graph.column("stdout"), strict=True)
                if value
            }
        )
        > 1
    )


def test_a_jobs_time_limit_stands_beside_how_long_it_ran(pages: Pages) -> None:
    ran, limit = pages.job("eventful").show("Ran for").frames
    assert ran.column("Value #A")[0] > printed.SILENT_SECS
    assert limit.column("limit") == ["of 1 h 30 min"]
    assert [frame.ref for frame in pages.job("short").show("Ran for").frames] == ["A"]
    fields = pages.job("eventful").show("Ran for").model["options"]["reduceOptions"]["fields"]
    shown = [
        name for frame in (ran, limit) for name in frame.names if re.search(fields[1:-1], name)
    ]
    assert shown == ["Value #A", "limit"]


def test_who_and_where(pages: Pages) -> None:
    (row,) = pages.job("three-nodes").show("Captured job ").rows()
    assert (row["user"], row["account"], row["partition"]) == (USER, ACCOUNT, PARTITION)
    assert (row["name"], {*row["nodes"].split(",")}) == ("three-nodes", {*HOSTS})
    captures = pages.job("three-nodes").show("How it went").rows()
    assert sorted((capture["host"], capture["task"], capture["state"]) for capture in captures) == [
        ("n1", "0", "COMPLETED"),
        ("n10", "2", "COMPLETED"),
        ("n2", "1", "COMPLETED"),
    ]


def test_a_running_job(pages: Pages) -> None:
    """The page shows each of its bars, in a shorter drawing. The job has no end."""
    page = pages.job("running")
    assert page.show("Running bars").rows()[:2] == [
        {"shows": "epoch 1/3:  33%|###    | 1/3 [00:40<01:20]"},
        {"shows": "  40%|#   | 4/10"},
    ]
    (row,) = page.show("How it went").rows()
    assert "state" not in row
    assert marks_of(page, *END_EVENTS) == []
    ran = page.show("Ran for").stat()
    assert isinstance(ran, float)
    assert ran > 5


@pytest.mark.parametrize("name", [name for name in ENDS if name not in ("running", "no-metadata")])
def test_no_bar_is_left_of_a_job_that_ended(name: str, pages: Pages) -> None:
    shown = [row["shows"] for row in pages.job(name).show("Running bars").rows()]
    assert {*shown} <= {*log_of(pages.job(name))}


def test_a_failed_jobs_last_words_stand_above(pages: Pages) -> None:
    rows = pages.job("no-metadata").show("Running bars").rows()
    assert [row["shows"] for row in rows[:2]] == [
        f"err│{line}" for line in printed.NO_METADATA.errors
    ]
    assert [row["shows"] for row in rows[2:]] == printed.NO_METADATA.lines[-2:]
    assert counts_of(pages.job("no-metadata"))["B"] == len(printed.NO_METADATA.errors)
    assert "var-stream=stderr" in json.dumps(pages.job("no-metadata").show(COUNTS).model)


def configuration_of(page: Page) -> dict[str, str]:
    return {row["what"]: row["value"] for row in page.show("Configuration").rows()}


def test_the_configuration_says_who_and_where_and_how_it_was_started(pages: Pages) -> None:
    rows = configuration_of(pages.job("ended"))
    job = pages.fixture.jobs["ended"]
    assert rows["job"] == f"{job.job_id} of {CLUSTER}"
    assert (rows["name"], rows["host"], rows["attempt"]) == ("ended", "n1", "1")
    assert rows["command"].startswith("sh -c cat out")
    assert f"/ended-{len(job.job.lines)}" in rows["folder"]
    rows = configuration_of(pages.job("three-nodes"))
    assert (rows["user"], rows["account"], rows["partition"]) == (USER, ACCOUNT, PARTITION)
    assert "command" not in rows


def test_the_configuration_has_the_first_record(pages: Pages) -> None:
    """Numbers, and texts that look like numbers, stay as printed."""
    rows = configuration_of(pages.job("no-numbers"))
    assert (rows["size"], rows["n"], rows["at"]) == ("big", "0.1", "2024-01-01")
    assert float(configuration_of(pages.job("ended"))["epoch"]) == 1
    odd = {
        key.rstrip(BLANK): value for key, value in configuration_of(pages.job("odd-keys")).items()
    }
    assert (odd["7"], odd["opt.name"], odd["it's"]) == ("7", "adam", "3")


@pytest.mark.parametrize("name", list(ENDS))
def test_the_ledger_adds_up(name: str, pages: Pages) -> None:
    rows = pages.job(name, attempt="all").show("Line ledger").rows()
    job = next(job for job in printed.EVERY if job.name == name)
    parts = job.attempts or (job,)
    assert sum(row["read"] for row in rows if row["stream"] == "stdout") == sum(
        len(part.lines) + part.stays * len(printed.BARS) for part in parts
    )
    assert sum(row["read"] for row in rows if row["stream"] == "stderr") == sum(
        len(part.errors) for part in parts
    )
    for row in rows:
        rest = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
        assert row["read"] == sum(row[account] for account in rest)


# ---- log


@pytest.mark.parametrize(
    "job", [printed.RUNNING, printed.NO_METADATA, printed.NO_NUMBERS, printed.ODD_KEYS, printed.SHORT, printed.LATE,
            printed.OLD], ids=lambda job: job.name
)  # fmt: skip
def test_the_log_is_what_was_printed(job: Job, pages: Pages) -> None:
    whole = pages.job(job.name, stream="stdout", lines=WITH_RECORDS)
    assert log_of(whole) == job.lines
    others = [line for line in job.lines if not line.startswith('{"')]
    assert log_of(pages.job(job.name, stream="stdout")) == others


def test_the_log_has_all_attempts_and_nodes(pages: Pages) -> None:
    lines = [line for attempt in printed.REQUEUED.attempts for line in attempt.lines]
    assert log_of(pages.job("requeued", lines=WITH_RECORDS)) == lines
    every = [line for task in printed.THREE_NODES.attempts for line in task.lines]
    assert sorted(
        line.rpartition("│")[2] for line in log_of(pages.job("three-nodes", lines=WITH_RECORDS))
    ) == sorted(every)
    tasks = {
        line.rpartition("│")[0] for line in log_of(pages.job("three-nodes", lines=WITH_RECORDS))
    }
    assert tasks == {"", "task 1", "task 2"}


def test_repeats_are_one_line_and_a_note(pages: Pages) -> None:
    lines = log_of(pages.job("ended"))
    assert lines.count("the same") == 1
    assert any(str(printed.REPEATS - 1) in line for line in lines[lines.index("the same") + 1 :])


def test_both_streams_are_in_the_log_or_one(pages: Pages) -> None:
    job = printed.NO_METADATA
    errors = [f"err│{line}" for line in job.errors]
    assert log_of(pages.job(job.name, stream="stderr")) == errors
    assert sorted(log_of(pages.job(job.name))) == sorted(job.lines + errors)
    options = [value for _, value in pages.job(job.name).variables["stream"].options]
    assert options == ["stdout|stderr", "stdout", "stderr"]


@pytest.mark.parametrize(
    ("search", "lines"),
    [
        ("[50%] (a+b)", ["Traceback: [50%] (a+b)"]),
        ('"quoted" \\ line', ['A "quoted" \\ line']),
        ("LAST OF", ["last of stdout"]),
        ("nowhere", []),
        (".*", []),
        ("größe --", [printed.WITH_BACKTICKS]),
        ("RUN `GRÖSSE", []),
        ("RUN `größe --all` (100%) \\N", [printed.WITH_BACKTICKS]),
        ("`", [printed.WITH_BACKTICKS]),
        ("``", []),
        ("`.*` {{ # $x \"'", []),
    ],
)
def test_search(search: str, lines: list[str], pages: Pages) -> None:
    page = pages.job("no-metadata", stream="stdout|stderr", search=search)
    assert [line.removeprefix("err│") for line in log_of(page)] == lines
    assert [row["line"] for row in page.show("Lines as a table").rows()] == lines
    counts = [
        value
        for frame in page.show("Lines over time").frames
        for field in frame.of(NUMBER)
        for value in field.values
    ]
    assert sum(value or 0 for value in counts) == len(lines)


def test_levels_are_not_guessed(pages: Pages) -> None:
    rows = pages.job("no-metadata", stream="stdout|stderr").show(LOG).rows()
    assert {row["labels"].get("level", "unknown") for row in rows} == {"unknown"}
    assert not any("detected_level" in row["labels"] for row in rows)


def test_a_lines_time_leads_to_the_graphs(pages: Pages) -> None:
    for row in pages.job("short").show("Lines as a table").rows():
        assert row["from"] < row["time"] < row["to"]
        assert row["to"] - row["from"] <= 120_000


def test_opted_in_late(pages: Pages) -> None:
    page = pages.job("opted-in-late")
    whole = pages.job("opted-in-late", lines=WITH_RECORDS)
    assert log_of(whole) == printed.OPTED_IN_LATE.lines[2:]
    (event,) = page.show("Mode changes").rows()
    assert (event["event"], event["message"]) == (
        "mode_changed",
        "mode changed from disabled to enabled",
    )
    (mark,) = marks_of(page, "mode_changed")
    assert mark["text"] == "mode: disabled to enabled on n1"


def test_slurms_word_stands_behind_the_last_line(pages: Pages) -> None:
    """The line comes from another host, the controller."""
    page = pages.job("timed-out")
    *lines, word = log_of(pages.job("timed-out", lines=WITH_RECORDS))
    assert lines == printed.TIMED_OUT.attempts[0].lines
    assert re.fullmatch(r"\[logshipper: killed: time limit \(Slurm\), job 4712, .*\]", word)
    assert [row["event"] for row in page.show("Mode changes").rows()] == ["job_ended"]
    assert [mark["text"] for mark in marks_of(page, *END_EVENTS)] == [
        "FAILED: attempt 1",
        "TIMEOUT: attempt 1",
    ]


# ---- marks

END_EVENTS = ("ended", queries.JOB_ENDED)


def marks_of(page: Page, *events: str) -> list[Json]:
    """Return the marks of these events in order of time."""
    marks = [mark for found in page.annotations().values() for mark in found]
    return sorted(
        (mark for mark in marks if mark["event"] in events), key=lambda mark: mark["time"]
    )


def test_restarts_and_ends_are_marked(pages: Pages) -> None:
    marks = marks_of(pages.job("requeued"), "started", *END_EVENTS)
    assert [mark["text"] for mark in marks] == [
        "FAILED: attempt 1", "attempt 2 begins on n2", "COMPLETED: attempt 2",
    ]  # fmt: skip
    assert marks_of(pages.job("ended"), "started") == []


def test_events_are_listed_and_marked(pages: Pages) -> None:
    page = pages.job("eventful")
    rows = page.show("Mode changes").rows()
    assert [(row["event"], row["message"]) for row in rows] == [
        ("lines_lost", "3 lines lost here: no space"),
        ("heartbeat_found", "the heartbeat is back, after 31 seconds"),
        ("heartbeat_lost", "no heartbeat for 20 seconds"),
        ("user_event", "checkpoint: saved"),
    ]
    assert [mark["text"] for mark in marks_of(page, "user_event")] == ["checkpoint: saved"]
    (lost,) = marks_of(page, "lines_lost")
    assert lost["text"] == "3 lines lost here: no space on n4"
    silence, recovery = marks_of(page, *queries.HEARTBEATS)
    assert (silence["text"], recovery["text"]) == (
        "no heartbeat for 20 seconds on n4", "the heartbeat is back, after 31 seconds on n4",
    )  # fmt: skip
    assert 10_900 <= recovery["time"] - silence["time"] <= 11_100


def test_a_silent_job_is_unresponsive_until_it_comes_back(pages: Pages) -> None:
    """The state depends on the end of the page's time."""
    job = pages.fixture.jobs["eventful"]
    silence, recovery = (
        mark["time"] for mark in marks_of(pages.job("eventful"), *queries.HEARTBEATS)
    )
    for end_ms, state in (
        (silence - 500, "RUNNING"),
        (silence + 500, "UNRESPONSIVE"),
        (recovery + 500, "RUNNING"),
    ):
        when = Range(job.begin_ms - 60_000, int(end_ms))
        assert state_of(pages.page(links.JOB, {"job": job.job_id}, when)) == state
    assert state_of(pages.job("eventful")) == "COMPLETED"


# ---- links


@pytest.mark.parametrize("name", ["ended", "three-nodes"])
def test_links_above_the_page(name: str, pages: Pages) -> None:
    page = pages.job(name)
    urls = [page.text(link["url"]) for link in page.model["links"]]
    assert not any(re.search(r"\$\{|\$\w", url) for url in urls), urls
    compare = next(url for url in urls if "logshipper-compare" in url)
    assert f"var-jobs={pages.fixture.jobs[name].job_id}" in compare


def test_the_link_to_the_jobs_time_keeps_all_selections(pages: Pages) -> None:
    keys = pages.job("ended").variables["y"].options
    page = pages.job("ended", search="a `b`", xsel="step", stream="stderr", y=[keys[0][1]])
    (link,) = (link for link in page.model["links"] if link["title"] == "The job's own time")
    address = parse_qs(page.text(link["url"]).partition("?")[2])
    assert address["var-search"] == ["a `b`"]
    assert address["var-y"] == [keys[0][1]]
    assert (address["var-xsel"], address["var-stream"]) == (["step"], ["stderr"])
    shown = {
        variable["name"] for variable in page.model["templating"]["list"] if not variable["hide"]
    }
    assert shown <= {name.removeprefix("var-") for name in address}


def test_other_jobs_of_the_same_user(pages: Pages) -> None:
    rows: list[Json] = pages.job("three-nodes").show("Captured jobs of the same user").rows()
    assert sorted(row["job_id"] for row in rows) == ["4711", "4712"]
    other_rows = pages.job("ended").show("Captured jobs of the same user").rows()
    assert {row["user"] for row in other_rows} == {"root"} or USER not in json.dumps(other_rows)
    assert "4711" not in {row["job_id"] for row in other_rows}
