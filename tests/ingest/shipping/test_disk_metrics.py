"""Free room of the agent's folders and its quarantine in /metrics."""

import os
from math import isnan
from pathlib import Path

import pytest

from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.shipping import disk_metrics
from logshipper_ingest.shipping.disk_metrics import DiskMetrics, QuarantineMetrics
from logshipper_ingest.shipping.quarantine import Quarantine


def value(metrics: AgentMetrics, name: str, **labels: str) -> float:
    sample = metrics.registry.get_sample_value(f"logshipper_agent_{name}", labels)
    assert sample is not None, name
    return sample


def test_room_and_what_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "quarantine"
    quarantine = Quarantine(str(folder), 1000)
    (folder / "2026-01-01.u7.jsonl").write_bytes(b"x" * 300)
    metrics = AgentMetrics()
    DiskMetrics(metrics, {"spool": str(tmp_path), "state": str(tmp_path / "gone")}).measure()
    room = QuarantineMetrics(metrics, quarantine, 1000)
    room.measure()
    free, size = (
        value(metrics, "disk_free_bytes", folder="spool"),
        value(metrics, "disk_size_bytes", folder="spool"),
    )
    disk = os.statvfs(tmp_path)
    assert size == disk.f_blocks * disk.f_frsize
    assert 0 < free <= size
    files, files_size = (
        value(metrics, "disk_free_files", folder="spool"),
        value(metrics, "disk_size_files", folder="spool"),
    )
    assert 0 < files <= files_size == disk.f_files if disk.f_files else isnan(files)
    assert isnan(value(metrics, "disk_free_bytes", folder="state"))
    for name in ("disk_size_bytes", "disk_free_files", "disk_size_files"):
        assert isnan(value(metrics, name, folder="state")), name
    assert (value(metrics, "quarantine_bytes"), value(metrics, "quarantine_max_bytes")) == (
        300,
        1000,
    )

    (folder / "2026-01-02.u7.jsonl").write_bytes(b"x" * 5)
    room.measure()
    assert value(metrics, "quarantine_bytes") == 300, "not so soon again"
    monkeypatch.setattr(disk_metrics, "LOOK_SECS", 0.0)
    room = QuarantineMetrics(metrics, quarantine, 1000)
    room.measure()
    assert value(metrics, "quarantine_bytes") == 305
    folder.rename(tmp_path / "moved")
    room.measure()
    assert isnan(value(metrics, "quarantine_bytes"))
