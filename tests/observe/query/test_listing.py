"""`ls` on a local store: conditions, selectors, columns, order, and a report for each unknown
job."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from logshipper.errors import ConfigError, UnknownJob
from logshipper.start.cli import main
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.model.key_values import KeyValues
from logshipper_ingest.sqlite_file import transaction
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.key_cache import FILE
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.model.overlay import Marks
from logshipper_observe.model.properties import JobRow
from logshipper_observe.query.columns import parse_columns
from logshipper_observe.query.conditions import parse_condition, tag_condition
from logshipper_observe.query.selectors import pick
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.sources import SOURCES
from tests.tools.stores.reading_store import Ask, SpooledCapture, asking
from tests.tools.waiting import scaled

NOW_NS = 1_780_000_000 * NS
LAST = {
    "loss": "0.25", "epoch": "5", "big": str(2**70), "text": '"0.25"', "opt.lr": "1e-3", "flag": "true", "gone": "null",
    "empty": '""', "nest": '{"a":[1]}', "name": '"of the metadata"', "metrics.acc": "0.5", "größe": "7", "a:b": "1",
}  # fmt: skip


def summary(job_id: str = "k3f9x2", name: str = "train.py", **changes: object) -> JobSummary:
    fields: dict[str, object] = {
        "user": "ada", "host": "node1", "state": "COMPLETED", "exit_code": 0, "signal": 0, "attempts": 1,
        "started_ns": NOW_NS - 7200 * NS, "ended_ns": NOW_NS - 3600 * NS, "heartbeat_ns": NOW_NS - 3600 * NS,
        "mode": "enabled", "lines": 12, "records": 5, "lost": 0, "bytes_printed": 1000, "bytes_logged": 100,
    }  # fmt: skip
    return JobSummary(job_id=job_id, name=name, **{**fields, **changes})  # type: ignore[arg-type]  # as the fields are


def row(**changes: object) -> JobRow:
    marks = Marks({"baseline": "", "dataset": "cifar10", "lr": "0.10"}, "a note", True)
    values = {key: KeyValues(last, 5) for key, last in LAST.items()}
    values |= {"loss": KeyValues("0.25", 5, "0.125", "2"), "small.min": KeyValues("7", 1, "6", "7")}
    return JobRow(summary(**changes), marks, NOW_NS, lambda job: values)  # type: ignore[arg-type]  # likewise


@pytest.mark.parametrize(
    "text",
    [
        "loss=0.25", "loss==.25", "loss = 0.250", "loss<0.3", "loss<=0.25", "loss>=0.25", "loss>.2", "loss!=0.3",
        "loss<>0",
        f"big={2**70}", f"big>{2**70 - 1}", "opt.lr=0.001", "flag=$true", "flag!=$false", "gone=$none", "nothing=$none",
        "loss!=$none", "empty=$empty", 'text="0.25"', "text!=0.25", "text:regex:^0[.]2", "loss:regex:25$",
        "nest:regex:a",
        "loss.min=0.125", "loss.max=2", "loss.last=0.25", "loss.count=5", "metrics.loss.min<0.2", "text.count=5",
        "small.min=7", "small.min.max=7", "text.min:exists:false", "loss.mean:exists:false", "metadata.loss.max>1",
        "loss:exists:true", "gone:exists:$true", "nothing:exists:false", "nothing!=5", "metadata.loss=0.25",
        "metrics.loss<1", "metrics.acc=0.5", "hparams.opt.lr=0.001", "metadata.name=of the metadata", "größe=7",
        "a:b=1",
        "name=train.py", "name:regex:^tr", "state=completed", "state=RUN_DONE", "state!=failed", "exit_code=0",
        "exit<1",
        "id=k3f9x2", "user='ada'", "lines>11", "duration=1h", "duration>=3600", "age<=2h", "ended>2026-01-01",
        "started<2026-05-29T00:00:00+00:00", "signal=0", "reason=$empty", "reason=$none", "cluster:exists:false",
        "tags.baseline:exists:true", "tags.dataset=cifar10", "tags.lr=0.1", "tags.lr<0.2", "tags.lr=0.10",
        "tags.x=$none",
        "tags.baseline=$empty", "tags.dataset:regex:^cifar", "starred=$true", "starred=yes", "note:regex:note",
        "tags:regex:lr=",
    ],
)  # fmt: skip
def test_conditions_that_hold(text: str) -> None:
    assert parse_condition(text).holds(row())


@pytest.mark.parametrize(
    "text",
    [
        "loss=0.3", "loss>0.25", "loss<0.25", "text=0.25", "text<1", "flag=1", "flag=true", "gone=0", "nothing=5",
        "nothing<5", "gone<5", "empty=$none", "loss:exists:false", "nothing:regex:.*", "name=Train.py", "state=failed",
        "exit!=0", "duration<1h", "tags.lr=0.2", "tags.baseline:exists:false", "tags.baseline=x", "starred=$false",
        "nest<1", "ended<2026-01-01", f"big={2**70 + 1}", "loss=$true", "nothing=$empty",
    ],
)  # fmt: skip
def test_conditions_that_do_not(text: str) -> None:
    assert not parse_condition(text).holds(row())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss", "isn't a condition"), ("=5", "isn't a condition"), ("", "isn't a condition"),
        ("loss:regex:(", "isn't a regular expression"), ("loss:exists:maybe", "true or false"),
        ("lines<many", "'many' isn't a number"), ("duration<soon", "a time such as 90s"),
        ("loss<", "nothing stands behind `<`"), ("loss >= ", "nothing stands behind `>=`"),
        ("started<yesterday", "2026-05-01"), ("starred=maybe", "$true or $false"),
    ],
)  # fmt: skip
def test_conditions_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_condition(text)
    assert message in str(error.value)
    assert repr(text) in str(error.value)


def test_tags_as_conditions() -> None:
    assert all(
        tag_condition(text).holds(row()) for text in ("baseline", "dataset=cifar10", "lr=0.1")
    )
    assert not any(
        tag_condition(text).holds(row()) for text in ("other", "dataset=mnist", "baseline=x")
    )


JOBS = [summary(f"a{number}", f"run{number}") for number in (12, 9, 7, 3, 1)] + [
    summary("4711", "train.py"), summary("4712", "train.py"), summary("b-2", "b-2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "ids"),
    [
        ("a3", ["a3"]), ("a3-a9", ["a9", "a7", "a3"]), ("a3-9", ["a9", "a7", "a3"]),
        ("run7-run12", ["a12", "a9", "a7"]),
        ("4711-4712", ["4711", "4712"]), ("b-2", ["b-2"]), ("b", ["b-2"]), ("last", ["a12"]),
        ("A*", ["a12", "a9", "a7", "a3", "a1"]),
        ("run?", ["a9", "a7", "a3", "a1"]), ("a[13]", ["a3", "a1"]), ("train.py", ["4711", "4712"]),
    ],
)  # fmt: skip
def test_selectors(selector: str, ids: list[str]) -> None:
    assert [job.job_id for job in pick([selector], JOBS, all_named=True).jobs] == ids


def test_selectors_that_stand_for_nothing_are_told_one_by_one() -> None:
    selection = pick(["a3", "runn7", "x*", "a90-a99", "train.py", "a3", "47"], JOBS)
    assert [job.job_id for job in selection.jobs] == ["a3", "4711"], "of a name, the newest"
    assert [error.name for error in selection.unknown] == ["runn7", "x*", "a90-a99", "47"]
    assert all(isinstance(error, UnknownJob) for error in selection.unknown)
    assert selection.unknown[0].suggestions[0] == "run7"


def test_columns_as_they_are_typed() -> None:
    columns = parse_columns(["name,loss=Loss:.5f", "lines=Lines:,", "opt.lr:.1e,a:b,x=A: B:.2f"])
    assert [(column.field.name, column.title, column.format) for column in columns] == [
        ("name", "name", ""), ("loss", "Loss", ".5f"), ("lines", "Lines", ","), ("opt.lr", "opt.lr", ".1e"),
        ("a:b", "a:b", ""), ("x", "A: B", ".2f"),
    ]  # fmt: skip
    for wrong in ("", "a,,b", "loss=Loss:5q", "loss=L:999999999f"):
        with pytest.raises(ConfigError, match="--columns"):
            parse_columns([wrong])


# ---- the command


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with jobs a1 to a12, each a second younger, with ever smaller losses; every
    third failed."""
    began_ns = time.time_ns() - 1000 * NS
    root = tmp_path / "store"
    for number in range(1, 13):
        with SpooledCapture(
            root, f"a{number}", name=f"run{number}", started_ns=began_ns + number * NS
        ) as job:
            job.metadata({"model": "big" if number % 2 else "small", "opt": {"lr": number}})
            job.metadata({"epoch": 1, "loss": 9.0}, {"epoch": 2, "loss": 1 / number})
            job.end(0 if number % 3 else 1)
    return root


@pytest.fixture
def ask(store: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    return partial(asking(store, capsys), "ls")


def ids(answer: tuple[int, str, str]) -> list[str]:
    assert (answer[0], answer[2]) == (0, "")
    return [job["job_id"] for job in json.loads(answer[1])["jobs"]]


def test_conditions_order_and_limit(ask: Ask) -> None:
    assert ids(ask("--json", "--all")) == [f"a{number}" for number in range(12, 0, -1)]
    assert len(ids(ask("--json"))) == 10, "by default"
    assert ids(ask("--json", "--filter", "loss<0.2", "--filter", "model=big")) == [
        "a11",
        "a9",
        "a7",
    ]
    assert ids(ask("--json", "--filter", "loss<0.2", "--state", "failed")) == ["a12", "a9", "a6"]
    assert ids(ask("--json", "--sort", "loss", "--limit", "3")) == ["a12", "a11", "a10"]
    assert ids(ask("--json", "--sort", "opt.lr", "--limit", "2", "a3-a9")) == ["a3", "a4"]
    assert ids(ask("--json", "--sort", "loss", "--reverse", "--limit", "2")) == ["a1", "a2"]
    assert ids(ask("--json", "--reverse", "--limit", "2")) == ["a1", "a2"]
    document = json.loads(ask("--json", "--limit", "1", "--filter", "loss<0.2")[1])
    assert (document["matching"], len(document["jobs"])) == (7, 1)


def test_columns_in_a_pipe_and_for_programs(ask: Ask) -> None:
    code, out, err = ask(
        "a3", "a1", "--columns", "id,loss=Loss:.3f,opt.lr=LR,model,nothing,tags.x,exit"
    )
    assert (code, err) == (0, "logshipper: none of these jobs has the key 'nothing'\n")
    assert [line.split() for line in out.splitlines()] == [
        ["id", "Loss", "LR", "model", "nothing", "tags.x", "exit"],
        ["a3", "0.333", "3", "big", "-", "-", "1"],
        ["a1", "1.000", "1", "big", "-", "-", "0"],
    ]
    (job,) = json.loads(ask("a3", "--json", "--columns", "loss=L:.1f,nothing,name,model")[1])[
        "jobs"
    ]
    assert job["columns"] == {"loss": 1 / 3, "nothing": None, "name": "run3", "model": "big"}


def test_roll_ups_are_columns(tmp_path: Path, ask: Ask) -> None:
    """Roll-ups are exact, and `ls` sorts and filters by them. A key with a roll-up's name takes
    precedence."""
    root = tmp_path / "rolled"
    runs: tuple[list[float], ...] = ([0.5, 0.1, 0.3], [0.4, 0.2, 2**70], [7])
    for at, losses in enumerate(runs):
        with SpooledCapture(root, f"r{at}") as job:
            job.metadata(*({"loss": loss, "lr": 0.1} for loss in losses))
            job.end()
    words = ("--store", str(root))
    columns = "id,loss.min,metrics.loss.max=Most,loss.count,loss"
    code, out, err = ask("--columns", columns, "--sort", "loss.min", *words)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["id", "loss.min", "Most", "loss.count", "loss"],
        ["r0", "0.1", "0.5", "3", "0.3"],
        ["r1", "0.2", str(2**70), "3", str(2**70)],
        ["r2", "7", "7", "1", "7"],
    ]
    assert ids(ask("--json", "--filter", "loss.max>=7", "--filter", "loss.count=3", *words)) == [
        "r1"
    ]
    (job_document, *_) = json.loads(ask("--json", "--columns", "loss.max,lr.min", "r1", *words)[1])[
        "jobs"
    ]
    assert job_document["columns"] == {"loss.max": 2**70, "lr.min": 0.1}


def test_wildcards_are_columns(tmp_path: Path, ask: Ask) -> None:
    root = tmp_path / "wild"
    with SpooledCapture(root, "w1") as job:
        job.metadata(
            {"lr": 0.1, "state": "odd", "[a]": 1},
            {"loss": 0.5, "val.loss": 1},
            {"loss": 0.25, "val.loss": 0.5},
        )
        job.end()
    words = ("w1", "--store", str(root), "--columns")

    def titles(columns: str) -> list[str]:
        code, out, err = ask(*words, columns)
        assert (code, err) == (0, "")
        return out.splitlines()[0].split()

    assert titles("metrics.*") == ["loss", "val.loss"]
    assert titles("id,hparams.*") == ["id", "[a]", "lr", "state"]
    assert titles("id,loss,*:.2f") == ["id", "loss", "[a]", "lr", "state", "val.loss"]
    assert titles("*loss") == ["loss", "val.loss"]
    assert titles("[a]*") == ["[a]"]
    assert ask(*words, "*:.2f")[1].splitlines()[1].split() == [
        "1.00",
        "0.25",
        "0.10",
        "odd",
        "0.50",
    ]
    (row,) = json.loads(ask(*words, "state,hparams.*", "--json")[1])["jobs"]
    assert row["columns"] == {"state": "COMPLETED", "[a]": 1, "lr": 0.1, "metadata.state": "odd"}
    code, out, err = ask(*words, "zz*,id")
    assert (code, out.split(), err) == (
        0,
        ["id", "w1"],
        "logshipper: none of these jobs has a key 'zz*'\n",
    )
    code, _, err = ask(*words, "*loss=Loss")
    assert (code, "can't share a title" in err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [["--sort", "los"], ["--columns", "id,los"], ["--filter", "los<1"]],
    ids=lambda words: words[0],
)
def test_a_mistyped_key_is_told(words: list[str], ask: Ask) -> None:
    code, out, err = ask(*words)
    assert (code, bool(out)) == (0, words[0] != "--filter")
    if words[0] == "--sort":
        assert out.splitlines()[1].startswith("a12 "), "what none has changes nothing"
    assert (
        err.splitlines()[0]
        == "logshipper: none of these jobs has the key 'los'; did you mean loss?"
    )
    assert "has the key" not in ask("--filter", "nothing:exists:false")[2], "that is asked for"
    assert "has the key" not in ask("--filter", "los<1", "--state", "timeout")[2], (
        "no job's keys were looked at"
    )


def test_an_operator_that_is_none_is_told(ask: Ask) -> None:
    for condition, words in (
        ("loss=<3", "`<=` is"),
        ("loss=>3", "`>=` is"),
        ("loss==<3", "no operator"),
    ):
        code, out, err = ask("--filter", condition)
        assert (code, out, words in err) == (2, "", True)
    assert ask("--filter", "model='<b>'")[0] == 0
    assert ask("--filter", "model:regex:<b>")[0] == 0


def test_by_state(ask: Ask) -> None:
    assert ask("--by-state")[1].split() == ["state", "jobs", "COMPLETED", "8", "FAILED", "4"]
    assert json.loads(ask("--by-state", "--json", "--filter", "loss<0.2")[1])["by_state"] == {
        "COMPLETED": 4,
        "FAILED": 3,
    }


def test_unknown_jobs_do_not_hide_the_others(ask: Ask) -> None:
    code, out, err = ask("a3", "rnu7", "zz*", "a11-a12", "--columns", "id")
    assert code == 1
    assert out.split() == ["id", "a12", "a11", "a3"]
    assert "did you mean run7" in err.splitlines()[0]
    assert [line.split(";")[0] for line in err.splitlines()] == [
        "logshipper: no job has the id or name 'rnu7'",
        "logshipper: no job's id or name matches 'zz*'",
    ]
    document = json.loads(ask("a3", "zz*", "--json")[1])
    assert [error["name"] for error in document["unknown"]] == ["zz*"]


def test_bad_conditions_and_columns_are_told(ask: Ask) -> None:
    for words in (["--filter", "loss"], ["--columns", "a=b:zz"], ["--filter", "lines<x"]):
        code, out, err = ask(*words)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1


def test_tags_choose(ask: Ask, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["a3", "+keep", "set=x"], ["a5", "+keep", "set=y"], ["a7", "set=x"]):
        assert main(["tag", *words, "--store", str(store)]) == 0
    capsys.readouterr()
    assert ids(ask("--json", "--tag", "keep")) == ["a5", "a3"]
    assert ids(ask("--json", "--tag", "keep", "--tag", "set=x")) == ["a3"]
    assert ids(ask("--json", "--filter", "tags.set=x", "--sort", "tags.set")) == ["a7", "a3"]


@pytest.mark.parametrize(
    "words", [["ls", "--all"], ["ls", "--all", "--json"], ["events", "--all"]], ids=" ".join
)
def test_whoever_reads_may_go(words: list[str], tmp_path: Path) -> None:
    """The command prints more than a pipe holds; the reader takes one line."""
    root = str(tmp_path / "many")
    with (
        closing(LocalStore(root, create=True)) as local,
        transaction(local._catalogue.current._connection),
    ):
        for number in range(2000):
            job = summary(f"j{number}", f"train-{number}.py", started_ns=NOW_NS + number)
            local._catalogue.current.put(CatalogueRow(job))
    environment = {**os.environ, "PYTHONPATH": SOURCES, "LOGSHIPPER_STORE": root}
    command = [sys.executable, "-m", "logshipper", *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT_SECS) == 141


# ---- the cache of last values


def test_values_are_remembered_and_never_stale(store: Path) -> None:
    with LocalStore(str(store)) as local_store:
        local_store.ingest()
        before = {job.job_id: dict(local_store.key_values(job)) for job in local_store.jobs()}
    assert before["a2"] == {
        "epoch": KeyValues("2", 2, "1", "2"), "loss": KeyValues("0.5", 2, "0.5", "9.0"),
        "model": KeyValues('"small"', 1), "opt.lr": KeyValues("2", 1, "2", "2"),
    }  # fmt: skip
    assert (store / FILE).exists()
    with SpooledCapture(store, "a2", 2, name="run2") as job:
        job.metadata({"loss": 0.125})
        job.end()
    with LocalStore(str(store)) as local_store:
        local_store.ingest()
        values = {job.job_id: local_store.key_values(job) for job in local_store.jobs()}
        assert values["a2"]["loss"] == KeyValues("0.125", 3, "0.125", "9.0")
        assert {name: values[name] for name in values if name != "a2"} == {
            name: before[name] for name in before if name != "a2"
        }


@pytest.mark.parametrize("spoil", ["remove", "damage", "fill", "age"])
def test_a_cache_that_is_gone_or_spoilt_is_made_again(store: Path, spoil: str, ask: Ask) -> None:
    job_ids = ids(ask("--json", "--filter", "loss<0.2"))
    path = store / FILE
    if spoil == "remove":
        path.unlink()
    elif spoil == "age":
        with closing(sqlite3.connect(path)) as connection:  # the layout of version 1
            connection.execute("ALTER TABLE key_values RENAME TO last_value")
            connection.execute("PRAGMA user_version=1")
    elif spoil == "damage":
        path.write_bytes(path.read_bytes()[:1000] + b"x" * 5000)
    else:
        path.write_text("no database at all" * 500)
    assert ids(ask("--json", "--filter", "loss<0.2")) == job_ids
    assert ids(ask("--json", "--filter", "loss<0.2")) == job_ids
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM key_values").fetchone()[0] > 0


def test_a_purged_value_is_in_no_cache(store: Path) -> None:
    from logshipper_ingest.spool.purge_pattern import pattern_of

    with LocalStore(str(store)) as local_store:
        local_store.ingest()
        assert (store / FILE).exists()
        local_store.purge("a2", pattern_of(None, "small"), dry_run=True)
        assert (store / FILE).exists()
        local_store.purge("a2", pattern_of(None, "small"), dry_run=False)
        assert not list(store.glob(f"{FILE}*"))
        job = next(job for job in local_store.jobs() if job.job_id == "a2")
        assert "small" not in str(local_store.key_values(job))


def test_a_store_that_cannot_be_written_is_not_called_empty(tmp_path: Path) -> None:
    root = tmp_path / "full"
    with SpooledCapture(root, "a1") as job:
        job.end()
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, "
        "(0, 0)); import logshipper.start.cli as c; "
    )
    words = [sys.executable, "-c", f"{script}sys.exit(c.main(['ls', '--store', {str(root)!r}]))"]
    process = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60))
    assert (process.returncode, process.stdout) == (1, "")
    assert "1 capture in the spool not ingested" in process.stderr
    assert "no jobs" not in process.stderr
