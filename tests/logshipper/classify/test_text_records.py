"""Records of lines other than JSON: dicts, pairs, lines of known programs, the user's own patterns
(R5, R18-R21)."""

import json
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.classify.text_records import MAX_LINE_BYTES, MAX_VALUES, TextRecords
from logshipper.classify.user_patterns import UserPatterns
from logshipper.config import MetadataPattern
from logshipper.spool.segment import Kind, Stream
from tests.programs import capture

KINDS = ("json", "dict", "pairs")
Items = list[LoggedLines | LoggedEvent]


def _items(
    *steps: bytes | tuple[Stream, bytes],
    mode: str = "enabled",
    metadata: tuple[str | MetadataPattern, ...] = KINDS,
    **options: Any,  # Any: of Classifier, of several types
) -> Items:
    classifier = Classifier(mode, metadata=metadata, **options)
    for step in steps:
        stream, data = step if isinstance(step, tuple) else (Stream.STDOUT, step)
        classifier.feed(stream, data, 1.0)
    for stream in (Stream.STDOUT, Stream.STDERR):
        classifier.end(stream, 2.0)
    items = classifier.take()
    stored = sum(
        item.lines
        for item in items
        if isinstance(item, LoggedLines)
        and item.kind in (Kind.LOG, Kind.METADATA)
        and not (item.attrs or {}).get("copy")
    )
    ledger = classifier.ledger()
    assert stored == ledger["stdout"]["stored"] + ledger["stderr"]["stored"]
    for name in ("stdout", "stderr"):
        account = ledger[name]
        outcomes = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
        assert account["read"] == sum(account[outcome] for outcome in outcomes)
        assert account["read"] == account["line_feeds"]
    return items


def _records(items: Items) -> list[tuple[str, dict[str, Any]]]:
    """Return the origins and values of all records."""
    return [
        ((item.attrs or {}).get("origin", "json"), json.loads(item.text))
        for item in items
        if isinstance(item, LoggedLines) and item.kind is Kind.METADATA
    ]


def _log(items: Items) -> bytes:
    return b"".join(
        item.text
        for item in items
        if isinstance(item, LoggedLines) and item.kind in (Kind.LOG, Kind.NOTE)
    )


def _events(items: Items) -> list[str]:
    return [item.record["event"] for item in items if isinstance(item, LoggedEvent)]


# ---- output of programs (tests/captures)


def _of_program(name: str) -> list[tuple[str, dict[str, Any]]]:
    recording = capture.read(name)
    classifier = Classifier(
        "enabled", columns=recording.columns, rows=recording.rows, metadata=KINDS
    )
    for data, now in recording.timed_reads():
        classifier.feed(Stream.STDOUT, data, now)
    classifier.end(Stream.STDOUT, 1e9)
    return _records(classifier.take())


def _first_of_each(name: str) -> list[dict[str, Any]]:
    """Return the first record of each set of keys."""
    records: dict[tuple[str, ...], dict[str, Any]] = {}
    for origin, values in _of_program(name):
        assert origin in (name, "sklearn", "dict", "pairs")
        records.setdefault(tuple(values), values)
    return list(records.values())


def test_xgboost() -> None:
    """Records of cv() also have standard deviations."""
    assert len(_of_program("xgboost")) == 11
    assert [tuple(values) for values in _first_of_each("xgboost")] == [
        ("iteration", "train-logloss", "train-auc", "valid-logloss", "valid-auc"),
        ("iteration", "train-logloss", "train-logloss-std", "test-logloss", "test-logloss-std"),
        ("iteration", "valid-logloss", "valid-auc"),
    ]
    assert list(_first_of_each("xgboost")[0].values()) == [0, 0.47828, 0.98696, 0.52194, 0.94591]


def test_lightgbm() -> None:
    """Keys have the same form as XGBoost's."""
    assert len(_of_program("lightgbm")) == 6
    records = _first_of_each("lightgbm")
    assert tuple(records[0]) == (
        *("iteration", "train-binary_logloss", "train-auc"),
        *("valid-binary_logloss", "valid-auc"),
    )
    assert records[1:] == [
        {"iteration": 5, "valid_0-l2": 0.130065},
        {"iteration": 2, "valid-l2": 0.18321, "valid-l2-std": 0.00132038},
    ]


def test_catboost() -> None:
    assert [values["iteration"] for origin, values in _of_program("catboost") if origin == "catboost"] == [
        0, 5, 10, 15, 19, 0, 1, 2, 3,
    ]  # fmt: skip
    assert _first_of_each("catboost")[0].keys() == {"iteration", "learn", "test", "best"}
    assert {"bestIteration": 19} in _first_of_each("catboost")


def test_keras() -> None:
    """The epoch has a line of its own. A bar becomes a record once it is full, and evaluate() has
    no epoch."""
    records = _of_program("keras")
    assert [values.get("epoch") for _, values in records] == [1, 2, 3, None, 1, 2]
    assert records[0] == (
        "keras",
        {"epoch": 1, "loss": 0.1458, "mae": 0.3111, "val_loss": 0.1018, "val_mae": 0.2684},
    )


def test_scikit_learn() -> None:
    assert [tuple(values) for values in _first_of_each("scikit-learn")] == [
        ("iteration", "train_loss"),
        ("iteration", "train_loss", "oob_improve"),
        ("iteration", "trees", "leaves", "max_depth", "train", "val"),
        ("iteration", "loss"),
        ("validation_score",),
        ("epoch", "norm", "nnzs", "bias", "t", "avg_loss", "objective"),
        ("iteration", "inertia"),
    ]
    assert [values["epoch"] for _, values in _of_program("scikit-learn") if "epoch" in values] == [
        1,
        2,
        3,
    ]


def test_transformers() -> None:
    """Version 5 prints numbers in quotes."""
    records = _of_program("transformers")
    assert {origin for origin, _ in records} == {"dict"}
    assert [values["epoch"] for _, values in records] == [0.5, 1, 1, 1.5, 2, 2, 2]
    assert all(
        isinstance(value, (int, float)) for _, values in records for value in values.values()
    )


# These lines in the output of other programs have the form of pairs.
PAIRS_OF_PROGRAMS = {
    "gdb": [{"n": 0}],
    "pnpm": [{"Packages": 69}],
    "pytest": [{"n": n} for n in (0, 7, 14, 21, 28, 35)],
}
TAKEN = ("xgboost", "lightgbm", "catboost", "keras", "scikit-learn", "transformers")
WITH_JSON = tuple(f"{name}-json" for name in TAKEN)  # the same programs, between JSON lines


@pytest.mark.parametrize(
    "name", [name for name in capture.names() if name not in TAKEN + WITH_JSON]
)
def test_other_programs_print_no_records(name: str) -> None:
    records = [values for origin, values in _of_program(name) if origin != "json"]
    assert records == PAIRS_OF_PROGRAMS.get(name, [])


# ---- ordinary lines

ORDINARY = """
2026-11-23 10:00:00 INFO x: y
2026-11-23 10:00:00.123 | INFO     | __main__:train:12 - loss=0.5
2026-11-23 10:00:00 [info     ] trained                        epoch=1 loss=0.5
INFO:root:epoch 1
INFO: 5
ERROR: 12
[2026-11-23 10:00:00,123][INFO] step 5
time=2026-11-23T10:00:00Z level=info msg="listening" port=8080
level=info msg=started pid=4711
Nov 23 10:00:00 host sshd[4711]: Accepted publickey for user from 10.0.0.1 port 22 ssh2
Collecting numpy==1.26
Downloading torch-2.0.0-cp311-cp311-linux_x86_64.whl (619.9 MB)
Successfully installed numpy-1.26.0
   Compiling serde v1.0.190
    Finished dev [unoptimized + debuginfo] target(s) in 0.52s
warning: unused variable: `x`
error[E0308]: mismatched types
  --> src/main.rs:4:5
Traceback (most recent call last):
  File "train.py", line 12, in <module>
KeyError: 3
IndexError: 5
ValueError: 12 is not in list
SystemExit: 1
subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.
exit: 1
train.py:12: DeprecationWarning: use `accuracy`
/data/run=5/part-00001.parquet
http://localhost:8080/metrics
localhost:8080
https://example.org/a?x=1&y=2
10:00:00
00:12 elapsed
12:30: lunch
1/10 files done
[1/10] Compiling main.c
[12/345] Building CXX object a.o
[1] 4711
[5] done
[0] rank 0 of 4 is up
3: eth0: <BROADCAST,MULTICAST,UP> mtu 1500
0: learn the rules
Note: this takes long
note: 5 files were skipped
Number of parameters: 124439808
Total time: 5 minutes
Time: 10:05:07
Date: 2026-11-23
version: 1.2.3
Epoch 1/10
Epoch 3
-- Epoch 1
Step 5: loading
epoch 3 done
loss is falling
loss: low
loss: 0.5 (the best so far)
the loss: 0.5
x = [1, 2, 3]
x == 5
a <= 5
if n = 0 then
lr=1e-3,bs
size=1,024
ip=127.0.0.1
uuid=0b0f-11
key=value
key: value
{'name': 'resnet', 'layers': 'many'}
{'loss': 0.5} and more
{'loss': 0.5
{0: 0.5}
{loss: 0.5}
set() {'a', 'b'}
      Iter       Train Loss   Remaining Time
         1  file changed
  5 passed, 1 failed in 0.12s
 10 20 30
 12%|####      | 12/100 [00:01<00:09, 9.50it/s, loss=0.5]
100%|##########| 24/24 [00:07<00:00,  3.06epoch/s]
 3/16 [===>..........................] - ETA: 0s - loss: 0.5
12/16 - 0s - loss: 0.5
16/16 [==============================] - 0s 2ms/step
Iteration 5 of 10
Iteration 1, loss = high
Norm: 5, and more
Validation score: good
mem: 5 used, 3 free
|   0  N/A  N/A      4711      C   python    500MiB |
real    0m0.500s
0.5
-5
=5
: 5
"""


@pytest.mark.parametrize("line", ORDINARY.strip("\n").split("\n"))
def test_ordinary_lines_are_no_records(line: str) -> None:
    text = f"{line}\n".encode()
    assert _records(_items(text)) == []
    assert _records(_items(text, mode="metadata")) == []


# ---- forms


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("loss: 0.5", '{"loss": 0.5}'),
        ("loss=0.50", '{"loss": 0.50}'),
        ("loss = 0.5", '{"loss": 0.5}'),
        ("step=100 loss=0.5 lr=1e-05", '{"step": 100, "loss": 0.5, "lr": 1e-05}'),
        ("step: 100, train/loss: 0.5, acc: 91.5%", '{"step": 100, "train/loss": 0.5, "acc": 91.5}'),
        ("loss: 0.5 | acc: 0.9 - took: 3.5s", '{"loss": 0.5, "acc": 0.9, "took": 3.5}'),
        ("loss=0.5 mem=3.2GB speed=12it/s", '{"loss": 0.5}'),
        ("Epoch 3/10 - loss: 0.5", '{"epoch": 3, "loss": 0.5}'),
        ("[Epoch 3] loss: 0.5", '{"epoch": 3, "loss": 0.5}'),
        ("Epoch: 3, Loss: 0.5", '{"epoch": 3, "Loss": 0.5}'),
        ("step 200 | loss=0.5", '{"step": 200, "loss": 0.5}'),
        ("epoch: 3/10 loss: .5", '{"epoch": 3, "loss": 0.5}'),
        ("a=+1. b=-0.5 c=007", '{"a": 1, "b": -0.5, "c": 7}'),
        ("loss=nan norm=-inf step=3", '{"loss": NaN, "norm": -Infinity, "step": 3}'),
        (f"big={'9' * 60}", f'{{"big": {"9" * 60}}}'),
        ("{'loss': 0.5, 'epoch': 1.0}", '{"loss": 0.5, "epoch": 1.0}'),
        ("{'loss': '0.9144', 'epoch': '1'}", '{"loss": 0.9144, "epoch": 1}'),
        ("{'loss': nan, 'norm': inf, 'n': 1}", '{"loss": NaN, "norm": Infinity, "n": 1}'),
        ("{'loss': tensor(0.5, device='cuda:0'), 'acc': np.float64(0.9)}", '{"loss": 0.5, "acc": 0.9}'),
        (
            "{'loss': 0.5, 'name': 'a, b', 'ok': True, 'none': None, 'many': [1, 2], 'more': {'x': 1}}",
            '{"loss": 0.5}',
        ),
        ("{'größe': 5, 'a\"b': 6}", '{"größe": 5, "a\\"b": 6}'),
    ],
)  # fmt: skip
def test_what_becomes_of_a_line(line: str, record: str) -> None:
    """R19: a number keeps its text if JSON allows it."""
    text = f"{line}\n".encode()
    items = _items(text)
    assert [
        item.text.decode()
        for item in items
        if isinstance(item, LoggedLines) and item.kind is Kind.METADATA
    ] == [f"{record}\n"]
    assert _log(items) == text
    has_gaps = "NaN" in record or "Infinity" in record
    assert _events(items) == ["json_hint"] * has_gaps


def test_a_kind_that_isnt_asked_for_is_none() -> None:
    lines = b"{'loss': 0.5}\nloss: 0.5\n[5] a-b:0.5\n"
    assert _records(_items(lines, metadata=("json",))) == []
    assert [origin for origin, _ in _records(_items(lines, metadata=("json", "dict")))] == ["dict"]
    assert [origin for origin, _ in _records(_items(lines, metadata=("json", "pairs")))] == [
        "pairs",
        "xgboost",
    ]


def test_only_stdout_is_mined() -> None:
    """R5."""
    assert _records(_items((Stream.STDERR, b"loss: 0.5\n{'a': 1}\n"))) == []


def test_long_lines_and_many_values_are_no_records() -> None:
    values = b" ".join(b"k%d=1" % n for n in range(MAX_VALUES))
    assert len(_records(_items(values + b"\n"))) == 1
    assert _records(_items(values + b" more=1\n")) == []
    assert len(_records(_items(b"loss=0." + b"5" * 300 + b"\n"))) == 1
    assert _records(_items(b"loss=0.5" + b" " * MAX_LINE_BYTES + b"\n")) == []


# ---- the log


MIXED = b"start\nloss: 0.5\nloss: 0.5\nloss: 0.5\n{\"epoch\": 1}\n{'a': 1}\nend\n"


def test_the_line_stays_in_the_log_and_repeats_drop_no_record() -> None:
    items = _items(MIXED)
    assert _log(items) == b"start\nloss: 0.5\n[repeated 2 times: loss: 0.5]\n{'a': 1}\nend\n"
    assert _records(items) == [
        *[("pairs", {"loss": 0.5})] * 3,
        ("json", {"epoch": 1}),
        ("dict", {"a": 1}),
    ]
    numbers = [
        item.attrs for item in items if isinstance(item, LoggedLines) and item.kind is Kind.METADATA
    ]
    assert numbers[2] == {"n": 3, "origin": "pairs", "copy": 1}
    assert numbers[3] == {"n": 1}


def test_in_mode_metadata_the_record_is_all_that_is_logged() -> None:
    """R9: the rest of the line may be private."""
    items = _items(b"{'user': 'ann', 'loss': 0.5}\nloss=0.5 where=3GB\nnothing\n", mode="metadata")
    assert [item for item in items if not isinstance(item, LoggedLines)] == []
    assert [(item.text, item.attrs) for item in items if isinstance(item, LoggedLines)] == [
        (b'{"loss": 0.5}\n', {"n": 1, "origin": "dict"}),
        (b'{"loss": 0.5}\n', {"n": 2, "origin": "pairs"}),
    ]
    assert _records(_items(MIXED, mode="metadata")) == _records(_items(MIXED))


def test_nothing_while_disabled_and_no_epoch_from_before() -> None:
    """R11."""
    data = (
        b'Epoch 1/3\n/LOGCOMMAND {"mode":"disabled"}\nloss: 0.5\n16/16 - 0s - loss: 0.4\n'
        b'/LOGCOMMAND {"mode":"enabled"}\n16/16 - 0s - loss: 0.3\n'
    )
    assert _records(_items(data)) == [("keras", {"loss": 0.3})]


def test_tokens_are_masked_in_records() -> None:
    data = b'/LOGCOMMAND {"stop":"token-12345"}\ntoken-12345=5 loss=0.5\n'
    assert b"token-12345" not in b"".join(
        item.text for item in _items(data) if isinstance(item, LoggedLines)
    )


def test_colours_that_are_kept() -> None:
    data = b"\x1b[1mloss\x1b[0m: \x1b[32m0.5\x1b[0m\n\x1b[31m{'a': 1}\x1b[0m\n"
    items = _items(data, keep_colours=True)
    assert _records(items) == [("pairs", {"loss": 0.5}), ("dict", {"a": 1})]
    assert b"\x1b[32m0.5" in _log(items)
    assert _events(items) == []


@pytest.mark.parametrize("size", [1, 7, 64])
def test_how_bytes_are_cut_makes_no_difference(size: int) -> None:
    parts = [MIXED[at : at + size] for at in range(0, len(MIXED), size)]
    assert _records(_items(*parts)) == _records(_items(MIXED))
    assert _log(_items(*parts)) == _log(_items(MIXED))


# ---- the user's own patterns


def _kinds_with(pattern: str, name: str = "mine") -> tuple[str | MetadataPattern, ...]:
    return ("json", MetadataPattern(name, pattern))


def test_an_own_pattern() -> None:
    kinds = _kinds_with(r"loss is (?P<loss>\S+)(?: at (?P<step>[0-9]+))?")
    data = b"10:00 loss is 0.50 at 3\nloss is low\nloss is 1e-3\n"
    assert _records(_items(data, metadata=kinds)) == [
        ("mine", {"loss": 0.5, "step": 3}),
        ("mine", {"loss": 1e-3}),
    ]


def test_user_patterns_go_first_and_the_first_counts() -> None:
    kinds = (*KINDS, MetadataPattern("one", "(?P<a>[0-9]+)"), MetadataPattern("two", "(?P<b>5)"))
    assert _records(_items(b"loss: 5\nn: -inf\n", metadata=kinds)) == [
        ("one", {"a": 5}),
        ("pairs", {"n": float("-inf")}),
    ]


@pytest.mark.parametrize("mode", ["enabled", "metadata"])
def test_a_json_line_is_one_record(mode: str) -> None:
    kinds = _kinds_with("(?P<n>[0-9]+)")
    data = b'{"a": 5}\n{"a": 5} 6\n'
    assert _records(_items(data, mode=mode, metadata=kinds)) == [
        ("json", {"a": 5}),
        ("mine", {"n": 5}),
    ]


SLOW = MetadataPattern("slow", r"(?P<a>[0-9]*)[0-9]*[0-9]*[0-9]*[0-9]*x")


def test_a_pattern_that_takes_too_long_is_switched_off() -> None:
    """It would take years. Everything else goes on, and one event reports it."""
    kinds = (*KINDS, SLOW, MetadataPattern("good", "good (?P<n>[0-9]+)"))
    line = b"1" * (MAX_LINE_BYTES - 1) + b"\n"
    items = _items(b"12x\n" + line + b"loss: 0.5\ngood 5\n" + line + b"12x\n", metadata=kinds)
    assert _records(items) == [("slow", {"a": 12}), ("pairs", {"loss": 0.5}), ("good", {"n": 5})]
    assert _events(items) == ["metadata_pattern_off"]
    event = next(item.record for item in items if isinstance(item, LoggedEvent))
    assert event["pattern"] == "slow"
    assert "`slow`" in event["message"]


def test_all_patterns_may_be_switched_off() -> None:
    patterns = UserPatterns([SLOW, SLOW._replace(name="too")])
    assert patterns.find([(0, "1" * MAX_LINE_BYTES)]) == {}
    assert patterns.take_disabled() == ["slow", "too"]
    assert not patterns
    assert patterns.take_disabled() == []


def test_the_timer_works_where_the_signal_was_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGVTALRM,))
    patterns = UserPatterns([SLOW])
    assert patterns.find([(0, "1" * MAX_LINE_BYTES)]) == {}
    assert patterns.take_disabled() == ["slow"]


def test_no_timer_is_left_behind() -> None:
    patterns = UserPatterns([MetadataPattern("good", "(?P<n>[0-9]+)")])
    assert patterns.find([(3, "n 5")]) == {3: ("good", {"n": "5"})}
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


_PIECES = st.sampled_from(
    ["loss", "a", "{'", "'", "': ", ", ", "}", "=", ": ", "0.5", "-", "nan", "1e5", "%", " ", "[5]", "\\", '"',
     "5/5", "Epoch ", "'s ", "(", ")", "tensor(", "é", "iteration", ":", "+", "learn: ", "total: ", "9" * 300]
)  # fmt: skip


@given(st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=30))
def test_any_line_is_a_record_of_numbers_or_none(pieces: list[str]) -> None:
    line = "".join(pieces).replace("\n", "").encode("utf-8", "replace")
    for record in TextRecords(KINDS).find(line + b"\n"):
        values = json.loads(record.line)
        assert tuple(values) == tuple(dict.fromkeys(record.keys))
        assert all(value is None or isinstance(value, (int, float)) for value in values.values())
        assert b"\n" not in record.line


def test_a_find_has_no_effect_on_the_next_one() -> None:
    text = b"loss: 0.5\n{'a': 1}\n"
    records = TextRecords(KINDS)
    assert records.find(text) == records.find(text)
