"""Data that the relay has read but the sidecar may not have survives in memory, byte for byte."""

import os
import random

from logshipper.relay import handover, relay
from logshipper.relay.unsent import BUFFER_BYTES, RING_BYTES, Unsent


def read(unsent: Unsent, stream: int, count: int, data: bytes) -> None:
    """Read data in the relay's way, up to its count."""
    unsent.begin(stream, count)
    unsent.buffer[: len(data)] = data
    unsent.keep(stream, count, data)


def test_what_was_counted_is_found_round_the_ring_again_and_again() -> None:
    unsent = Unsent()
    chance = random.Random(7)
    whole = {1: bytearray(), 2: bytearray()}
    for _ in range(160):
        stream = chance.choice((1, 2))
        data = chance.randbytes(chance.choice((1, 999, 4096, 60 << 10)))
        read(unsent, stream, len(whole[stream]), data)
        whole[stream] += data
        unsent.clear(len(data))
        received = max(0, len(whole[stream]) - chance.randint(0, RING_BYTES))
        assert unsent.unreceived(stream, received, len(whole[stream])) == whole[stream][received:]
    assert min(map(len, whole.values())) > 2 * RING_BYTES
    assert unsent.unreceived(1, len(whole[1]), len(whole[1])) == b""


def test_what_is_too_far_back_is_left_out() -> None:
    unsent = Unsent()
    for number in range(20):
        read(unsent, 2, number * BUFFER_BYTES, bytes([number + 1]) * BUFFER_BYTES)
    assert unsent.unreceived(2, 0, 20 * BUFFER_BYTES) == b"".join(
        bytes([n + 1]) * BUFFER_BYTES for n in range(12, 20)
    )


def test_rings_hold_more_than_the_relay_holds_back() -> None:
    assert handover.BUFFER_BYTES + handover.FRAME_BYTES + 2 * relay.TURN_BYTES <= RING_BYTES
    assert relay.TURN_BYTES <= BUFFER_BYTES


def test_what_was_read_and_not_counted_is_found_until_it_is() -> None:
    unsent = Unsent()
    assert unsent.uncounted(1, 0) == b""
    read(unsent, 1, 10, b"one\ntwo\n")
    assert unsent.uncounted(1, 10) == b"one\ntwo\n"
    assert unsent.uncounted(2, 10) == b""
    assert unsent.uncounted(1, 18) == b"", "it is counted"
    unsent.clear(8)
    unsent.begin(2, 0)
    assert unsent.uncounted(2, 0) == b""


def test_it_is_shared_with_a_forked_process() -> None:
    unsent = Unsent()
    child = os.fork()
    if child == 0:
        read(unsent, 1, 0, b"from the child")
        os._exit(0)
    os.waitpid(child, 0)
    assert (unsent.uncounted(1, 0), unsent.unreceived(1, 5, 14)) == (
        b"from the child",
        b"the child",
    )
