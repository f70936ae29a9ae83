"""Modes and fences of two streams whose commands have no common order (R16, R17). Pure.

logshipper knows the order in part: a stream's own commands are in order. Text read from a stream after the
relay saw it empty was printed after everything read before that. This leads to three rules:

- A command replaces the other stream's last command only if its own stream was empty after that
  command. Otherwise both apply, and the narrower one wins: a command widens the mode only
  if it is known to be the newer one.
- A fence is certain on its own stream only. On the other stream, and behind a malformed `stop` or
  `resume`, narrowing commands are obeyed and widening ones are not.
- Text of a stream may be older than every command of the other stream since its own stream was
  empty. It obeys the narrowest of these commands and of the modes in force before them.
"""

from collections import deque
from enum import Enum, auto

from logshipper.classify.commands import narrowest
from logshipper.config import MODES
from logshipper.named_tuple import NamedTuple
from logshipper.spool.segment import Stream

_WIDEST = MODES[0]


class Obedience(Enum):
    """The commands that a stream obeys."""

    ALL = auto()
    NARROWING = auto()  # a fence may be in force
    NONE = auto()  # a fence is in force


MAX_RESUMED = 16  # tokens remembered until the other stream is empty


class Fence(NamedTuple):
    """The interval from a stop token to its `resume`."""

    token: str  # "" for a fence without an end
    # False if a command was malformed, or came from the other stream and perhaps too early
    is_certain: bool
    outer: "Fence | None" = None  # the uncertain fence around it


class Policy:
    """The policy of one stream; the module's docstring gives the rules."""

    def __init__(self) -> None:
        self.sibling = self  # the other stream's policy
        # mode of its last command; None: no command, or the other stream replaced it
        self.last_mode: str | None = None
        self.was_empty = True  # since the other stream's last command about the mode was read
        self.fence: Fence | None = None  # begun by its own last `stop`
        self.ignored = _WIDEST  # the narrowest mode requested within the fence
        # tokens that the other stream gave for unknown fences
        self.resumed: deque[str] = deque(maxlen=MAX_RESUMED)
        # the narrowest mode of the other stream's commands since this stream was empty
        self._unread = _WIDEST
        # the narrowest mode in force before these, since the last command of this stream
        self.before = _WIDEST
        self.fence_unread = False  # the other stream changed a fence since this one was empty

    def seen_empty(self) -> bool:
        """Return whether that changes anything."""
        if self.was_empty and not (self.fence_unread or self.resumed):
            return False
        self._unread = self.before = _WIDEST
        self.fence_unread = False
        self.was_empty = True
        self.resumed.clear()
        return True

    def other_command_read(self, mode: str, before: str) -> None:
        """Note a command of the other stream. mode: the requested one; before: this stream's."""
        self.was_empty = False
        self._unread = narrowest(self._unread, mode)
        self.before = narrowest(self.before, before)

    def mode(self, in_force: str) -> str:
        return narrowest(in_force, narrowest(self._unread, self.before))

    def obedience(self) -> Obedience:
        if self.fence is not None and self.fence.is_certain:
            return Obedience.NONE
        may_be_fenced = self.fence or self.fence_unread or self.sibling.fence
        return Obedience.NARROWING if may_be_fenced else Obedience.ALL


class Policies:
    """The policies of both streams of a capture."""

    def __init__(self, start: str) -> None:
        self._start: str | None = start  # the configured mode, until the first command
        self._policies = {Stream.STDOUT: Policy(), Stream.STDERR: Policy()}
        out, err = self._policies.values()
        out.sibling, err.sibling = err, out

    @property
    def mode(self) -> str:
        """The mode in force: the narrowest of all commands that no other one replaced."""
        mode = self._start or _WIDEST
        for policy in self._policies.values():
            mode = narrowest(mode, policy.last_mode or _WIDEST)
        return mode

    def mode_of(self, stream: Stream) -> str:
        """Return the mode for the stream's next text."""
        return self._policies[stream].mode(self.mode)

    def obedience(self, stream: Stream) -> Obedience:
        return self._policies[stream].obedience()

    def seen_empty(self, stream: Stream) -> bool:
        """Return whether that changes anything."""
        return self._policies[stream].seen_empty()

    # ---- modes

    def set_mode(self, stream: Stream, mode: str) -> None:
        """Obey a command. A narrower command of the other stream, which may be newer, stays."""
        policy = self._policies[stream]
        before = policy.sibling.mode(self.mode)
        policy.last_mode = mode
        policy.before = _WIDEST  # older than later text of this stream
        self._start = None
        if policy.was_empty:
            policy.sibling.last_mode = None
        policy.sibling.other_command_read(mode, before)

    def narrow(self, stream: Stream, mode: str) -> None:
        """Narrow the mode for text that may be a command. It replaces no other command."""
        self._narrow(self._policies[stream], mode)

    def _narrow(self, policy: Policy, mode: str) -> None:
        before = policy.sibling.mode(self.mode)
        policy.last_mode = narrowest(policy.last_mode or _WIDEST, mode)
        policy.sibling.other_command_read(mode, before)

    # ---- fences

    def stop(self, stream: Stream, token: str, *, is_certain: bool) -> None:
        """Begin a fence, perhaps within an uncertain one. token: "" for a fence without an end."""
        policy = self._policies[stream]
        policy.fence = Fence(token, is_certain and token not in policy.resumed, policy.fence)
        policy.ignored = _WIDEST
        policy.sibling.fence_unread = True

    def ignore(self, stream: Stream, mode: str) -> None:
        """Note a command within the stream's certain fence: it counts if the fence was over."""
        policy = self._policies[stream]
        policy.ignored = narrowest(policy.ignored, mode)

    def resume(self, stream: Stream, token: str, *, is_certain: bool) -> bool | None:
        """End the fence with this token, or make it less certain. False: the token may be older than
        the fence, which becomes uncertain; None: no such fence."""
        policy = self._policies[stream]
        if policy.fence is not None and policy.fence.token == token:
            policy.fence = (
                policy.fence.outer if is_certain else policy.fence._replace(is_certain=False)
            )
            policy.sibling.fence_unread = True
            return True
        fence = policy.sibling.fence
        if not token or fence is None or fence.token != token:
            policy.sibling.resumed.append(token)
            return None
        is_newer = not policy.fence_unread  # this stream's next text is newer than the fence
        policy.sibling.fence = (
            fence.outer if is_certain and is_newer else fence._replace(is_certain=False)
        )
        policy.sibling.fence_unread = True
        if policy.sibling.ignored != _WIDEST:
            self._narrow(policy.sibling, policy.sibling.ignored)
            policy.sibling.ignored = _WIDEST
        return is_newer

    def fenced(self) -> bool:
        """Return whether any fence is in force."""
        return any(policy.fence for policy in self._policies.values())
