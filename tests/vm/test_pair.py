"""Counting the answers of two machines, and replacing one version by another."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logshipper_ingest.model.ledger import LEDGER_COUNTS
from tests.vm.answers import Account, accounts_of
from tests.vm.guest import upgrade
from tests.vm.pair_cases import FAULTS
from tests.vm.pair_figures import Figures, Log, compare, own_lines, sequence_faults

OWN = {"stdout": ["out 1", "out 2", "out 3"], "stderr": ["err 1", "err 2"]}


def account(
    logs: dict[str, list[str]], ledger: dict[str, dict[str, int]], said: int = 0
) -> Account:
    """Return Loki's account of a job with one capture."""

    def entry(kind: str, stream: str, line: str) -> str:
        metadata = {"job_id": "12", "attempt": "1", "step": "batch"}
        return json.dumps([metadata, {"kind": kind, "stream": stream}, line])

    full = {
        stream: {**dict.fromkeys(LEDGER_COUNTS, 0), **counts} for stream, counts in ledger.items()
    }
    events: list[dict[str, object]] = [{"event": "closed", "ledger": full}]
    events += [{"event": "lines_lost", "lines": said}] if said else []
    entries = [entry("log", stream, line) for stream, lines in logs.items() for line in lines]
    entries += [entry("event", "", json.dumps(event)) for event in events]
    return accounts_of("\n".join(entries))["12"]


def counts(lines: int, lost: int = 0) -> dict[str, int]:
    return {"read": lines + lost, "stored": lines, "lost": lost}


WHOLE = account(OWN, {"stdout": counts(3), "stderr": counts(2)})


def test_own_files() -> None:
    files = {
        "7.out": b"out 1\nout 2\n",
        "7.err": b"err 1\nslurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED ***\n",
        "8.out": b"",
        "notes.txt": b"x\n",
    }
    assert own_lines(files, Log.WHOLE) == {
        "7": {"stdout": ["out 1", "out 2"], "stderr": ["err 1"]},
        "8": {"stdout": []},
    }


def test_own_files_after_a_reset() -> None:
    files = {"7.out": b"out 1\nout 2\nou\0\0\0\0", "7.err": b"\0\0\0"}
    assert own_lines(files, Log.AHEAD) == {"7": {"stdout": ["out 1", "out 2"], "stderr": []}}
    assert len(own_lines(files, Log.WHOLE)["7"]["stdout"]) == 3


def test_what_the_script_prints() -> None:
    whole = {"stdout": ["out 1", "out 2", "out end"], "stderr": ["err 1", "err 2"]}
    assert sequence_faults("7", whole, whole=True) == []
    assert sequence_faults("7", OWN, whole=False) == []
    assert len(sequence_faults("7", OWN, whole=True)) == 1
    gap = {"stdout": ["out 1", "out 3"], "stderr": ["err 2"]}
    assert len(sequence_faults("7", gap, whole=False)) == 2


def test_a_log_that_is_whole() -> None:
    for log in (Log.WHOLE, Log.AHEAD, Log.COUNTED):
        assert compare("12", OWN, WHOLE, log) == (Figures(1, 5), [])


@pytest.mark.parametrize(
    ("lines", "figures"),
    [
        (["out 1", "out 3"], Figures(1, 5, lost=1)),
        (["out 1", "out 2", "out 2", "out 3"], Figures(1, 5, repeated=1)),
        (["out 1", "out 2", "out 3", "out 4"], Figures(1, 5, more=1)),
        (["out 2", "out 1", "out 3"], Figures(1, 5)),
    ],
)
def test_a_log_that_is_not(lines: list[str], figures: Figures) -> None:
    logs = {"stdout": lines, "stderr": OWN["stderr"]}
    ledger = {"stdout": counts(len(lines)), "stderr": counts(2)}
    found, faults = compare("12", OWN, account(logs, ledger), Log.WHOLE)
    assert found == figures
    assert faults[0].startswith("12 stdout: ")


def test_a_log_that_a_reset_left_ahead() -> None:
    own = {"stdout": ["out 1"], "stderr": ["err 1", "err 2"]}
    assert compare("12", own, WHOLE, Log.AHEAD) == (Figures(1, 3, more=2), [])
    own = {"stdout": ["out 2"], "stderr": ["err 1", "err 2"]}
    assert compare("12", own, WHOLE, Log.AHEAD)[1]


def test_lines_that_are_counted_as_lost() -> None:
    logs = {"stdout": ["out 1", "out 3"], "stderr": ["err 1"]}
    ledger = {"stdout": counts(2, lost=1), "stderr": counts(1, lost=1)}
    assert compare("12", OWN, account(logs, ledger, 2), Log.COUNTED) == (Figures(1, 5, 2), [])
    _, faults = compare("12", OWN, account(logs, ledger, 1), Log.COUNTED)
    assert "12 the log says that 1 lines are lost, 2 are missing" in faults
    ledger = {"stdout": counts(2, lost=1), "stderr": counts(1)}
    _, faults = compare("12", OWN, account(logs, ledger, 2), Log.COUNTED)
    assert "12 the ledger has 1 lines as lost, 2 are missing" in faults
    assert compare("12", OWN, account(logs, ledger, 2), Log.WHOLE)[1]


def test_a_capture_that_is_missing() -> None:
    figures, faults = compare("12", OWN, Account({}, [], []), Log.WHOLE)
    assert figures == Figures(1, 5, 5)
    assert "12: 0 captures are closed, not 1" in faults


def test_words() -> None:
    assert Figures(4, 80, 0, 0).words() == "4 jobs, 80 lines printed, 0 lost, 0 repeated"
    assert Figures(1, 2, more=3).words().endswith("3 more in the log than in own files")


def test_names_of_faults() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)


def test_a_version_becomes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed, site = tmp_path / "mixed", tmp_path / "site"
    mixed.mkdir()
    monkeypatch.setattr(upgrade, "MIXED", mixed)
    source = tmp_path / "source"
    for name, text in {
        "logshipper/__init__.py": '__version__ = "1.0"\n',
        "logshipper/late.py": "x = 1\n",
        "logshipper-1.0.dist-info/METADATA": "Name: x\nVersion: 1.0\n",
        "logshipper-1.0.dist-info/licenses/LICENSE": "free\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    upgrade.replace(site, source, "1.0")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import logshipper; print(logshipper.__version__)"
        "; input(); from logshipper import late"
    )
    command = [sys.executable, "-I", "-B", "-c", script, str(site)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"1.0\n"
        upgrade.replace(site, source, "2.0")
        old.communicate(b"\n", timeout=60)
        assert old.returncode == 0
    assert [place.name for place in mixed.iterdir()] == ["logshipper.late"]
    assert [place.parent.name for place in site.rglob("METADATA")] == ["logshipper-2.0.dist-info"]
    assert (site / "logshipper-2.0.dist-info/licenses/LICENSE").exists()
    assert "Version: 2.0" in (site / "logshipper-2.0.dist-info/METADATA").read_text()
    (mixed / "logshipper.late").unlink()
    subprocess.run(command, input=b"\n", stdout=subprocess.DEVNULL, check=True, timeout=60)
    assert list(mixed.iterdir()) == []
