"""The first streams of `make fuzz`, and those that revealed a fault."""

from pathlib import Path

import pytest

from tests.tools.stress import fuzz
from tests.tools.stress.fuzz_streams import Case, check, make_case

STREAMS = 1000
FAULTS = {
    "an ESC joined to what follows a sequence": Case(160, 50, [(b"\x1b\x1b[K[K", 0.0)], [1, 5, 8]),
    "the same, next to CR": Case(160, 50, [(b"a\r\n\x1b[\x1b[0mKb", 0.0)], [1, 5, 8]),
    "a wrapped line that goes on later": Case(
        12,
        4,
        [
            (b"====               ", 0.0),
            (b"2Kother 3\r\x1b[\r1A*\r\x1b[2K", 1.5),
            (b"\x1b[?1048l", 2.4),
        ],
        [1, 26, 12],
    ),
    "no autowrap: cells drawn over": Case(
        10, 3, [(b"\x1b[?7lb@xxxxxxx\xbd\x1b[2JHa\n", 0.0)], [3, 21]
    ),
    "an ended blank line that the cursor comes back to": Case(
        20, 5, [(b"\rm\n\x0b\x1b[u\n\x1b", 0.0)], [3, 8]
    ),
}


@pytest.mark.parametrize("begin", range(0, STREAMS, STREAMS // 5))
def test_streams(begin: int) -> None:
    for seed in range(begin, begin + STREAMS // 5):
        try:
            check(make_case(seed))
        except Exception as error:
            error.add_note(f"seed {seed}: {make_case(seed)}")
            raise


@pytest.mark.parametrize("name", FAULTS)
def test_faults_found(name: str) -> None:
    check(FAULTS[name])


def test_a_failing_stream_is_kept_with_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(case: Case) -> None:
        raise ValueError(f"{len(case.pieces)} pieces")

    monkeypatch.setattr(fuzz, "check", fail)
    monkeypatch.setattr(
        "sys.argv", ["fuzz", "--seed", "7", "--count", "100", "--failures", str(tmp_path / "found")]
    )
    assert fuzz.main() == 1
    assert "20 streams failed; that's enough" in capsys.readouterr().out
    report = (tmp_path / "found" / "7.txt").read_text()
    assert "-m tests.tools.stress.fuzz --seed 7 --count 1\n" in report
    assert repr(make_case(7)) in report
