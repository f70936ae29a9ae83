"""Pages and docstrings are plain: few noun clauses, impersonal passives, long sentences and
inverted openings (tests/tools/prose.py)."""

from pathlib import Path

import pytest

from tests.tools.prose import LIMITS, Figures, figures, texts_of
from tests.tools.sources import ROOT

PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "deploy/*/README.md", "*/README.md")
    for path in ROOT.glob(pattern)
)
PACKAGES = sorted(
    str(path.parent.relative_to(ROOT))
    for top in ("logshipper", "ingest", "observe", "grafana", "tests", "benchmarks", "examples")
    for path in (ROOT / top).rglob("__init__.py")
)
_FEW_SENTENCES = 50  # shorter texts may have one of each kind


@pytest.mark.parametrize("name", [*PAGES, *PACKAGES])
def test_sentences_need_no_decoding(name: str) -> None:
    path = ROOT / name
    paths = sorted(path.glob("*.py")) if path.is_dir() else [path]
    found = figures(text for module in paths for text in texts_of(module))
    share = 100 / max(found.sentences, _FEW_SENTENCES)
    for kind, value, limit in zip(Figures._fields[1:], found[1:], LIMITS[1:], strict=True):
        allowed = max(limit, share) * max(found.sentences, _FEW_SENTENCES) / max(found.sentences, 1)
        assert value <= allowed, f"{name}: {kind} {value:.1f} per 100 sentences"


def test_each_kind_is_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What is not counted\n\nReaders see what is stored. It is told to them here.\n\n"
        "- Of jobs some fail in `what is code`.\n- " + "word " * 31 + "\n\n| what is | a table |\n"
    )
    assert figures(texts_of(page)) == Figures(4, 25, 25, 25, 25)
    module = tmp_path / "module.py"
    module.write_text(
        '"""What is read stays here."""\n\n\ndef f():\n    """Return one plain number."""\n'
    )
    assert figures(texts_of(module)) == Figures(2, 50, 50, 0, 50)
