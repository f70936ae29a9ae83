"""The quarantine: refused entries are on the disk before they count as done, and stay within their
room."""

import json
import os
import stat
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import StoreError
from logshipper.spool.segment import Stream
from logshipper_ingest.model.capture_rows import BlockRow, Rows
from logshipper_ingest.shipping.entries import EntryBuilder
from logshipper_ingest.shipping.quarantine import Quarantine, Refusal
from logshipper_ingest.spool.capture_folder import Identity
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.quarantined_entries import cut_torn_line

IDENTITY = Identity("job1", 2, "3", 4, "train.py", "ann", "n1", "local")
TIME_NS = 1_750_000_000_000_000_000
ordinary_user_only = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def refusals(*lines: bytes, words: str = "no thanks") -> list[Refusal]:
    text = b"".join(line + b"\n" for line in lines)
    builder = EntryBuilder("job1@2.aaaa", IDENTITY, 1000)
    (chunk,) = builder.chunks(
        Rows(blocks=[BlockRow(Stream.STDERR, TIME_NS, len(lines), None, {0: {"repeat": 5}}, text)])
    )
    return [Refusal(chunk, "too_old", 400, words)]


def entries(folder: Path) -> list[dict[str, Any]]:  # Any: JSON
    return [
        json.loads(line)
        for file in sorted(folder.iterdir())
        for line in file.read_text().splitlines()
    ]


def test_an_entry_is_kept_with_all_that_replaying_it_takes(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    begin_ns = time.time_ns()
    assert Quarantine(str(folder), 10_000).put(refusals(b"one", b"two")) == 0
    first, second = entries(folder)
    assert begin_ns <= first.pop("refused_ns") <= time.time_ns()
    assert first == {
        "reason": "too_old",
        "status": 400,
        "words": "no thanks",
        "stream": "stderr",
        "kind": "log",
        "host": "n1",
        "tenant": "",
        "capture": "job1@2.aaaa",
        "time_ns": TIME_NS,
        "metadata": {
            "job_id": "job1",
            "user": "ann",
            "step": "3",
            "task": "4",
            "attempt": "2",
            "repeat": "5",
        },
        "line": "one",
    }
    assert (second["time_ns"], second["line"], "repeat" in second["metadata"]) == (
        TIME_NS + 1,
        "two",
        False,
    )


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        Quarantine(str(tmp_path / "quarantine"), 10_000).put(refusals(b"secret"))
    finally:
        os.umask(old)
    (file,) = (tmp_path / "quarantine").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_hostile_lines_and_words_stay_one_line_each(tmp_path: Path) -> None:
    hostile = [b'{"reason":"forged"}', b"\xff\xfe\x00", b"\xe2\x80\xa8 \x1b[2J \r", b""]
    Quarantine(str(tmp_path), 10_000).put(refusals(*hostile, words='"}\n{\u2028\x00'))
    (file,) = tmp_path.iterdir()
    lines = file.read_bytes().split(b"\n")
    assert lines.pop() == b""
    records = [json.loads(line) for line in lines]
    assert [entry["line"] for entry in records] == [
        '{"reason":"forged"}', "\ufffd\ufffd\x00", "\u2028 \x1b[2J \r", ""]  # fmt: skip
    assert {entry["reason"] for entry in records} == {"too_old"}


def test_what_is_refused_once_more_stands_there_once(tmp_path: Path) -> None:
    """The same agent or the next one repeats a round, after a line that a crash cut off."""
    first = Quarantine(str(tmp_path), 100_000)
    assert first.put(refusals(b"one", b"two")) == 0
    assert first.put(refusals(b"one", b"two")) == 0
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(b"[1]\n" + whole + whole[:40])
    later = Quarantine(str(tmp_path), 100_000)
    assert later.put(refusals(b"one", b"two")) == 0
    assert file.read_bytes() == b"[1]\n" + whole
    assert later.put([*refusals(b"one", b"other", words="as before")]) == 0
    assert [
        entry["line"] for entry in map(json.loads, file.read_text()[len(whole) + 4 :].splitlines())
    ] == ["other"]


def test_what_finds_no_room_is_counted_and_the_cap_holds(tmp_path: Path) -> None:
    quarantine = Quarantine(str(tmp_path), 8000)  # of which a user gets an eighth
    drop_count = sum(
        quarantine.put(refusals(b"x%d" % at * 20, b"y%d" % at * 20)) for at in range(10)
    )
    records = entries(tmp_path)
    assert len(records) + drop_count == 20
    assert 0 < len(records) < 20
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1000


def test_no_room_at_all_writes_no_file(tmp_path: Path) -> None:
    assert Quarantine(str(tmp_path), 0).put(refusals(b"one")) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "size"), [("2026-01-01.u4242.jsonl", 7990), (f"2026-01-01.u{IDENTITY.uid}.jsonl", 990)]
)
def test_what_lies_there_already_counts(tmp_path: Path, name: str, size: int) -> None:
    """All files count against the whole room, and a user's files against an eighth of it."""
    (tmp_path / name).write_bytes(b"x" * size)
    assert Quarantine(str(tmp_path), 8000).put(refusals(b"one")) == 1


def test_what_a_killed_rewriter_left_takes_no_room(tmp_path: Path) -> None:
    (tmp_path / f".rewritten-2026-01-01.u{IDENTITY.uid}.jsonl").write_bytes(b"x" * 8000)
    assert Quarantine(str(tmp_path), 8000).put(refusals(b"one")) == 0


def test_room_that_somebody_made_is_used(tmp_path: Path) -> None:
    quarantine = Quarantine(str(tmp_path), 8000)
    serial = count()
    while quarantine.put(refusals(b"%050d" % next(serial))) == 0:
        pass
    for file in tmp_path.iterdir():
        file.unlink()
    assert quarantine.put(refusals(b"y")) == 0, "its files were looked through and removed"
    assert [entry["line"] for entry in entries(tmp_path)] == ["y"]


def test_what_an_agent_put_in_before_it_was_killed_stands_there_once(tmp_path: Path) -> None:
    """A kill came after the entries, and before the checkpoint. Loki refuses them again for the
    next agent, with others."""
    Quarantine(str(tmp_path), 80_000).put(refusals(b"a", b"b"))
    (file,) = tmp_path.iterdir()
    (first, second) = file.read_bytes().splitlines(keepends=True)
    for content in (first + second, first + second[:-1], first + second[:7], first, first[:1], b""):
        file.write_bytes(content)
        next_agent = Quarantine(str(tmp_path), 80_000)
        for words in ("no thanks", "not again"):
            next_agent.put(refusals(b"a", b"b", b"c", words=words))
        assert [entry["line"] for entry in entries(tmp_path)] == ["a", "b", "c"]


def test_a_long_torn_line_is_cut_off_whole(tmp_path: Path) -> None:
    file = tmp_path / "2026-01-01.u-1.jsonl"
    file.write_bytes(b"{}\n" + b"x" * 200_000)
    with file.open("r+b") as open_file:
        assert cut_torn_line(open_file.fileno()) == 3
    assert file.read_bytes() == b"{}\n"


def test_what_somebody_took_out_is_put_in_again(tmp_path: Path) -> None:
    quarantine = Quarantine(str(tmp_path), 80_000)
    quarantine.put(refusals(b"a", b"b"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    quarantine.put(refusals(b"a", b"b"))
    assert [entry["line"] for entry in entries(tmp_path)] == ["a", "b"]


def test_what_could_not_be_written_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine = Quarantine(str(tmp_path), 100_000)
    quarantine.put(refusals(b"before"))
    with monkeypatch.context() as patch:

        def fail(fd: int) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match="can't be written: input/output error"):
            quarantine.put(refusals(b"a", b"b"))
    assert quarantine.put(refusals(b"after")) == 0
    assert [entry["line"] for entry in entries(tmp_path)] == ["before", "after"]


def test_a_disk_that_fills_up_while_writing_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine = Quarantine(str(tmp_path), 100_000)
    write = os.write
    calls: list[int] = []

    def some(fd: int, text: bytes) -> int:
        calls.append(len(text))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(fd, text[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", some)
        with pytest.raises(StoreError, match="no space left"):
            quarantine.put(refusals(b"a"))
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b""


def test_a_line_that_a_power_cut_left_spoils_none_that_follows(tmp_path: Path) -> None:
    quarantine = Quarantine(str(tmp_path), 100_000)
    quarantine.put(refusals(b"before"))
    (file,) = tmp_path.iterdir()
    with file.open("ab") as torn:
        torn.write(b'{"refused_ns":17')
    quarantine.put(refusals(b"after"))
    lines = [
        line.entry.line if line.entry else None
        for line in quarantine_files.read_lines(str(tmp_path), file.name)
    ]
    assert lines == ["before", "after"]


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, text: write(fd, text[:7]))
    Quarantine(str(tmp_path), 100_000).put(refusals(b"a", b"b"))
    assert [entry["line"] for entry in entries(tmp_path)] == ["a", "b"]


def test_a_new_file_and_its_name_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses a file without a synced name. Its lines are lost as well, since their
    segments are gone."""
    quarantine = Quarantine(str(tmp_path), 100_000)
    synced: list[bool] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(fd).st_mode))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    quarantine.put(refusals(b"a"))
    assert False in synced, "the file"
    assert True in synced, "its folder"


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    folder = tmp_path / "quarantine"
    quarantine = Quarantine(str(folder), 10_000)
    for day in (0, 86400):  # midnight may pass meanwhile
        (
            folder
            / time.strftime(f"%Y-%m-%d.u{IDENTITY.uid}.jsonl", time.gmtime(time.time() + day))
        ).symlink_to(target)
    with pytest.raises(StoreError):
        quarantine.put(refusals(b"one"))
    assert not target.exists()


def test_a_place_that_is_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't be written"):
        Quarantine(str(tmp_path / "file" / "quarantine"), 1000)


@ordinary_user_only
def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    quarantine = Quarantine(str(folder), 1000)
    folder.chmod(0o500)
    with pytest.raises(StoreError, match="permission denied"):
        quarantine.put(refusals(b"one"))
