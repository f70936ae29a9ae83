"""Answers in shells and notebooks: length, indexing, bounded display, and no markup from jobs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import logshipper
from logshipper_observe.base.notebook import MAX_COLUMNS, MAX_ROWS
from logshipper_observe.query.listing import Listing
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture

BEGAN_NS = 1_700_000_000 * NS
COUNT = 3
MARKUP = "<script>alert(1)</script>&"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("notebooks") / "store"
    for number in range(1, COUNT + 1):
        began_ns = BEGAN_NS + 60 * number * NS
        with SpooledCapture(root, f"a{number}", name=MARKUP, started_ns=began_ns) as job:
            for epoch in range(1, 41):
                job.metadata({"epoch": epoch, "<b>loss</b>": 1 / epoch})
            job.end()
    return root


@pytest.fixture
def store(folder: Path) -> Iterator[logshipper.Store]:
    with logshipper.Store.local(folder) as opened:
        yield opened


def test_jobs_have_a_length_and_places(store: logshipper.Store) -> None:
    jobs = store.jobs()
    assert len(jobs) == COUNT
    assert (jobs[0].job_id, jobs[-1].job_id, jobs.first().job_id) == ("a3", "a1", "a3")
    assert [job.job_id for job in jobs[1:]] == ["a2", "a1"]
    assert [job.job_id for job in jobs[-2:]] == ["a2", "a1"]
    assert (jobs.count(), bool(jobs), bool(store.jobs(state="failed"))) == (COUNT, True, False)
    with pytest.raises(IndexError):
        jobs[COUNT]
    with pytest.raises(IndexError):
        jobs[-COUNT - 1]


def test_a_list_of_jobs_is_read_once_and_a_loop_reads_anew(
    store: logshipper.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """list() asks for the length first."""
    readings: list[Listing] = []
    jobs = store.jobs()
    read = jobs._list
    monkeypatch.setattr(jobs, "_list", lambda: readings.append(listing := read()) or listing)  # type: ignore[func-returns-value]
    assert (len(list(jobs)), len(readings)) == (COUNT, 1)
    assert (len(sorted(jobs, key=lambda job: job.job_id)), len(readings)) == (COUNT, 2)
    assert (len(jobs), len(readings)) == (COUNT, 3)
    assert (sum(1 for _ in jobs), len(readings)) == (COUNT, 4), "not what was counted before"


def test_jobs_and_events_are_shown(store: logshipper.Store) -> None:
    jobs = store.jobs()
    assert repr(jobs[:2]) == f"[<Job a3 {MARKUP!r} COMPLETED>, <Job a2 {MARKUP!r} COMPLETED>]"
    assert repr(jobs).startswith("<Jobs [<Job a3 ")
    assert rows_of(jobs) == COUNT + 1
    assert rows_of(jobs[0]) > 5
    events = logshipper.EventLog(store)
    assert (len(events), events[-1].to_state) == (2 * COUNT, "RUNNING")
    assert rows_of(events) == 2 * COUNT + 1
    assert rows_of(store.status("a1", "a2")) == rows_of(store.info("a1", "a2")) == 3
    assert "nobody" in store.status("nobody")._repr_html_()


def test_tables_are_shown(store: logshipper.Store) -> None:
    columns = store.job("a1").metrics()
    assert len(columns["epoch"]) == 40
    assert repr(columns) == "<40 rows of _time, _attempt, _task, <b>loss</b>, epoch>"
    assert columns == dict(columns)
    assert rows_of(columns) == MAX_ROWS + 1
    html = columns._repr_html_()
    assert "<td>1</td>" in html
    assert "<td>40</td>" in html, "the last ones are there, too"
    assert "40 rows, 5 columns" in html
    assert rows_of(store.job("a1").rollup()) == 3


def rows_of(answer: object) -> int:
    """Return the number of rows in the notebook's table, including the heading. A job's text must
    not become markup."""
    html: str = answer._repr_html_()  # type: ignore[attr-defined]
    assert not re.search(r"<(?!/?(table|thead|tbody|tr|td|th|p)>)", html)
    assert not re.search(r"&(?!lt;|gt;|amp;|quot;|#x27;)", html)
    return html.count("<tr>")


def test_size_is_bounded() -> None:
    columns = logshipper.Columns({"x" * 10_000 + str(n): [10**4000] * 1000 for n in range(100)})
    assert rows_of(columns) == MAX_ROWS + 1
    assert len(columns._repr_html_()) < 300 * MAX_ROWS * MAX_COLUMNS


def test_many_jobs_are_not_all_read(tmp_path: Path) -> None:
    """The display of a large store reads only some jobs."""
    shown: list[int] = []

    class Numbers(logshipper.Jobs):
        def _read(self) -> Iterator[logshipper.Job]:
            for number in range(1000):
                shown.append(number)
                yield number  # type: ignore[misc]

        def _cells(self, item: object) -> list[object]:
            return [item]

    numbers = Numbers(None, None, None)  # type: ignore[arg-type]
    assert rows_of(numbers) == MAX_ROWS + 2, "and a mark that there are more"
    assert repr(numbers) == "<Numbers [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]>"
    assert max(shown) <= MAX_ROWS


def test_a_look_raises_nothing(folder: Path) -> None:
    store = logshipper.Store.local(folder)
    jobs = store.jobs()
    store.close()
    assert repr(jobs) == "<Jobs [the store is closed]>"
    assert "the store is closed" in jobs._repr_html_()


def test_one_event_is_got(store: logshipper.Store) -> None:
    events = logshipper.EventLog(store)
    assert events.get(job_id="a1", to_state="COMPLETED") == events.filter(job_id="a1").first()
    with pytest.raises(LookupError, match="no event fits"):
        events.get(job_id="nobody")
    with pytest.raises(LookupError, match="more than one event fits"):
        events.get(job_id="a1")
