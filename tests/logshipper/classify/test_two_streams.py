"""Real processes with two streams that switch modes against each other leak nothing, with both
relays (R11, R16, R17). The tests are some runs of `make order-stress`."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.spool.segment import Stream
from tests.tools.stress import secret_stress
from tests.tools.stress.order_stress import ByRun, captured, telling_runs

RUNS = 24


def test_the_runs_are_of_all_kinds() -> None:
    runs = telling_runs(RUNS)
    assert {run.reader for run in runs} == {"fast", "slow", "blocked", "one file"}
    assert {run.killed for run in runs} >= {"", "relay", "sidecar"}
    assert {run.tty for run in runs} == {True, False}


@pytest.mark.parametrize("number", range(RUNS))
def test_nothing_that_was_kept_out_is_stored(number: int) -> None:
    with ExitStack() as stack:
        leaks, _ = captured(ByRun(stack), telling_runs(RUNS)[number])
    assert leaks == []


def test_lines_of_a_secret_are_a_series_unless_kept_out() -> None:
    line = next(part for part in secret_stress.JOB.split('"') if "is secret-" in part)
    text = "".join(line.format(name="r", number=3, n=n) for n in range(secret_stress.LINES))
    for mode in ("enabled", "metadata"):
        classifier = Classifier(mode, metadata=("json", "auto"))
        classifier.feed(Stream.STDOUT, text.replace("\\n", "\n").encode(), 1.0)
        classifier.end(Stream.STDOUT, 2.0)
        assert '{"this is secret-r-3e": 2.5}' in str(classifier.take())


@pytest.mark.parametrize("tty", [False, True])
def test_secret_right_after_the_other_streams_command(tmp_path: Path, tty: bool) -> None:
    with ExitStack() as stack:
        stored = secret_stress.stored_of(ByRun(stack), "r", tmp_path, tty=tty, one_file=tty)
    assert secret_stress.leaks_in(stored, "r") == []
    assert secret_stress.open_in(stored)


def test_the_oracle_knows_what_is_kept_out() -> None:
    """The classifier drops the named secrets after reading the streams one after the other, in
    either order. It logs some of the other secrets."""
    logged = 0
    for run in telling_runs(RUNS):
        for order in ((1, 2), (2, 1)):
            classifier = Classifier("enabled", metadata=("json", "auto"))
            for stream in order:
                text = "".join(step.text for step in run.steps if step.stream == stream)
                classifier.feed(Stream(stream), text.encode(), 1.0)
            output = str(classifier.take())
            assert not [secret for secret in run.kept_out() if secret in output]
            logged += sum(step.secret in output for step in run.steps if step.secret)
    assert logged > RUNS
