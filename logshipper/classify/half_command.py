"""An unfinished line that began under another mode. Pure."""

from logshipper.render import command_prefix
from logshipper.render.renderer import Renderer, Rendering


class HalfCommand:
    """The bytes of an unfinished line that began under another mode: a command, or not logged."""

    def __init__(self, raw: bytes, size: tuple[int, int]) -> None:
        self._raw = raw
        self._size = size  # columns and rows of the terminal

    def fed(self, data: bytes) -> "HalfCommand":
        """Return it with further bytes, up to the length of the longest command."""
        return HalfCommand((self._raw + data)[: command_prefix.MAX_BYTES + 1], self._size)

    def rendered(self, now: float) -> Rendering:
        return Renderer(*self._size).feed(self._raw + b"\n", now)
