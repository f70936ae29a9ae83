"""`wait` and `diff`: ends of jobs, and reports of unknown jobs next to the known ones."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logshipper.errors import QueryError
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.api.job_ends import Waiting
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import Ask, SpooledCapture, ask, store, training

__all__ = ["ask", "store"]  # fixtures


@pytest.fixture
def running_jobs(store: Path) -> Iterator[dict[str, SpooledCapture]]:
    """Yield the running jobs a1, a2 and a3."""
    with ExitStack() as stack:
        began_ns = time.time_ns() - 5 * NS
        jobs = {}
        for number in (1, 2, 3):
            job = SpooledCapture(store, f"a{number}", name="train.py", started_ns=began_ns + number)
            jobs[f"a{number}"] = stack.enter_context(job)
            job.beat()
        yield jobs


def each_pause(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Do the next step in each pause of the waiting command; a pause after the last step is an
    error."""
    step_iterator = iter(steps)

    def pause(secs: float) -> None:
        step = next(step_iterator, None)
        assert step is not None, "waits for what has come already"
        step()

    monkeypatch.setattr("time.sleep", pause)


def test_all_are_waited_for(
    running_jobs: dict[str, SpooledCapture], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_pause(
        monkeypatch,
        lambda: running_jobs["a2"].end(3),
        running_jobs["a1"].end,
        lambda: running_jobs["a3"].end(None, 15),
    )
    code, out, err = ask("wait", "a1-a3")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["a2", "FAILED", "3", "train.py"], ["a1", "COMPLETED", "0", "train.py"],
        ["a3", "CANCELLED", "SIGTERM", "train.py"],
    ]  # fmt: skip


def test_any_is_enough(
    running_jobs: dict[str, SpooledCapture], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier ends count as well: `wait` keeps no state between two calls."""
    each_pause(monkeypatch, running_jobs["a2"].end)
    for _ in range(2):
        code, out, err = ask("wait", "--any", "a1", "a2", "--json")
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert (document["schema"], document["timed_out"], document["waiting"]) == (
            "logshipper.wait/1",
            False,
            [],
        )
        assert [(job["job_id"], job["state"]) for job in document["ended"]] == [("a2", "COMPLETED")]


@pytest.mark.parametrize("mode", ["--any", "--all"])
def test_the_time_is_up(mode: str, running_jobs: dict[str, SpooledCapture], ask: Ask) -> None:
    running_jobs["a3"].end()
    code, out, err = ask("wait", mode, "a1", "a2", "--timeout", "0.05")
    assert (code, out, err) == (3, "", ""), "any: nothing at all"
    document = json.loads(ask("wait", "--all", "a1", "a3", "--timeout", "0", "--json")[1])
    assert (document["timed_out"], document["waiting"]) == (True, ["a1"])
    assert [job["job_id"] for job in document["ended"]] == ["a3"]


def test_unknown_jobs_are_told_and_the_others_waited_for(
    running_jobs: dict[str, SpooledCapture], ask: Ask
) -> None:
    running_jobs["a1"].end()
    code, out, err = ask("wait", "nobody", "a1", "zz*")
    assert code == 1
    assert out.split()[:2] == ["a1", "COMPLETED"]
    assert [line.split(";")[0] for line in err.splitlines()] == [
        "logshipper: no job has the id or name 'nobody'",
        "logshipper: no job's id or name matches 'zz*'",
    ]


def test_check_tells_by_its_code(store: Path, ask: Ask) -> None:
    training(store, job_id="good")
    with SpooledCapture(store, "bad") as job:
        job.end(1)
    assert ask("wait", "good", "bad")[0] == 0
    assert ask("wait", "good", "--check")[0] == 0
    assert ask("wait", "good", "bad", "--check")[0] == 4


def test_a_state_is_read_twice(store: Path) -> None:
    """`wait` reads an end again; it continues to wait if the job runs after all."""
    with SpooledCapture(store, "a1") as job:
        job.beat()
        with LocalStore(str(store)) as local_store:
            local_store.ingest()
            answers = iter([True, False, True, True])
            wait = Waiting(local_store, ["a1"], timeout_secs=60)
            read = wait._terminal

            def terminal(job_id: str) -> object:
                if not next(answers):
                    return None
                return read(job_id) or local_store.jobs()[0]

            wait._terminal = terminal  # type: ignore[method-assign,assignment]  # the first answer is wrong
            assert len(list(wait.ended())) == 1
            assert next(answers, None) is None, "all four words were asked for"


def test_a_server_that_is_away_is_waited_for(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    training(store)
    with LocalStore(str(store)) as local_store:
        local_store.ingest()
        wait = Waiting(local_store, ["k3f9x2"])
        read, answers = (
            wait._terminal,
            iter([QueryError("Loki", 503, "away"), QueryError("Loki", 0, "no answer")]),
        )

        def terminal(job_id: str) -> object:
            error = next(answers, None)
            if error is not None:
                raise error
            return read(job_id)

        wait._terminal = terminal  # type: ignore[method-assign,assignment]  # a server that is away
        each_pause(monkeypatch, lambda: None, lambda: None)
        assert [job.job_id for job in wait.ended()] == ["k3f9x2"]
        assert capsys.readouterr().err.count("trying again") == 1
        answers = iter([QueryError("Loki", 401, "who are you?")])
        with pytest.raises(QueryError, match="who are you"):
            list(Waiting.ended(_again(wait)))


def _again(wait: Waiting) -> Waiting:
    wait.pending.append("k3f9x2")
    return wait


def test_odd_times_are_wrong_usage(ask: Ask) -> None:
    for words in ("-1", "soon", "nan", "inf", "1e99"):
        assert ask("wait", "x", "--timeout", words)[0] == 2


# ---- diff


def test_diff_tells_options_apart(store: Path, ask: Ask) -> None:
    began_ns = time.time_ns() - 60 * NS
    for number, lr in ((1, "0.1"), (2, "0.10"), (3, "0.2")):
        with SpooledCapture(
            store, f"a{number}", name="train.py", started_ns=began_ns + number * NS
        ) as job:
            job.metadata(f'{{"lr": {lr}, "model": {{"name": "mlp", "layers": 3}}, "epoch": 0}}')
            job.metadata(*[{"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 4)])
            job.end()
    for words in (["a1", "+baseline", "seed=1"], ["a3", "seed=2"]):
        assert ask("tag", *words)[0] == 0
    code, out, err = ask("diff", "a1", "a3")
    assert (code, err) == (0, "")
    header, *rows = [line.split() for line in out.splitlines()]
    assert header == ["-", "option", "a1", "a3"]
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    differences = {row[1]: row[2:] for row in rows if row[0] == "!"}
    assert differences == {
        "lr": ["0.1", "0.2"],
        "tags.baseline": ['""', "-"],
        "tags.seed": ['"1"', '"2"'],
    }
    equal_options = {row[1]: row[2:] for row in rows if row[0] == "="}
    assert equal_options["model.name"] == ["mlp", "mlp"]
    assert equal_options["job.name"] == ["train.py", "train.py"]
    assert "epoch" not in equal_options, "it changes"
    document = json.loads(ask("diff", "a1", "a3", "--changed", "--json")[1])
    assert (document["schema"], document["a"]["job_id"], document["b"]["job_id"]) == (
        "logshipper.diff/1",
        "a1",
        "a3",
    )
    assert document["options"][0] == {"option": "lr", "differs": True, "a": 0.1, "b": 0.2}
    assert [option["option"] for option in document["options"]] == [
        "lr",
        "tags.baseline",
        "tags.seed",
    ]
    assert ask("diff", "a1", "a1", "--changed") == (0, "", "logshipper: nothing differs\n")


def test_diff_of_unknown_jobs_names_each(store: Path, ask: Ask) -> None:
    training(store)
    code, out, err = ask("diff", "one", "other")
    assert (code, out) == (1, "")
    assert [line.split(";")[0].rpartition(" ")[2] for line in err.splitlines()] == [
        "'one'",
        "'other'",
    ]
