"""`logshipper.emit`: one valid JSON line for every value, never mixed with other lines, and never
an exception."""

import fractions
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logshipper
from logshipper import emit, emitting, event
from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.classify.metadata import KeysWithGaps, keys_of
from logshipper.spool.segment import Kind, Stream
from tests.project.test_docs import FENCE
from tests.tools.sources import ROOT, SOURCES
from tests.tools.waiting import scaled

Printed = Callable[..., Any]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Return a function that emits, and returns the printed record and the text of stderr."""
    monkeypatch.setattr(emitting, "_notes", set())

    def run(*args: Any, **values: Any) -> tuple[Any, str]:
        emit(*args, **values)
        out, err = capsys.readouterr()
        assert out.count("\n") == (1 if out else 0)
        assert out.isascii()
        return (json.loads(out, parse_constant=pytest.fail) if out else None), err

    return run


class Tensor:
    """The interface of torch's and jax's scalars and arrays (torch's wheel has 900 MB)."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)
        self.shape = self._values.shape

    def item(self) -> Any:
        return self._values.item()

    def tolist(self) -> Any:
        return self._values.tolist()


def test_plain_values(printed: Printed) -> None:
    record = {
        "epoch": 3,
        "loss": 0.1,
        "name": 'x\n\u2028"ü😀',
        "ok": True,
        "none": None,
        "big": 2**80,
    }
    assert printed(**record) == (record, "")
    assert printed({"val/loss": 0.2}, epoch=1) == ({"val/loss": 0.2, "epoch": 1}, "")
    assert printed({"a": {"b": [1, (2, 3)]}}) == ({"a": {"b": [1, [2, 3]]}}, "")
    assert printed() == (None, ""), "nothing is no record"


@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        (np.float64(0.1), 0.1), (np.float32(0.5), 0.5), (np.float16(0.5), 0.5), (np.longdouble(0.5), 0.5),
        (np.int64(2**62), 2**62), (np.uint8(7), 7), (np.bool_(True), True), (np.str_("x"), "x"),
        (np.array(3.5), 3.5), (np.array([1, 2]), [1, 2]), (np.array([[1.5]]), [[1.5]]), (np.zeros((0,)), []),
        (Tensor(0.25), 0.25), (Tensor([1, 2]), [1, 2]), (Decimal("0.5"), 0.5), (fractions.Fraction(1, 4), 0.25),
        ({3}, [3]), (pathlib.PurePosixPath("/x"), "/x"), (1 + 2j, "(1+2j)"), (b"x", "b'x'"),
        ({1: {"a": np.int8(1)}}, {"1": {"a": 1}}),
    ],
)  # fmt: skip
def test_values_of_libraries(value: object, json_value: object, printed: Printed) -> None:
    record, err = printed(v=value)
    assert (record["v"], type(record["v"]), err) == (json_value, type(json_value), "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "NaN"), (float("inf"), "Infinity"), (np.float32("-inf"), "-Infinity"),
        (np.array(np.nan), "NaN"), (Decimal("nan"), "NaN"),
    ],
)  # fmt: skip
def test_what_is_not_finite_is_a_gap(
    value: object, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A capture recognises the line as a record, and graphs show a gap: the same as for
    json.dumps."""
    emit(loss=value, a={"b": value}, c=[value])
    out, err = capsys.readouterr()
    assert (out, err) == (f'{{"loss": {text}, "a": {{"b": {text}}}, "c": [{text}]}}\n', "")
    keys = keys_of(out.rstrip("\n").encode())
    assert isinstance(keys, KeysWithGaps)
    assert keys == ("loss", "a", "c")


class Bad:
    """Raises on every access."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("gone")

    def __str__(self) -> str:
        raise RuntimeError("gone")


class BadKeys(dict[str, object]):
    def items(self) -> Any:
        raise RuntimeError("gone")


class BadText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("gone")


class BadNumber(int):
    def __int__(self) -> int:
        raise RuntimeError("gone")


class BadError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("gone")


class BadRecord:
    """Raises an error that has no text either."""

    def keys(self) -> Any:
        raise BadError


class Disguised:
    """Raises on access to its class, as the proxy of a deleted object does."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("gone")


# created inside the test: pytest also looks at the classes of parameters
BAD_VALUES: dict[str, Callable[[], object]] = {
    "no attributes": Bad,
    "no text": lambda: BadText("x"),
    "no number": lambda: BadNumber(3),
    "no class": Disguised,
    "in a list": lambda: [Disguised()],
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_value_that_raises_costs_no_other_value(name: str, printed: Printed) -> None:
    value = BAD_VALUES[name]()
    record, err = printed(bad=value, epoch=1)
    assert record == {"bad": [None] if name == "in a list" else None, "epoch": 1}
    assert "bad: a " in err
    assert printed(bad=value, epoch=2)[1] == "", "said once"


def test_a_key_that_raises_costs_no_other_value(printed: Printed) -> None:
    record, err = printed({Bad(): 1, BadText("x"): 2, "epoch": 3})
    assert record == {"epoch": 3}
    assert "a value was left out: its key" in err


def wrong_calls() -> dict[str, Callable[[], object]]:
    calls: Any = emit
    tells: Any = event
    return {
        "two records": lambda: calls({"a": 1}, {"b": 2}),
        "no keys": lambda: calls(BadRecord()),
        "a number": lambda: calls(5),
        "no name": tells,
        "no text": lambda: tells(Bad()),
        "a name's own text": lambda: tells(BadText("x")),
        "three values": lambda: tells("a", {"b": 1}, 2),
        "an event of a number": lambda: tells("a", 5),
        "an event's value": lambda: tells("a", b=Disguised()),
    }


@pytest.mark.parametrize("call", wrong_calls())
def test_no_call_raises(
    call: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in a reporting line must not end months of computing."""
    monkeypatch.setattr(emitting, "_notes", set())
    wrong_calls()[call]()
    wrong_calls()[call]()
    err = capsys.readouterr().err
    assert err.count("\n") == 1, "said once"
    assert err.startswith("logshipper.e")


def test_where_nothing_can_be_said_nothing_is_raised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the stack, even the message on stderr needs more stack than remains."""

    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(emitting, "_write", fail)
    monkeypatch.setattr(emitting, "_say", fail)
    emit(a=1)
    event("a")
    assert capsys.readouterr() == ("", "")


def test_nothing_raises(printed: Printed) -> None:
    record, err = printed(bad=Bad(), epoch=1)
    assert record == {"bad": None, "epoch": 1}
    assert "bad: a Bad couldn't be converted" in err
    loop: list[object] = []
    loop.append(loop)
    assert printed(loop=loop)[0] is not None
    record, err = printed(huge=np.zeros(20_000), epoch=2)
    assert (record, "huge: a ndarray couldn't be converted" in err) == (
        {"huge": None, "epoch": 2},
        True,
    )
    assert printed({"d": BadKeys()})[0] == {"d": None}
    assert printed(5)[0] is None


def test_a_number_too_long_for_text_is_null(printed: Printed) -> None:
    record, err = printed(big=10**5000, epoch=2)
    assert record == {"big": None, "epoch": 2}
    assert "big is an integer of over 4,000 digits" in err


def test_keys_are_checked(printed: Printed) -> None:
    record, err = printed({"": 1, "k" * 257: 2, "ü" * 128: 3, "epoch": 4})
    assert record == {"ü" * 128: 3, "epoch": 4}
    assert len(err.splitlines()) == 2
    assert "isn't of 1 to 256 bytes" in err


def test_a_line_that_is_too_long_is_left_out(printed: Printed) -> None:
    record, err = printed(text="x" * (1 << 20))
    assert (record, "was left out" in err) == (None, True)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.binary()
        | st.complex_numbers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=20,
    ),
    st.text(min_size=1, max_size=20),
)
def test_whatever_it_is_the_line_is_metadata(value: object, key: str) -> None:
    """A capture recognises the line as a record: one line with one valid JSON object."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", io.StringIO())
        emit({key: value})
    classifier = Classifier("enabled")
    classifier.feed(Stream.STDOUT, out.getvalue().encode(), 1.0)
    classifier.end(Stream.STDOUT, 2.0)
    lines = [(item.kind, item.text) for item in classifier.take() if isinstance(item, LoggedLines)]
    assert lines == [(Kind.METADATA, out.getvalue().encode())]


# ---- the output


def script(text: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program in a process of its own. options: of subprocess.run."""
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env=environment,
        timeout=scaled(60),
        **options,
    )


def test_it_comes_behind_what_was_printed_before(printed: Printed) -> None:
    done = script("from logshipper import emit; print('first'); emit(a=1); print('last')")
    assert (done.stdout, done.stderr) == ('first\n{"a": 1}\nlast\n', "")


@pytest.mark.parametrize(
    "close",
    ["sys.stdout.close()", "os.close(1)", "sys.stdout = None", "sys.stdout = sys.__stdout__ = None",
     "os.dup2(os.pipe()[1], 1); os.closerange(3, 9)"],
)  # fmt: skip
def test_a_closed_standard_output_hurts_nobody(close: str) -> None:
    text = f"import os, sys; from logshipper import emit; {close}; emit(a=1); emit(a=2)"
    text += "; sys.stderr.write('on\\n'); os._exit(0)"
    done = script(text)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("on\n")
    assert done.stderr.count("\n") <= 2, "said once"


def test_a_standard_output_of_another_kind_gets_whole_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[str] = []

    class Notebook(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stdout", Notebook())
    emit(a=1)
    assert writes == ['{"a": 1}\n']


MIXING = """
import multiprocessing, threading
from logshipper import emit

def work(who):
    for at in range(200):
        emit(who=who, at=at, text="x" * (9000 if at % 3 == 0 else 10))

def process(number):
    threads = [threading.Thread(target=work, args=(10 * number + thread,)) for thread in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

context = multiprocessing.get_context("fork")
keeper = threading.Thread(target=work, args=(1,))
keeper.start()
workers = [context.Process(target=process, args=(number,)) for number in range(2, 5)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
keeper.join()
"""


def test_threads_and_forked_workers_do_not_mix() -> None:
    """Some of the lines are longer than a pipe accepts in one write."""
    done = script(MIXING)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((record["who"], record["at"]) for record in records) == sorted(
        (worker, at) for worker in (1, 20, 21, 22, 30, 31, 32, 40, 41, 42) for at in range(200)
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    text = "import os; from logshipper import emit; os.set_blocking(1, False)"
    text += "; [emit(at=at, x='x' * 5000) for at in range(99)]"
    done = script(text)
    assert [json.loads(line)["at"] for line in done.stdout.splitlines()] == list(range(99))


def test_a_signal_handler_may_emit_too() -> None:
    text = (
        "import signal; from logshipper import emit\n"
        "signal.signal(signal.SIGALRM, lambda *_: emit(alarm=1)); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "[emit(at=at) for at in range(2000)]; signal.setitimer(signal.ITIMER_REAL, 0)"
    )
    done = script(text)
    assert [
        record["at"] for record in map(json.loads, done.stdout.splitlines()) if "at" in record
    ] == list(range(2000))


def test_what_it_imports() -> None:
    """It imports almost nothing: training code and each captured job wait for it."""
    text = "import sys; before = set(sys.modules); import logshipper; {}; print(*sorted(set(sys.modules) - before))"
    assert script(text.format("0")).stdout.split() == ["logshipper"]
    modules = set(script(text.format("logshipper.emit")).stdout.split())
    assert "logshipper.emitting" in modules
    assert not modules & {
        "json",
        "typing",
        "collections",
        "re",
        "threading",
        "logging",
        "orjson",
        "numpy",
    }


def test_there_is_nothing_else_to_ask_for() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'emmit'"):
        logshipper.emmit  # noqa: B018


def test_the_guides_example_prints_what_it_says() -> None:
    fences = FENCE.findall((ROOT / "docs" / "numbers-in-text.md").read_text())
    at = next(at for at, (_, code) in enumerate(fences) if "from logshipper import emit" in code)
    done = script(fences[at][1])
    assert done.stdout + done.stderr == fences[at + 1][1]
