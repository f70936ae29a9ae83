"""Pushes to Loki, byte for byte, checked by the tests' own decoder (push_decoder.py)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper_ingest.servers.loki_push import (
    BlockLines,
    Entry,
    as_utf8,
    assemble,
    compress,
    encode_block,
    encode_labels,
    encode_metadata,
    encode_push,
    to_utf8,
)
from tests.tools.fakes.push_decoder import Pushed, decode, decompress
from tests.tools.stress.model_settings import examples

LABELS = {"cluster": "local", "kind": "log"}
SECOND_NS = 1_000_000_000
LAST_NS = (1 << 63) - 1

lines_of_all_lengths = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([0, 1, 63, 64, 90, 110, 127, 128, 4095, 4096, 4097, 16383, 16384, 70_000]).map(
        lambda n: b"x" * n
    ),
)
# around the encoder's borders: a second, the low 14 bits, five groups of seven bits
times = st.one_of(
    st.integers(0, LAST_NS - 1000),
    st.builds(
        lambda second, nanos: max(second * SECOND_NS + nanos, 0),
        st.sampled_from([0, 1, 127, 128, 1_700_000_000, (1 << 31) - 1, 1 << 31, 9_000_000_000]),
        st.one_of(
            st.integers(-20, 20),
            st.integers(-20, 20).map(lambda n: (1 << 14) + n),
            st.integers(-20, 20).map(lambda n: (1 << 28) + n),
        ),
    ),
)
names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,20}", fullmatch=True)
metadatas = st.dictionaries(names, st.text(st.characters(codec="utf-8"), max_size=80), max_size=6)


def wire_metadata(metadata: dict[str, str]) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in metadata.items() if value)


@settings(max_examples=examples(60))
@given(st.lists(lines_of_all_lengths, max_size=40), times, metadatas)
def test_block_is_read_as_it_was_meant(
    lines: list[bytes], time_ns: int, metadata: dict[str, str]
) -> None:
    body = assemble(LABELS, [encode_block(lines, time_ns, encode_metadata(metadata))])
    labels, entries = decode(decompress(compress(body)))
    assert labels == '{cluster="local",kind="log"}'
    assert entries == [
        Pushed(time_ns + at, line, wire_metadata(metadata)) for at, line in enumerate(lines)
    ]


@pytest.mark.parametrize(
    "time_ns", [0, 16_380, SECOND_NS - 3, 1_700_000_000 * SECOND_NS + 999_990_000]
)
def test_block_longer_than_the_tables(time_ns: int) -> None:
    """35,000 lines cross several borders of 16,384 ns, and a border of a second."""
    lines = [b"%d" % at for at in range(35_000)]
    _, entries = decode(assemble(LABELS, [encode_block(lines, time_ns)]))
    assert [entry.line for entry in entries] == lines
    assert [entry.time_ns for entry in entries] == list(range(time_ns, time_ns + len(lines)))


def test_cut_anywhere_gives_the_same_bytes() -> None:
    """Loki takes a repeat in other pieces for the same entries."""
    lines = [b"line %d" % at for at in range(100)]
    time_ns = 1_700_000_000 * SECOND_NS - 50
    whole = encode_block(lines, time_ns, b"")
    for split in (0, 1, 49, 50, 51, 99, 100):
        assert (
            encode_block(lines[:split], time_ns) + encode_block(lines[split:], time_ns + split)
            == whole
        )


@settings(max_examples=examples(60))
@given(st.lists(lines_of_all_lengths, max_size=40), times, metadatas, st.data())
def test_lines_of_a_block_of_text_give_the_same_bytes(
    drawn_lines: list[bytes], time_ns: int, metadata: dict[str, str], data: st.DataObject
) -> None:
    lines = [line.replace(b"\n", b"") for line in drawn_lines]
    block = BlockLines(b"".join(line + b"\n" for line in lines))
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(lines))] * 2)))
    for some, expected in ((block, lines), (block[begin:end], lines[begin:end])):
        assert list(some) == expected == [some[at] for at in range(len(some))]
        assert (some.line_bytes, some.longest) == (
            sum(map(len, expected)),
            max(map(len, expected), default=0),
        )
        packed = encode_metadata(metadata)
        assert encode_block(some, time_ns, packed) == encode_block(expected, time_ns, packed)


def test_a_long_block_of_text_gives_the_same_bytes() -> None:
    lines = [b"%d" % at for at in range(35_000)]
    block = BlockLines(b"".join(line + b"\n" for line in lines))
    time_ns = 1_700_000_000 * SECOND_NS + 999_990_000
    assert encode_block(block, time_ns) == encode_block(lines, time_ns)


def test_line_of_four_mebibytes() -> None:
    line = bytes(range(256)) * (16 << 10)
    _, entries = decode(
        assemble(LABELS, [encode_block([b"", line, b""], 5, encode_metadata({"part": "1/3"}))])
    )
    assert [entry.line for entry in entries] == [b"", line, b""]


def test_no_entries() -> None:
    assert encode_block([], 5) == b""
    assert decode(assemble(LABELS, [])) == ('{cluster="local",kind="log"}', [])


@pytest.mark.parametrize("time_ns", [-1, LAST_NS, 1 << 70])
def test_times_that_loki_has_not(time_ns: int) -> None:
    with pytest.raises(ValueError, match="no time that Loki has"):
        encode_block([b"a", b"b"], time_ns)


@settings(max_examples=examples(50))
@given(st.lists(st.builds(Entry, times, st.text(max_size=100), metadatas), max_size=4))
def test_entries_with_times_and_metadata_of_their_own(entries: list[Entry]) -> None:
    _, result = decode(encode_push(LABELS, entries))
    assert result == [
        Pushed(
            entry.time_ns,
            entry.line.encode("utf-8", "backslashreplace"),
            wire_metadata(dict(entry.metadata)),
        )
        for entry in entries
    ]


def test_metadata_is_sorted_and_without_what_is_empty() -> None:
    given_so = encode_metadata({"user": 'q"ä\n\0', "step": "", "job_id": "7"})
    assert given_so == encode_metadata({"job_id": "7", "user": 'q"ä\n\0'})
    _, (entry,) = decode(assemble(LABELS, [encode_block([b"x"], 1, given_so)]))
    assert entry.metadata == [("job_id", "7"), ("user", 'q"ä\n\0')]


@given(
    st.dictionaries(
        names,
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=80),
        min_size=1,
        max_size=5,
    )
)
def test_labels_are_escaped(labels: dict[str, str]) -> None:
    """These escapes make a string literal of Go one of JSON as well."""
    text = encode_labels(labels)
    assert not any(char < " " or char == "\x7f" for char in text)
    read, at = {}, 1
    while text[at - 1] != "}":
        name, _, rest = text[at:].partition("=")
        value, length = json.JSONDecoder().raw_decode(rest)
        read[name] = value
        at += len(name) + 1 + length + 1
    assert read == labels
    assert list(read) == sorted(labels)


def test_labels_as_loki_writes_them() -> None:
    assert (
        encode_labels({"host": 'n"1\\\n\x01', "cluster": "ä", "stream": ""})
        == '{cluster="ä",host="n\\"1\\\\\\n\\u0001"}'
    )


@pytest.mark.parametrize("name", ["", "a-b", "1a", "ä", "a b", "a\n", 'a"'])
def test_names_that_loki_has_not(name: str) -> None:
    for encode in (encode_labels, encode_metadata):
        with pytest.raises(ValueError, match="can't be a label's name"):
            encode({name: "x"})


def test_a_stream_needs_a_label() -> None:
    with pytest.raises(ValueError, match="needs a label"):
        assemble({"cluster": ""}, [])


@given(st.binary(max_size=200))
def test_as_utf8_is_what_the_local_store_shows(text: bytes) -> None:
    assert as_utf8(text).decode() == text.decode("utf-8", "replace")
    assert as_utf8(text).count(b"\n") == text.count(b"\n")


def test_as_utf8_leaves_utf8_alone() -> None:
    for text in (b"plain", "ä€😀\0".encode()):
        assert as_utf8(text) is text


def test_surrogates_are_escaped() -> None:
    assert to_utf8("a\udc80\ud800b") == b"a\\udc80\\ud800b"
