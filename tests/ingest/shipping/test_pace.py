"""The pace of pushes: one agent sends just below the limit, several agents share it, and Loki
seldom refuses."""

from hypothesis import given
from hypothesis import strategies as st

from logshipper_ingest.shipping.pace import LEAST_BYTES_PER_SEC, START_BYTES_PER_SEC, Pace
from tests.tools.stores.shared_limit import LIMIT, after_an_outage

MOST = 4_000_000.0
MB = 1_000_000


def sent_for(pace: Pace, secs: float, now: float = 0.0) -> tuple[Pace, float]:
    """Send as fast as allowed for some seconds; return the pace then and the bytes sent."""
    begin, total = now, 0
    while now < begin + secs:
        size = pace.batch_bytes(MB)
        pace, wait = pace.take(size, now)
        now += wait
        pace = pace.after_push(size)
        total += size
    return pace, total


def test_an_agent_alone_is_soon_as_fast_as_it_may_and_never_faster() -> None:
    pace, first = sent_for(Pace.begin(MOST, 0.0), 5.0)
    assert pace.rate == MOST
    assert first < 5 * MOST
    _, total = sent_for(pace, 100.0, 5.0)
    assert 99 * MOST < total < 102 * MOST


def test_a_refusal_slows_it_down_and_what_was_under_way_does_so_once() -> None:
    pace, _ = sent_for(Pace.begin(MOST, 0.0), 20.0)
    once = pace.after_refusal(MB, sent_at=20.0, now=20.1, jitter=0.5)
    assert once.rate == MOST / 2
    assert once.after_refusal(MB, sent_at=20.05, now=20.2, jitter=0.5).rate == once.rate
    assert once.after_refusal(MB, sent_at=20.2, now=20.3, jitter=0.5).rate < once.rate


def test_what_was_cut_is_regained_in_minutes_not_at_once() -> None:
    pace, _ = sent_for(Pace.begin(MOST, 0.0), 20.0)
    slow_pace = pace.after_refusal(MB, sent_at=20.0, now=20.0, jitter=0.0)
    soon, _ = sent_for(slow_pace, 30.0, 20.0)
    assert slow_pace.rate < soon.rate < 0.8 * MOST
    later, _ = sent_for(soon, 600.0, 50.0)
    assert later.rate == MOST


def test_after_an_outage_it_begins_slowly() -> None:
    pace, _ = sent_for(Pace.begin(MOST, 0.0), 20.0)
    again = pace.after_outage(30.0)
    assert again.rate == START_BYTES_PER_SEC
    assert again.take(MB, 30.0)[1] >= MB / START_BYTES_PER_SEC - 1, "nothing goes at once"


def test_without_a_limit_nothing_waits_until_loki_refuses() -> None:
    pace = Pace.begin(0.0, 0.0)
    for _ in range(100):
        pace, wait = pace.take(100 * MB, 0.0)
        assert wait == 0.0
    assert pace.batch_bytes(MB) == MB
    slow_pace = pace.after_refusal(MB, sent_at=1.0, now=1.1, jitter=1.0)
    assert slow_pace.rate == START_BYTES_PER_SEC
    assert slow_pace.take(MB, 1.1)[1] > 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from("tri"), st.integers(1, 10 * MB), st.floats(0, 100), st.floats(0, 1)
        )
    ),
    st.sampled_from([0.0, 100_000.0, MOST]),
)
def test_rates_and_waits_stay_within_bounds(
    steps: list[tuple[str, int, float, float]], max_rate: float
) -> None:
    pace, now = Pace.begin(max_rate, 0.0), 0.0
    for step, size, secs, jitter in steps:
        before = now
        now += secs
        pace, wait = pace.take(size, now)
        owed = sum(size for _, size, _, _ in steps) * 2
        assert 0.0 <= wait <= owed / LEAST_BYTES_PER_SEC
        if step == "t":
            pace = pace.after_push(size)
        elif step == "r":
            pace = pace.after_refusal(size, before, now, jitter)
        else:
            pace = pace.after_outage(now)
        assert pace.rate == 0 or pace.rate >= LEAST_BYTES_PER_SEC
        assert not max_rate or pace.rate <= max_rate


def test_one_agent_catches_up_without_a_refusal_at_nine_tenths_of_what_loki_admits() -> None:
    outcome = after_an_outage(1, 500 * MB)
    assert outcome.refusals == 0
    assert 500 * MB / outcome.secs > 0.8 * LIMIT  # including the last pause of the outage


def test_a_hundred_agents_that_come_back_at_once_draw_few_refusals_and_share_fairly() -> None:
    """Only with doubling pauses and without a pace, 6,867 of 7,867 pushes failed."""
    outcome = after_an_outage(100, 10 * MB)
    assert outcome.refusals < 0.1 * outcome.pushes
    assert outcome.refusals < 15 * 100
    assert outcome.secs < 2 * 100 * 10 * MB / LIMIT
    assert outcome.smallest > 0


def test_a_long_catch_up_draws_two_refusals_per_agent_and_minute_at_most() -> None:
    outcome = after_an_outage(20, 250 * MB)
    assert outcome.refusals < 2 * 20 * outcome.secs / 60
    assert outcome.refusals < 0.05 * outcome.pushes
    assert 20 * 250 * MB / outcome.secs > 0.8 * LIMIT
    assert outcome.largest < 4 * outcome.smallest
