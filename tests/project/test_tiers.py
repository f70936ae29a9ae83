"""Each test belongs to exactly one tier, so one command runs it."""

import pytest

from tests import conftest, tiers
from tests.tools.sources import ROOT


def test_each_file_has_a_tier() -> None:
    none = [
        file for file in tiers.TESTS.rglob("test_*.py") if tiers.tier_of(file) not in tiers.MARKERS
    ]
    assert none == [], "these stand in no row of tests/tiers.py"


def test_no_place_is_of_two_tiers_and_none_is_gone() -> None:
    rows = [place for places in tiers._PLACES.values() for place in places.split()]
    assert len(rows) == len(set(rows))
    assert [place for place in tiers.places(tiers.MARKERS) if not (ROOT / place).exists()] == []
    named = [*tiers.TOGETHER, *(f"{place}.py" for place in (tiers.COMPILED, *tiers.LONG))]
    assert [place for place in named if not (tiers.TESTS / place).exists()] == []


@pytest.mark.parametrize(
    ("fixtures", "tier"),
    [((), tiers.CHECK), (("tmp_path",), tiers.CHECK), (("tmp_path", "root_user"), tiers.ALL)],
)
def test_a_fixture_that_needs_more_decides(fixtures: tuple[str, ...], tier: str) -> None:
    assert tiers.tier_of(tiers.TESTS / "logshipper" / "render" / "test_screen.py", fixtures) == tier


def test_a_file_in_no_row() -> None:
    assert tiers.tier_of(tiers.TESTS / "test_new.py", ("lokis",)) is None


@pytest.mark.parametrize("name", sorted(tiers.FIXTURES))
def test_fixtures_that_decide_are_there(name: str) -> None:
    """A renamed fixture would no longer decide a tier."""
    assert hasattr(conftest, name)


def test_markers_are_given(request: pytest.FixtureRequest) -> None:
    assert [mark.name for mark in request.node.iter_markers() if mark.name in tiers.MARKERS] == [
        tiers.CHECK
    ]


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("slurm/test_spool.py", "slurm"),
        ("spank/test_releases.py", "spank"),
        ("observe/page/graphs/test_gaps.py", "observe/page"),
        ("deploy/test_packages.py", "deploy/test_packages"),
        ("ingest/checks/test_check_slurm.py", "spank"),
    ],
)
def test_tests_that_share_something_are_one_group(file: str, group: str) -> None:
    assert tiers.worker_of(tiers.TESTS / file) == group


def test_long_groups_begin_first() -> None:
    groups = ["deploy/test_alerts", "deploy/test_packages", "grafana", "slurm", "spank"]
    assert sorted(groups, key=tiers.rank_of) == [
        "slurm",
        "spank",
        "grafana",
        "deploy/test_packages",
        "deploy/test_alerts",
    ]
