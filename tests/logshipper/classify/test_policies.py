"""Two streams with a partly known order (R16, R17): the log never has text that the mode at its
printing excluded, and a stream seen empty in time loses nothing."""

from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import pytest

from logshipper.classify.commands import narrowest, width
from logshipper.classify.policies import Obedience, Policies
from logshipper.spool.segment import Stream

OUT, ERR = Stream.STDOUT, Stream.STDERR
TEXT = "text"
MODES = ("enabled", "metadata", "disabled")
ODD = "odd"  # prefix of a mode: a possible command, which only narrows
_ITEMS = (TEXT, *MODES)
_ODD_ITEMS = (TEXT, "enabled", "disabled", f"{ODD} disabled")
_FIELDS = ("before", "_unread", "last_mode", "was_empty")  # of a policy; they determine modes


class Item(NamedTuple):
    """at: its place in the printing order of both streams."""

    at: int
    stream: Stream
    content: str  # TEXT, or the mode of a command, perhaps after ODD

    def applied(self, mode: str) -> str:
        """Return the mode after this item, from the mode before it."""
        return narrowest(mode, self.mode) if self.content.startswith(ODD) else self.mode

    @property
    def mode(self) -> str:
        return self.content.removeprefix(f"{ODD} ")


def _programs(max_items: int, kinds: tuple[str, ...] = _ITEMS) -> Iterator[list[Item]]:
    """Yield all programs of these kinds for two streams, in each order, with up to `max_items`
    items."""
    for size in range(1, max_items + 1):
        for contents in product(kinds, repeat=size):
            if TEXT not in contents:
                continue
            for count in range(size + 1):
                for places in combinations(range(size), count):
                    streams = [OUT if at in places else ERR for at in range(size)]
                    yield [
                        Item(*fields) for fields in zip(range(size), streams, contents, strict=True)
                    ]


def _true_mode(program: list[Item], text: Item, read: dict[Stream, int], start: str) -> str:
    """Return the mode at the printing of `text`, by all commands read so far. A later command of
    the other stream may be unread, and so unknown."""
    mode = start
    counts = dict.fromkeys((OUT, ERR), 0)
    for item in program[: text.at]:
        counts[item.stream] += 1
        if item.content != TEXT and counts[item.stream] <= read[item.stream]:
            mode = item.applied(mode)
    return mode


def _leaks(program: list[Item], start: str) -> list[str]:
    """Return the leaks in all interleavings of printing, reading and checks for an empty stream."""
    of = {stream: [item for item in program if item.stream is stream] for stream in (OUT, ERR)}
    leaks: list[str] = []
    policies = Policies(start)
    reached = [(0, 0, 0, _state(policies))]  # printed; read of stdout, of stderr; state
    visited = set(reached)
    while reached:
        printed, *counts, state = reached.pop()
        read = dict(zip((OUT, ERR), counts, strict=True))
        nexts = [(printed + 1, read, state)] if printed < len(program) else []
        for stream, items in of.items():
            _restore(policies, state)
            if read[stream] == sum(item.at < printed for item in items):
                policies.seen_empty(stream)
                nexts.append((printed, read, _state(policies)))
                continue
            item = items[read[stream]]
            if item.content.startswith(ODD):
                policies.narrow(stream, item.mode)
            elif item.content != TEXT:
                policies.set_mode(stream, item.mode)
            elif width(policies.mode_of(stream)) < width(
                mode := _true_mode(program, item, read, start)
            ):
                leaks.append(
                    f"{item} of {program} from {start}: {policies.mode_of(stream)}, not {mode}"
                )
            nexts.append((printed, {**read, stream: read[stream] + 1}, _state(policies)))
        for count, reads, after in nexts:
            node = (count, reads[OUT], reads[ERR], after)
            if node not in visited:
                visited.add(node)
                reached.append(node)
    return leaks


def _state(policies: Policies) -> tuple[object, ...]:
    return (
        policies._start,
        *(getattr(policies._policies[stream], name) for stream in (OUT, ERR) for name in _FIELDS),
    )


def _restore(policies: Policies, state: tuple[object, ...]) -> None:
    values = iter(state)
    policies._start = next(values)  # type: ignore[assignment]  # whatever _state took
    for stream in (OUT, ERR):
        for name in _FIELDS:
            setattr(policies._policies[stream], name, next(values))


@pytest.mark.parametrize("start", ["enabled", "disabled"])
@pytest.mark.parametrize("kinds", [_ITEMS, _ODD_ITEMS])
def test_nothing_leaks_in_any_order_of_reading(start: str, kinds: tuple[str, ...]) -> None:
    """Everything that two streams can print in four steps: 3,126 programs, each in all
    interleavings."""
    leaks = [leak for program in _programs(4, kinds) for leak in _leaks(program, start)]
    assert leaks == []


@pytest.mark.parametrize("start", MODES)
def test_what_is_seen_empty_in_time_has_the_mode_that_was_printed(start: str) -> None:
    """Reading each line before the next one is printed loses nothing either."""
    for program in _programs(4):
        policies = Policies(start)
        mode = start
        for item in program:
            for stream in (OUT, ERR):
                policies.seen_empty(stream)
            if item.content != TEXT:
                policies.set_mode(item.stream, item.content)
                mode = item.content
            assert policies.mode_of(item.stream) == mode, program


def test_one_stream_alone_is_exact() -> None:
    """R17: this also holds if neither stream was ever seen empty."""
    for contents in product(_ITEMS, repeat=5):
        policies = Policies("enabled")
        mode = "enabled"
        for content in contents:
            if content != TEXT:
                policies.set_mode(OUT, content)
                mode = content
            assert policies.mode_of(OUT) == mode


def test_a_stale_command_never_widens() -> None:
    """stderr's `enabled` was printed before stdout's `disabled`, and read after it."""
    policies = Policies("enabled")
    policies.set_mode(OUT, "disabled")
    policies.set_mode(ERR, "enabled")
    policies.seen_empty(OUT)
    policies.seen_empty(ERR)
    assert (policies.mode, policies.mode_of(OUT), policies.mode_of(ERR)) == ("disabled",) * 3
    policies.set_mode(ERR, "enabled")  # this command is newer
    assert policies.mode == "enabled"


def test_what_may_be_a_command_narrows_and_supersedes_nothing() -> None:
    policies = Policies("enabled")
    policies.set_mode(OUT, "disabled")
    policies.seen_empty(ERR)
    policies.narrow(ERR, "metadata")
    assert policies.mode == "disabled"
    policies.set_mode(OUT, "enabled")  # may be older than stderr's command
    assert policies.mode == "metadata"


def test_a_fence_is_certain_on_its_own_stream_only() -> None:
    policies = Policies("enabled")
    policies.stop(OUT, "t", is_certain=True)
    assert policies.obedience(OUT) is Obedience.NONE
    # text read now may be older
    assert policies.obedience(ERR) is Obedience.NARROWING
    policies.seen_empty(ERR)
    assert policies.obedience(ERR) is Obedience.NARROWING  # stdout may have ended it by now
    assert policies.resume(ERR, "other", is_certain=True) is None
    assert policies.resume(ERR, "t", is_certain=True) is True
    assert policies.obedience(ERR) is Obedience.ALL
    assert policies.obedience(OUT) is Obedience.NARROWING  # ... within the fence
    policies.seen_empty(OUT)
    assert policies.obedience(OUT) is Obedience.ALL


def test_a_malformed_stop_or_resume_leaves_a_fence_that_what_narrows_passes() -> None:
    policies = Policies("enabled")
    policies.stop(OUT, "t", is_certain=True)
    assert policies.resume(OUT, "t", is_certain=False) is True
    assert policies.obedience(OUT) is Obedience.NARROWING
    assert policies.resume(OUT, "t", is_certain=True) is True
    assert policies.obedience(OUT) is Obedience.ALL
    policies.stop(OUT, "", is_certain=False)
    assert policies.resume(ERR, "", is_certain=True) is None
    assert policies.obedience(OUT) is Obedience.NARROWING


def test_a_resume_that_may_be_older_ends_no_fence() -> None:
    """But its sender knows the token, so narrowing commands work."""
    policies = Policies("enabled")
    policies.stop(OUT, "t", is_certain=True)
    assert policies.resume(ERR, "t", is_certain=True) is False
    assert policies.obedience(OUT) is Obedience.NARROWING


def test_a_resume_that_is_read_before_its_stop() -> None:
    policies = Policies("enabled")
    assert policies.resume(ERR, "t", is_certain=True) is None
    policies.stop(OUT, "t", is_certain=True)
    assert policies.obedience(OUT) is Obedience.NARROWING
    policies.resume(OUT, "t", is_certain=True)
    policies.seen_empty(OUT)
    policies.stop(OUT, "t", is_certain=True)  # this stop is newer
    assert policies.obedience(OUT) is Obedience.NONE


def test_what_a_fence_ignored_counts_where_the_other_stream_had_ended_it() -> None:
    policies = Policies("enabled")
    policies.stop(OUT, "t", is_certain=True)
    policies.seen_empty(ERR)
    policies.ignore(OUT, "disabled")  # printed after stderr's resume, read before it
    assert policies.resume(ERR, "t", is_certain=True) is True
    assert policies.mode_of(OUT) == "disabled"


def test_a_fence_within_an_uncertain_one_ends_there() -> None:
    """A program that can't widen must not escape by starting and ending its own fence."""
    policies = Policies("disabled")
    policies.stop(OUT, "", is_certain=False)
    policies.stop(OUT, "x", is_certain=True)
    assert policies.resume(OUT, "x", is_certain=True) is True
    assert policies.obedience(OUT) is Obedience.NARROWING


def test_a_stale_resume_ends_no_fence() -> None:
    """stderr, read last, fences and resumes with a token that stdout fences by afterwards."""
    policies = Policies("enabled")
    policies.stop(OUT, "t", is_certain=True)
    policies.stop(ERR, "t", is_certain=True)
    assert policies.resume(ERR, "t", is_certain=True) is True
    assert policies.obedience(OUT) is Obedience.NONE
    assert policies.fenced()
