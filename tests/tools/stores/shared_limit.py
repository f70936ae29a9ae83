"""Simulate agents that share one Loki's limit, event by event with a simulated clock, and count
refused pushes."""

import heapq
import random
from itertools import count
from typing import NamedTuple

from logshipper_ingest.servers.backoff import Backoff
from logshipper_ingest.shipping.delivery import OUTAGE_SECS
from logshipper_ingest.shipping.pace import Pace

LIMIT, BURST = 4 << 20, 6 << 20  # Loki's defaults
BATCH_BYTES = 1_000_000
STREAMS = 4  # that an agent sends in parallel
ROUND_TRIP_SECS = 0.02


class Outcome(NamedTuple):
    """Result of a simulation. secs: until Loki has accepted all; smallest, largest: bytes that one
    agent has delivered at half that time."""

    pushes: int
    refusals: int
    secs: float
    smallest: int
    largest: int


class _Agent:
    def __init__(self, backlog: int, max_rate: float, now: float) -> None:
        self.backlog = self.bytes_left = backlog
        self.deliveries: list[tuple[float, int]] = []
        self.pace = Pace.begin(max_rate, now).after_outage(now)


def after_an_outage(
    agents: int, backlog: int, *, max_rate: float = 4_000_000.0, seed: int = 1
) -> Outcome:
    """Simulate agents that each have a backlog (bytes) after an outage.

    They find Loki back within their pauses between two retries.
    """
    rng = random.Random(seed)
    numbers = count()
    played = [_Agent(backlog, max_rate, 0.0) for _ in range(agents)]
    tokens, tokens_at, pushes, refusals, now = float(BURST), 0.0, 0, 0, 0.0
    events: list[
        tuple[float, int, _Agent, Backoff, int]
    ] = []  # size: 0 if the next batch is to be chosen

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
            size = min(agent.bytes_left, agent.pace.batch_bytes(BATCH_BYTES))
            if size:
                agent.bytes_left -= size
                agent.pace, wait = agent.pace.take(size, now)
                put(now + wait, agent, backoff, size)
            continue
        tokens, tokens_at = min(BURST, tokens + (now - tokens_at) * LIMIT), now
        pushes += 1
        answer_at = now + ROUND_TRIP_SECS
        if tokens >= size:
            tokens -= size
            agent.deliveries.append((answer_at, size))
            agent.pace = agent.pace.after_push(size)
            put(answer_at, agent, fresh)
        else:
            refusals += 1
            agent.bytes_left += size
            agent.pace = agent.pace.after_refusal(size, now, answer_at, rng.random())
            failed = backoff.failed()
            put(answer_at + failed.pause_secs(rng.random()), agent, failed)
    half = [sum(size for at, size in agent.deliveries if at < now / 2) for agent in played]
    return Outcome(pushes, refusals, now, min(half), max(half))
