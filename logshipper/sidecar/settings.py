"""What the sidecar of a capture needs to know besides the relay's plan."""

from collections.abc import Callable

from logshipper.config import Config
from logshipper.named_tuple import NamedTuple
from logshipper.spool.captures import CaptureDirectory


class Settings(NamedTuple):
    """What the sidecar needs to know besides the plan."""

    config: Config
    problems: tuple[str, ...]  # why ~/.logoptin was refused
    capture: CaptureDirectory
    # has the spool ingested into the store; it may be called again. In the node's spool that is
    # the node agent's work.
    start_agent: Callable[[], None]
    argv: tuple[str, ...] | None = None  # CMD's; None where only its process tells
    cwd: str | None = None  # where CMD was started; None likewise
    nodes: int = 0  # that the job has; 0 where nobody says
    limit_secs: int = 0  # the job's time limit; 0 likewise
    # how the job was started is recorded as of a run by hand: in mode `enabled`, and nobody waits
    by_hand: bool = False

    def of_scheduler(self) -> dict[str, int]:
        """What the launcher or scheduler says of the job, for the capture's start."""
        facts = {"nodes": self.nodes, "limit_secs": self.limit_secs}
        return {name: value for name, value in facts.items() if value}


def leave_to_the_node_agent() -> None:
    """It watches its spool by itself."""
