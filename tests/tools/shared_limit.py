"""Agents that share one Loki's limit, played event by event with a clock of their own: how many
pushes it refuses."""

import heapq
import random
from itertools import count
from typing import NamedTuple

from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.shipping.delivery import OUTAGE_SECS
from logshipper_ingest.shipping.pace import Pace

LIMIT, BURST = 4 << 20, 6 << 20  # Loki's defaults
BATCH_BYTES = 1_000_000
STREAMS = 4  # that an agent sends next to each other
ROUND_TRIP_SECS = 0.02


class Outcome(NamedTuple):
    """secs: until all was taken; least, most: bytes that an agent had got through when half the
    time was over."""

    pushes: int
    refused: int
    secs: float
    least: int
    most: int


class _Agent:
    def __init__(self, backlog: int, most: float, now: float) -> None:
        self.backlog = self.left = backlog
        self.taken: list[tuple[float, int]] = []
        self.pace = Pace.begin(most, now).after_outage(now)


def after_an_outage(
    agents: int, backlog: int, *, most: float = 4_000_000.0, seed: int = 1
) -> Outcome:
    """All of them have a backlog (bytes) and find Loki back within their pauses between two
    tries."""
    rng = random.Random(seed)
    numbers = count()
    played = [_Agent(backlog, most, 0.0) for _ in range(agents)]
    tokens, tokens_at, pushes, refused, now = float(BURST), 0.0, 0, 0, 0.0
    events: list[
        tuple[float, int, _Agent, Backoff, int]
    ] = []  # size: 0 where the next batch is chosen

    def put(at: float, agent: _Agent, backoff: Backoff, size: int = 0) -> None:
        heapq.heappush(events, (at, next(numbers), agent, backoff, size))

    fresh = Backoff(0.5, 30.0)
    for agent in played:
        begin = rng.uniform(0, 30.0 - OUTAGE_SECS)
        for _ in range(STREAMS):
            put(begin, agent, fresh)
    while events:
        now, _, agent, backoff, size = heapq.heappop(events)
        if not size:
            size = min(agent.left, agent.pace.batch_bytes(BATCH_BYTES))
            if size:
                agent.left -= size
                agent.pace, wait = agent.pace.take(size, now)
                put(now + wait, agent, backoff, size)
            continue
        tokens, tokens_at = min(BURST, tokens + (now - tokens_at) * LIMIT), now
        pushes += 1
        answered = now + ROUND_TRIP_SECS
        if tokens >= size:
            tokens -= size
            agent.taken.append((answered, size))
            agent.pace = agent.pace.after_push(size)
            put(answered, agent, fresh)
        else:
            refused += 1
            agent.left += size
            agent.pace = agent.pace.after_refusal(size, now, answered, rng.random())
            failed = backoff.failed()
            put(answered + failed.pause_secs(rng.random()), agent, failed)
    half = [sum(size for at, size in agent.taken if at < now / 2) for agent in played]
    return Outcome(pushes, refused, now, min(half), max(half))
