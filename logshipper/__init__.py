"""The capture side: relay, renderer, classifier and spool, run as the user beside the job; `emit`, for its code."""

TYPE_CHECKING = False  # typing itself costs more than all else that a captured job's start imports
if TYPE_CHECKING:
    from logshipper.emitting import emit as emit

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`emit` is imported when it is asked for: every captured job waits for what this module imports."""
    if name != "emit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from logshipper.emitting import emit

    return emit
