"""Series of jobs: metrics, labels, values, expiry and caps."""

import gc
import threading
import tracemalloc
from dataclasses import replace
from math import inf, isnan, nextafter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.metrics import job_metrics as job_metrics_module
from logshipper_ingest.metrics.job_metrics import MAX_JOB_KEYS, MAX_KEYS_LOGGED, JobMetrics
from logshipper_ingest.metrics.job_series import FAMILIES, SLURM_END, number_text
from logshipper_ingest.model.job import UNRESPONSIVE_NS
from logshipper_ingest.model.ledger import COLUMNS
from tests.tools.stores.job_views import (
    SECOND,
    START_NS,
    FakeCapture,
    Labels,
    auto_ranks,
    job_metrics,
    rule_in,
    samples,
)
from tests.tools.stress.model_settings import examples

CAPTURE: Labels = (("attempt", "1"), ("step", ""), ("task", "0"))


def labels(**more: str) -> Labels:
    return tuple(sorted((*CAPTURE, *more.items())))


def left_out(jobs: JobMetrics) -> dict[str, float]:
    counts = samples(jobs.text(), "logshipper_keys_left_out")
    return {dict(labels)["reason"]: value for labels, value in counts.items()}


def count(jobs: JobMetrics, name: str, **labels: str) -> float:
    values = (sample for metric in jobs.counters() for sample in metric.samples)
    return sum(sample.value for sample in values if sample.name == name and sample.labels == labels)


def values(jobs: JobMetrics) -> dict[str, float]:
    return {
        dict(labels)["key"]: value
        for labels, value in samples(jobs.text(), "logshipper_metadata_value").items()
    }


# ---- exported series


def test_a_running_capture() -> None:
    jobs = job_metrics()
    account = {name: number for number, name in enumerate(COLUMNS)} | {"line_feeds": 9, "bytes": 9}
    capture = FakeCapture().print(
        {"epoch": 1, "loss": 0.25, "opt": {"beta": 0.9}, "ok": True, "s": "0.1"}
    )
    jobs.update(capture.view(ledger={"stdout": account, "notes": 3}))
    text = jobs.text()
    info = labels(user="alice", account="ml", partition="gpu", name="train.py", host="n1")
    assert samples(text, "logshipper_job_info") == {info: 1}
    assert samples(text, "logshipper_job_state") == {labels(state="RUNNING"): 1}
    assert samples(text, "logshipper_job_mode") == {labels(mode="enabled"): 1}
    assert samples(text, "logshipper_job_start_time_seconds") == {CAPTURE: START_NS / 1e9}
    assert samples(text, "logshipper_job_heartbeat_time_seconds") == {CAPTURE: START_NS / 1e9 + 60}
    for absent in ("end_time_seconds", "exit_code", "signal"):
        assert samples(text, f"logshipper_job_{absent}") == {}
    lines = {labels(stream="stdout", outcome=name): number for number, name in enumerate(COLUMNS)}
    assert samples(text, "logshipper_job_lines") == lines
    assert samples(text, "logshipper_job_bytes") == {
        labels(what="printed"): 100,
        labels(what="logged"): 90,
    }
    assert values(jobs) == {
        "epoch": 1,
        "loss": 0.25,
        "opt.beta": 0.9,
    }  # R22: booleans and "0.1" are no numbers
    assert samples(text, "logshipper_records") == {(("dec", ""),): 1}
    keys = {("epoch", "epoch", ""), ("loss", "loss", "epoch"), ("opt.beta", 'opt"]["beta', "epoch")}
    assert samples(text, "logshipper_key") == {
        (("constant", "true"), ("dec", ""), ("key", key), ("path", path), ("x", own_x)): 1
        for key, path, own_x in keys
    }
    ranks = {
        (dict(labels)["choice"], dict(labels)["path"]): rule_in(value)
        for labels, value in x_ranks(jobs).items()
    }
    assert ranks == {
        ("auto", "epoch"): 2,
        ("epoch", "epoch"): 2,
        ("loss", "loss"): 0,
        ("opt.beta", 'opt"]["beta'): 0,
    }
    assert 'cluster="c1",job_id="4711"' in text


def x_ranks(jobs: JobMetrics) -> dict[Labels, float]:
    return samples(jobs.text(), "logshipper_x_rank")


def test_a_capture_that_is_over() -> None:
    jobs = job_metrics()
    capture = FakeCapture().print({"loss": 0.5})
    jobs.update(capture.view(over=True, exit_code=None, signal=9, state="FAILED", limit_secs=3600))
    text = jobs.text()
    assert samples(text, "logshipper_job_state") == {labels(state="FAILED"): 1}
    assert samples(text, "logshipper_job_end_time_seconds") == {CAPTURE: START_NS / 1e9 + 60}
    assert samples(text, "logshipper_job_signal") == {CAPTURE: 9}
    assert samples(text, "logshipper_job_time_limit_seconds") == {CAPTURE: 3600}
    assert samples(text, "logshipper_job_exit_code") == {}
    assert {key: rule_in(rank) for (key, _), rank in auto_ranks(jobs).items()} == {"loss": 7}
    jobs.update(capture.view(over=True, exit_code=0))
    assert samples(jobs.text(), "logshipper_job_exit_code") == {CAPTURE: 0}
    assert samples(jobs.text(), "logshipper_job_time_limit_seconds") == {}


def test_no_sign_of_life_shows_without_any_update() -> None:
    now = START_NS
    jobs = job_metrics(clock=lambda: now)
    jobs.update(FakeCapture().view(heartbeat_ns=START_NS))
    now = START_NS + UNRESPONSIVE_NS
    assert samples(jobs.text(), "logshipper_job_state") == {labels(state="RUNNING"): 1}
    now += 1
    assert samples(jobs.text(), "logshipper_job_state") == {labels(state="UNRESPONSIVE"): 1}


def test_captures_of_a_job_are_merged_where_a_series_is_the_job_s() -> None:
    jobs = job_metrics()
    for task, value in ((0, 1.5), (1, 2.5)):
        jobs.update(
            FakeCapture(key=f"c{task}", task=task)
            .print({"step": 1, "loss": value}, {"step": 2})
            .view()
        )
    text = jobs.text()
    assert samples(text, "logshipper_records") == {(("dec", ""),): 4}
    by_task = {dict(labels)["task"]: value for labels, value in samples(text, "logshipper_metadata_value").items()
               if dict(labels)["key"] == "loss"}  # fmt: skip
    assert by_task == {"0": 1.5, "1": 2.5}
    counts = {
        dict(labels)["key"]: value for labels, value in samples(text, "logshipper_key").items()
    }
    assert counts == {"step": 4, "loss": 2}


def test_constant_keys_are_named() -> None:
    """A key counts as constant if no capture changes it. A rank only differs between tasks, and
    gets no graph."""
    jobs = job_metrics()
    for task in (0, 1):
        records = [{"step": step, "lr": 0.1, "rank": task, "late": step // 3} for step in (1, 2, 3)]
        jobs.update(FakeCapture(key=f"c{task}", task=task).print(*records).view())
    assert constants(jobs) == {"lr", "rank"}
    falls = FakeCapture(key="c2", task=2).print({"step": 1, "lr": 0.1}, {"step": 2, "lr": 0.05})
    jobs.update(falls.view())
    assert constants(jobs) == {"rank"}


def constants(jobs: JobMetrics) -> set[str]:
    series = map(dict, samples(jobs.text(), "logshipper_key"))
    return {labels["key"] for labels in series if labels["constant"]}


def own_x(jobs: JobMetrics) -> dict[str, str]:
    """Return each key's X by a page's rule: of a key's series, the largest is the newest."""
    largest: dict[str, tuple[float, str]] = {}
    for pairs, count in samples(jobs.text(), "logshipper_key").items():
        labels = dict(pairs)
        largest[labels["key"]] = max(largest.get(labels["key"], (0.0, "")), (count, labels["x"]))
    return {key: x for key, (_, x) in largest.items()}


def test_each_key_s_own_x_is_that_of_its_records() -> None:
    """R25's arrow: keys of a validation, and keys of training records without an epoch. `x_for`
    gives the same."""
    jobs = job_metrics()
    capture = FakeCapture()
    for step in range(1, 20):
        record = (
            {"epoch": step // 5, "val_loss": 1 / step}
            if step % 5 == 0
            else {"step": step, "loss": 1 / step}
        )
        jobs.update(capture.print(record).view())
    capture.print({"temperature": 40})
    jobs.update(capture.view())
    assert own_x(jobs) == {
        "epoch": "",
        "val_loss": "epoch",
        "step": "",
        "loss": "step",
        "temperature": "",
    }
    for key in ("step", "loss", "val_loss"):
        assert (capture.axis.x_for(key).key or "") == own_x(jobs)[key]


def test_of_several_captures_the_one_with_most_records_says_a_key_s_own_x() -> None:
    jobs = job_metrics()
    jobs.update(
        FakeCapture(key="c1").print(*({"step": at, "loss": 1} for at in range(3))).view(over=True)
    )
    jobs.update(
        FakeCapture(key="c2", attempt=2)
        .print(*({"epoch": at, "loss": 1} for at in range(5)))
        .view()
    )
    assert own_x(jobs) == {"step": "", "epoch": "", "loss": "epoch"}


def test_a_key_that_no_query_can_hold_is_nobody_s_x() -> None:
    jobs = job_metrics()
    jobs.update(FakeCapture().print({"$a": 1, "loss": 1}, {"$a": 2, "loss": 1}).view())
    assert own_x(jobs) == {"loss": ""}


def test_long_jobs_are_thinned_by_their_number_and_each_key_by_its_own() -> None:
    jobs = job_metrics()
    capture = FakeCapture().print(*[{"step": n} for n in range(4600)], {"val": 1})
    jobs.update(capture.view())
    assert samples(jobs.text(), "logshipper_records") == {(("dec", "0"),): 4601}
    decimation = {
        dict(labels)["key"]: dict(labels)["dec"]
        for labels in samples(jobs.text(), "logshipper_key")
    }
    assert decimation == {"step": "0", "val": ""}


def test_an_unchanged_job_is_not_written_anew_a_changed_one_is() -> None:
    jobs = job_metrics()
    first, second = FakeCapture(key="c1", job_id="1"), FakeCapture(key="c2", job_id="2")
    jobs.update(first.print({"a": 1}).view())
    jobs.update(second.print({"a": 1}).view())
    jobs.text()
    before = jobs._jobs["1"].texts, jobs._jobs["2"].texts
    jobs.update(second.print({"a": 2}).view())
    lines = {
        line for line in jobs.text().splitlines() if line.startswith("logshipper_metadata_value{")
    }
    assert sorted(line.split()[-1] for line in lines) == ["1", "2"]
    assert jobs._jobs["1"].texts is before[0]
    assert jobs._jobs["2"].texts is not before[1]


def test_of_two_captures_with_the_same_labels_the_newer_is_shown() -> None:
    jobs = job_metrics()
    jobs.update(FakeCapture(key="new").print({"a": 2}).view(started_ns=START_NS + 1))
    jobs.update(FakeCapture(key="old").print({"a": 1}).view())
    assert values(jobs) == {"a": 2}  # samples() fails if a label set occurs twice
    assert samples(jobs.text(), "logshipper_records") == {(("dec", ""),): 2}


def test_a_key_called_auto_takes_nothing_s_place() -> None:
    jobs = job_metrics()
    jobs.update(FakeCapture().print({"auto": 1, "b": 1}, {"auto": 0, "b": 2}).view())
    assert {(dict(labels)["choice"], dict(labels)["key"]) for labels in x_ranks(jobs)} == {
        ("auto", "auto"),
        ("auto", "b"),
        ("b", "b"),
    }


# ---- exact values


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("0.1", "0.1"),
        ("-0.0", "-0.0"),
        ("1e22", "1e+22"),
        ("5e-324", "5e-324"),
        ("789773523480.1762", "789773523480.1761"),
        ("9007199254740992", "9007199254740992"),
        ("9007199254740993", "9007199254740992.0"),  # beyond 2^53: the nearest float
        ("-123456789012345678901", "-1.2345678901234568e+20"),
    ],
)
def test_numbers_are_exact(literal: str, text: str) -> None:
    jobs = job_metrics()
    jobs.update(FakeCapture().print(f'{{"k": {literal}}}').view())
    (line,) = [
        line for line in jobs.text().splitlines() if line.startswith("logshipper_metadata_value{")
    ]
    assert line.split()[-1] == text
    assert values(jobs)["k"] == float(literal)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60))
def test_every_number_comes_back(value: float) -> None:
    text = number_text(value)
    assert text is not None
    assert float(text) == float(value)
    assert number_text(nextafter(float(value), 1e308)) != text


def test_numbers_that_no_float_can_hold_are_left_out_and_counted() -> None:
    jobs = job_metrics()
    jobs.update(FakeCapture().print(f'{{"k": 1{"0" * 400}, "a": 1}}').view())
    assert values(jobs) == {"a": 1}
    assert left_out(jobs) == {"too_large": 1}
    assert count(jobs, "logshipper_agent_keys_left_out_total", reason="too_large") == 1


def test_a_value_that_is_nan_now_is_nan() -> None:
    """An alert can use it, while the last number would hide the fault."""
    jobs = job_metrics()
    capture = FakeCapture().print('{"loss": 0.5, "a": 1, "b": 1}')
    jobs.update(capture.print('{"loss": NaN, "a": Infinity, "b": -Infinity}').view())
    assert isnan(values(jobs)["loss"])
    assert (values(jobs)["a"], values(jobs)["b"]) == (inf, -inf)
    assert left_out(jobs) == {}
    jobs.update(capture.print('{"loss": 0.25}').view())
    assert values(jobs)["loss"] == 0.25


# ---- hostile names


HOSTILE = [
    'a"} 1\nlogshipper_job_info{job_id="forged',
    "\\",
    'back\\slash" quote',
    "\n",
    "\x00\x1b[31m\r\x85",
    "\ud800",
    "# HELP x",
    "🙂 ü 日本",
    "{{.}}",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_labels_and_nothing_else(name: str) -> None:
    jobs = job_metrics()
    capture = FakeCapture(
        job_id=name,
        step=name,
        identity=dict.fromkeys(("user", "account", "partition", "name"), name),
    )
    jobs.update(capture.print({"a": 1}, {"a": 2}).view())
    ordinary = job_metrics()
    ordinary.update(FakeCapture().print({"a": 1}, {"a": 2}).view())
    count = jobs.text().count("\n")
    assert count == ordinary.text().count("\n") == len(jobs.text().encode().split(b"\n")) - 1
    ((labels, value),) = samples(jobs.text(), "logshipper_job_info").items()
    facts = dict(labels)
    assert value == 1
    assert facts["user"] == facts["name"] == facts["step"]
    if name.isprintable() or name == "\n":
        assert facts["user"] == name


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(st.text(max_size=6), st.integers(0, 3), max_size=6), st.text(max_size=6))
def test_any_keys_and_names_give_text_that_parses_to_what_went_in(
    record: dict[str, int], name: str
) -> None:
    jobs = job_metrics()
    jobs.update(FakeCapture(identity={"name": name}).print(record).view())
    numbers = values(jobs)
    assert numbers.items() <= record.items()
    assert len(record) - len(numbers) == sum(left_out(jobs).values())


# ---- keys that are left out


def test_keys_that_are_left_out_are_counted_and_said_once() -> None:
    messages: list[str] = []
    jobs = job_metrics(MetricsSection(max_keys=2), log=messages.append)
    capture = FakeCapture()
    for value in (1, 2):
        record = {
            'say "hi"': 1,
            "loss[0]": 1,
            "": 1,
            "x" * 200: 1,
            "a": value,
            "b": value,
            "c": value,
        }
        jobs.update(capture.print(record).view())
        assert left_out(jobs) == {"characters": 2, "empty": 1, "too_long": 1, "too_many": 1}
    assert set(values(jobs)) == {"a", "b"}
    assert count(jobs, "logshipper_agent_keys_left_out_total", reason="characters") == 2
    assert count(jobs, "logshipper_agent_keys_left_out_total", reason="too_many") == 1
    assert len(messages) == 5
    assert "metrics: key 'c' of job 4711 is left out: too_many" in messages
    assert all(line.isascii() and line.isprintable() for line in messages)


def test_a_job_that_always_prints_new_keys_has_an_end_of_series_and_of_lines_in_the_log() -> None:
    """Each new key also precedes the present ones in the alphabet."""
    messages: list[str] = []
    jobs = job_metrics(log=messages.append)
    ever: set[str] = set()
    captures = [FakeCapture(key=f"c{task}", task=task) for task in range(8)]
    for number in range(300):
        for capture in captures:
            capture.print({f"k{9 - capture.task}{999 - number:03}": number})
            if number % 30 == 29:
                jobs.update(capture.view())
                keys = {dict(labels)["key"] for labels in samples(jobs.text(), "logshipper_key")}
                assert len(keys) <= 100
                ever |= keys
    assert 100 < len(ever) <= MAX_JOB_KEYS
    assert len(messages) == MAX_KEYS_LOGGED
    assert messages[-1].endswith("is left out: too_many; more keys of it are only counted")
    assert (
        100 < count(jobs, "logshipper_agent_keys_left_out_total", reason="too_many") <= MAX_JOB_KEYS
    )


def test_a_job_s_keys_have_a_cap_over_all_its_captures() -> None:
    jobs = job_metrics()
    for number in range(6):
        keys = {f"k{number}_{key}": 1 for key in range(250)} | {"epoch": number}
        jobs.update(
            FakeCapture(key=f"c{number}", task=number).print(keys).view(over=number % 2 == 0)
        )
    jobs.text()
    assert len(jobs._jobs["4711"].keys._labels) <= MAX_JOB_KEYS + 2
    assert left_out(jobs) == {"too_many": 6 * 250 + 1 - 100}
    assert ("epoch", "epoch") in auto_ranks(jobs)


# ---- expiry and caps


def test_series_vanish_expire_secs_after_the_last_capture_was_over() -> None:
    jobs = job_metrics(MetricsSection(expire_secs=300))
    first, second = FakeCapture(key="c1"), FakeCapture(key="c2", attempt=2)
    jobs.update(first.view(over=True))
    jobs.update(second.view())
    jobs.expire(START_NS + 10_000 * SECOND)  # however late, since the second one runs
    assert len(samples(jobs.text(), "logshipper_job_info")) == 2
    jobs.update(second.view(over=True))
    seen_ns = START_NS + 20_000 * SECOND  # long after its end, since it was learnt late
    jobs.expire(seen_ns)
    jobs.expire(seen_ns + 300 * SECOND - 1)
    assert len(samples(jobs.text(), "logshipper_job_info")) == 2
    jobs.expire(seen_ns + 300 * SECOND)
    assert jobs.text() == ""
    assert not jobs._jobs
    assert not jobs._job_of


def test_a_new_attempt_ends_the_countdown() -> None:
    jobs = job_metrics(MetricsSection(expire_secs=300))
    jobs.update(FakeCapture(key="c1").view(over=True))
    jobs.expire(START_NS)
    jobs.update(FakeCapture(key="c2", attempt=2).view())
    jobs.expire(START_NS + 400 * SECOND)
    jobs.update(FakeCapture(key="c2", attempt=2).view(over=True))
    jobs.expire(START_NS + 500 * SECOND)
    assert len(samples(jobs.text(), "logshipper_job_info")) == 2
    jobs.expire(START_NS + 800 * SECOND)
    assert jobs.text() == ""


def test_how_slurm_ended_a_job_is_shown_for_as_long() -> None:
    """This holds wherever the job ran, since the controller has no capture of it."""
    jobs = job_metrics(MetricsSection(expire_secs=300))  # with a clock that stands still
    assert jobs.slurm_ended("4711", 1, "REQUEUED", 1_700_000_000) == 0
    assert jobs.slurm_ended("4711", 2, "CANCELLED", 1_700_000_050) == 0
    assert jobs.slurm_ended("4711", 2, "TIMEOUT", 1_700_000_060) == 0  # more exact
    assert samples(jobs.text(), SLURM_END) == {
        (("attempt", "1"), ("state", "REQUEUED")): 1_700_000_000,
        (("attempt", "2"), ("state", "TIMEOUT")): 1_700_000_060,
    }
    assert 'cluster="c1",job_id="4711"' in jobs.text()
    told_ns = START_NS + 61 * SECOND
    jobs.expire(told_ns + 300 * SECOND - 1)
    assert len(samples(jobs.text(), SLURM_END)) == 2
    jobs.expire(told_ns + 300 * SECOND)
    assert jobs.text() == ""


def test_how_slurm_ended_jobs_has_a_cap_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics_module, "MAX_SLURM_ENDS", 2)
    jobs = job_metrics()
    assert [jobs.slurm_ended(job_id, 1, "FAILED", 1) for job_id in ("1", "2", "1", "3")] == [
        0,
        0,
        0,
        1,
    ]
    assert 'job_id="2"' not in jobs.text()
    assert len(samples(jobs.text().replace('job_id="1"', 'job_id="1",one="1"'), SLURM_END)) == 2


def test_over_max_captures_those_that_are_over_go_first_the_oldest_before_others() -> None:
    messages: list[str] = []
    jobs = job_metrics(MetricsSection(max_captures=3), log=messages.append)

    def visible_tasks() -> set[str]:
        return {dict(labels)["task"] for labels in samples(jobs.text(), "logshipper_job_info")}

    captures = [FakeCapture(key=f"c{task}", task=task).print({"a": task}) for task in range(7)]
    jobs.update(captures[0].view())
    jobs.update(captures[1].view(over=True, ended_ns=START_NS + 2))
    jobs.update(captures[2].view(over=True, ended_ns=START_NS + 1))
    jobs.update(captures[3].view())
    assert visible_tasks() == {"0", "1", "3"}
    jobs.update(captures[4].view())
    assert visible_tasks() == {"0", "3", "4"}
    for _ in range(3):
        jobs.update(captures[5].view())  # all others run, so this one waits
        assert visible_tasks() == {"0", "3", "4"}
    assert count(jobs, "logshipper_agent_captures_left_out_total") == 3
    assert (
        messages == ["metrics: a capture of job 4711 is left out: [metrics] max_captures is 3"] * 3
    )
    jobs.update(captures[3].view(over=True))
    jobs.update(captures[5].view())
    assert visible_tasks() == {"0", "4", "5"}
    # an ended capture that was left out doesn't replace another one
    jobs.update(captures[2].view(over=True))
    assert visible_tasks() == {"0", "4", "5"}


def test_a_job_keeps_its_ranks_when_an_earlier_attempt_is_left_out() -> None:
    jobs = job_metrics(MetricsSection(max_captures=2))
    noisy = FakeCapture(key="c1").print({"a": 1}, {"a": 3}, {"a": 2})
    jobs.update(FakeCapture(key="c0", attempt=9).view())
    jobs.update(noisy.view(over=True))
    jobs.update(FakeCapture(key="c2", attempt=2).print({"a": 1}, {"a": 2}).view())
    assert {key: rule_in(rank) for (key, _), rank in auto_ranks(jobs).items()} == {"a": 7}
    assert samples(jobs.text(), "logshipper_records") == {(("dec", ""),): 5}


def test_without_job_values_slurm_s_word_is_not_shown() -> None:
    jobs = job_metrics(MetricsSection(job_values=False))
    assert jobs.slurm_ended("4711", 1, "TIMEOUT", 1) == 0
    assert jobs.text() == ""


def test_without_job_values_there_is_nothing_of_jobs() -> None:
    jobs = job_metrics(MetricsSection(job_values=False))
    jobs.update(FakeCapture().print({"a": 1}).view())
    jobs.expire(START_NS)
    assert jobs.text() == ""
    assert not jobs._jobs
    assert [metric.name for metric in jobs.counters()] == [
        "logshipper_agent_keys_left_out",
        "logshipper_agent_captures_left_out",
    ]


# ---- collector, threads, cost


def test_a_parser_reads_the_families_and_samples_of_the_text() -> None:
    jobs = job_metrics()
    jobs.update(
        FakeCapture(identity={"name": HOSTILE[0]}).print({"a": 0.1, "opt": {"b": 2}}).view()
    )
    text = jobs.text()
    families = list(text_string_to_metric_families(text))
    assert families
    assert {(family.name, family.documentation) for family in families} <= FAMILIES.items()
    samples_read = sum(len(family.samples) for family in families)
    assert samples_read == sum(not line.startswith("#") for line in text.splitlines())


def test_a_view_s_parts_may_change_after_update() -> None:
    jobs = job_metrics()
    capture = FakeCapture().print({"a": 1})
    latest, account = capture.axis.latest(), {"read": 1}
    view = replace(capture.view(ledger={"stdout": account}), latest=latest)
    jobs.update(view)
    latest[("b",)] = 5
    account["read"] = 99
    capture.print({"a": 2, "b": 5})
    assert values(jobs) == {"a": 1}
    assert auto_ranks(jobs) == {}
    assert (
        samples(jobs.text(), "logshipper_job_lines")[labels(stream="stdout", outcome="read")] == 1
    )


def test_updates_scrapes_and_expiry_from_several_threads() -> None:
    jobs = job_metrics(MetricsSection(max_captures=20, expire_secs=0), clock=lambda: START_NS)
    failures: list[BaseException] = []
    done = threading.Event()

    def learn(number: int) -> None:
        try:
            captures = [
                FakeCapture(key=f"{number}-{n}", job_id=str(n % 5), task=n) for n in range(15)
            ]
            for at in range(20):
                for capture in captures:
                    jobs.update(capture.print({"step": at, f"k{at}": 1}).view(over=at == 19))
        except BaseException as error:  # the test reports any error
            failures.append(error)

    def scrape() -> None:
        try:
            while not done.is_set():
                lines = [
                    line.rpartition(" ")[0]
                    for line in jobs.text().splitlines()
                    if not line.startswith("#")
                ]
                assert len(lines) == len(set(lines))
                jobs.expire(START_NS)
        except BaseException as error:  # the test reports any error
            failures.append(error)

    writers = [threading.Thread(target=learn, args=(number,)) for number in range(3)]
    readers = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join(30)
    done.set()
    for thread in readers:
        thread.join(30)
    assert not failures
    jobs.expire(START_NS)
    assert jobs.text() == ""
    assert jobs._over == 0


def test_an_update_keeps_no_record_and_no_axis() -> None:
    """The memory of a capture doesn't grow with its records."""
    jobs = job_metrics()
    capture = FakeCapture()

    def traced(begin: int, end: int) -> int:
        for at in range(begin, end):
            jobs.update(capture.print({"step": at, "loss": 1 / (at + 1)}).view())
        jobs.text()
        gc.collect()
        # without memory of other threads
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/ingest/*")])
        return sum(statistic.size for statistic in ours.statistics("filename"))

    tracemalloc.start()
    try:
        before = traced(1000, 1300)
        grown = traced(1300, 3000) - before
    finally:
        tracemalloc.stop()
    assert grown < 17_000  # ten bytes a record
