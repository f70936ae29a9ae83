"""Rows as Loki's entries: repeats have the same bytes, no entry is too long, and nothing is
lost."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.capture_rows import BlockRow, EventRow, RecordRow, Rows, StatusRow
from logshipper_ingest.servers.loki_push import assemble
from logshipper_ingest.shipping.entries import (
    Chunk,
    EntryBuilder,
    StreamKey,
    batches,
    json_line,
    replay_hour,
    split,
    with_replay,
)
from logshipper_ingest.spool.capture_folder import Identity
from tests.tools.fakes.push_decoder import Pushed, decode

T0 = 1_750_000_000_000_000_000
HOUR_NS = 3600 * 10**9
IDENTITY = Identity("job1", 1, "", 0, "train.py", "me", "n1", "local")
OWN = {"job_id": "job1", "user": "me", "task": "0", "attempt": "1"}
Attrs = dict[int, dict[str, Any]]  # Any: JSON of a segment

kinds = st.sampled_from([Kind.LOG, Kind.METADATA, Kind.COMMAND, Kind.NOTE])
lines_of_bytes = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    ).map(lambda line: line.replace(b"\n", b"")),
    min_size=1,
    max_size=30,
)


def builder(max_line_bytes: int = 1000) -> EntryBuilder:
    return EntryBuilder("job1@1.aaaa", IDENTITY, max_line_bytes)


def block(
    lines: list[bytes],
    runs: list[tuple[int, int]] | None = None,
    attrs: Attrs | None = None,
    time_ns: int = T0,
) -> BlockRow:
    return BlockRow(
        Stream.STDOUT, time_ns, len(lines), runs, attrs, b"".join(line + b"\n" for line in lines)
    )


def chunks(*blocks: BlockRow, max_line_bytes: int = 1000) -> list[Chunk]:
    return list(builder(max_line_bytes).chunks(Rows(blocks=list(blocks))))


def pushed(*parts: Chunk) -> list[Pushed]:
    """Return entries as Loki parses them."""
    return decode(assemble({"a": "b"}, [chunk.encoded() for chunk in parts]))[1]


# ---- labels


def test_labels_are_those_of_the_contract_and_never_empty() -> None:
    assert StreamKey("stdout", "log").labels("c", "h") == {
        "cluster": "c", "host": "h", "service_name": "logshipper", "stream": "stdout", "kind": "log"}  # fmt: skip
    assert StreamKey("", "event", "007").labels("c", "h") == {
        "cluster": "c", "host": "h", "service_name": "logshipper", "kind": "event", "replay": "007"}  # fmt: skip
    assert StreamKey("stdout", "log", shard="7").labels("c", "h")["job_shard"] == "7"


@pytest.mark.parametrize(
    ("job_id", "shard"),
    [("4711", "1"), ("7", "7"), ("k3x", "x"), ("4711.batch", "x"), ("4_20", "0")],
)
def test_a_job_s_lines_have_a_stream_of_their_own_among_ten(job_id: str, shard: str) -> None:
    """Only lines are split by shards. All other entries are fewer, and readers query them more
    often."""
    rows = Rows(
        blocks=[block([b"x", b"{}"], runs=[(int(Kind.LOG), 1), (int(Kind.METADATA), 1)])],
        marks=[EventRow(T0, {})],
    )
    chunk_list = EntryBuilder("f", IDENTITY._replace(job_id=job_id), 1000).chunks(rows)
    assert [(chunk.key.kind, chunk.key.shard) for chunk in chunk_list] == [
        ("log", shard),
        ("metadata", ""),
        ("event", ""),
    ]


def test_records_beside_lines_share_a_chunk() -> None:
    """They do if they are a nanosecond apart, as in a frame: each chunk costs as much as many
    records."""
    times_ns = [T0, T0 + 1, T0 + 2, T0 + 9]
    rows = Rows(
        records=[
            RecordRow(Stream.STDOUT, time_ns, n, b"{}", "auto", is_copy=True)
            for n, time_ns in enumerate(times_ns, start=1)
        ]
    )
    chunk_list = list(builder().chunks(rows))
    assert [list(chunk.times_ns) for chunk in chunk_list] == [times_ns[:3], times_ns[3:]]
    entries = pushed(*chunk_list)
    assert [(entry.line, dict(entry.metadata)["n"]) for entry in entries] == [
        (b"{}", str(n)) for n in (1, 2, 3, 4)
    ]


def test_what_is_empty_of_an_identity_is_left_out() -> None:
    (chunk,) = builder().chunks(Rows(blocks=[block([b"x"])]))
    assert chunk.metadata(0) == OWN
    full = Identity("job1", 2, "3.run1", 4, "n", "ann", "h", "c")
    (chunk,) = EntryBuilder("f", full, 1000).chunks(Rows(blocks=[block([b"x"])]))
    assert chunk.metadata(0) == {
        "job_id": "job1",
        "user": "ann",
        "step": "3.run1",
        "task": "4",
        "attempt": "2",
    }


# ---- lines


def test_a_block_of_plain_lines_is_one_chunk_a_nanosecond_apart() -> None:
    (chunk,) = chunks(block([b"a", b"", b"c"]))
    assert chunk.key == StreamKey("stdout", "log", host="n1", shard="1")
    assert [(entry.time_ns - T0, entry.line) for entry in pushed(chunk)] == [
        (0, b"a"),
        (1, b""),
        (2, b"c"),
    ]


def test_runs_of_kinds_go_to_their_streams_with_their_times() -> None:
    runs = [
        (Kind.LOG, 1),
        (Kind.METADATA, 2),
        (Kind.STATUS, 1),
        (Kind.NOTE, 1),
        (Kind.LOG, 0),
        (Kind.COMMAND, 1),
    ]
    attrs: Attrs = {1: {"n": 1}, 2: {"n": 2}, 4: {"repeat": 9}}
    chunk_list = chunks(
        block(
            [b"a", b"{}", b"{}", b"50%", b"(9 times)", b"/LOG"],
            [(int(k), n) for k, n in runs],
            attrs,
        )
    )
    layout = [
        (chunk.key.kind, [t - T0 for t in chunk.times_ns], list(chunk.lines))
        for chunk in chunk_list
    ]
    assert layout == [
        ("log", [0], [b"a"]),
        ("metadata", [1, 2], [b"{}", b"{}"]),
        ("log", [4], [b"(9 times)"]),
        ("command", [5], [b"/LOG"]),
    ]
    assert chunk_list[1].metadata(1) == {**OWN, "n": "2"}
    assert chunk_list[2].metadata(0) == {**OWN, "repeat": "9", "note": "1"}


@given(
    st.lists(st.tuples(kinds, lines_of_bytes), min_size=1, max_size=6),
    st.integers(4, 60),
    st.data(),
)
def test_every_line_is_there_once_whatever_it_is(
    parts: list[tuple[Kind, list[bytes]]], max_line_bytes: int, data: st.DataObject
) -> None:
    lines = [line for _, some in parts for line in some]
    runs = [(int(kind), len(some)) for kind, some in parts]
    values: list[object] = [1, "2/3", None, []]
    hostile = st.dictionaries(
        st.sampled_from(["n", "repeat", "part", "job_id"]), st.sampled_from(values)
    )
    attrs = data.draw(st.dictionaries(st.integers(-2, len(lines) + 2), hostile, max_size=5))
    chunk_list = chunks(block(lines, runs, attrs), max_line_bytes=max_line_bytes)
    texts: dict[int, bytes] = {}
    for chunk in chunk_list:
        assert list(chunk.times_ns) == sorted(chunk.times_ns)
        for entry in pushed(chunk):
            assert len(entry.line) <= max_line_bytes
            entry.line.decode()
            assert dict(entry.metadata).items() >= OWN.items()
            texts[entry.time_ns - T0] = texts.get(entry.time_ns - T0, b"") + entry.line
    assert [texts[at] for at in range(len(lines))] == [
        line.decode("utf-8", "replace").encode() for line in lines
    ]


@given(lines_of_bytes, st.data())
def test_slices_encode_as_the_whole_does(lines: list[bytes], data: st.DataObject) -> None:
    """A repeat after a kill may have other batches, and must still be an exact repeat."""
    attrs = data.draw(st.none() | st.just({0: {"n": 5}}))
    (chunk,) = chunks(block(lines, None, attrs), max_line_bytes=1000)
    cuts = sorted({0, len(lines), *data.draw(st.lists(st.integers(0, len(lines)), max_size=4))})
    assert (
        b"".join(chunk.slice(begin, end).encoded() for begin, end in pairwise(cuts))
        == chunk.encoded()
    )


def test_the_same_rows_are_the_same_bytes_in_another_process() -> None:
    rng = random.Random(1)
    lines = [bytes(rng.choices(b"ab\xff\xe2\x82\xac", k=rng.randrange(30))) for _ in range(100)]
    first, second = chunks(block(lines)), chunks(block(lines))
    assert [chunk.encoded() for chunk in first] == [chunk.encoded() for chunk in second]


# ---- long lines


def test_a_long_line_is_split_into_parts_at_one_time() -> None:
    (chunk,) = chunks(block([b"short", b"x" * 2500, b"end"]))
    assert [(entry.time_ns - T0, len(entry.line), dict(entry.metadata).get("part")) for entry in pushed(chunk)] == [
        (0, 5, None), (1, 1000, "1/3"), (1, 1000, "2/3"), (1, 500, "3/3"), (2, 3, None)]  # fmt: skip


def test_a_line_of_just_the_length_is_whole() -> None:
    (chunk,) = chunks(block([b"x" * 1000, b"y" * 1001]))
    assert [len(line) for line in chunk.lines] == [1000, 1000, 1]


def test_parts_of_a_part_say_both() -> None:
    (chunk,) = chunks(
        block([b"x" * 1500], None, {0: {"part": "2"}}),
        block([b"y" * 1500], None, {0: {"part": "3/3"}}),
    )[:1]
    assert [chunk.metadata(at)["part"] for at in range(2)] == ["2.1/2", "2.2/2"]
    (_, chunk) = chunks(block([b"x"]), block([b"y" * 1500], None, {0: {"part": "3/3"}}))
    assert [chunk.metadata(at)["part"] for at in range(2)] == ["3/3.1/2", "3/3.2/2"]


@pytest.mark.parametrize(
    "lines", [[b"\xff" * 999], [b"ok", b"\xff" * 400, b"\xfe" * 400], [b"\xc3" * 1000]]
)
def test_bad_bytes_count_as_what_they_become(lines: list[bytes]) -> None:
    for chunk in chunks(block(lines)):
        assert max(map(len, chunk.lines)) <= 1000


@given(st.text(min_size=1).map(lambda text: text.encode("utf-8", "replace")), st.integers(4, 50))
def test_pieces_are_whole_characters_and_join_to_the_line(line: bytes, max_bytes: int) -> None:
    pieces = split(line, max_bytes)
    assert b"".join(pieces) == line
    assert all(0 < len(piece) <= max_bytes for piece in pieces)
    for piece in pieces:
        piece.decode()
    assert all(len(piece) > max_bytes - 4 for piece in pieces[:-1])


# ---- status and events


def test_a_status_is_cut_between_characters_and_never_empty() -> None:
    for text, excerpt in (
        (b"", " "),
        (b"50 %", "50 %"),
        (b"epoch 1\nbatch 2", "epoch 1\nbatch 2"),
        ("€".encode() * 500, "€" * 333),
        (b"\xff", "\ufffd"),
    ):
        (chunk,) = builder().chunks(
            Rows(statuses={Stream.STDERR: StatusRow(Stream.STDERR, T0, text)})
        )
        assert chunk.key == StreamKey("stderr", "status", host="n1")
        assert [entry.line.decode() for entry in pushed(chunk)] == [excerpt]


def test_events_and_marks_are_one_stream_by_time() -> None:
    rows = Rows(events=[EventRow(T0 + 5, {"event": "b"}), EventRow(T0, {"event": "a"})],
                marks=[EventRow(T0 + 2, {"event": "m"})])  # fmt: skip
    entries = [entry for chunk in builder().chunks(rows) for entry in pushed(chunk)]
    assert [json.loads(entry.line)["event"] for entry in entries] == ["a", "m", "b"]


def test_events_of_hours_do_not_make_others_of_the_stream_too_far_behind() -> None:
    """Chunks of a stream go out by their first times. After a chunk of more than an hour, Loki
    would refuse the next one."""
    rows = Rows(
        marks=[EventRow(T0 + minute * 60 * 10**9, {"event": "heartbeat"}) for minute in range(300)]
    )
    for chunk in builder().chunks(rows):
        assert chunk.times_ns[-1] - chunk.times_ns[0] < HOUR_NS


@pytest.mark.parametrize(
    "value",
    [
        {"event": "x", "v": 10**40},
        {"event": "x", "v": -(10**4000)},
        {"event": "\ud800"},
        {"event": "x", "\udfff": 1},
        {"event": "x", "v": float("nan"), "w": float("inf")},
        {"event": "x", "v": float("nan"), "w": 10**40},
        {"event": "line\nfeed\u2028 \x00"},
        {},
    ],
)
def test_any_event_is_one_line_of_valid_json(value: dict[str, Any]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} isn't JSON")

    line = json_line(value)
    assert b"\n" not in line
    line.decode()
    assert isinstance(json.loads(line, parse_constant=refuse), dict)


@pytest.mark.parametrize("depth", [100, 250, 260, 500, 900])
def test_any_depth_of_an_event_is_one_line_of_json(depth: int) -> None:
    value: dict[str, Any] = {"event": "x"}
    for _ in range(depth):
        value = {"event": "x", "v": value}
    assert json_line(value).startswith(b"{")


# ---- replay


@given(st.integers(0, 1 << 62))
def test_replay_hours_are_three_digits_of_a_week(time_ns: int) -> None:
    hour = replay_hour(time_ns)
    assert len(hour) == 3
    assert 0 <= int(hour) < 168
    assert replay_hour(time_ns + 168 * HOUR_NS) == hour != replay_hour(time_ns + HOUR_NS)


@given(
    st.lists(st.integers(0, 10 * HOUR_NS), min_size=1, max_size=20).map(sorted),
    st.integers(-1, 11 * HOUR_NS),
)
def test_only_what_is_before_the_floor_is_replayed_hour_by_hour(
    offsets: list[int], floor: int
) -> None:
    rows = Rows(
        events=[EventRow(T0 + offset, {"event": str(at)}) for at, offset in enumerate(offsets)]
    )
    parts = [part for chunk in builder().chunks(rows) for part in with_replay(chunk, T0 + floor)]
    times = [(time_ns, part.key.replay) for part in parts for time_ns in part.times_ns]
    assert [time_ns for time_ns, _ in times] == [T0 + offset for offset in offsets]
    for time_ns, replay in times:
        assert replay == (replay_hour(time_ns) if time_ns < T0 + floor else "")
    lines = [json.loads(line)["event"] for part in parts for line in part.lines]
    assert lines == [str(at) for at in range(len(offsets))]


def test_a_long_block_crosses_the_floor_within() -> None:
    (chunk,) = chunks(block([b"%d" % number for number in range(10)]))
    late, rest = with_replay(chunk, T0 + 4)
    assert (late.key.replay, rest.key.replay) == (replay_hour(T0), "")
    assert (late.key.shard, rest.key.shard) == ("", "1")
    assert [*late.lines, *rest.lines] == list(chunk.lines)
    assert late.encoded() + rest.encoded() == chunk.encoded()
    assert with_replay(late, T0 + HOUR_NS) == [late]


# ---- batches


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=12), max_size=6),
    st.integers(1, 2000),
    st.booleans(),
)
def test_batches_hold_all_in_order_and_keep_to_the_size(
    sizes: list[list[int]], max_bytes: int, with_attrs: bool
) -> None:
    attrs: Attrs | None = {0: {"n": 1}} if with_attrs else None
    chunk_list = [
        chunk
        for at, some in enumerate(sizes)
        for chunk in chunks(block([b"x" * size for size in some], None, attrs, T0 + at * 1000))
    ]
    batch_list = list(batches(chunk_list, max_bytes))
    assert [entry for batch in batch_list for entry in pushed(*batch)] == pushed(*chunk_list)
    for batch in batch_list:
        count = sum(len(chunk.lines) for chunk in batch)
        assert count
        assert count == 1 or sum(chunk.size for chunk in batch) <= max_bytes
    for earlier, later in pairwise(batch_list):  # no batch had room for more
        assert sum(chunk.size for chunk in earlier) + later[0].slice(0, 1).size > max_bytes


def test_sizes_are_about_those_on_the_wire() -> None:
    for length in (0, 10, 1000):
        chunk_list = chunks(
            block([b"x" * length] * 1000, None, {at: {"n": at + 1} for at in range(1000)})
        )
        estimate, real = (
            sum(chunk.size for chunk in chunk_list),
            sum(len(chunk.encoded()) for chunk in chunk_list),
        )
        assert 0.9 * real <= estimate <= 1.4 * real
