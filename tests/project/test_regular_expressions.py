"""Each of our regular expressions takes linear time at most, even on hostile text."""

import re
import time
from pathlib import Path

import pytest

from logshipper import config
from logshipper.classify.metadata import keys_of
from logshipper.errors import ConfigError
from logshipper_ingest.imports.entries import read_any
from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.source_file import SourceFile
from tests.tools.expressions import all_expressions, files_with_expressions
from tests.tools.stress.adversaries import Expression, secs_at, slow_text

# Built at run time. Readers' own expressions are exempt: they run in the readers' own process.
BUILT = {
    "logshipper/classify/stop_tokens.py:re.compile(b''.join(map(_forms, token.decode())))": "no repetition in it",
    "logshipper/classify/commands.py:late_pattern(_AFTER_VERB % verb.encode())": "match only, one repetition",
    "logshipper/masks/shape_mask.py:late_pattern(shape.between + shape.check + secret)": "tests try each",
    "logshipper/masks/shape_mask.py:late_pattern(b'%s(%s*)\\\\Z' % (shape.between, shape.alphabet))": "likewise",
    "logshipper/classify/series/line_reader.py:fullmatch": "no part gives back a character",
    "logshipper/metadata_pattern.py:re.compile(pattern, re.ASCII)": "of ~/.logoptin: a checked form, and a timer",
    "ingest/logshipper_ingest/spool/purge_pattern.py:re.compile(re.escape(text))": "no repetition in it",
    "ingest/logshipper_ingest/spool/purge_pattern.py:re.compile(grep, re.ASCII)": "`purge --grep`, of an admin",
    "ingest/logshipper_ingest/spool/purge_pattern.py:compiled": "`purge --grep`, of an admin",
    "ingest/logshipper_ingest/servers/call_failures.py:re.search(pattern, words, re.I)": "of a table; the text is cut",
    "ingest/logshipper_ingest/servers/refusals.py:re.search(regex, words, re.I)": "no repetition in the tables",
    "ingest/logshipper_ingest/imports/output_names.py:re.compile(regex)": "`--name-pattern`, on names of files",
    "observe/logshipper_observe/query/columns.py:matches": "a wildcard of the reader's, by fnmatch",
    "observe/logshipper_observe/query/conditions.py:search": "a condition of the reader's",
    "observe/logshipper_observe/query/listing.py:matches": "a wildcard of the reader's, by fnmatch",
    "observe/logshipper_observe/commands/reading/log_reading.py:re.compile(text)": "`logs --grep`, of the reader",
    "observe/logshipper_observe/query/selectors.py:fullmatch": "a wildcard of the reader's, by fnmatch",
    "logshipper/notify/sender.py:re.sub(re.escape(part), '***', text, flags=re.IGNORECASE)": "no repetition in it",
    "grafana/logshipper_grafana/tool/resolve.py:re.compile(pattern[1:-1].replace('(?<', '(?P<'))": "our dashboards",
}
# For texts that only their reader writes.
OWN = {
    "observe/logshipper_observe/query/conditions.py:_CONDITION": "a condition, which the reader typed"
}
# More than linear, for texts with a limit: their greatest number of characters.
CUT = {
    "ingest/logshipper_ingest/influxdb/influxdb_sink.py:_CONFLICT": 1000,  # MAX_EXCERPT_CHARS
    "ingest/logshipper_ingest/servers/call_failures.py:re.search('HTTP request.* to (an )?HTTPS', words, re.I)": 1000,
    "ingest/logshipper_ingest/loki/lines.py:_NUMBER": 500,  # 2 * _HEAD_CHARS
    "ingest/logshipper_ingest/store/store_folder.py:_IN_JOBS": 255,  # file names
    "ingest/logshipper_ingest/store/store_folder.py:_IN_SPOOL": 255,
}
_MOST_SECS = 0.5  # for a text with a limit


@pytest.mark.parametrize("file", files_with_expressions())
def test_time_is_linear_whatever_the_text_is(file: str) -> None:
    slow = []
    for entry in all_expressions():
        if entry.file != file or entry.expression is None or entry.place in OWN:
            continue
        for use in entry.uses:
            if entry.place in CUT:
                assert secs_at(entry.expression, use, CUT[entry.place]) < _MOST_SECS, entry.place
            elif (found := slow_text(entry.expression, use)) is not None:
                slow.append((entry.place, use, found))
    assert slow == []


def test_every_expression_is_tried_or_has_its_reason() -> None:
    found = all_expressions()
    assert {entry.place for entry in found if entry.expression is None} == set(BUILT)
    assert {*CUT, *OWN} <= {entry.place for entry in found}
    assert {entry.file for entry in found} == set(files_with_expressions())


def test_expressions_are_found_wherever_they_are() -> None:
    by_place = {entry.place: entry for entry in all_expressions()}
    assert "search" in by_place["ingest/logshipper_ingest/imports/entries.py:_NEXT"].uses
    assert "match" in by_place["ingest/logshipper_ingest/imports/entries.py:_PAGE_HEAD"].uses
    assert any("inertia" in place for place in by_place)  # found in a table
    # found in a function
    assert any(
        place.startswith("grafana/logshipper_grafana/tool/check.py:re.match(") for place in by_place
    )


@pytest.mark.parametrize(
    ("expression", "use"),
    [
        (
            re.compile(r"\}\s*,\s*(?=\{)|\n\s*(?=\{)"),
            "search",
        ),  # the search begins again at each place
        (
            re.compile(r'\s*\{(?:\s*"count"\s*:\s*[^{},]*,)*\s*"results"'),
            "match",
        ),  # two parts match the same text
        (re.compile(rb"(?:[ \t]*\n)*(?:---\n)?(?:[ \t]*\n)*"), "fullmatch"),
        (re.compile(r"(a+)+b"), "match"),  # nested repetition
        (re.compile(rb"(?:[\[{][^\]}\"]*){512}"), "search"),
        (re.compile(r'"(?:[^"\\]|\\.)*"'), "sub"),
        (re.compile(r"[0-9]+\.?[0-9]*x"), "fullmatch"),
    ],
)
def test_expressions_that_are_known_to_be_slow_are_found(expression: Expression, use: str) -> None:
    assert slow_text(expression, use) is not None


# ---- sources of such text


def _cpu_secs_of(call: object, *args: object) -> float:
    began = time.thread_time()
    call(*args)  # type: ignore[operator]
    return time.thread_time() - began


@pytest.mark.parametrize("text", ['{"a": x' + "\n" * 200_000, '{"count":' + " " * 200_000 + "x"])
def test_an_import_of_hostile_text(text: str, tmp_path: Path) -> None:
    """Formerly 40 KB took 5 s and 1.3 s, and twice as much took four times as long."""
    path = tmp_path / "jobs.json"
    path.write_text(text)
    faults = Faults(lambda words: None)
    assert _cpu_secs_of(list, read_any(SourceFile(str(path), faults), faults)) < 5
    assert faults.left_out == 1


@pytest.mark.parametrize(
    "line", [b'{"a":' + b"[" * 60 + b"NaN" + b" " * 600 + b"}", b'{"a":"' + b'\\"' * 200_000 + b"}"]
)
def test_a_line_of_a_job_that_is_meant_to_stall_its_capture(line: bytes) -> None:
    """Formerly each bracket of the first line doubled the time: 109 s with 24 of them."""
    assert _cpu_secs_of(keys_of, line) < 5


def test_a_long_logoptin() -> None:
    content = b"\n" * 60_000
    assert _cpu_secs_of(config.parse, content, "~/.logoptin") < 5
    with pytest.raises(ConfigError):
        config.parse(content + b"x", "~/.logoptin")
