"""Faults in imported files: counted, and reported with file and line."""

from collections.abc import Callable

from logshipper.safe_text import safe

MAX_REPORTS = 20  # of one import; further ones are counted
MAX_FILES = 100_000  # of omitted files
_MAX_CHARS = 200


def display_text(text: str) -> str:
    """The text for people: one line of printable characters, not too long."""
    text = safe(text[: _MAX_CHARS + 1])
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


class Faults:
    """Omitted entries, and remarks on others. say: prints the first ones, a sentence each."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.left_out = 0
        self.remarks = 0
        self._report_count = 0
        self._files: set[tuple[str, str]] = set()
        self._say = say

    def leave_out(self, path: str, line: int, words: str) -> None:
        """line: from 1."""
        self.left_out += 1
        self._report(path, line, f"{words}; it is left out")

    def leave_out_file(self, path: str, words: str) -> None:
        """Count a file as omitted, once for any number of calls."""
        if (path, words) not in self._files and len(self._files) < MAX_FILES:
            self._files.add((path, words))
            self.leave_out(path, 0, words)

    def remark(self, path: str, line: int, words: str) -> None:
        self.remarks += 1
        self._report(path, line, words)

    def _report(self, path: str, line: int, words: str) -> None:
        self._report_count += 1
        if self._report_count <= MAX_REPORTS:
            self._say(f"{display_text(path)}{f':{line}' if line else ''}: {display_text(words)}")
        elif self._report_count == MAX_REPORTS + 1:
            self._say("there is more like this, which is only counted")
