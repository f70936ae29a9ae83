"""Kinds of servers that receive entries. delivery.py does pauses, retries and halving for all."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from logshipper.errors import PushError
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal


class PushClient(Protocol):
    """A server's client."""

    @property
    def answer_date_ns(self) -> int | None: ...

    def push_body(self, body: bytes, tenant: str = "") -> object: ...

    def ready(self) -> bool: ...


class Push(NamedTuple):
    """The body of a request."""

    body: bytes
    values_left_out: int = 0  # values that the server can't store


class Verdict(NamedTuple):
    """The meaning of an answer for the pushed entries."""

    rest: list[Chunk]  # to push again; all if the answer doesn't name the refused ones
    refusals: list[Refusal]
    drop_count: int = 0  # others that the server dropped without naming them


class Sink(Protocol):
    """A kind of server: its pushes, and the meaning of its answers. A new kind needs a module with
    such a class, and a section of the configuration."""

    @property
    def kind(self) -> str:
        """The name in messages."""

    @property
    def split_statuses(self) -> tuple[int, ...]:
        """Statuses of answers about the entries: smaller pushes may pass."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons for refusals."""

    def takes(self, key: StreamKey) -> bool:
        """Whether it receives entries of such streams."""

    def push(self, chunks: Sequence[Chunk]) -> Push:
        """Return the push of entries of one stream."""

    def probe(self, key: StreamKey) -> bytes:
        """Return the body of a harmless push, which succeeds unless a limit or a gateway is in the
        way."""

    def reason(self, error: PushError) -> str:
        """Return the reason of a refusal."""

    def is_certain(self, error: PushError) -> bool:
        """Whether the error certainly concerns the entries."""

    def judge(self, chunks: list[Chunk], error: PushError) -> Verdict:
        """Return the meaning of an error for these entries."""

    def fix(self, error: PushError, tenant: str) -> str:
        """Return the remedy, for the log."""
