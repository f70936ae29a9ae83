"""Regular expressions that are compiled with their first use: to compile all that a sidecar may need
took a sixth of a short job's start."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern
    from typing import Any, AnyStr


class _LatePattern:
    """As the compiled pattern; its methods stay here once they were asked for."""

    def __init__(self, source: "str | bytes", flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> "Any":  # of what isn't here yet. Any: as a pattern has it
        from re import compile as compiled

        value = getattr(compiled(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def late_pattern(source: "AnyStr", flags: int = 0) -> "Pattern[AnyStr]":
    """For modules that every job's capture imports. An invalid source raises with the first use."""
    return _LatePattern(source, flags)  # type: ignore[return-value]  # it has what a pattern has
