"""Pauses between tries, and a stream's rate limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper_ingest.servers.backoff import MAX_ASKED_SECS, Allowance, Backoff

jitters = st.floats(0, 1)


def after(failures: int, min_secs: float = 0.5, max_secs: float = 30.0) -> Backoff:
    backoff = Backoff(min_secs, max_secs)
    for _ in range(failures):
        backoff = backoff.failed()
    return backoff


def test_pauses_double_up_to_the_most() -> None:
    pauses = [after(failures).pause_secs(1.0) for failures in range(1, 10)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_day_of_failures_is_no_overflow() -> None:
    assert Backoff(0.001, 600.0, tries=10**6).pause_secs(1.0) == 600.0


@given(st.integers(0, 100), jitters, st.floats(0.01, 600), st.floats(0.01, 600))
def test_jitter_takes_off_half_at_most(
    tries: int, jitter: float, first_secs: float, second_secs: float
) -> None:
    shortest, longest = sorted((first_secs, second_secs))
    pause = Backoff(shortest, longest, tries).pause_secs(jitter)
    assert shortest / 2 <= pause <= longest


def test_jitter_spreads() -> None:
    assert after(3).pause_secs(0.0) == 1.0
    assert after(3).pause_secs(0.5) == 1.5


@given(
    st.integers(0, 100),
    jitters,
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
)
def test_what_is_asked_for_is_the_least_and_never_endless(
    tries: int, jitter: float, retry_after_secs: float | None
) -> None:
    pause = Backoff(0.5, 30.0, tries).pause_secs(jitter, retry_after_secs)
    assert 0.25 <= pause <= 1.1 * MAX_ASKED_SECS
    if retry_after_secs is not None and retry_after_secs > 0:
        assert pause >= min(retry_after_secs, MAX_ASKED_SECS)


def test_a_backoff_is_a_value() -> None:
    backoff = Backoff(1.0, 2.0)
    backoff.failed()
    assert backoff.tries == 0


# ---- allowance


def test_a_burst_goes_at_once_and_then_the_rate_holds() -> None:
    allowance, pause = Allowance.full(100.0, 200.0, 0.0).take(200, 0.0)
    assert pause == 0.0
    allowance, pause = allowance.take(50, 0.0)
    assert pause == pytest.approx(0.5)
    allowance, pause = allowance.take(50, 1.5)  # after the pause and one second
    assert pause == 0.0


def test_rest_saves_up_a_burst_and_no_more() -> None:
    allowance, _ = Allowance.full(100.0, 200.0, 0.0).take(200, 0.0)
    allowance, pause = allowance.take(200, 10_000.0)
    assert pause == 0.0
    assert allowance.take(100, 10_000.0)[1] == pytest.approx(1.0)


def test_more_than_a_burst_at_once_waits_longer_and_not_for_ever() -> None:
    assert Allowance.full(100.0, 200.0, 0.0).take(1000, 0.0)[1] == pytest.approx(8.0)


def test_no_rate_is_no_limit() -> None:
    assert Allowance.full(0, 0.0, 0.0).take(10**12, 0.0)[1] == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 10)), min_size=1, max_size=50),
    st.floats(1, 10_000),
)
def test_whoever_waits_as_told_stays_below_the_rate(
    takes: list[tuple[int, float]], rate: float
) -> None:
    """A sender gets at most a burst and the rate, from the start to any time."""
    now = 0.0
    total = 0
    allowance = Allowance.full(rate, 2 * rate, now)
    for size, idle_secs in takes:
        now += idle_secs
        allowance, pause = allowance.take(size, now)
        assert pause >= 0
        now += pause
        total += size
        assert total <= (allowance.burst + rate * now) * 1.000001 + 1e-6
