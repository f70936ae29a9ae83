"""Signals of the relay process: all are blocked, and arrive as records in a pipe that the relay's
loop watches.

Python 3.11 has no signalfd, and a signal handler does not see the sender. But the sender decides
about forwarding: the kernel's signals to a terminal's whole foreground group have reached CMD
already. So a thread takes signals by sigwaitinfo. Forks come before the thread. If it cannot start,
the loop polls every POLL_SECS.
"""

import _thread
import os
import signal
import struct
import time

from logshipper.named_tuple import NamedTuple

POLL_SECS = 0.05
JOB_CONTROL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
# raised by a fault of one's own: blocked, they would kill without a trace
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
_FAULTS |= {signal.SIGTRAP, signal.SIGSYS}
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
_NEVER_BLOCKED = {signal.SIGKILL, signal.SIGSTOP}
WATCHED = signal.valid_signals() - _FAULTS - _IGNORED_BY_PYTHON - _NEVER_BLOCKED
_RECORD = struct.Struct("<iii")
_BY_PROCESS = (0, -1, -6)  # si_code: SI_USER, SI_QUEUE, SI_TKILL
_STACK_BYTES = 256 << 10
_STOP_SECS = 1.0


class SignalArrival(NamedTuple):
    """A signal that arrived. pid: of its sender."""

    signo: int
    code: int
    pid: int

    @property
    def by_process(self) -> bool:
        """Whether kill() and the like sent it, and not the kernel."""
        return self.code in _BY_PROCESS


class InheritedSignals:
    """The caller's signal settings: blocks all watched signals; CMD gets the original settings."""

    def __init__(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self._children_ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
        if self._children_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else wait() would know no exit status

    def restore(self) -> None:
        """Restore the settings right before exec, in the process that becomes CMD (or runs without
        capture)."""
        for signo in _IGNORED_BY_PYTHON:
            signal.signal(signo, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            # no KeyboardInterrupt between here and exec
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self._children_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


class SignalPipe:
    """fd becomes readable when signals have arrived; polled: it never does, ask take() every
    POLL_SECS."""

    def __init__(self) -> None:
        self.fd, self._send = os.pipe()
        os.set_blocking(self.fd, False)
        self.polled = False
        self._ending = False
        self._thread = 0
        self._early: list[SignalArrival] = []

    def start(self) -> None:
        """Start the thread; this process must not fork until end()."""
        # the usual 8 MiB may exceed a job's `ulimit -v`
        stack_bytes = _thread.stack_size(_STACK_BYTES)
        try:
            self._thread = _thread.start_new_thread(self._watch, ())
        except RuntimeError:  # `ulimit -u` is reached
            self.polled = True
        _thread.stack_size(stack_bytes)

    def _watch(self) -> None:
        while True:
            siginfo = signal.sigwaitinfo(WATCHED)
            if self._ending:
                os.close(self._send)
                return
            os.write(self._send, _RECORD.pack(siginfo.si_signo, siginfo.si_code, siginfo.si_pid))

    def take(self) -> list[SignalArrival]:
        """Signals that have arrived since, in order."""
        arrivals, self._early = self._early, []
        if self.polled:
            while (siginfo := signal.sigtimedwait(WATCHED, 0)) is not None:
                arrivals.append(SignalArrival(siginfo.si_signo, siginfo.si_code, siginfo.si_pid))
            return arrivals
        try:
            records = os.read(self.fd, _RECORD.size * 256)
        except BlockingIOError:
            return arrivals
        return arrivals + [SignalArrival(*record) for record in _RECORD.iter_unpack(records)]

    def tell_group(self, signo: int) -> None:
        """Sends a signal to the others in this process group."""
        os.killpg(0, signo)
        # we are in the handler: remove our own signals before anybody unblocks them
        until = time.monotonic() + _STOP_SECS
        own_pid = os.getpid()
        while not any(arrival.signo == signo and arrival.pid == own_pid for arrival in self._early):
            if time.monotonic() > until:
                return
            self._early = self.take()
            time.sleep(0.001)

    def end(self) -> None:
        """Ends the thread, so that this process may fork again. Signals stay blocked."""
        if self.polled:
            return
        self.polled = self._ending = True
        signal.pthread_kill(self._thread, signal.SIGURG)
        until = time.monotonic() + _STOP_SECS
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < until:
            time.sleep(0.001)


def stop(signo: int) -> None:
    """Stop this process as shells expect of a stopped job; return after its continuation.

    In an orphaned group, nobody could continue it: the kernel does not stop it, and this returns at
    once.
    """
    _let_through(signo)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signo])


def die_of(signo: int) -> None:
    """End this process by CMD's signal, without a core file, which would replace CMD's.

    Returns if this fails.
    """
    if signo not in _NEVER_BLOCKED:
        signal.signal(signo, signal.SIG_DFL)
    _let_through(signo)


def _let_through(signo: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signo])
    # to this very thread: the other one would take it
    signal.pthread_kill(_thread.get_ident(), signo)
