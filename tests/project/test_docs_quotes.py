"""Quotations in the pages match the program: labels of the page and of Grafana (in italics), and
messages (in code)."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sources import OBSERVE, PACKAGES, ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Labels of other programs, and italics that are no labels.
OTHERS_LABELS = {
    "Dashboards, Import": "Grafana's menu",
    "Export": "Grafana's menu",
    "Export as code": "Grafana's menu",
    "Classic": "Grafana's menu",
    "Alerting, Contact points": "Grafana's menu",
    "Alerting, Notification policies": "Grafana's menu",
    "Alerting, Silences": "Grafana's menu",
    "Last 6 hours": "Grafana's times",
    "Live": "Grafana's Explore",
}
OTHERS_MESSAGES = {
    "No required SSL certificate was sent": "nginx",
    "f1 4c 53 46": "bytes",
    "from logshipper import EventLog": "Python",
    "logshipper: REASON": "any",
}
_ITALICS = re.compile(r"(?<![*\w])\*([^*\n`]{2,60}(?:\n[^*\n`]{0,40})?)\*(?![*\w])")
_CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
# Four words or more of prose; options, assignments and code have other characters.
_SENTENCE = re.compile(r"[A-Za-z][\w'’-]*[,:;]?(?: [(]?\w[\w'’/-]*[).,:;%]*){3,}")
_OURS = re.compile(r"logshipper(?:-agent|-grafana)?(?: \w+)?: .+")
_COMMAND = re.compile(r"(logshipper|make|xt|balsam|sbatch|srun|qcg-pm|systemctl|apt|dnf|docker)\b")
_HOLES = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}|%[-0-9.]*l*[sdufz]+")  # of JavaScript and C
_NUMBER = re.compile(r"\d+")
_FEWEST_CHARS = 8  # least length of a message's own words


def _strings() -> Iterator[list[str]]:
    """Yield each text in the code as pieces between its placeholders."""
    for path in (path for package in PACKAGES for path in sorted(package.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                yield _HOLES.split(text)
            elif isinstance(node, ast.JoinedStr):
                yield [
                    str(part.value) if isinstance(part, ast.Constant) else "\0"
                    for part in node.values
                ]
    others = [*OBSERVE.rglob("*.js"), *(ROOT / "deploy" / "slurm" / "spank").glob("*.c")]
    dashboards = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
    for path in (*others, *dashboards):
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"|`([^`]*)`', path.read_text()):
            yield _HOLES.split("".join(literal))


@functools.cache
def _texts() -> str:
    return "\n".join(" ".join("".join(pieces).split()) for pieces in _strings())


@functools.cache
def _messages() -> list[re.Pattern[str]]:
    """Return a pattern for each text with placeholders."""
    patterns = set()
    for pieces in _strings():
        words = ["" if piece == "\0" else " ".join(piece.split(" ")) for piece in pieces]
        if (
            len(pieces) > 1
            and sum(len(word.strip()) for word in words if "logshipper" not in word)
            >= _FEWEST_CHARS
        ):
            joined = "\0".join(re.escape(word) for word in words)
            patterns.add(re.sub("\0+", ".+", joined))
    return [re.compile(pattern) for pattern in sorted(patterns)]


@functools.cache
def _test_texts() -> str:
    texts = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    return _NUMBER.sub("0", texts)


def _is_said(quote: str) -> bool:
    """Return whether a quote is in the code as one text or with placeholders filled, or in a
    test."""
    return (
        quote in _texts()
        or any(pattern.search(quote) for pattern in _messages())
        or _NUMBER.sub("0", quote) in _test_texts()
    )


def _labels(page: Path) -> set[str]:
    text = _CODE.sub("`", _BLOCK.sub("", page.read_text()))
    return {" ".join(label.split()) for label in _ITALICS.findall(text)}


def _quotes(page: Path) -> set[str]:
    text = page.read_text()
    quotes = {" ".join(quote.split()) for quote in _CODE.findall(_BLOCK.sub("", text))}
    lines = {line.strip() for block in _BLOCK.findall(text) for line in block.splitlines()}
    return {
        quote for quote in quotes if _SENTENCE.fullmatch(quote) and not _COMMAND.match(quote)
    } | {line for line in quotes | lines if _OURS.fullmatch(line)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_labels_are_those_of_the_page_or_of_grafana(page: Path) -> None:
    labels = _labels(page) - set(OTHERS_LABELS)
    assert {label for label in labels if label not in _texts()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_messages_are_the_programs(page: Path) -> None:
    quotes = _quotes(page) - set(OTHERS_MESSAGES)
    assert {quote for quote in quotes if not _is_said(quote)} == set()


def test_what_is_of_others_is_quoted() -> None:
    assert set().union(*map(_labels, PAGES)) >= set(OTHERS_LABELS)
    assert set().union(*map(_quotes, PAGES)) >= set(OTHERS_MESSAGES)


def test_what_nobody_says_is_found() -> None:
    assert _is_said("logshipper: train.py is k3f9x2: logshipper show k3f9x2")
    words = ["logshipper: train.py", "has become k3f9x2"]
    assert not _is_said(" ".join(words))
    assert sum(len(_labels(page)) for page in PAGES) > 40
    assert sum(len(_quotes(page)) for page in PAGES) > 5
