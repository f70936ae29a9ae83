"""Words and colours of states, modes and losses, for all pages."""

from logshipper_grafana.parts.colors import (
    BLUE,
    CRIMSON,
    GREEN,
    GREY,
    ORANGE,
    RED,
    ROSE,
    SKY,
    of_word,
)
from logshipper_grafana.parts.mappings import mapped, null_as
from logshipper_grafana.parts.panels import colored
from logshipper_grafana.parts.queries import STATES

COLORS = {
    "RUNNING": BLUE,
    "UNRESPONSIVE": ORANGE,
    "COMPLETED": GREEN,
    "CANCELLED": GREY,
    "PREEMPTED": GREY,
    "REQUEUED": GREY,
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), ROSE),
    **dict.fromkeys(("OUT_OF_MEMORY", "KILLED"), CRIMSON),
    **dict.fromkeys(("FAILED", "NODE_FAIL", "BOOT_FAIL"), RED),
}
MODE_COLORS = {"enabled": GREEN, "metadata": SKY, "disabled": GREY}
SERIES = [colored(state, color) for state, color in COLORS.items()]
BY_NUMBER = mapped({str(rank): (state, COLORS[state]) for state, rank in STATES.items()})
BY_NAME = mapped({state: (state, color) for state, color in COLORS.items()})
MODES = mapped({mode: (mode, color) for mode, color in MODE_COLORS.items()})
STILL_RUNNING = null_as("no end yet", color=of_word(BLUE))
