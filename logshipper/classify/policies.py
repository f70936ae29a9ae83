"""Which mode and which fence each of two streams obeys, where the order of their commands is known
in part only (R16, R17). Pure.

What is known: a stream's own commands are in order, and what is read of a stream after it was seen
empty was printed after all that had been read before that. So:
- A command supersedes the other stream's last one only if its own stream was seen empty since that
  one was read. Otherwise both stand, and the narrower one holds: a command that may be the older
  one never widens.
- A fence is certain on its own stream only: on the other one, and behind a malformed `stop` or
  `resume`, what narrows is obeyed, and what widens isn't.
- Text that is read of a stream may be older than each command that was read of the other one since
  the stream was seen empty: it obeys the narrowest of these, and of what was in force before them.
"""

from collections import deque
from enum import Enum, auto

from logshipper.classify.commands import narrowest
from logshipper.config import MODES
from logshipper.named_tuple import NamedTuple
from logshipper.spool.segment import Stream

_WIDEST = MODES[0]


class Obedience(Enum):
    """Which commands of a stream are obeyed."""

    ALL = auto()
    NARROWING = auto()  # a fence may be in force, or not
    NONE = auto()  # a fence is in force


MAX_RESUMED = 16  # tokens that are remembered until the other stream is seen empty


class Fence(NamedTuple):
    """From a stop token to its `resume`. token: "" for a fence that nothing ends. is_certain: False
    where either of the two was malformed, or came from the other stream, perhaps too early. outer:
    the uncertain one around it."""

    token: str
    is_certain: bool
    outer: "Fence | None" = None


class Policy:
    """What one stream obeys; see the module's docstring."""

    __slots__ = (
        "_before",
        "_fence_unread",
        "_unread",
        "fence",
        "ignored",
        "last_mode",
        "resumed",
        "sibling",
        "was_empty",
    )

    def __init__(self) -> None:
        self.sibling = self  # the other stream's policy
        # that its last command asked for; None: there was none, or the other stream's superseded it
        self.last_mode: str | None = None
        self.was_empty = True  # since the other's last command about the mode was read
        self.fence: Fence | None = None  # the one that its own last `stop` began
        self.ignored = _WIDEST  # the narrowest mode that was asked for within the fence
        # tokens that the other stream gave for fences which aren't known
        self.resumed: deque[str] = deque(maxlen=MAX_RESUMED)
        self._unread = (
            _WIDEST  # the narrowest mode of the other's commands since this one was seen empty
        )
        self._before = _WIDEST  # the narrowest one in force before these, if not older than the last own command
        self._fence_unread = False  # since it was seen empty the other began or ended a fence

    def seen_empty(self) -> bool:
        """Whether that changes anything."""
        if self.was_empty and not (self._fence_unread or self.resumed):
            return False
        self._unread = self._before = _WIDEST
        self._fence_unread = False
        self.was_empty = True
        self.resumed.clear()
        return True

    def command_read(self) -> None:
        """What was in force before is older than what follows on this stream."""
        self._before = _WIDEST

    def other_command_read(self, mode: str, before: str) -> None:
        """mode: what it asks for; before: this stream's mode until then."""
        self.was_empty = False
        self._unread = narrowest(self._unread, mode)
        self._before = narrowest(self._before, before)

    def other_fence_changed(self) -> None:
        self._fence_unread = True

    def mode(self, in_force: str) -> str:
        return narrowest(in_force, narrowest(self._unread, self._before))

    def obedience(self) -> Obedience:
        if self.fence is not None:
            return Obedience.NONE if self.fence.is_certain else Obedience.NARROWING
        return (
            Obedience.NARROWING
            if self._fence_unread or self.sibling.fence is not None
            else Obedience.ALL
        )

    def knows_fence_of_other(self) -> bool:
        """Whether what is read now was printed after the other stream's fence began."""
        return not self._fence_unread


class Policies:
    """Of both streams of a capture. start: the mode as configured."""

    def __init__(self, start: str) -> None:
        self._start: str | None = start  # until the first command
        self._of = {Stream.STDOUT: Policy(), Stream.STDERR: Policy()}
        out, err = self._of.values()
        out.sibling, err.sibling = err, out

    @property
    def mode(self) -> str:
        """The mode in force, by all commands that were read and not superseded."""
        mode = self._start or _WIDEST
        for policy in self._of.values():
            mode = narrowest(mode, policy.last_mode or _WIDEST)
        return mode

    def mode_of(self, stream: Stream) -> str:
        """What is read of the stream now obeys this mode."""
        return self._of[stream].mode(self.mode)

    def obedience(self, stream: Stream) -> Obedience:
        return self._of[stream].obedience()

    def seen_empty(self, stream: Stream) -> bool:
        """Whether that changes anything."""
        return self._of[stream].seen_empty()

    # ---- modes

    def set_mode(self, stream: Stream, mode: str) -> None:
        """A command of the stream. Where it may be older than a narrower one of the other stream,
        that one holds."""
        policy = self._of[stream]
        before = policy.sibling.mode(self.mode)
        policy.last_mode = mode
        policy.command_read()
        self._start = None
        if policy.was_empty:
            policy.sibling.last_mode = None
        policy.sibling.other_command_read(mode, before)

    def narrow(self, stream: Stream, mode: str) -> None:
        """What the stream printed may be a command. It supersedes nothing."""
        policy = self._of[stream]
        before = policy.sibling.mode(self.mode)
        policy.last_mode = narrowest(policy.last_mode or _WIDEST, mode)
        policy.sibling.other_command_read(mode, before)

    # ---- fences

    def stop(self, stream: Stream, token: str, *, is_certain: bool) -> None:
        """A fence begins on the stream, or in its uncertain one. token: "" for one that nothing
        ends."""
        policy = self._of[stream]
        policy.fence = Fence(token, is_certain and token not in policy.resumed, policy.fence)
        policy.ignored = _WIDEST
        policy.sibling.other_fence_changed()

    def ignore(self, stream: Stream, mode: str) -> None:
        """A command within the stream's certain fence: it counts if the fence was over by then."""
        policy = self._of[stream]
        policy.ignored = narrowest(policy.ignored, mode)

    def resume(self, stream: Stream, token: str, *, is_certain: bool) -> bool | None:
        """Ends the fence with this token, or makes it less certain. False: the token may be older
        than the fence, which stays, but isn't certain any more; None: there is no such fence."""
        policy = self._of[stream]
        if policy.fence is not None and policy.fence.token == token:
            policy.fence = (
                policy.fence.outer if is_certain else policy.fence._replace(is_certain=False)
            )
            policy.sibling.other_fence_changed()
            return True
        fence = policy.sibling.fence
        if not token or fence is None or fence.token != token:
            policy.sibling.resumed.append(token)
            return None
        is_newer = policy.knows_fence_of_other()
        policy.sibling.fence = (
            fence.outer if is_certain and is_newer else fence._replace(is_certain=False)
        )
        policy.sibling.other_fence_changed()
        if policy.sibling.ignored != _WIDEST:
            self.narrow(self._stream_of(policy.sibling), policy.sibling.ignored)
            policy.sibling.ignored = _WIDEST
        return is_newer

    def _stream_of(self, policy: Policy) -> Stream:
        return next(stream for stream, candidate in self._of.items() if candidate is policy)

    def fenced(self) -> bool:
        """Whether any fence is in force."""
        return any(policy.fence is not None for policy in self._of.values())
