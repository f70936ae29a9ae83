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
        self.tty = tty
        self.real = None
        self.size = terminal.batch_size()
        streams = [
            stream for stream in STREAMS if terminal.is_inherited(stream) and stream not in leave
        ]
        with_terminal = streams
        like = None
        if tty and not leave and terminal.is_interactive():
            self.real = terminal.RealTerminal()
            self.size = terminal.size_of(0) or terminal.UNKNOWN_SIZE
            with_terminal = streams[:1] if one_terminal else streams
            like = self.real.saved_attributes
        pairs = {}
        if tty:
            try:
                pairs = {stream: terminal.open_pty(self.size, like) for stream in with_terminal}
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
