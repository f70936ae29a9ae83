"""Settings of a capture's sidecar besides the relay's plan."""

from collections.abc import Callable

from logshipper.config import Config
from logshipper.named_tuple import NamedTuple
from logshipper.spool.captures import CaptureDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.notify.watch import WatchedJob


class Settings(NamedTuple):
    """Settings besides the plan."""

    config: Config
    problems: tuple[str, ...]  # why ~/.logoptin was refused
    capture: CaptureDirectory
    # ingests the spool into the store; may be called again. In the node's spool the node agent does
    # this.
    start_agent: Callable[[], None]
    argv: tuple[str, ...] | None = None  # CMD's; None where only its process tells
    cwd: str | None = None  # folder of CMD's start; None as for argv
    nodes: int = 0  # of the job; 0 if unknown
    limit_secs: int = 0  # the job's time limit; 0 likewise
    # records the start as for a run by hand: in mode `enabled`, without a wait
    by_hand: bool = False
    watched: "WatchedJob | None" = None  # facts for messages; None: nothing is sent

    def of_scheduler(self) -> dict[str, int]:
        """Return the facts of launcher or scheduler about the job, for the capture's start."""
        facts = {"nodes": self.nodes, "limit_secs": self.limit_secs}
        return {name: value for name, value in facts.items() if value}


def leave_to_the_node_agent() -> None:
    """Do nothing: the node agent watches its spool."""
