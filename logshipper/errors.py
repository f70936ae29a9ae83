"""Every error that logshipper raises on purpose. A job's bytes never raise: a malformed command is
a value."""

from collections.abc import Sequence


class LogshipperError(Exception):
    """Base of all errors; `str(error)` tells a user the fault, its place, and the remedy."""


class ConfigError(LogshipperError):
    """A configuration is refused, at start only; all its problems at once.

    source: file or option that is at fault; problems: one plain sentence each. exit_code: of the
    command that ends by it.
    """

    exit_code = 1

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__(f"{source}: {'; '.join(self.problems)}")


class UsageError(ConfigError):
    """Wrong usage, regardless of data: an option's value, or conflicting options."""


class CaptureError(LogshipperError):
    """CMD could not be started, or its terminals could not be made. exit_code: 125, 126 or 127, as
    `env` has them."""

    def __init__(self, reason: str, exit_code: int = 125) -> None:
        self.exit_code = exit_code
        super().__init__(reason)


class _PlaceError(LogshipperError):
    """An error about a file or folder, whose path it has."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")

    def __reduce__(self) -> "tuple[type[_PlaceError], tuple[str, str]]":
        return type(self), (self.path, self.reason)  # from another process


class SpoolError(_PlaceError):
    """The spool is unusable. path: file or folder at fault."""


class SpoolFull(SpoolError):
    """No room (or quota) left where the spool is."""


class SegmentCorrupt(SpoolError):
    """A segment violates docs/segment-format.md at a byte offset."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        self.offset = offset
        super().__init__(path, f"at byte {offset}: {reason}")


class StoreError(_PlaceError):
    """The store cannot do this. path: the store's folder or file at fault."""


class UnknownJob(LogshipperError):
    """No job, or more than one, answers to a name. name: as given; suggestions: ids or names that
    come near."""

    def __init__(self, name: str, reason: str, suggestions: Sequence[str] = ()) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        super().__init__(reason)


class PushError(LogshipperError):
    """A server did not accept a push.

    sink: its name; status: HTTP's, 0 without an answer; excerpt: of the answer's body, or the
    fault; retry_after_secs: the pause that it demands, or None.
    """

    def __init__(
        self, sink: str, status: int, excerpt: str, retry_after_secs: float | None = None
    ) -> None:
        self.sink = sink
        self.status = status
        self.excerpt = excerpt
        self.retry_after_secs = retry_after_secs
        super().__init__(f"{sink}: {f'HTTP {status}: ' if status else ''}{excerpt}")


class RetryablePushError(PushError):
    """The server may accept it later: no connection, too much at a time (429), a server fault
    (5xx)."""


class RejectedPushError(PushError):
    """The server will never accept it unchanged."""


class QueryError(LogshipperError):
    """A server did not answer a query. server: its name; status: HTTP's, 0 without an answer;
    excerpt: of the answer's body, or the fault."""

    def __init__(self, server: str, status: int, excerpt: str) -> None:
        self.server = server
        self.status = status
        self.excerpt = excerpt
        super().__init__(f"{server}: {f'HTTP {status}: ' if status else ''}{excerpt}")


def os_words(error: Exception) -> str:
    """Return the system's message of a failure, for the middle of a sentence."""
    return str(getattr(error, "strerror", None) or error).lower()
