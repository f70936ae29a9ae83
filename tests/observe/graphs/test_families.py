"""Families of keys that share a graph, their best number and their order."""

import pytest

from logshipper_observe.graphs.families import (
    Family,
    families,
    goal_of,
    rank_of,
    sections,
    split_part,
)


@pytest.mark.parametrize(
    ("key", "split"),
    [
        ("train/loss", ("loss", "train")),
        ("val/loss", ("loss", "validation")),
        ("val_loss", ("loss", "validation")),
        ("loss_val", ("loss", "validation")),
        ("valid-logloss", ("logloss", "validation")),
        ("eval.acc", ("acc", "validation")),
        ("dev acc", ("acc", "validation")),
        ("epoch_test_acc", ("epoch_acc", "test")),
        ("val loss (auto)", ("loss (auto)", "validation")),
        ("loss", ("loss", "")),
        ("val", ("val", "")),
        ("interval_secs", ("interval_secs", "")),
        ("test/test_loss", ("test/test_loss", "")),
        ("", ("", "")),
    ],
)
def test_a_word_for_a_part_of_the_data_leaves_the_name(key: str, split: tuple[str, str]) -> None:
    assert split_part(key) == split


def _titles(found: list[Family]) -> list[tuple[str, list[str]]]:
    return [(family.title, [member.key for member in family.members]) for family in found]


def test_keys_that_differ_in_the_part_of_the_data_are_a_family() -> None:
    keys = ["val_loss", "test_loss", "loss", "lr", "train/acc", "val/f1"]
    assert _titles(families(keys, {})) == [
        ("loss", ["loss", "val_loss", "test_loss"]),
        ("lr", ["lr"]),
        ("train/acc", ["train/acc"]),
        ("val/f1", ["val/f1"]),
    ]


def test_keys_over_another_x_or_of_series_are_no_family() -> None:
    x_of = {"loss": "step", "val_loss": "epoch"}
    assert len(families(["loss", "val_loss"], x_of)) == 2
    assert len(families(["loss", "val loss (auto)"], {})) == 2


def test_families_with_a_common_prefix_have_a_section() -> None:
    keys = ["rollout/reward", "rollout/length", "time/fps", "loss", "acc@0.5", "acc@0.75"]
    assert sections(families(keys, {})) == ["rollout", "rollout", "", "", "", ""]


@pytest.mark.parametrize(
    ("key", "goal"),
    [
        ("val_loss", "least"), ("error_rate", "least"), ("valLoss", "least"), ("train-rmse", "least"),
        ("accuracy", "largest"), ("ep_rew_mean", "largest"), ("val/mAP", "largest"), ("loss (auto)", "least"),
        ("lr", ""), ("energy", ""), ("closest", ""), ("glossary", ""),
    ],
)  # fmt: skip
def test_losses_and_scores_have_a_best_number(key: str, goal: str) -> None:
    assert goal_of(key) == goal


def test_losses_come_before_scores_others_and_rates() -> None:
    keys = ["tokens/s", "temperature_k", "epoch_loss", "accuracy", "lr", "val/loss_step"]
    assert sorted(keys, key=rank_of) == [
        "epoch_loss", "val/loss_step", "accuracy", "tokens/s", "temperature_k", "lr",
    ]  # fmt: skip
    assert rank_of("alpha") == 2
