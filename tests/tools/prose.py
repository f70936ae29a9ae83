"""Count sentences that are hard to read: noun clauses, impersonal passives, long sentences and
inverted openings.

The texts are Markdown pages and the docstrings of modules.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_INVERTED = re.compile(
    r"(?:what|who|whoever|whose|whom|of|where|that|so|such|by|with|in|behind|beside|but|until|from)\b",
    re.I,
)
_NOUN_CLAUSE = re.compile(
    r"\b(?:what (?:is|was|are|were|has|had|comes|came|goes|runs|ran|it|they|a|the|one|you|others"
    r"|nobody)|who (?:may|is|has|can)|whatever|whoever)\b",
    re.I,
)
_PASSIVE = re.compile(
    r"\b(?:is|are|was|were) (?:told|said|known|looked|waited|gone|asked|seen|taken|left|read|tried"
    r"|meant|called|found|held|kept|given)\b",
    re.I,
)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*[-*0-9.]+ ", re.M)
_BREAK = re.compile(r"(?<=[.!?]) +(?=[A-Z\"'(*])")
_LONG_WORDS, _MIN_WORDS = 30, 4


class Figures(NamedTuple):
    """Figures of a text, per 100 sentences except `sentences`."""

    sentences: int
    noun_clauses: float
    passives: float
    long: float
    inverted: float


LIMITS = Figures(0, noun_clauses=2, passives=2, long=7, inverted=6)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a Markdown text or a docstring, without code, tables and headings."""
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    text = re.sub(r"^\s*(?:\|.*|[-=*#>`.:]{3,}.*|#+ .*)$", " ", text, flags=re.M)
    text = _ITEM.sub("\n\n", _LINK.sub(r"\1", _CODE.sub("CODE", text)))
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _BREAK.split(" ".join(paragraph.split())):
            if len(_words(sentence)) >= _MIN_WORDS:
                yield sentence


def figures(texts: Iterable[str]) -> Figures:
    found = [sentence for text in texts for sentence in sentences(text)]
    share = 100 / max(len(found), 1)
    return Figures(
        len(found),
        share * sum(len(_NOUN_CLAUSE.findall(sentence)) for sentence in found),
        share * sum(bool(_PASSIVE.search(sentence)) for sentence in found),
        share * sum(len(_words(sentence)) > _LONG_WORDS for sentence in found),
        share * sum(bool(_INVERTED.match(sentence)) for sentence in found),
    )


def texts_of(path: Path) -> list[str]:
    """Return a page, or the docstrings of a module."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return [text]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    return [doc for node in nodes if (doc := ast.get_docstring(node))]


def _words(sentence: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", sentence)


def main(names: Iterable[str]) -> None:
    paths = [
        path
        for name in map(Path, names)
        for path in (name.rglob("*.py") if name.is_dir() else [name])
    ]
    found = figures(text for path in paths for text in texts_of(path))
    for name, value, limit in zip(Figures._fields, found, LIMITS, strict=True):
        print(f"{name:14}{value:8.1f}" + (f"  (at most {limit:g})" if limit else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
