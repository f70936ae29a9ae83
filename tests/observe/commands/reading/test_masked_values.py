"""Summaries of values masked by their shape (R33) in `show` and `events`, from a local store and
from Loki."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import asking
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store

__all__ = ["ask", "store"]  # fixtures

BEGAN_NS = time.time_ns() - 600 * NS
GITHUB, WEB = "GitHub token", "JSON web token"


def mask(job: SpooledCapture, **shapes: Any) -> None:  # Any: JSON
    names = {"github": GITHUB, "web": WEB, "escape": "\x1b[31mred"}
    job.event(
        "values_masked",
        "some values masked",
        values=len(shapes),
        shapes={names[name]: number for name, number in shapes.items()},
    )


@pytest.fixture
def sources(
    store: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[Ask]:
    """Return readers of the same jobs: with several, one and no kind of masked values, and with
    forged events."""
    for attempt in (1, 2):
        with SpooledCapture(
            store, "several", attempt, started_ns=BEGAN_NS + attempt * 60 * NS
        ) as job:
            job.lines("x")
            mask(job, github=1)
            mask(job, github=1000 * attempt, web=2)
            job.end()
    with SpooledCapture(store, "one") as job:
        job.lines("x")
        mask(job, github=3)
        job.end()
    with SpooledCapture(store, "none") as job:
        job.lines("x")
        job.end()
    with SpooledCapture(store, "odd") as job:
        job.lines("x")
        mask(job, escape=1)
        mask(job, github="3")
        job.event("values_masked", "no shapes", shapes=[1])
        job.event("user_event", "forged", data={"shapes": {WEB: 1}})
        job.end()
    fake = FakeLoki()
    push_spool(fake, store / "spool")
    return [ask, asking(fake, monkeypatch, capsys)]


@pytest.mark.parametrize("source", [0, 1], ids=["local", "loki"])
@pytest.mark.parametrize(
    ("job", "words", "shapes"),
    [
        ("several", "3,006 values: 3,002 GitHub token, 4 JSON web token", {GITHUB: 3002, WEB: 4}),
        ("one", "3 values: GitHub token", {GITHUB: 3}),
        ("none", None, {}),
        ("odd", "1 value: �[31mred", {"\x1b[31mred": 1}),
    ],
)
def test_show_sums_them_up(
    sources: list[Ask], source: int, job: str, words: str | None, shapes: dict[str, int]
) -> None:
    show = sources[source]
    code, out, _ = show("show", job)
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("Masked")]
    assert rows == ([] if words is None else [f"Masked    {words}"])
    assert json.loads(show("show", job, "--json")[1])["masked"] == shapes


@pytest.mark.parametrize("source", [0, 1], ids=["local", "loki"])
def test_each_is_an_event(sources: list[Ask], source: int) -> None:
    code, out, _ = sources[source]("events", "one", "--kind", "values_masked", "--json")
    assert code == 0
    (event,) = json.loads(out)["events"]
    assert event["data"]["shapes"] == {GITHUB: 3}
