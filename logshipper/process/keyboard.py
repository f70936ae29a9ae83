"""The user's input on its way from the real terminal (fd 0) to CMD's."""

import os
import select

from logshipper.process import terminal

_READ_BYTES = 4096

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from logshipper.relay.relay import Relay


class Keyboard:
    """Relays fd 0 to a pty's master; stops reading while CMD accepts nothing.

    masters: by stream. on_gone(): the real terminal has gone. on_background(): another program owns
    it now. on_signal_key(signo, is_sent): the user typed a key for a signal to the foreground
    group; is_sent: the kernel sends it.
    """

    def __init__(
        self,
        masters: dict[int, int],
        on_gone: "Callable[[], None]",
        on_background: "Callable[[], None]",
        on_signal_key: "Callable[[int, bool], None]",
    ) -> None:
        self._relay: Relay | None = None
        self._on_gone = on_gone
        self._on_background = on_background
        self._on_signal_key = on_signal_key
        # our own duplicate, because the relay's poll already reads the masters
        self._fds = {stream: os.dup(master) for stream, master in masters.items()}
        self._pending = b""
        self._enabled = False
        self._watching = False

    def attach(self, relay: "Relay") -> None:
        self._relay = relay

    def listen(self, enabled: bool) -> None:
        """Start or stop reading fd 0; in the background another program owns the terminal."""
        self._enabled = enabled
        watching = enabled and not self._pending
        if self._relay is not None and watching != self._watching:
            self._watching = watching
            if watching:
                self._relay.watch(0, select.POLLIN, lambda _: self._read())
            else:
                self._relay.unwatch(0)

    def _read(self) -> None:
        if not terminal.in_foreground():
            self._on_background()
            return
        try:
            typed = os.read(0, _READ_BYTES)
        except OSError:
            typed = b""
        if not typed:
            self.listen(False)
            self._on_gone()
            return
        self._pending = typed
        target = self._choose_target()
        if target in self._fds:
            for signo in terminal.typed_signals(self._fds[target], typed):
                self._on_signal_key(signo, target == 1)  # stderr's is no session's terminal
        self._send(target)

    def _choose_target(self) -> int:
        """Return stdin's terminal, or stderr's if only that is set up for keys: some programs read
        keys there (`vim -`)."""
        if len(self._fds) < 2:
            return 1
        is_canonical = [terminal.is_canonical(self._fds[stream]) for stream in (1, 2)]
        return 2 if is_canonical == [True, False] else 1

    def _send(self, target: int) -> None:
        fd = self._fds.get(target)
        try:
            if fd is not None:
                self._pending = self._pending[os.write(fd, self._pending) :]
        except BlockingIOError:
            pass
        except OSError:
            fd = None
        if fd is None:
            self._pending = b""  # CMD has closed it
        elif self._pending and self._relay is not None:
            self._relay.watch(fd, select.POLLOUT, lambda _: self._go_on(target, fd))
        self.listen(self._enabled)

    def _go_on(self, target: int, fd: int) -> None:
        if self._relay is not None:
            self._relay.unwatch(fd)
        self._send(target)

    def forget(self, stream: int) -> None:
        """The stream is over."""
        fd = self._fds.pop(stream, None)
        if fd is not None:
            if self._relay is not None:
                self._relay.unwatch(fd)
            os.close(fd)
            self._pending = b""
            self.listen(self._enabled)

    def close(self) -> None:
        for stream in list(self._fds):
            self.forget(stream)
        self.listen(False)
