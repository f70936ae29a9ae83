"""What the sidecar of a capture needs to know besides the relay's plan."""

from collections.abc import Callable
from typing import NamedTuple

from logshipper.config import Config
from logshipper.spool.captures import Capture


class Settings(NamedTuple):
    """What the sidecar needs to know besides the plan. problems: why ~/.logoptin was refused;
    start_agent: has the spool taken into the store; it may be called again. In the node's spool
    that is the node agent's work. argv, cwd: how CMD was started; None where only its process
    tells. nodes: that the job has, 0 where nobody says."""

    config: Config
    problems: tuple[str, ...]
    capture: Capture
    start_agent: Callable[[], None]
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    nodes: int = 0


def leave_to_the_node_agent() -> None:
    """It watches its spool by itself."""
