"""Every query of every panel, variable and annotation succeeds for every job on real servers, and
Loki reads only the job's own streams."""

import re

import pytest

from logshipper_grafana.pages.job_variables import RECORDS
from logshipper_grafana.parts import links
from tests.grafana.conftest import Pages
from tests.grafana.tools import printed
from tests.grafana.tools.captured import CONTROLLER, Captured, Fixture
from tests.grafana.tools.interpolation import Text
from tests.grafana.tools.pages import Panel, dashboard, dashboards
from tests.grafana.tools.sources import LokiSource, Query, Range

NAMES = [job.name for job in printed.EVERY]
FORGOTTEN = printed.OLD.name  # Prometheus has no series of it, so its nodes are unknown
IN_BOTH = 2  # Loki reads an entry twice while it is both in memory and on disk
_SELECTOR = re.compile(r"\{cluster=[^{}]*\}")


@pytest.mark.parametrize("name", NAMES)
def test_a_jobs_page(name: str, pages: Pages) -> None:
    page = pages.job(name)
    with pages.fixture.loki.recorded() as queries:
        panels = page.run_all()
        marks = page.annotations()
    assert {*marks} == {
        "Lines lost", "Restarts and late heartbeats", "Modes, ends, hints, the job's own events",
    }  # fmt: skip
    for panel in panels:
        assert len(panel.queries) == len(panel.model["targets"]), panel.title
        assert "$" not in panel.title, panel.title
        _is_whole(panel)
    _reads_its_own_streams_only(queries, pages.fixture, pages.fixture.jobs[name])


def _is_whole(panel: Panel) -> None:
    """Check that the panel's description mentions the limit of entries if an answer reaches it."""
    for frame in panel.raw:
        limit = max((target.get("maxLines", 0) for target in panel.model["targets"]), default=0)
        if limit and frame.length >= limit:
            assert re.search(
                r"newest 5,000|newest 1,000", panel.model["title"] + panel.model["description"]
            )


def _reads_its_own_streams_only(queries: list[Query], fixture: Fixture, job: Captured) -> None:
    """Check that a query selects only the job's nodes, and reads no more lines than they have in
    the page's time. It may also select the controller, which reports the job's end."""
    by_selector: dict[str, tuple[set[str], int]] = {}
    for query in queries:
        selectors = _SELECTOR.findall(query.expr)
        assert selectors, query.expr
        lines = 0
        for selector in selectors:
            if selector not in by_selector:
                by_selector[selector] = _streams(fixture.loki, selector, job.when)
            hosts, line_count = by_selector[selector]
            if job.job.name != FORGOTTEN:
                assert hosts <= {*job.hosts, CONTROLLER}, f"{query.expr} reads streams of {hosts}"
            lines += line_count
        assert query.lines <= lines, f"{query.expr} looked at {query.lines} lines of {lines}"


def _streams(loki: LokiSource, selector: str, when: Range) -> tuple[set[str], int]:
    span = {"start": when.begin_ms * 10**6, "end": when.end_ms * 10**6}
    series = loki.get("/loki/api/v1/series", {"match[]": selector, **span})
    counting = f"sum(count_over_time({selector} [{when.secs + 1}s]))"
    counts = loki.get("/loki/api/v1/query", {"query": counting, "time": when.end_ms * 10**6})[
        "result"
    ]
    return {labels["host"] for labels in series}, IN_BOTH * int(
        counts[0]["value"][1]
    ) if counts else 0


def test_the_forgotten_jobs_page_reads_nothing_of_other_times(pages: Pages) -> None:
    with pages.fixture.loki.recorded() as queries:
        pages.job(FORGOTTEN).run_all()
    # some events, three selectors
    assert max(query.lines for query in queries) <= 3 * IN_BOTH * (len(printed.OLD.lines) + 5)


@pytest.mark.parametrize(
    ("uid", "names"),
    [
        (links.JOBS, []),
        (links.CLUSTER, []),
        (links.COMPARE, []),
        (links.COMPARE, ["ended", "three-nodes", "no-metadata", "odd-keys"]),
    ],
)
def test_another_page(uid: str, names: list[str], pages: Pages) -> None:
    selections: dict[str, Text] = (
        {"jobs": [pages.fixture.jobs[name].job_id for name in names]} if names else {}
    )
    for panel in pages.page(uid, selections).run_all():
        assert len(panel.queries) == len(panel.model["targets"]), panel.title


def test_a_month_with_the_end_of_summer_time(pages: Pages) -> None:
    """This month is an hour longer, and rounding adds a millisecond beyond Loki's own limit."""
    end_ms = pages.fixture.today.end_ms
    when = Range(end_ms - (30 * 24 + 1) * 3_600_000 - 1, end_ms)
    _, with_records = RECORDS
    selections = {"job": pages.fixture.jobs["short"].job_id, "lines": with_records}
    page = pages.page(links.JOB, selections, when)
    for title in ("State", "Console log", "All keys over time", "Lines over time"):
        assert page.show(title).frames, title


@pytest.mark.parametrize("job", ["", "never.heard", "never`heard"])
def test_a_job_that_is_not_there(job: str, pages: Pages) -> None:
    selections: dict[str, Text] = {"job": job} if job else {}
    for panel in pages.page(links.JOB, selections).run_all():
        assert panel.rows() == [], panel.title


def test_every_dashboard_is_tried() -> None:
    assert {path.stem for path in dashboards()} == {
        links.JOBS,
        links.JOB,
        links.COMPARE,
        links.CLUSTER,
    }


def test_parts_are_kept_in_newer_versions() -> None:
    """Since Grafana 10, partitionByValues drops its fields unless keepFields is set."""
    partitions = [
        step["options"]
        for path in dashboards()
        for panel in dashboard(path.stem)["panels"]
        for step in panel.get("transformations", [])
        if step["id"] == "partitionByValues"
    ]
    assert all(options.get("keepFields") is True for options in partitions)
