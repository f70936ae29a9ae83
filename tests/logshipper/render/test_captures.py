"""Recorded output of real programs (tests/captures): the renderer logs the text that tmux shows
(R29)."""

from collections.abc import Callable

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.render.renderer import FIRST_SECS, Renderer
from logshipper.spool.segment import Kind, Stream
from tests.programs import capture
from tests.programs.score import PROPERTY
from tests.tools.captures.terminal_oracle import Tmux, log_lines, tmux
from tests.tools.sources import ROOT

__all__ = ["tmux"]  # a fixture

# captures without an exact rendering, and the reasons
DIFFERENT: dict[str, str] = {}

NAMES = capture.names()


def _params() -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=DIFFERENT[name], strict=True))
        if name in DIFFERENT
        else name
        for name in NAMES
    ]


@pytest.mark.parametrize("name", _params())
def test_captures_are_logged_as_tmux_shows_them(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """In the recorded reads, whole, and byte by byte."""
    record_property(PROPERTY, name)
    recording = capture.read(name)
    data = recording.data
    for reads in (
        recording.timed_reads(),
        [(data, 0.0)],
        [(data[at : at + 1], 0.0) for at in range(len(data))],
    ):
        assert (
            log_lines(Renderer(recording.columns, recording.rows, FIRST_SECS), reads)
            == recording.shown
        )


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("bayesian-optimization", 1),
        ("hyperopt", 1),
        ("joblib", 2),
        ("lightgbm-json", 6),
        ("loguru", 5),
        ("optuna", 11),
        ("scikit-learn-json", 2),
        ("structlog", 5),
        ("xgboost-json", 20),
    ],
)
def test_records_amid_what_libraries_print(name: str, records: int) -> None:
    """R20: each JSON line on tmux's screen is a record, regardless of the output around it."""
    recording = capture.read(name)
    classifier = Classifier("enabled", columns=recording.columns, rows=recording.rows)
    for data, now in recording.timed_reads():
        classifier.feed(Stream.STDOUT, data, now)
    classifier.end(Stream.STDOUT, now)
    items = [item for item in classifier.take() if isinstance(item, LoggedLines)]
    metadata = [
        line
        for item in items
        if item.kind is Kind.METADATA
        for line in item.text.decode().splitlines()
    ]
    assert metadata == [line for line in recording.shown if line.startswith("{")]
    assert len(metadata) == records


@pytest.mark.parametrize("name", NAMES)
def test_tmux_still_shows_what_it_showed(name: str, tmux: Tmux) -> None:
    recording = capture.read(name)
    assert [
        line for line in tmux.lines(recording.data, recording.columns, recording.rows) if line
    ] == recording.shown


def test_the_documentation_has_the_score() -> None:
    text = (ROOT / "docs" / "rendering.md").read_text()
    assert f"**{len(NAMES) - len(DIFFERENT)} of {len(NAMES)} programs exact**" in text
    assert all(f"| {name} |" in text for name in DIFFERENT)


def test_there_are_captures_and_they_are_small() -> None:
    sizes = [capture.path_of(name).stat().st_size for name in NAMES]
    assert len(sizes) > 80
    assert max(sizes) < 30_000
    assert sum(sizes) < 1_000_000
