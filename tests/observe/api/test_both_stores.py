"""`logshipper.Store` over a local store, and over a real Loki and Prometheus that the node agent
fills.

Both give the same answer to every question. The same tests run for both; for generated jobs, a test
compares the answers.
"""

import dataclasses
import json
import math
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import logshipper
from logshipper.spool.segment import Kind
from logshipper.start.cli import main
from logshipper_ingest.loki.store import LokiStore
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.model.key_values import KeyValues
from logshipper_ingest.store.local_store import LocalStore
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture, training
from tests.tools.stores.two_stores import TwoStores, note_opened, source, store, two_stores

__all__ = ["source", "store"]  # fixtures
BEGAN_NS = time.time_ns() - 600 * NS
WRITTEN = [
    f"a{number}" for number in range(1, 6)
]  # other jobs get random ids of six letters and digits


def write_jobs(store: Path) -> None:
    """Make jobs a1 to a5, each a minute younger: epochs, a constant, a failure, two attempts, and
    one without records."""
    for number in range(1, 4):
        options: dict[str, Any] = {
            "name": f"run{number}.py",
            "started_ns": BEGAN_NS + 60 * number * NS,
        }
        with SpooledCapture(store, f"a{number}", **options) as job:
            job.lines("Training", "größer ✓")
            job.metadata(
                {"lr": 0.1 * number, "model": "mlp", "opt": {"name": "sgd", "momentum": 0.9}}
            )
            for epoch in range(1, 6):
                job.metadata({"epoch": epoch, "loss": number / epoch})
                job.stderr(f"epoch {epoch} done")
            job.metadata({"epoch": 5, "val_loss": 2**70 if number == 3 else number})
            job.event(
                "mode_changed",
                "metadata now",
                **{"from": "enabled", "to": "metadata"},
                stream="stdout",
            )
            job.end(number % 2)
    training(store, job_id="a4", name="train.py", started_ns=BEGAN_NS + 240 * NS)
    with SpooledCapture(store, "a4", 2, name="train.py", started_ns=BEGAN_NS + 260 * NS) as job:
        job.metadata({"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "text": '"0.1"'})
        job.end(None, 15)
    for number, job_id in enumerate(("k3f9x2", "4711", "4712")):
        training(store, job_id=job_id, name="train.py", started_ns=BEGAN_NS + (200 + number) * NS)
    with SpooledCapture(store, "a5", name="quiet", started_ns=BEGAN_NS + 300 * NS) as job:
        job.lines("nothing to say")
        job.lines("a note", kind=Kind.NOTE)
        job.end()


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, loki: LokiServer, prometheus: PrometheusServer
) -> Iterator[TwoStores]:
    folder = tmp_path_factory.mktemp("both")
    yield from two_stores(folder, loki, prometheus, f"t{uuid.uuid4().hex[:10]}", write_jobs)


def ids(jobs: logshipper.Jobs) -> list[str]:
    return [job.job_id for job in jobs if job.job_id in WRITTEN]


def test_jobs_are_listed_filtered_and_sorted(store: logshipper.Store) -> None:
    assert ids(store.jobs("a1-a5")) == ["a5", "a4", "a3", "a2", "a1"]
    assert ids(store.jobs("a?", state="failed")) == ["a3", "a1"]
    assert ids(store.jobs(name="run?.py", limit=2)) == ["a3", "a2"]
    assert ids(store.jobs("a?", filter=["loss<0.5", "epoch>=2"])) == ["a4", "a2", "a1"]
    assert ids(store.jobs("a?", filter="loss:exists:false")) == ["a5"]
    assert ids(store.jobs("a?", filter=f"val_loss={2**70}")) == ["a3"]
    assert ids(store.jobs("a?", filter="opt.momentum=0.9", sort="lr", reverse=True)) == [
        "a3",
        "a2",
        "a1",
    ]
    assert ids(store.jobs("a?", sort="loss", limit=2)) == ["a1", "a4"]
    jobs = store.jobs("a2", "nobody", "x*")
    assert ids(jobs) == ["a2"]
    assert [error.name for error in jobs.unknown] == ["nobody", "x*"]


def test_jobs_are_read_when_it_is_their_turn(
    store: logshipper.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids(store.jobs("a1")) == ["a1"], "all is ingested, which looks at what has ended"
    job_ids = []
    read = store._store.key_values

    def key_values(job: JobSummary) -> Mapping[str, KeyValues]:
        job_ids.append(job.job_id)
        return read(job)

    monkeypatch.setattr(store._store, "key_values", key_values)
    first = next(iter(store.jobs("a1-a3", filter="loss>0")))
    assert (first.job_id, job_ids) == ("a3", ["a3"])


def test_a_job_by_any_of_its_names(store: logshipper.Store) -> None:
    assert store.job("a4").job_id == store.job("train.py").job_id == "a4"
    with pytest.raises(logshipper.UnknownJob) as error:
        store.job("run9.py")
    assert "run" in str(error.value.suggestions)
    job = store.job("a3")
    assert (job.name, job.state, job.exit_code, job.is_running) == ("run3.py", "FAILED", 1, False)
    assert job.started.timestamp() == pytest.approx((BEGAN_NS + 180 * NS) / 1e9, abs=2)
    assert job.ended is not None
    assert job.duration_secs == pytest.approx((job.ended - job.started).total_seconds(), abs=1e-5)
    assert repr(job) == "<Job a3 'run3.py' FAILED>"
    assert store.job("a4").summary.attempts == 2


def test_lines(store: logshipper.Store) -> None:
    job = store.job("a1")
    lines = list(job.lines())
    assert [line.text for line in lines[:3]] == ["Training", "größer ✓", lines[2].text]
    assert [(line.kind, line.stream) for line in lines[:3]] == [("log", "stdout")] * 2 + [
        ("metadata", "stdout")
    ]
    assert [line.time_ns for line in lines] == sorted(line.time_ns for line in lines)
    assert [line.text for line in job.lines("stderr")] == [
        f"epoch {epoch} done" for epoch in range(1, 6)
    ]
    assert [line.text for line in job.lines("stderr", tail=2)] == ["epoch 4 done", "epoch 5 done"]
    assert lines[2].attrs == {"n": 1}
    assert {line.attempt for line in store.job("a4").lines(attempt=2)} == {2}
    assert [line.kind for line in store.job("a5").lines()] == ["log", "note"]


def test_matching_lines_of_all_jobs(store: logshipper.Store) -> None:
    def found(*patterns: str, jobs: str = "a1-a5", **options: Any) -> list[str]:
        matches = store.grep(patterns, jobs, **options)
        return [f"{match.job.job_id} {match.stream} {match.text}" for match in matches]

    assert found("^epoch [45] done$", state="failed") == [
        f"a{job} stderr epoch {epoch} done" for job in (3, 1) for epoch in (4, 5)
    ], "job by job, newest first"
    assert found("TRAINING", ignore_case=True) == [
        "a4 stdout Training on 1,000 samples", "a3 stdout Training", "a2 stdout Training", "a1 stdout Training",
    ]  # fmt: skip
    assert found("größer", "no(thing)? to", limit=1) == [
        "a5 stdout nothing to say", "a3 stdout größer ✓", "a2 stdout größer ✓", "a1 stdout größer ✓",
    ]  # fmt: skip
    assert found('"loss": 0.5', jobs="a4", fixed=True) == [
        'a4 stdout {"epoch": 2, "loss": 0.5, "opt": {"lr": 0.1}}', 'a4 stdout {"epoch": 1, "loss": 0.5}'
    ], "both attempts"  # fmt: skip
    assert found("UserWarning", stream="stdout") == []
    assert found("epoch", jobs="a5", invert=True) == [
        "a5 stdout nothing to say",
        "a5 stdout a note",
    ]
    lines = list(store.job("a1").lines())
    first = next(store.grep("epoch 1 done", "a1"))
    assert (first.time_ns, first.printed) == (lines[4].time_ns, 1)
    assert first.number in (5, 0), "Loki has no numbers"
    (note,) = store.grep("above 499", "a4")
    assert note.printed == 499


def test_lines_around_matches(
    stores: TwoStores, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grep", "-C1", "--json", "epoch 2 done", "a1", "a2", *stores.options(source)]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for job_id in ("a1", "a2"):
        main(["logs", job_id, "--json", *stores.options(source)])
        texts = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
        at = texts.index("epoch 2 done")
        of_job = [document for document in documents if document["job_id"] == job_id]
        assert [document["text"] for document in of_job] == texts[at - 1 : at + 2]
        assert [document["match"] for document in of_job] == [False, True, False]


def test_records_are_exact(store: logshipper.Store) -> None:
    records = list(store.job("a3").records())
    assert (
        records[0].line
        == '{"lr": 0.30000000000000004, "model": "mlp", "opt": {"name": "sgd", "momentum": 0.9}}'
    )
    assert records[-1].values == {"epoch": 5, "val_loss": 2**70}
    assert [record.n for record in records] == [1, 1, 2, 3, 4, 5, 1]
    assert [record.line for record in store.job("a3").records(newest_first=True)] == [
        r.line for r in records[::-1]
    ]
    newest = next(iter(store.job("a4").records(attempt=2, newest_first=True)))
    assert (newest.attempt, newest.values["text"]) == (2, '"0.1"')
    assert list(store.job("a5").records()) == []


def test_metrics_are_columns(store: logshipper.Store) -> None:
    job = store.job("a1")
    columns = job.metrics()
    assert list(columns) == [
        "_time",
        "_attempt",
        "_task",
        "epoch",
        "loss",
        "lr",
        "opt.momentum",
        "val_loss",
    ]
    assert {len(column) for column in columns.values()} == {7}
    assert columns["epoch"] == [None, 1, 2, 3, 4, 5, 5]
    assert columns["loss"] == [None, 1.0, 0.5, 1 / 3, 0.25, 0.2, None]
    assert all(isinstance(value, float) for value in columns["_time"])
    two = job.metrics("loss", "epoch")
    assert (list(two)[3:], two["loss"]) == (["loss", "epoch"], [1.0, 0.5, 1 / 3, 0.25, 0.2, None])
    epochs = job.metrics(by="epoch")
    assert (epochs["epoch"], epochs["val_loss"]) == ([1, 2, 3, 4, 5], [None, None, None, None, 1])
    assert epochs["loss"][-1] == 0.2, "two records of one epoch are one row"
    assert [list(columns)[3:] for columns in job.metric_sets()] == [
        ["lr", "opt.momentum"],
        ["epoch", "loss"],
        ["epoch", "val_loss"],
    ]
    assert store.job("a3").metrics("val_loss")["val_loss"] == [float(2**70)]
    assert [len(column) for column in store.job("a5").metrics().values()] == [0, 0, 0]
    with pytest.raises(logshipper.UnknownKey) as error:
        job.metrics("los")
    assert error.value.suggestions[0] == "loss"
    assert store.job("a4").metrics("loss", attempt=2)["_attempt"] == [2, 2]


def test_columns_fit_numpy_and_matplotlib(store: logshipper.Store) -> None:
    numpy = pytest.importorskip("numpy")
    columns = store.job("a1").metrics("epoch", "loss")
    array = numpy.array(columns["loss"], float)
    assert numpy.isnan(array[-1])
    assert array[:5].tolist() == [1.0, 0.5, 1 / 3, 0.25, 0.2]
    figure = pytest.importorskip("matplotlib.figure")
    (line,) = figure.Figure().subplots().plot(columns["epoch"], columns["loss"])
    assert line.get_xydata().shape == (6, 2)


def test_rollup(store: logshipper.Store) -> None:
    rollup = store.job("a1").rollup()
    losses = [1.0, 0.5, 1 / 3, 0.25, 0.2]
    mean = sum(losses) / 5
    assert (rollup["loss"].last, rollup["loss"].min, rollup["loss"].max, rollup["loss"].count) == (
        0.2,
        0.2,
        1.0,
        5,
    )
    assert rollup["loss"].mean == pytest.approx(mean)
    assert rollup["loss"].std == pytest.approx(
        math.sqrt(sum((loss - mean) ** 2 for loss in losses) / 5)
    )
    assert rollup["lr"].std == 0.0


def test_keys_axis_and_events(store: logshipper.Store) -> None:
    job = store.job("a1")
    keys = job.keys()
    assert {key.key: (key.count, key.last) for key in keys}["val_loss"] == (1, "1")
    assert job.last_values()["model"] == '"mlp"'
    assert (job.x_axis().key, job.x_axis().rule) == ("epoch", 2)
    (event,) = job.events()
    assert (event.name, event.message, event.attempt, event.capture) == (
        "mode_changed",
        "metadata now",
        1,
        1,
    )
    assert event.details["to"] == "metadata"
    assert [capture.state for capture in store.job("a4").captures()] == ["COMPLETED", "CANCELLED"]


def changes(events: Iterable[logshipper.StateEvent]) -> list[tuple[str, str, str]]:
    return [
        (event.job_id, event.from_state, event.to_state)
        for event in events
        if event.job_id in WRITTEN
    ]


def test_changes_of_states(store: logshipper.Store) -> None:
    log = logshipper.EventLog(store)
    of_a4 = [
        ("a4", "RUNNING", "CANCELLED"), ("a4", "REQUEUED", "RUNNING"), ("a4", "COMPLETED", "REQUEUED"),
        ("a4", "RUNNING", "COMPLETED"), ("a4", "QUEUED", "RUNNING"),
    ]  # fmt: skip
    assert changes(log.filter(job_id="a4")) == of_a4
    assert changes(log.filter(job_id=["a4"]).order_by("timestamp")) == of_a4[::-1]
    events = list(log.filter(own=True))
    assert [event.time_ns for event in events] == sorted(
        (event.time_ns for event in events), reverse=True
    )
    assert len({event.id for event in events}) == len(events)
    assert changes(log.filter(to_state="failed")) == [
        ("a3", "RUNNING", "FAILED"),
        ("a1", "RUNNING", "FAILED"),
    ]
    assert changes(log.filter(from_state="RESTART_READY", to_state="RUNNING")) == [of_a4[1]], (
        "restarts only"
    )
    assert changes(log.filter(data={"exit_code": 1})) == changes(log.filter(to_state="FAILED"))
    end_event = log.filter(job_id="a2", to_state="RUN_DONE")[0]
    assert (end_event.data["attempt"], end_event.timestamp) == (1, store.job("a2").ended)
    assert end_event in log.filter(
        timestamp_before=end_event.timestamp + timedelta(microseconds=1), job_id="a2"
    )
    assert (
        changes(
            log.filter(timestamp_after=end_event.timestamp + timedelta(microseconds=1), job_id="a2")
        )
        == []
    )
    assert log.filter(id=end_event.id)[:5] == [end_event]
    own_events = [event for event in log.filter(scheduler_id="a1", own=True) if not event.to_state]
    assert [event.data["event"] for event in own_events] == ["mode_changed"]
    assert (
        log.filter(data={"event": "mode_changed", "to": "metadata"}, own=True, job_id="a1").count()
        == 1
    )
    with pytest.raises(IndexError):
        log.filter(job_id="nobody")[0]
    with pytest.raises(ValueError, match="timestamp"):
        log.order_by("state")


def test_events_of_tagged_jobs(store: logshipper.Store) -> None:
    store.job("a3").tag("experiment=foo", "+x")
    log = logshipper.EventLog(store)
    assert {event.job_id for event in log.filter(tags={"experiment": "foo", "x": ""})} == {"a3"}
    assert log.filter(tags={"experiment": "bar"}).count() == 0
    store.job("a3").tag("-experiment", "-x")


def test_no_job_is_opened_before_its_events_are_due(
    store: logshipper.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_ids = note_opened(store, monkeypatch)
    log = logshipper.EventLog(store).filter(job_id=["a1", "a4", "a5"])
    assert changes(log[:2]) == [("a5", "RUNNING", "COMPLETED"), ("a5", "QUEUED", "RUNNING")]
    assert opened_ids == [], "a5 ran once: its summary tells it"
    assert changes(log[2:3]) == [("a4", "RUNNING", "CANCELLED")]
    # a local store's catalogue has the runs
    assert opened_ids == ([] if isinstance(store._store, LocalStore) else ["a4"])


def test_waiting(store: logshipper.Store) -> None:
    assert store.wait_all("a1", "a2", "a4", timeout_secs=30) == {
        "a1": "FAILED",
        "a2": "COMPLETED",
        "a4": "CANCELLED",
    }
    assert store.wait_any("a2", timeout_secs=30) == ("a2", "COMPLETED")
    with pytest.raises(logshipper.UnknownJob):
        store.wait_all("a1", "nobody")


def test_a_running_job_is_waited_for_in_loki(
    stores: TwoStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends after the waiting call has seen that it runs, and pauses."""
    go, words = tmp_path / "go", ["-m", "logshipper", "run", "--name", "waits", "--", "sh", "-c"]
    script = f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; exit 3"
    environment = {**stores.agent.environment, "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, *words, script], env=environment, stdout=subprocess.PIPE
    ) as job:
        with stores.loki() as store:
            wait_until(
                lambda: [loki_job.state for loki_job in store.jobs(name="waits")] == ["RUNNING"],
                "Loki knows the job",
            )
            (loki_job,) = store.jobs(name="waits")
            assert store.wait_any(loki_job.job_id, timeout_secs=0) == (None, None)
            pause = time.sleep

            def go_on(secs: float) -> None:
                go.touch()
                pause(secs)

            monkeypatch.setattr("time.sleep", go_on)
            assert store.wait_all(loki_job.job_id, timeout_secs=TIMEOUT_SECS) == {
                loki_job.job_id: "FAILED"
            }
            assert loki_job.refresh().exit_code == 3
        assert job.wait(TIMEOUT_SECS) == 3


def test_marks_are_kept_and_choose(store: logshipper.Store, source: str) -> None:
    job = store.job("a2")
    assert dict(job.tag("+best", "seed=1", f"source={source}")) == {
        "best": "",
        "seed": "1",
        "source": source,
    }
    job.annotate("look at the loss")
    job.star()
    assert ids(store.jobs(tags=["best", "seed=1"])) == ["a2"]
    match = next(iter(store.jobs("a2", filter=f"tags.source={source}")))
    assert (match.note, match.starred, match.tags["seed"]) == ("look at the loss", True, "1")
    job.tag("-best", "-seed", "-source")
    job.annotate("")
    job.star(False)
    assert ids(store.jobs("a?", tags="best")) == []


def test_a_closed_store_answers_no_more(store: logshipper.Store) -> None:
    job = store.job("a1")
    store.close()
    store.close()
    for ask in (
        lambda: store.job("a1"),
        lambda: list(job.lines()),
        job.metrics,
        lambda: list(store.jobs()),
    ):
        with pytest.raises(ValueError, match="closed"):
            ask()


# ---- commands


def answer(
    stores: TwoStores, source: str, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    code = main([words[0], *stores.options(source), *words[1:]])
    return (code, *capsys.readouterr())


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "a1-a5", "--columns", "id,state,loss=Loss:.3f,opt.momentum,lines,exit,records,name"),
        ("ls", "a?", "--filter", "loss<0.5", "--sort", "loss", "--limit", "2"),
        ("ls", "a1-a5", "--columns", "id,loss.min,epoch.count,metrics.*", "--sort", "loss.max"),
        ("ls", "a?", "--by-state"),
        ("ls", "a1", "nobody", "--columns", "id,val_loss"),
        ("wait", "--all", "a1-a3"),
        ("wait", "--any", "a4", "a1"),
        ("wait", "a1", "--check"),
        ("diff", "a1", "a2"),
        ("diff", "a1", "a4", "--changed"),
        ("diff", "a1", "nobody"),
        ("events", "a1-a5"),
        ("events", "a1-a5", "--changes"),
        ("events", "a4", "nobody", "--oldest-first"),
        ("events", "a?", "--to-state", "RUN_ERROR", "--limit", "1"),
    ],
    ids=" ".join,
)
def test_commands_say_the_same(
    words: tuple[str, ...], stores: TwoStores, capsys: pytest.CaptureFixture[str]
) -> None:
    local, loki = (answer(stores, source, capsys, *words) for source in ("local", "loki"))
    loki_lines = [line for line in loki[1].splitlines() if "job.cluster" not in line]
    if words[0] == "diff":  # the cluster's name is one more option, possibly the widest
        assert [line.split() for line in loki_lines] == [
            line.split() for line in local[1].splitlines()
        ]
    else:
        assert loki[1] == local[1]
    assert loki[0] == local[0]
    assert [line.split(",")[0].split(";")[0] for line in loki[2].splitlines()] == [
        line.split(",")[0].split(";")[0] for line in local[2].splitlines()
    ]


def test_a_limit_ends_the_questions_to_loki(
    stores: TwoStores, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition on metadata reads from Loki the records of each checked job."""
    read, job_ids = LokiStore.key_values, []

    def key_values(store: LokiStore, job: JobSummary) -> Mapping[str, KeyValues]:
        job_ids.append(job.job_id)
        return read(store, job)

    monkeypatch.setattr(LokiStore, "key_values", key_values)
    words = ("ls", "a1-a3", "--filter", "loss>0", "--columns", "id")
    code, out, err = answer(stores, "loki", capsys, *words, "--limit", "1")
    assert (code, out.split(), job_ids) == (0, ["id", "a3"], ["a3"])
    assert err == "logshipper: no more were looked for: --all shows all that match\n"
    assert answer(stores, "loki", capsys, *words, "--all")[1].split() == ["id", "a3", "a2", "a1"]
    assert (
        json.loads(answer(stores, "loki", capsys, *words, "--limit", "1", "--json")[1])["matching"]
        == 3
    )


def test_tags_in_loki_are_said_to_be_ones_own(
    stores: TwoStores, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(stores, "loki", capsys, "tag", "a1", "+mine")
    assert code == 0
    assert "mine" in out
    assert "Loki stays unchanged, and others do not see it" in err
    document = json.loads(answer(stores, "loki", capsys, "show", "a1", "--json")[1])
    assert (document["tags"], document["cluster"]) == ({"mine": ""}, stores.agent.cluster)
    assert answer(stores, "loki", capsys, "tag", "a1", "-mine")[0] == 0
    with pytest.raises(SystemExit):
        main(["rm", "a1", "--from", "loki"])
    assert "only jobs of the local store are removed" in capsys.readouterr().err


# ---- generated jobs

_numbers = iter(count())
# the renderer keeps control characters out of captures; JSON's own escapes of them are text
CONTROLS = [chr(code) for code in range(0x7F, 0xA0)]
PRINTED = st.characters(exclude_categories=["Cs"], exclude_characters=CONTROLS)
NAMES = ["epoch", "loss", "a.b", "a", "größe", 'q"t', "state", "x y", "\\u0041"]
KEYS = st.sampled_from(NAMES) | st.text(PRINTED, max_size=6)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    NUMBERS | st.text(PRINTED, max_size=8) | st.booleans() | st.none(),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=4,
)
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)
STEPS = st.lists(
    st.tuples(st.just("line"), TEXTS)
    | st.tuples(st.just("stderr"), TEXTS)
    | st.tuples(st.just("record"), st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)),
    max_size=12,
)
ENDS = st.tuples(st.sampled_from([0, 1, 137, None]), st.sampled_from([0, 9]))
JOBS = st.lists(st.tuples(STEPS, ENDS), min_size=1, max_size=2)  # attempts


def write_generated(
    store: Path, job_id: str, attempts: "list[tuple[list[Any], tuple[int | None, int]]]"
) -> None:
    began_ns = time.time_ns() - 100 * NS
    for attempt, (steps, (exit_code, signal)) in enumerate(attempts, start=1):
        with SpooledCapture(
            store, job_id, attempt, name="generated", started_ns=began_ns + attempt * 20 * NS
        ) as job:
            for kind, content in steps:
                if kind == "record":
                    job.metadata(json.dumps(content, ensure_ascii=False))
                else:
                    (job.stderr if kind == "stderr" else job.lines)(content)
            job.end(None if signal else exit_code or 0, signal)


def job_answers(store: logshipper.Store, job_id: str) -> dict[str, Any]:
    """Return all answers about a job, without its cluster."""
    (job,) = store.jobs(job_id)
    summaries = [
        dataclasses.replace(view.summary, cluster="")
        for view in (job, job.refresh(), store.job(job_id))
    ]
    assert summaries[1] == summaries[2]
    return {
        "listed": summaries[0],
        "opened": summaries[1],
        "lines": [list(job.lines(stream)) for stream in ("both", "stdout", "stderr")],
        "tails": [list(job.lines(tail=tail)) for tail in (0, 1, 3)],
        "records": [
            list(job.records()),
            list(job.records(newest_first=True)),
            list(job.records(attempt=2)),
        ],
        "events": list(job.events()),
        "keys": job.keys(),
        "axis": job.x_axis(),
        "last": dict(job.last_values()),
        "metrics": job.metrics(),
        "sets": job.metric_sets(),
        "rollup": job.rollup(),
        "captures": list(job.captures()),
    }


@given(attempts=JOBS)
@settings(
    max_examples=6,
    deadline=None,
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # without shrinking, which would take minutes: each example is shipped
    suppress_health_check=list(HealthCheck),
)
def test_generated_jobs_are_told_alike(
    stores: TwoStores, attempts: "list[tuple[list[Any], tuple[int | None, int]]]"
) -> None:
    job_id = f"g{next(_numbers)}"
    write_generated(stores.folder, job_id, attempts)
    stores.ship()
    with ExitStack() as stack:
        local, loki = (
            job_answers(stack.enter_context(store), job_id)
            for store in (stores.local(), stores.loki())
        )
    for question, local_answer in local.items():
        assert loki[question] == local_answer, question
