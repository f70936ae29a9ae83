"""The agent looks at the spool soon after the relays of its node hand over gathered lines."""

import pytest

from logshipper.relay.channel import BEAT_SECS
from logshipper_ingest.agent.node_agent import AFTER_FRAMES_SECS, look_pause
from logshipper_ingest.config.agent_config import AgentSection


def test_agent_and_relays_have_the_same_beat() -> None:
    assert AgentSection().poll_secs == BEAT_SECS


@pytest.mark.parametrize("now", [1000.0, 1000.01, 1000.06, 1000.2, 1000.249])
def test_each_look_follows_a_beat(now: float) -> None:
    pause_secs = look_pause(now, BEAT_SECS)
    assert 0 < pause_secs <= BEAT_SECS
    assert (now + pause_secs) % BEAT_SECS == pytest.approx(AFTER_FRAMES_SECS)
