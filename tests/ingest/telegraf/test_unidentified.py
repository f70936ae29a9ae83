"""The file of measurements from unknown senders: it keeps the newest ones up to its limit."""

import json
import os
from pathlib import Path

import pytest

from logshipper_ingest.telegraf import unidentified
from logshipper_ingest.telegraf.unidentified import UnidentifiedFile


def entries(folder: Path) -> list[str]:
    """Return the kept lines, the oldest first."""
    files = [folder / "telegraf" / name for name in ("unidentified.jsonl.1", "unidentified.jsonl")]
    return [
        json.loads(line)["lines"]
        for file in files
        if file.exists()
        for line in file.read_text().splitlines()
    ]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    file = UnidentifiedFile(str(tmp_path), 4_000)
    lines = [f"m value={number}i" for number in range(200)]
    assert all(file.keep("127.0.0.1:1", -1, "unidentified", text.encode()) for text in lines)
    records = entries(tmp_path)
    assert 10 < len(records) < 50
    assert records == lines[-len(records) :]
    sizes = [file.stat().st_size for file in (tmp_path / "telegraf").iterdir()]
    assert sum(sizes) <= 4_000
    assert (tmp_path / "telegraf" / "unidentified.jsonl").stat().st_mode & 0o777 == 0o600


def test_what_is_too_much_is_said_not_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not UnidentifiedFile(str(tmp_path), 0).keep("a", 7, "ambiguous", b"m value=1i")
    monkeypatch.setattr(unidentified, "BYTES_PER_SEC", 300)
    file = UnidentifiedFile(str(tmp_path), 100_000)
    results = [file.keep("a", 7, "ambiguous", b"m value=1i") for _ in range(20)]
    assert results[0]
    assert not all(results)
    assert len(entries(tmp_path)) == results.count(True)


def test_no_file_of_somebody_elses(tmp_path: Path) -> None:
    file = UnidentifiedFile(str(tmp_path), 100_000)
    os.symlink(tmp_path / "elsewhere", tmp_path / "telegraf" / "unidentified.jsonl")
    assert not file.keep("a", 7, "ambiguous", b"m value=1i")
    assert not (tmp_path / "elsewhere").exists()
