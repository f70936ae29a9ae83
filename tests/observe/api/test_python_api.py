"""docs/python-api.md: every example runs with its documented result; the package has all names, and
a light import."""

import doctest
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import logshipper
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import ROOT
from tests.tools.stores.reading_store import SpooledCapture

PAGE = ROOT / "docs" / "python-api.md"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "store"
    monkeypatch.setenv("LOGSHIPPER_STORE", str(root))
    began_ns = time.time_ns() - 100 * NS
    for number in (1, 2):
        with SpooledCapture(root, f"a{number}", started_ns=began_ns + 20 * number * NS) as job:
            job.metadata({"lr": 0.1, "model": "mlp"})
            for epoch in range(1, 4):
                job.metadata({"epoch": epoch, "loss": 2 * 0.5**epoch if number == 2 else 1 / epoch})
                job.stderr(f"epoch {epoch} done")
            job.event(
                "mode_changed",
                "metadata now",
                **{"from": "enabled", "to": "metadata"},
                stream="stdout",
            )
            job.end(number % 2)
    return root


def test_the_pages_examples_run(store: Path) -> None:
    text = PAGE.read_text()
    assert text.count(">>> ") > 25
    examples = doctest.DocTestParser().get_doctest(
        re.sub(r"^```.*$", "", text, flags=re.M), {}, PAGE.name, None, 0
    )
    failures: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(
        examples, out=failures.append
    )
    assert result.failed == 0, "".join(failures)
    assert result.attempted == text.count(">>> ")


def test_every_name_is_there() -> None:
    assert {*logshipper.__all__, "__version__", "__doc__"} <= {*dir(logshipper)}
    assert not [name for name in dir(logshipper) if name[0] == "_" and name[:2] != "__"]
    assert all(
        getattr(logshipper, name).__doc__ for name in logshipper.__all__ if name != "Columns"
    )
    with pytest.raises(AttributeError, match="no_such"):
        logshipper.no_such  # noqa: B018  the access itself is under test


def test_what_the_library_gives_has_a_name_to_import(store: Path) -> None:
    """Annotations and isinstance need only names of `logshipper`, none of its inner modules."""
    with logshipper.Store.local() as opened:
        job = opened.job("a1")
        answers = [
            opened, opened.jobs(), opened.info("a1"), opened.info("a1")["a1"], job, job.summary, job.x_axis(),
            *job.captures(), *job.keys(), *job.lines(), *job.records(), *job.events(), job.metrics(), job.rollup(),
            *job.rollup().values(), logshipper.EventLog(opened), *logshipper.EventLog(opened),
        ]  # fmt: skip
    names = {type(answer).__name__ for answer in answers}
    assert names <= {*dir(logshipper)}


def test_errors_of_the_page_are_all_there_are() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text().split("## Errors")[1], re.M)
    errors = {name for name in logshipper.__all__ if isinstance(getattr(logshipper, name), type)
              and issubclass(getattr(logshipper, name), Exception)}  # fmt: skip
    assert set(rows) == errors - {"LogshipperError"} | {"ValueError", "LookupError"}


def test_commands_start_without_the_library() -> None:
    module_listing = "print([name for name in sys.modules if name.endswith('_api')])"
    code = f"import sys, logshipper, logshipper_observe.commands.cli; {module_listing}"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(logshipper.StoreError, match="no store here yet"):
        logshipper.Store.local(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_a_store_without_arguments_is_the_default_one(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logshipper.Store() as default_store, logshipper.Store.local(store) as local_store:
        assert [job.job_id for job in default_store.jobs()] == ["a2", "a1"]
        default_store.job("a1").tag("good")
        assert local_store.job("a1").tags == {"good": ""}
    monkeypatch.setenv("LOGSHIPPER_STORE", str(tmp_path / "nothing"))
    with pytest.raises(logshipper.StoreError, match="no store here yet"):
        logshipper.Store()
    monkeypatch.delenv("LOGSHIPPER_STORE")
    site = tmp_path / "site.toml"
    site.write_text('[reading]\ndefault_source = "loki"\n[loki]\nurl = "http://127.0.0.1:9"\n')
    monkeypatch.setenv("LOGSHIPPER_SITE", str(site))
    with logshipper.Store() as loki_store, pytest.raises(logshipper.QueryError, match="Loki"):
        list(loki_store.jobs())


def test_waiting_ends_when_the_time_is_up(store: Path) -> None:
    with SpooledCapture(store, "runs") as job:
        job.beat()
        with logshipper.Store.local() as local_store:
            assert local_store.wait_any("runs", timeout_secs=0) == (None, None)
            with pytest.raises(logshipper.TimedOut) as error:
                local_store.wait_all("a1", "runs", timeout_secs=0)
            assert error.value.left == ("runs",)
            assert local_store.job("runs").is_running
        job.end()
    with logshipper.Store.local() as local_store:
        assert local_store.wait_any("runs") == ("runs", "COMPLETED")
