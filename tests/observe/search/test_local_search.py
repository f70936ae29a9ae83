"""A search of the local store finds the same lines as a reading of every line, with their numbers."""

import re
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.classify.repeat_note import printed_line
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.capture_rows import BlockRow, Rows
from logshipper_ingest.model.job import Json, LogLine
from logshipper_ingest.store.job_db import JobWriter
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.base.words import uncoloured
from logshipper_observe.search.line_search import LineSearch
from logshipper_observe.search.local_search import search_local

BEGIN_NS = 1_760_000_000_000_000_000
PATTERNS = ("a", "^a", "b$", "^$", "a*", "[^a]", r"\sb", "ab|ba", "é", r"\Aa", r"b\Z", "repeated")
TEXTS = st.text("ab é", max_size=5).map(lambda text: text.replace("é", "\x1b[31mé\x1b[0m"))


@st.composite
def blocks(draw: st.DrawFn) -> list[BlockRow]:
    """Draw blocks whose lines are 1 ns apart; those of different streams may overlap."""
    rows = []
    free = {Stream.STDOUT: 0, Stream.STDERR: 0}
    for texts in draw(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=6)):
        stream = draw(st.sampled_from((Stream.STDOUT, Stream.STDERR)))
        first = free[stream] + draw(st.integers(0, 3))
        free[stream] = first + len(texts)
        is_note = draw(st.booleans())
        attrs: dict[int, Json] | None = {0: {"repeat": 3}} if is_note else None
        runs: list[tuple[int, int]] = [(Kind.NOTE, 1), (Kind.LOG, len(texts) - 1)]
        if is_note:
            texts[0] = f"[repeated 3 times: {texts[0]}]"
        text = "".join(f"{line}\n" for line in texts).encode()
        of_notes = runs[: len(texts)] if is_note else None
        rows.append(BlockRow(stream, BEGIN_NS + first, len(texts), of_notes, attrs, text))
    return rows


def expected(
    lines: list[LogLine], pattern: str, *, invert: bool, before: int, after: int, limit: int | None
) -> list[tuple[int, str, bool]]:
    """Return numbers and texts of matching lines, and of those around them, as grep does."""
    python = re.compile(pattern)
    hits = [
        bool(python.search(printed_line(uncoloured(line.text), line.attrs))) is not invert
        for line in lines
    ]
    numbers = [number for number, hit in enumerate(hits) if hit][:limit]
    near: set[int] = set()
    for number in numbers:
        near.update(range(max(number - before, 0), min(number + after + 1, len(lines))))
    return [(n + 1, uncoloured(lines[n].text), n in numbers) for n in sorted(near)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStore]:
    with LocalStore(str(tmp_path_factory.mktemp("search") / "store"), create=True) as local:
        yield local


names = count()


@settings(max_examples=150, deadline=None)
@given(
    rows=blocks(),
    pattern=st.sampled_from(PATTERNS),
    invert=st.booleans(),
    around=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    limit=st.sampled_from((None, 1, 2)),
)
def test_every_selected_line_is_found(
    store: LocalStore,
    rows: list[BlockRow],
    pattern: str,
    invert: bool,
    around: tuple[int, int],
    limit: int | None,
) -> None:
    job_id = f"j{next(names)}"
    with closing(JobWriter(store.path_of(job_id), wal=False, synced=False)) as writer:
        writer.write(writer.add_capture("a", Source(1, "", 0), CaptureAccount()), Rows(blocks=rows))
    with store.open(job_id) as reader:
        job = reader.summary
        lines = list(reader.lines(streams=(Stream.STDOUT, Stream.STDERR)))
    before, after = around
    search = LineSearch([pattern], invert=invert, before=before, after=after, limit=limit)
    faults: list[str] = []
    (answer,) = [[*found.matches] for found in search_local(store, [job], search, faults.append)]
    assert [(match.number, match.text, match.is_match) for match in answer] == expected(
        lines, pattern, invert=invert, before=before, after=after, limit=limit
    )
    assert [match.time_ns for match in answer] == [
        lines[match.number - 1].time_ns for match in answer
    ]
    assert not faults


def test_an_abandoned_search_ends(store: LocalStore) -> None:
    """A reader such as `head` leaves while threads have more matches than their queues hold."""
    text = b"match\n" * 100
    rows = Rows(
        blocks=[
            BlockRow(Stream.STDOUT, BEGIN_NS + at * 1000, 100, None, None, text) for at in range(50)
        ]
    )
    jobs = []
    for at in range(30):
        job_id = f"long{at}"
        with closing(JobWriter(store.path_of(job_id), wal=False, synced=False)) as writer:
            writer.write(writer.add_capture("a", Source(1, "", 0), CaptureAccount()), rows)
        with store.open(job_id) as reader:
            jobs.append(reader.summary)
    found = search_local(store, jobs, LineSearch(["match"]), lambda fault: None)
    assert next(next(found).matches).number == 1
    assert sum(1 for _ in next(found).matches) == 5_000, "the rest of the job before was skipped"
    found.close()
