"""Series that repeat the numbers of another key, and series as candidates for X."""

from collections.abc import Mapping

import pytest

from logshipper.config import AUTO
from logshipper_ingest.model.metadata_keys import AUTO_ROOT, Path, full_name, names_of
from logshipper_ingest.model.ranks import MAX_RULE, RULE_UNIT, reported_documents
from logshipper_ingest.model.repeats import with_repeats
from logshipper_ingest.model.x_axis import MAX_KEYS, KeyStats, XAxis, merge_all


def key(
    *path: str, last: str = "0.5", least: float = 0.5, greatest: float = 7.1, numbers: int = 9
) -> KeyStats:
    return KeyStats(names_of([path])[path], path, 9, numbers, last, least, greatest, False)


def repeats(series: KeyStats, *others: KeyStats, over: bool = True) -> str:
    return with_repeats([*others, series], over=over)[-1].repeats


LOSS = key("loss", last="0.50012", least=0.50012, greatest=7.09988)


def test_equal_numbers_at_the_printed_precision_repeat_a_key() -> None:
    assert repeats(key(AUTO_ROOT, "loss", last="0.50"), LOSS) == "loss"
    assert (
        repeats(key(AUTO_ROOT, "loss", last="0.5001", least=0.5001, greatest=7.0999), LOSS)
        == "loss"
    )
    nested = key("train", "loss", last="0.50012", least=0.50012, greatest=7.09988)
    assert repeats(key(AUTO_ROOT, "Train Loss"), nested) == "train.loss"
    assert not with_repeats([LOSS], over=True)[0].repeats


@pytest.mark.parametrize(
    "series",
    [
        key(AUTO_ROOT, "lm loss"),
        key(AUTO_ROOT, "loss", greatest=7.2),
        key(AUTO_ROOT, "loss", least=0.51),
        key(AUTO_ROOT, "loss", last="0.6"),
        key(AUTO_ROOT, "loss", last="NaN"),
        key("LOSS"),
    ],
)
def test_another_name_or_number_repeats_none(series: KeyStats) -> None:
    assert repeats(series, LOSS) == ""


def test_a_series_of_a_running_job_may_lag_behind_but_not_exceed_its_key() -> None:
    late = key(AUTO_ROOT, "loss", last="0.7", least=0.7)
    assert (repeats(late, LOSS, over=False), repeats(late, LOSS)) == ("loss", "")
    assert not repeats(key(AUTO_ROOT, "loss", least=0.7, greatest=7.0), LOSS, over=False)
    assert not repeats(key(AUTO_ROOT, "loss", least=0.4), LOSS, over=False)


def axis_of(*records: tuple[str, Mapping[str, object]]) -> XAxis:
    axis = XAxis(keeps_places=True)
    for at, (origin, record) in enumerate(records, start=1):
        axis.add(dict(record), at, at, origin)
    return axis


def test_a_series_is_x_only_within_series() -> None:
    records = [
        (origin, record)
        for n in range(1, 9)
        for origin, record in (
            ("json", {"z": 0.5 * (n % 3), "loss": 1 / n}),
            (AUTO, {"epoch": n, "loss": 2 / n}),
        )
    ]
    for axis in (axis_of(*records), merge_all([axis_of(*records[:7]), axis_of(*records[7:])])):
        assert axis.choose().key == "loss"
        assert axis.x_for("loss (auto)").key == "epoch (auto)"
        assert [stats.key for stats, _ in axis.key_stats()] == [
            "loss", "z", "epoch (auto)", "loss (auto)",
        ]  # fmt: skip
    alone = axis_of(*(record for record in records if record[0] == AUTO))
    assert (alone.choose().key, alone.choose().rule) == ("epoch (auto)", 2)
    assert axis_of(*records).to_json() == XAxis.from_json(axis_of(*records).to_json()).to_json()


def test_series_never_take_the_room_of_other_keys() -> None:
    axis = axis_of(
        (AUTO, {f"a{n}": n for n in range(MAX_KEYS + 5)}), ("json", {"loss": 1, "epoch": 1})
    )
    names = {stats.key for stats, _ in axis.key_stats()}
    assert {"loss", "epoch"} <= names
    assert len(names) == MAX_KEYS + 2
    merged = axis.merge(axis_of(("json", {f"k{n}": n for n in range(MAX_KEYS)})))
    assert len(merged.key_stats()) == 2 * MAX_KEYS + 1, "epoch has room besides"


def test_reports_rank_series_behind_all_other_keys() -> None:
    records = [(AUTO, {"step": n, "loss": 1 / n}) for n in (1, 2, 3)]
    records += [("json", {"y": n % 2, "z": n % 3}) for n in (1, 2, 3)]
    ranks = {
        report["key"]: report["rank"] for report in reported_documents(axis_of(*records), over=True)
    }
    assert sorted(ranks, key=ranks.__getitem__) == ["y", "z", "step (auto)", "loss (auto)"]
    assert ranks["step (auto)"] // RULE_UNIT == 3 + MAX_RULE
    assert all(rank == float(rank) == int(float(rank)) for rank in ranks.values())


def test_names_of_series_are_found_without_their_mark() -> None:
    paths: list[Path] = [("loss",), (AUTO_ROOT, "loss"), (AUTO_ROOT, "lm loss")]
    names = names_of(paths).values()
    assert list(names) == ["loss", "loss (auto)", "lm loss (auto)"]
    assert full_name("lm loss", names) == "lm loss (auto)"
    assert full_name("loss", names) == "loss"
    assert full_name("acc", names) == "acc"
