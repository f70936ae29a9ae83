"""Lasting trouble logs a limited number of lines."""

from logshipper_ingest.console.throttled_log import SECS, ThrottledLog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_words_come_ever_so_often_with_their_number() -> None:
    messages: list[str] = []
    clock = Clock()
    throttled = ThrottledLog(messages.append, clock)
    for second in range(int(2 * SECS)):
        clock.now = float(second)
        throttled.log("the disk is full")
        if second == 7:
            throttled.log("Loki is away")
    assert messages == [
        "the disk is full",
        "Loki is away",
        "the disk is full (599 times more since this was said last)",
    ]


def test_what_was_over_is_news_again() -> None:
    messages: list[str] = []
    throttled = ThrottledLog(messages.append, Clock())
    throttled.log("the disk is full")
    throttled.reset()
    throttled.log("the disk is full")
    assert messages == ["the disk is full"] * 2


def test_words_without_number_are_forgotten_not_kept() -> None:
    messages: list[str] = []
    throttled = ThrottledLog(messages.append, Clock())
    for number in range(10_000):
        throttled.log(f"fault {number}")
    assert len(messages) == 10_000
    assert len(throttled._last_lines) <= 100
