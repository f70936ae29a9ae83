"""Families and the order of keys in queries, against the local page's rules."""

import re

import pytest

from logshipper_grafana.parts import key_names
from logshipper_observe.graphs.families import rank_of, split_part

KEYS = [
    "train/loss", "val_loss", "loss", "loss_val", "trainLoss", "RMSE", "val.acc", "top1", "accuracy", "f1", "reward",
    "lr", "step", "grad_norm", "epoch_time_s", "margin", "temperature", "glossary", "energy", "val_loss (auto)",
    "train loss (auto)", "eval/metrics/auc", "validation", "test-error", "latent",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_ranks_are_those_of_the_local_page(key: str) -> None:
    kinds = [kind for pattern, kind in key_names.KINDS.items() if re.fullmatch(pattern, key)]
    assert kinds[-1] == rank_of(key)


@pytest.mark.parametrize("key", KEYS)
def test_families_are_those_of_the_local_page(key: str) -> None:
    found = re.fullmatch(key_names.FAMILY, key)
    family = key if found is None else "".join(found.groups(""))
    assert family == split_part(key)[0]


def test_only_lines_of_validation_are_thick() -> None:
    pattern, flags = re.fullmatch("/(.*)/(i)", key_names.VALIDATION).groups()  # type: ignore[union-attr]
    assert flags == "i"
    thick = {key for key in KEYS if re.search(pattern, key, re.IGNORECASE)}
    assert thick == {"val_loss", "loss_val", "val.acc", "val_loss (auto)", "eval/metrics/auc",
                     "validation", "test-error"}  # fmt: skip
