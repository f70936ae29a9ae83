"""The choice of Loki for tests, demonstrations and benchmarks, messages without one, and the counts
of `make test-all`.

Programs and container engines are scripts here: no container runs.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import run as tiers_run
from tests import tiers
from tests.servers import build, go, loki, meanwhile, places, setting
from tests.servers.places import ServerMissing
from tests.tools import outcomes
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

IMAGE = loki.image()
TAG = IMAGE.rpartition(":")[2]
DOWN = "echo 'Cannot connect to the daemon' >&2; exit 1"
# an engine that works: its containers have the file $INSIDE at the place of Loki's program
ENGINE = """
echo "$@" >>"$CALLS"
case $1 in
    create) [ "$4" = "$IMAGE" ] || { echo "no image $4" >&2; exit 125; } ;;
    cp) [ "${2#*:}" = /usr/bin/loki ] && cp "$INSIDE" "$3" ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def says(version: str) -> str:
    return f"echo 'loki, version {version} (branch: x, revision: y)'"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH; the machine has no Loki, and no engine answers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cp").symlink_to("/bin/cp")
    for engine in loki.ENGINES:
        script(folder / engine, DOWN)
    for module in (places, go, loki):
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(loki, "GIVEN_LOKI", None)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def calls(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with calls of the engines, which have an image with a Loki."""
    inside = script(tmp_path / "inside", says(TAG))
    values = {"CALLS": tmp_path / "calls", "INSIDE": inside, "IMAGE": f"docker.io/{IMAGE}"}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path / "calls"


def test_the_order_of_places(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Path
) -> None:
    script(programs / "podman", ENGINE)
    taken = loki.fetch_loki()
    assert (taken.path, taken.version) == (
        tmp_path / "cache" / f"loki-image-{TAG}-{places.MACHINE}" / "loki",
        TAG,
    )
    newer = script(tmp_path / "cache" / "loki-99.10.0" / "loki", says("99.10.0"))
    script(tmp_path / "cache" / "loki-99.9.0" / "loki", says("99.9.0"))
    assert loki.fetch_loki() == (newer, "99.10.0", "from the cache")
    on_path = script(programs / "loki", says("3.0.0"))
    assert loki.fetch_loki() == (on_path, "3.0.0", "from the PATH")
    given = script(tmp_path / "given", says("main-1a2b3c4"))
    monkeypatch.setattr(loki, "GIVEN_LOKI", given)
    assert loki.fetch_loki() == (given, "main-1a2b3c4", "by LOGSHIPPER_TEST_LOKI")


@pytest.mark.parametrize("name", ["loki", "loki/loki", "loki-3.1.0-x/loki"])
def test_places_in_the_cache(programs: Path, tmp_path: Path, name: str) -> None:
    path = script(tmp_path / "cache" / name, says("3.1.0"))
    assert loki.find_loki().path == path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "isn't the program of a Loki that runs here"),
        ("echo linkage analysis 2.4.7", "isn't the program of a Loki that runs here"),
        (f"{says('3.7.6')}; exit 1", "isn't the program of a Loki that runs here"),
        (says("2.9.17"), "is Loki 2.9.17: 3.0 or later is needed"),
    ],
)
def test_one_that_is_named_and_unfit_is_said(
    text: str | None, words: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error also comes if another Loki exists, because the setting is explicit."""
    script(programs / "loki", says("3.0.0"))
    given = tmp_path / "given"
    if text is not None:
        script(given, text)
    monkeypatch.setattr(loki, "GIVEN_LOKI", given)
    for look in (loki.find_loki, loki.fetch_loki):
        with pytest.raises(ServerMissing) as missing:
            look()
        assert str(missing.value) == f"LOGSHIPPER_TEST_LOKI={given} {words}"


def test_another_program_of_that_name_and_an_old_loki_are_passed_over(
    programs: Path, tmp_path: Path
) -> None:
    script(programs / "loki", "echo linkage analysis 2.4.7")
    script(tmp_path / "cache" / "loki-2" / "loki", says("2.9.17"))
    with pytest.raises(ServerMissing, match="LOGSHIPPER_TEST_LOKI=/path/to/loki"):
        loki.find_loki()


@pytest.mark.parametrize("engine", loki.ENGINES)
def test_it_is_taken_out_of_the_image_once(
    engine: str, programs: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(programs / engine, ENGINE)
    taken = loki.fetch_loki()
    assert loki.fetch_loki() == loki.find_loki() == taken
    asked = [line.split()[0] for line in calls.read_text().splitlines()]
    assert asked == ["ps", "create", "cp", "rm"]
    assert f"Taking Loki out of the image {IMAGE} by {engine}, once" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"IMAGE": "docker.io/x:1"}, f"docker has no image docker.io/{IMAGE}"),
        ({"INSIDE": "/nonexistent"}, f"docker.io/{IMAGE} has no /usr/bin/loki"),
        ({"INSIDE": "/bin/false"}, f"that of {IMAGE} doesn't run here"),
    ],
)
def test_an_image_that_gives_none_leaves_nothing(
    change: Mapping[str, str],
    words: str,
    programs: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script(programs / "docker", ENGINE)
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ServerMissing) as missing:
        loki.fetch_loki()
    assert words in str(missing.value)
    assert [path.name for path in places.CACHE.iterdir()] == [".loki.lock"]
    last = calls.read_text().splitlines()[-1].split()[0]
    assert last == ("create" if "IMAGE" in change else "rm")


def test_without_any_three_lines_say_how_to_get_one(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make demo-servers` makes this call first."""
    assert build.main(["loki", "prometheus"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["make:", "Download", "Or"]
    for words in ("$LOGSHIPPER_TEST_LOKI", "on the PATH", str(places.CACHE), IMAGE, "Podman"):
        assert words in "\n".join(lines)


@pytest.fixture
def others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    get = build._get
    monkeypatch.setattr(build, "_get", lambda name: get(name) if name == "loki" else name)


def test_tests_go_on_without_one(
    programs: Path, others_are_there: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main([]) == 0
    output = capsys.readouterr().out
    assert "Going on without a Loki: no Loki is here" in output
    assert "Servers: no Loki, prometheus, victoria-metrics, influxdb, otelcol;" in output


def test_where_one_must_be_nothing_is_begun(
    programs: Path,
    others_are_there: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in (setting, build):
        monkeypatch.setattr(module, "MUST_LOKI", True)
    assert build.main([]) == 1
    assert meanwhile.main(["touch", str(tmp_path / "begun")]) == 1
    assert not (tmp_path / "begun").exists()
    assert "make: no Loki is here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wanted", "named", "must"),
    [
        ("", "", (False, False)),
        ("fetched", "", (True, False)),
        ("required", "", (True, True)),
        ("fetched", "/x/loki", (True, True)),
        ("off", "/x/loki", (False, False)),
    ],
)
def test_what_the_settings_demand(wanted: str, named: str, must: tuple[bool, bool]) -> None:
    code = "from tests.servers.setting import *; print(MUST_FETCHED, MUST_LOKI)"
    environment = {**os.environ, setting.SETTING: wanted, places.LOKI_SETTING: named}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == list(map(str, must)), done.stderr


def test_what_awaits_a_loki_is_counted_and_said_in_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run of a folder's tests counts each test that asks for a Loki.

    Tests skipped for other reasons or other servers do not count.
    """
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text("from tests.servers.fixtures import loki, lokis\n")
    (tests / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='module')\ndef site(loki): return loki\n"
        "@pytest.mark.parametrize('number', [1, 2])\ndef test_site(site, number): ...\n"
        "def test_own(lokis): ...\n"
        "def test_none(): ...\n"
        "def test_skipped(): pytest.skip('no tmux')\n"
    )
    out = tmp_path / "build" / tiers.ALL
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    options = ["-q", "-p", "tests.tools.outcomes", "-p", "no:cacheprovider", "-c", "/dev/null"]
    places_of_it = [outcomes.OPTION, str(out), "--rootdir", str(tmp_path), str(tests)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *places_of_it],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=scaled(60),
    )  # fmt: skip
    assert "1 passed, 4 skipped" in done.stdout, done.stdout + done.stderr
    assert (out / outcomes.SKIPPED).read_text() == "tests/test_some.py::test_skipped\n"
    assert (out / outcomes.AWAITING).read_text().count("\n") == 3

    monkeypatch.setattr(tiers_run, "OUTCOMES", out.parent)
    monkeypatch.setattr(tiers_run, "_run_tier", lambda *_: 0)
    monkeypatch.setattr(tiers_run, "_run_as_ordinary_user", lambda tests: print(tests) or 0)
    monkeypatch.setattr(tiers_run, "_as_from_a_shell", lambda: None)
    assert tiers_run.main([tiers.ALL]) == 0
    output = capfd.readouterr().out
    assert output.splitlines()[-1] == (
        "3 tests await a Loki: name the program of Loki 3.0 or later by"
        " LOGSHIPPER_TEST_LOKI=/path/to/loki, or put it on the PATH (docs/development.md)"
    )
    assert "test_own" not in output
