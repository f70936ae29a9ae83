"""Series of real and documented outputs (tests/series), and none of outputs without series."""

import json
import lzma
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logshipper.classify import stream_series
from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.classify.series.key_rules import KeyRules
from logshipper.classify.series.recogniser import Recogniser
from logshipper.spool.segment import Kind, Stream
from tests.tools.sources import ROOT

FOLDER = ROOT / "tests" / "series"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.json"))
LEAST_RECORDS = 3  # fewer records make no curve
LEAST_RECALL = 0.96
KINDS = ("table", "bar", "block", "line")  # of a key of several, the first one
LINE_SECS, REDRAW_SECS = 0.001, 0.5
_PIECE = re.compile(rb"(?:[^\r\n]*\r?\n){1,50}|[^\r\n]+\r?|\r")
# of trainings and simulations
WITH_SERIES = {"boosting", "checkpoints", "lammps", "ngspice", "sklearn"}
# outputs that somebody chose without knowledge of the rules, with the least recall
BLIND_SETS = {"second": 0.92, "third": 0.9}
HARMLESS = sorted((ROOT / "tests" / "harmless").glob("*.txt.xz"))


def kinds_of(output: Path) -> dict[str, str]:
    """The keys of enough records with their kinds, as of a job that prints the output. It redraws twice
    a second."""
    recognisers: list[Recogniser] = []

    class Noted(Recogniser):
        def __init__(self, key_rules: KeyRules) -> None:
            super().__init__(key_rules)
            recognisers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_series, "Recogniser", Noted)
        found = _found(output)
    shapes = [shape for recogniser in recognisers for shape in recogniser.list_shapes()]
    return {
        key: min(
            (shape.kind for shape in shapes if key in shape.keys), key=KINDS.index, default="line"
        )
        for key in found
    }


def series_of(output: Path) -> set[str]:
    return set(kinds_of(output))


def _found(output: Path) -> set[str]:
    classifier = Classifier("enabled", obey=False, finds_series=True)
    now = 0.0
    text = lzma.decompress(output.read_bytes()).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    for piece in _PIECE.findall(text):
        now += LINE_SECS if piece.endswith(b"\n") else REDRAW_SECS
        classifier.feed(Stream.STDERR, piece, now)
        classifier.tick(now)
    classifier.end(Stream.STDERR, now)
    classifier.tick(now + 60.0)
    records = [
        json.loads(item.text)
        for item in classifier.take()
        if isinstance(item, LoggedLines) and item.kind is Kind.METADATA
    ]
    counts = Counter(key for record in records for key in record)
    return {key for key, count in counts.items() if count >= LEAST_RECORDS}


def expected(program: str) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = json.loads((FOLDER / f"{program}.json").read_text())
    return document


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine leaves out no lines."""
    monkeypatch.setattr(stream_series, "BURST_SECS", float("inf"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_keys_are_as_printed(program: str) -> None:
    document = expected(program)
    found = kinds_of(FOLDER / f"{program}.txt.xz")
    assert sorted(set(document["series"]) - found.keys()) == document["missed"]
    assert sorted(found.keys() - set(document["series"])) == document["wrong"]
    assert {key: document["kinds"][key] for key in found} == found


def kind_rows() -> list[str]:
    """The rows of the page's table of kinds."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for document in map(expected, PROGRAMS):
        for key, kind in document["kinds"].items():
            counts[kind]["wrong" if key in document["wrong"] else "series"] += 1
            counts[kind]["missed"] += key in document["missed"]
    return [
        f"| {kind} | {count['series'] - count['missed']} of {count['series']} | {count['wrong']} |"
        for kind, count in counts.items()
    ]


def test_most_series_are_found() -> None:
    documents = [expected(program) for program in PROGRAMS]
    series = sum(len(document["series"]) for document in documents)
    missed = sum(len(document["missed"]) for document in documents)
    assert 1 - missed / series >= LEAST_RECALL


@pytest.mark.parametrize("folder", BLIND_SETS)
def test_sets_that_the_rules_were_not_made_for(folder: str) -> None:
    found_count = series_count = 0
    missed: dict[str, list[str]] = {}
    for path in sorted((FOLDER / folder).glob("*.json")):
        document = json.loads(path.read_text())
        found = series_of(path.with_suffix(".txt.xz"))
        for name, others in document.get("aliases", {}).items():
            found |= {name} if not found.isdisjoint(others) else set()
        if not document["series"]:
            assert found == set(), path.stem
        missed[path.stem] = sorted(set(document["series"]) - found)
        found_count += len(found.intersection(document["series"]))
        series_count += len(document["series"])
    assert found_count / series_count >= BLIND_SETS[folder], (found_count, series_count, missed)


@pytest.mark.parametrize("output", HARMLESS, ids=lambda path: path.name.partition(".")[0])
def test_other_outputs_have_no_series(output: Path) -> None:
    if output.name.partition(".")[0] not in WITH_SERIES:
        assert series_of(output) == set()


def test_the_page_has_each_program() -> None:
    page = (ROOT / "docs" / "series.md").read_text()
    for program in PROGRAMS:
        document = expected(program)
        series, missed = len(document["series"]), len(document["missed"])
        wrong = f" {len(document['wrong'])}" if document["wrong"] else ""
        row = f"| {document['program']} | {document['output']} | {series - missed} of {series} |{wrong} |"
        assert row in page
    assert "\n".join(kind_rows()) in page
