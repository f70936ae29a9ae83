"""CMD's stdout and stderr: ptys or pipes on one side, the job's own outputs on the other."""

import os

from logshipper.process import terminal
from logshipper.relay.channel import Channel
from logshipper.relay.output import JobOutput

STREAMS = (1, 2)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap


class Streams:
    """Streams by number (1 stdout, 2 stderr), without those that the caller closed or excluded.

    slaves: CMD's ends. ptys: masters, if they are ptys. real: the user's terminal, None in batch.
    one_terminal: with a real one, stderr shares stdout's.
    """

    __slots__ = ("channels", "ptys", "real", "size", "slaves", "tty")

    def __init__(
        self,
        tty: bool,
        counters: "mmap | None",
        say: "Callable[[str], None]",
        leave: tuple[int, ...] = (),
        *,
        one_terminal: bool = False,
    ) -> None:
        """Raises OSError where not even pipes are available."""
        self.real = (
            terminal.RealTerminal() if tty and not leave and terminal.is_interactive() else None
        )
        self.tty = tty
        self.size = (
            terminal.batch_size()
            if self.real is None
            else terminal.size_of(0) or terminal.UNKNOWN_SIZE
        )
        streams = [
            stream for stream in STREAMS if terminal.is_inherited(stream) and stream not in leave
        ]
        pairs = {}
        if tty:
            like = None if self.real is None else self.real.saved_attributes
            is_one = self.real is not None and one_terminal
            try:
                pairs = {
                    stream: terminal.open_pty(self.size, like)
                    for stream in (streams[:1] if is_one else streams)
                }
            except OSError as error:
                say(f"CMD gets pipes, as there is no terminal available: {error.strerror or error}")
                self.tty, self.real = False, None
        if not self.tty:
            pairs = {stream: os.pipe() for stream in streams}
        self.slaves = {stream: slave for stream, (_, slave) in pairs.items()}
        self.ptys = {stream: master for stream, (master, _) in pairs.items()} if self.tty else {}
        self.channels = [
            Channel(stream, master, JobOutput(terminal.own_description(stream)), counters)
            for stream, (master, _) in pairs.items()
        ]
