"""The capture side: relay, renderer, classifier and spool, run as the user beside the job; `emit`, `event` for code."""

TYPE_CHECKING = False  # typing itself costs more than all else that a captured job's start imports
if TYPE_CHECKING:
    from logshipper.emitting import emit as emit
    from logshipper.emitting import event as event

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Both are imported when they are asked for: every captured job waits for what this module imports."""
    if name not in ("emit", "event"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from logshipper import emitting

    return getattr(emitting, name)
