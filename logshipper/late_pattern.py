"""Regular expressions that are compiled with their first use: to compile all that a sidecar may need
took a sixth of a short job's start."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern
    from typing import Any, AnyStr


class _LatePattern:
    """A compiled pattern on demand; methods stay here after their first use."""

    def __init__(self, source: "str | bytes", flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> "Any":  # of attributes not here yet. Any: as in a pattern
        from re import compile as compiled

        value = getattr(compiled(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def late_pattern(source: "AnyStr", flags: int = 0) -> "Pattern[AnyStr]":
    """Return a pattern for modules that every capture imports. An invalid source raises at its
    first use."""
    return _LatePattern(source, flags)  # type: ignore[return-value]  # it has what a pattern has
