"""Words and colours of states, modes and losses, for all pages."""

from logshipper_grafana.parts import colors
from logshipper_grafana.parts.mappings import mapped, null_as
from logshipper_grafana.parts.panels import colored
from logshipper_grafana.parts.queries import STATES

COLORS = {
    "RUNNING": colors.BLUE,
    "UNRESPONSIVE": colors.ORANGE,
    "COMPLETED": colors.GREEN,
    "CANCELLED": colors.GREY,
    "PREEMPTED": colors.GREY,
    "REQUEUED": colors.GREY,
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), colors.ROSE),
    **dict.fromkeys(("OUT_OF_MEMORY", "KILLED"), colors.CRIMSON),
    **dict.fromkeys(("FAILED", "NODE_FAIL", "BOOT_FAIL"), colors.RED),
}
MODE_COLORS = {"enabled": colors.GREEN, "metadata": colors.SKY, "disabled": colors.GREY}
SERIES = [colored(state, color) for state, color in COLORS.items()]
BY_NUMBER = mapped({str(rank): (state, COLORS[state]) for state, rank in STATES.items()})
BY_NAME = mapped({state: (state, color) for state, color in COLORS.items()})
MODES = mapped({mode: (mode, color) for mode, color in MODE_COLORS.items()})
STILL_RUNNING = null_as("no end yet", color=colors.of_word(colors.BLUE))
