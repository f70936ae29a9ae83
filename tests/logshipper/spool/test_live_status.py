"""The file of the live status: overwritten in place, small, and treated as hostile input."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.spool.live_status import LIVE_FILE, MAX_LIVE_BYTES, LiveStatusFile, decode_live
from logshipper.spool.segment import MAX_STATUS_BYTES, STATUS_BREAK, Kind, Stream, encode_lines
from tests.tools.stress.model_settings import examples

OUT, ERR = Stream.STDOUT, Stream.STDERR


def _read(folder: Path) -> dict[Stream, tuple[int, bytes]]:
    return decode_live((folder / LIVE_FILE).read_bytes())


def test_each_state_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = LiveStatusFile(str(tmp_path))
    file.show({OUT: b"", ERR: b""}, 1)
    assert os.listdir(tmp_path) == [], "there is nothing to show yet"
    for number in range(1000):
        file.show({OUT: b"step %04d" % number, ERR: b"warming up"}, 10 + number)
    assert _read(tmp_path) == {OUT: (1009, b"step 0999"), ERR: (10, b"warming up")}
    assert (tmp_path / LIVE_FILE).stat().st_size < 300
    assert (tmp_path / LIVE_FILE).stat().st_mode & 0o777 == 0o600
    file.show({OUT: b"", ERR: b"warming up"}, 2000)
    assert _read(tmp_path) == {OUT: (2000, b""), ERR: (10, b"warming up")}
    file.close()


def test_several_bars_are_lines(tmp_path: Path) -> None:
    file = LiveStatusFile(str(tmp_path))
    file.show({OUT: STATUS_BREAK.join([b"epoch", b"batch"]), ERR: b""}, 1)
    assert _read(tmp_path) == {OUT: (1, b"epoch\nbatch")}
    file.close()


def test_nothing_of_what_was_withdrawn_stays(tmp_path: Path) -> None:
    file = LiveStatusFile(str(tmp_path))
    file.show({OUT: b"a secret word " * 20, ERR: b"another secret"}, 1)
    file.show({OUT: b"", ERR: b""}, 2)
    assert b"secret" not in (tmp_path / LIVE_FILE).read_bytes()
    file.close()


def test_the_longest_ones_fit(tmp_path: Path) -> None:
    file = LiveStatusFile(str(tmp_path))
    longest = b"#" * MAX_STATUS_BYTES
    file.show({OUT: longest, ERR: longest}, (1 << 63) - 1)
    assert (tmp_path / LIVE_FILE).stat().st_size <= MAX_LIVE_BYTES
    assert {text for _, text in _read(tmp_path).values()} == {longest}
    file.close()


def test_a_full_disk_shows_nothing_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LiveStatusFile(str(tmp_path))
    file.show({OUT: b"10%", ERR: b"two"}, 1)
    tries: list[int] = []

    def refuse(fd: int, data: bytes, offset: int) -> int:
        tries.append(fd)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        for _ in range(100):
            file.show({OUT: b"20%", ERR: b"two"}, 2)
        assert len(tries) == 1, "it is tried again when there is something else to show"
        assert _read(tmp_path) == {}
    file.show({OUT: b"30%", ERR: b"two"}, 3)
    assert _read(tmp_path) == {OUT: (3, b"30%"), ERR: (1, b"two")}
    file.close()


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / LIVE_FILE).symlink_to(tmp_path / "theirs")
    file = LiveStatusFile(str(tmp_path))
    file.show({OUT: b"10%", ERR: b""}, 1)
    file.close()
    assert (tmp_path / "theirs").read_text() == "theirs"


_frame = encode_lines(OUT, 7, b"50%\n", [(Kind.STATUS, 1)])


@given(st.binary(max_size=200), st.integers(0, len(_frame)))
@settings(max_examples=examples(100))
def test_whatever_stands_there_is_read(noise: bytes, cut: int) -> None:
    """This includes random bytes, and a file in the middle of an overwrite."""
    for data in (noise, _frame + noise, _frame[:cut] + noise, b"\0" + noise):
        for text in (text for _, text in decode_live(data).values()):
            assert len(text) <= MAX_STATUS_BYTES


@pytest.mark.parametrize(
    "data",
    [
        encode_lines(OUT, 7, b"a line\n", [(Kind.LOG, 1)]),
        encode_lines(OUT, 7, b"one\ntwo\n", [(Kind.STATUS, 2)]),
        encode_lines(OUT, 7, b"x" * MAX_LIVE_BYTES + b"\n", [(Kind.STATUS, 1)]),
    ],
)
def test_other_frames_are_none(data: bytes) -> None:
    assert decode_live(data) == {}
