"""Every job's capture has light imports, and their replacements behave like the standard
library."""

import re
import subprocess
import sys
from typing import NamedTuple as StandardNamedTuple

import pytest

from logshipper.late_pattern import late_pattern
from logshipper.named_tuple import NamedTuple
from tests.tools.sources import ROOT


class _Point(NamedTuple):
    """A place."""

    x: int
    y: int = 2
    of: str | None = None

    def moved(self, by: int) -> "_Point":
        return self._replace(x=self.x + by)


class _StandardPoint(StandardNamedTuple):
    """A place."""

    x: int
    y: int = 2
    of: str | None = None

    def moved(self, by: int) -> "_StandardPoint":
        return self._replace(x=self.x + by)


def test_named_tuples_are_as_those_of_typing() -> None:
    for name in (
        "__doc__",
        "__module__",
        "_fields",
        "_field_defaults",
        "__annotations__",
        "__slots__",
        "__bases__",
    ):
        assert getattr(_Point, name) == getattr(_StandardPoint, name), name
    point = _Point(1, of="here")
    assert (point, point.moved(3), point.y) == ((1, 2, "here"), _Point(4, 2, "here"), 2)
    assert repr(point) == "_Point(x=1, y=2, of='here')"
    with pytest.raises(TypeError, match="x"):
        _Point()  # type: ignore[call-arg]


def test_patterns_are_compiled_with_their_first_use() -> None:
    pattern = late_pattern(rb"(?s)a(.)b")
    assert vars(pattern).keys() == {"_source", "_flags"}
    match = pattern.search(b"xa\nb")
    assert match is not None
    assert (match[1], pattern.pattern, pattern.sub(b"", b"a1ba2bc")) == (b"\n", b"(?s)a(.)b", b"c")
    assert late_pattern("A", re.I).fullmatch("a")
    with pytest.raises(AttributeError):
        pattern.no_method  # type: ignore[attr-defined]  # noqa: B018


def test_a_capture_imports_little() -> None:
    """The imports of relay and sidecar until CMD prints something."""
    code = (
        "import sys; import logshipper.start.preparation, logshipper.sidecar.sidecar, "
        "logshipper.sidecar.context, logshipper_ingest.agent_start; print(*sys.modules)"
    )
    command = [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'ingest')]}; {code}",
    ]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {
        "typing", "contextlib", "dataclasses", "inspect", "socket", "orjson", "cramjam", "sqlite3", "subprocess",
        "argparse", "hashlib", "datetime",
    } & {*modules}  # fmt: skip
