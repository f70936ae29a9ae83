"""How states, modes and losses look: the same on all pages. Each has a word, and a colour
besides."""

from logshipper_grafana.parts.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Json,
    mapped,
)
from logshipper_grafana.parts.queries import STATES

COLORS = {
    "RUNNING": BLUE,
    "UNRESPONSIVE": ORANGE,
    "COMPLETED": GREEN,
    "CANCELLED": GREY,
    "PREEMPTED": GREY,
    "REQUEUED": GREY,
    "TIMEOUT": ORANGE,
    "DEADLINE": ORANGE,
    "OUT_OF_MEMORY": PURPLE,
    "KILLED": PURPLE,
    "FAILED": RED,
    "NODE_FAIL": RED,
    "BOOT_FAIL": RED,
}
MODE_COLORS = {"enabled": GREEN, "metadata": SKY, "disabled": GREY}
BY_NUMBER = mapped({str(rank): (state, COLORS[state]) for state, rank in STATES.items()})
BY_NAME = mapped({state: (state, color) for state, color in COLORS.items()})
MODES = mapped({mode: (mode, color) for mode, color in MODE_COLORS.items()})
# how a job ended as a number: its exit code, or one of these
NO_CODE = -1  # it has none, yet or at all
BY_SIGNAL = 1000  # more than any exit code; the signal's number is added
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip
EXIT_CODES = [
    *mapped(
        {str(NO_CODE): ("none (yet)", GREY)}
        | {str(BY_SIGNAL + number): (name, RED) for number, name in _SIGNALS.items()}
    ),
    {
        "type": "range",
        "options": {
            "from": BY_SIGNAL,
            "to": BY_SIGNAL + 64,
            "result": {"text": "a signal", "color": RED, "index": len(_SIGNALS) + 1},
        },
    },
]
STILL_RUNNING: list[Json] = [
    {
        "type": "special",
        "options": {"match": "null", "result": {"text": "no end yet", "color": BLUE, "index": 0}},
    },
]
