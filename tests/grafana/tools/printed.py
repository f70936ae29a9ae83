"""Output of the fixture's jobs, and its expected results. Each job is a list of lines, so tests
know every value."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]  # Any: JSON
LONG_RECORDS = 6000  # more than one answer of Loki can hold, so the page shows a tenth
SECRET = "hunter2"  # noqa: S105 - nobody's: printed before somebody opted in
BARS = ("epoch 1/3:  33%|###       | 1/3 [00:40<01:20]", "  40%|####      | 4/10")
REPEATS = 5


@dataclass(frozen=True)
class Job:
    """Output of a job.

    lines: of standard output; pause_secs: after the first line; stays: runs until its input ends.

    killed: by a signal, at its end; attempts: lines and exit code of each, if several.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    exit_code: int = 0
    mode: str = ""
    pause_secs: int = 0
    stays: bool = False
    killed: bool = False
    host: str = "n1"
    attempts: tuple["Job", ...] = ()
    context: bool = False  # records how the job was started
    finds_series: bool = False

    @property
    def records(self) -> list[Json]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    @property
    def script(self) -> str:
        """Script for sh; `out` and `err` hold the lines."""
        words = (
            ["head -n1 out", f"sleep {self.pause_secs}", "tail -n+2 out"]
            if self.pause_secs
            else ["cat out"]
        )
        if self.errors:
            words.append("cat err >&2")
        if self.stays:
            words += [f"printf '\\r%s\\n\\r%s\\033[A' '{BARS[0]}' '{BARS[1]}'", "read end"]
        return "; ".join([*words, "kill -KILL $$" if self.killed else f"exit {self.exit_code}"])


def _lines(*records: Json) -> list[str]:
    return [json.dumps(record, ensure_ascii=False) for record in records]


def _noise(seed: int) -> float:
    return round(random.Random(seed).uniform(0.1, 2), 6)


RUNNING = Job(
    "running",
    ["begun", *_lines(*({"step": step, "loss": _noise(step)} for step in range(1, 21)))],
    stays=True,
)
ENDED = Job(
    "ended",
    [
        "epochs: 30",
        *_lines(
            *(
                {"loss": _noise(epoch), "epoch": epoch, "val/acc": epoch / 40}
                for epoch in range(1, 31)
            )
        ),
        *["the same"] * REPEATS,
        "done",
    ],
    context=True,
)
WITH_BACKTICKS = "run `Größe --all` (100%) \\n"
NO_METADATA = Job(
    "no-metadata",
    [
        "first of stdout",
        'A "quoted" \\ line',
        "{'loss': 1}",
        WITH_BACKTICKS,
        "x" * 300,
        "last of stdout",
    ],
    ["Traceback: [50%] (a+b)", "ERROR it failed"],
    exit_code=3,
    host="n2",
)
KILLED = Job("killed", ["before its end"], exit_code=-9, killed=True, host="n2")
NO_NUMBERS = Job(
    "no-numbers",
    _lines(
        {"size": "big", "ok": True, "n": "0.1", "at": "2024-01-01", "nothing": None},
        {"size": "small", "ok": False, "n": "7", "at": "2024-01-02", "list": [1, 2]},
    ),
    host="n2",
)
OPTED_IN_LATE = Job(
    "opted-in-late",
    [
        f"password {SECRET}",
        *_lines({"step": 1, SECRET: 1}),
        '/LOGCOMMAND {"mode":"enabled"}',
        "from here on",
        *_lines(*({"step": step, "loss": _noise(step)} for step in (2, 3, 4))),
    ],
    mode="disabled",
)
MANY_KEYS = Job(
    "many-keys",
    _lines(
        *(
            {"step": step, **{f"k{key:03}": step * 1000 + key for key in range(255)}}
            for step in range(1, 5)
        )
    ),
    host="n2",
)
ODD_KEYS = Job(
    "odd-keys",
    _lines(
        *(
            {
                "opt": {"beta": step / 10, "sched": {"lr": 1 / step}, "name": "adam"},
                "val/acc": step / 8,
                "größe": step * 2,
                "it's": step * 3,
                'quote"d': step * 4,
                "back\\slash": step * 5,
                "with space, and = {x} (y) | z": step * 6,
                "7": step * 7,
                "step": step,
            }
            for step in range(1, 9)
        )
    ),
    host="n10",
)
SOMETIMES_TEXT = Job(
    "sometimes-text",
    _lines(
        {"loss": "0.75", "step": 1, "flag": True},
        {"loss": 0.5, "step": 2, "flag": 1},
        {"loss": True, "step": 3, "flag": False},
        {"loss": None, "step": 4},
        {"loss": "nan", "step": 5, "flag": 0},
        {"loss": 0.125, "step": 6},
        {"loss": {"deep": 3}, "step": 7},
        {"loss": 1e-7, "step": "8"},
    ),
)
DIVERGED = Job(
    "diverged",
    _lines(
        {"step": 1, "loss": 0.5, "text": 'a, NaN, " Infinity'},
        {"step": 2, "loss": float("nan"), "text": "NaN", "lr": {"head": 0.25}},
        {"step": 3, "loss": float("inf"), "text": "x: NaN}", "lr": {"head": float("-inf")}},
        {"step": 4, "loss": 0.25, "text": "", "lr": {"head": 0.125}},
    ),
)
ONE_KEY = Job("one-key", _lines(*({"loss": 1 / step} for step in range(1, 5))))
CONFIGURED = Job(
    "configured",
    _lines(
        {"model": "mlp", "hidden": 1024, "seed": 7},
        *({"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 4)),
    ),
)
REQUEUED = Job(
    "requeued",
    host="n2",
    attempts=(
        Job(
            "requeued",
            _lines(*({"step": step, "loss": 10.5 + step} for step in range(1, 4))),
            exit_code=1,
        ),
        Job("requeued", _lines(*({"step": step, "loss": 20.5 + step} for step in range(1, 6)))),
    ),
)
THREE_NODES = Job(
    "three-nodes",
    attempts=tuple(
        Job(
            "three-nodes",
            _lines(*({"epoch": epoch, "loss": rank * 100 + epoch} for epoch in range(1, 6))),
            host=host,
        )
        for rank, host in enumerate(("n1", "n2", "n10"))
    ),
)
VALIDATION = Job(
    "validation",
    _lines(
        *(
            {"step": step, "loss": _noise(step)}
            if step % 5
            else {"epoch": step // 5, "val_loss": _noise(step)}
            for step in range(1, 31)
        )
    ),
    host="n10",
)
ALONE = Job(
    "alone",
    _lines(*({"temperature": 40 + _noise(step)} if step % 4 == 0 else {"step": step, "loss": 1 / step}
             for step in range(1, 21))),
)  # fmt: skip
# like the tags of measurements; the last host would break an uncleaned name
TAG_SETS = ({"host": "n1", "rank": "0"}, {"host": "n1", "rank": "1"}, {"host": 'n"2', "rank": "2"})
TAGGED = Job(
    "tagged",
    _lines(
        *(
            {"epoch": epoch, "loss": _noise(10 * epoch + rank), "tags": tags}
            for epoch in range(1, 6)
            for rank, tags in enumerate(TAG_SETS)
        )
    ),
)
SHORT = Job(
    "short",
    _lines(*({"step": step, "loss": step / 4} for step in range(1, 4))),
    pause_secs=5,
    host="n10",
)
LONG = Job(
    "long",
    _lines(
        *({"step": number, "loss": number / 2, **({"lr": number / 4} if number % 100 == 0 else {})}
          for number in range(1, LONG_RECORDS + 1))
    ),
    host="n10",
)  # fmt: skip
# Its script sees only a signal; Slurm's controller knows the reason
TIMED_OUT = Job(
    "timed-out",
    attempts=(
        Job(
            "timed-out",
            _lines(*({"step": step, "loss": _noise(step)} for step in range(1, 4))),
            exit_code=143,
        ),
    ),
)
# One job for each further rule of R25, by its number
RULES: dict[int, Job] = {
    1: Job(
        "progress",
        _lines(*({"step": step, "progress": _noise(step), "epoch": step} for step in range(1, 9))),
    ),
    4: Job(
        "never-falls",
        _lines(*({"hours": step // 2 / 2, "loss": _noise(step)} for step in range(1, 9))),
    ),
    5: Job(
        "only-falls", _lines(*({"left": 9 - step, "loss": _noise(step)} for step in range(1, 9)))
    ),
    6: Job(
        "falls-in-parts",
        _lines(*({"rate": 1 / step, "loss": _noise(step)} for step in range(1, 9))),
    ),
    7: Job(
        "any-numbers",
        _lines(*({"loss": _noise(step), "acc": _noise(-step)} for step in range(1, 9))),
    ),
}
# Written in a sidecar's format to save time: an event of its own, half a minute of silence, lost
# lines
EVENTFUL = Job(
    "eventful",
    ["begun", *_lines(*({"step": step, "loss": _noise(step)} for step in range(1, 5)))],
    host="n4",
)
SILENT_SECS = 31
LIMIT_SECS = 5400  # of the eventful one
LATE = Job(
    "late",
    ["late words", *_lines(*({"step": step, "loss": _noise(step)} for step in range(1, 6)))],
    host="late1",
)
OLD = Job(
    "old",
    ["old words", *_lines(*({"step": step, "loss": _noise(step)} for step in range(1, 8)))],
    host="old1",
)

_STEPS = [f"step {step} train loss: {_noise(step)}" for step in range(1, 11)]
SERIES = Job("series", _STEPS, finds_series=True)  # numbers in plain text alone
MIXED = Job(
    "mixed",
    [*_lines(*({"epoch": epoch, "acc": _noise(epoch)} for epoch in range(1, 6))), *_STEPS],
    finds_series=True,
)
LIVE = (RUNNING, ENDED, NO_METADATA, KILLED, NO_NUMBERS, OPTED_IN_LATE, MANY_KEYS, ODD_KEYS, SOMETIMES_TEXT, DIVERGED,
        VALIDATION, ALONE, TAGGED, SHORT, LONG, ONE_KEY, CONFIGURED, SERIES, MIXED, *RULES.values())  # fmt: skip
EVERY = (*LIVE, REQUEUED, THREE_NODES, TIMED_OUT, EVENTFUL, LATE, OLD)
