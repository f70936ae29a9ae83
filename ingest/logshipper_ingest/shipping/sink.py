"""The kinds of servers that entries are shipped to. What is the same for all of them, pauses, new
tries, halves, is delivery.py's."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from logshipper.errors import PushError
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal


class PushClient(Protocol):
    """A server's client, as far as it is needed here."""

    @property
    def answer_date_ns(self) -> int | None: ...

    def push_body(self, body: bytes, tenant: str = "") -> object: ...

    def ready(self) -> bool: ...


class Push(NamedTuple):
    """A request."""

    body: bytes
    values_left_out: int = 0  # what the server has no place for


class Verdict(NamedTuple):
    """What an answer says of the entries that were pushed."""

    rest: list[Chunk]  # to be pushed again; all of them where it doesn't say which are refused
    refusals: list[Refusal]
    drop_count: int = 0  # of the others: the server has dropped so many, and doesn't say which


class Sink(Protocol):
    """A kind of server: what a push looks like, and what answers mean. A new kind is one module
    with such a class, and a table of the configuration."""

    @property
    def kind(self) -> str:
        """Its name in messages."""

    @property
    def split_statuses(self) -> tuple[int, ...]:
        """Of answers about the entries: fewer at a time may pass."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it refuses entries."""

    def takes(self, key: StreamKey) -> bool:
        """Whether entries of such streams go there at all."""

    def push(self, chunks: Sequence[Chunk]) -> Push:
        """Of entries of one stream."""

    def probe(self, key: StreamKey) -> bytes:
        """The body of a push that does no harm and is taken, unless a limit or a gateway is in the
        way."""

    def reason(self, error: PushError) -> str:
        """One of `reasons`."""

    def is_certain(self, error: PushError) -> bool:
        """Whether it is surely about the entries."""

    def judge(self, chunks: list[Chunk], error: PushError) -> Verdict:
        """Which entries the answer refuses."""

    def fix(self, error: PushError, tenant: str) -> str:
        """What somebody has to do about it."""
