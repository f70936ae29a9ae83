"""Regular expressions that match in time linear in the text.

Python's `re` backtracks, and no thread can stop it. Here an expression is a graph of nodes
(Thompson's construction), and a set of nodes is a state. The matcher creates states on demand and
keeps a limited number.
"""

import re
import string
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from logshipper.errors import LogshipperError
from logshipper.metadata_pattern import parsed, search_problem

MAX_MATCHED = 4_096  # characters of a line, from its beginning
MAX_NODES = 500
MAX_STEPS = 50_000  # in memory
_START, _HIT = 0, 1  # nodes
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CATEGORIES = {
    "CATEGORY_DIGIT": frozenset(string.digits),
    "CATEGORY_SPACE": frozenset(" \t\n\r\f\v"),
    "CATEGORY_WORD": _WORD,
}

Test = Callable[[str], bool]


class ExpressionRefusal(LogshipperError):
    """An unsupported expression. The message has the reason and the fix."""


class _Place(NamedTuple):
    """The surroundings of a place between two characters."""

    begins: bool  # at the line's begin
    ends: bool  # at the line's end
    word_before: bool
    word_behind: bool


_CONDITIONS: dict[str, Callable[[_Place], bool]] = {
    "AT_BEGINNING": lambda place: place.begins,
    "AT_BEGINNING_STRING": lambda place: place.begins,
    "AT_END": lambda place: place.ends,
    "AT_END_STRING": lambda place: place.ends,
    "AT_BOUNDARY": lambda place: place.word_before != place.word_behind,
    "AT_NON_BOUNDARY": lambda place: place.word_before == place.word_behind,
}


class _Node(NamedTuple):
    """A node of the graph. It consumes a character, or none if `character` is None."""

    behind: list[int]  # the next nodes
    character: Test | None = None  # accepts the character
    condition: Callable[[_Place], bool] | None = None  # for passing without a character


class _State(dict[str, "_State"]):
    """Maps each next character to the state behind it."""

    def __init__(self, expression: "LineExpression", nodes: frozenset[int], place: _Place) -> None:
        super().__init__()
        self._expression = expression
        self._nodes = nodes
        self._place = place

    def __missing__(self, character: str) -> "_State":
        state = self._expression.step(self._nodes, self._place, character)
        self[character] = state
        return state

    @cached_property
    def is_hit(self) -> bool:
        """Whether the expression matches if the line ends here."""
        place = self._place._replace(ends=True, word_behind=False)
        return self._expression.is_hit(self._nodes, place)


class LineExpression:
    """An expression of the subset that users' patterns have, for one thread at a time. Raises
    ExpressionRefusal."""

    def __init__(self, pattern: str, *, exact: bool) -> None:  # exact: case matters
        problem = search_problem(pattern)
        if problem:
            raise ExpressionRefusal(f"the expression {problem}")
        parts = parsed(pattern)
        self._nodes = [_Node([]), _Node([])]
        ignores_case = not exact or bool(parts.state.flags & re.IGNORECASE)
        self._nodes[_START].behind.append(self._sequence(parts, _HIT, ignores_case))
        self._forget()

    def _forget(self) -> None:
        for state in getattr(self, "_states", {}).values():
            state.clear()
        self._states: dict[tuple[frozenset[int], bool], _State] = {}
        self._step_count = 0
        begin = _Place(begins=True, ends=False, word_before=False, word_behind=False)
        self._begin = _State(self, frozenset((_START,)), begin)
        self._states[frozenset(), True] = self._begin

    # ---- matching

    def search(self, line: str) -> bool:
        """Return whether it matches in a line's first MAX_MATCHED characters."""
        state = self._begin
        for character in line[:MAX_MATCHED]:
            state = state[character]
        return state.is_hit

    def spans(self, line: str, until: float) -> Iterator[tuple[int, int]]:
        """Return the non-empty matches in a line: the leftmost ones, the longest at each place.
        Stops at `until`, by time.monotonic()."""
        line = line[:MAX_MATCHED]
        at = 0
        while at < len(line):
            span = self._span(line, at, until)
            if span is None:
                return
            if span[1] > span[0]:
                yield span
            at = max(span[1], span[0] + 1)

    def _span(self, line: str, begin: int, until: float) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []  # node and begin of the match, the leftmost first
        for at in range(begin, len(line) + 1):
            if time.monotonic() > until:
                return None
            character = line[at] if at < len(line) else ""
            place = _Place(
                at == 0, not character, at > 0 and line[at - 1] in _WORD, character in _WORD
            )
            if best is None:
                threads.append((_START, at))
            seen: set[int] = set()
            next_threads = []
            for number, start in threads:
                for reached in self._reached(number, place, seen):
                    if reached == _HIT:
                        if best is None or start <= best[0]:
                            best = start, at
                        continue
                    node = self._nodes[reached]
                    if character and node.character is not None and node.character(character):
                        next_threads += [(behind, start) for behind in node.behind]
            threads = [row for row in next_threads if best is None or row[1] <= best[0]]
            if best is not None and not threads:
                break
        return best

    def step(self, numbers: frozenset[int], place: _Place, character: str) -> _State:
        """Return the state behind a character."""
        word = character in _WORD
        place = place._replace(word_behind=word)
        behind: set[int] = {_START}
        seen: set[int] = set()
        reached = [node for number in numbers for node in self._reached(number, place, seen)]
        if _HIT in reached:
            behind = {_HIT}
        else:
            for node in map(self._nodes.__getitem__, reached):
                if node.character is not None and node.character(character):
                    behind.update(node.behind)
        self._step_count += 1
        if self._step_count > MAX_STEPS:
            self._forget()
        key = frozenset(behind), word
        state = self._states.get(key)
        if state is None:
            place = _Place(begins=False, ends=False, word_before=word, word_behind=False)
            state = self._states[key] = _State(self, key[0], place)
        return state

    def is_hit(self, numbers: frozenset[int], place: _Place) -> bool:
        seen: set[int] = set()
        return any(_HIT in self._reached(number, place, seen) for number in numbers)

    def _reached(self, number: int, place: _Place, seen: set[int]) -> list[int]:
        """Return the nodes that consume a character, and _HIT, reachable without a character."""
        reached, stack = [], [number]
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            node = self._nodes[number]
            if number == _HIT or node.character is not None:
                reached.append(number)
            elif node.condition is None or node.condition(place):
                stack += node.behind
        return reached

    # ---- the graph

    def _add(self, node: _Node) -> int:
        if len(self._nodes) >= MAX_NODES:
            raise ExpressionRefusal(
                f"the expression has more than {MAX_NODES} characters and choices, with repeats "
                "written out: use smaller numbers in {}, or `+` and `*`"
            )
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _sequence(self, parts: Any, behind: int, ignores_case: bool) -> int:  # Any: see parsed
        """Add nodes for some parts in front of a node; return the first."""
        for operation, argument in reversed(list(parts)):
            behind = self._part(str(operation), argument, behind, ignores_case)
        return behind

    def _part(self, name: str, argument: Any, behind: int, ignores_case: bool) -> int:
        if name == "SUBPATTERN":
            _, flags, flags_off, parts = argument
            ignores = (ignores_case or flags & re.IGNORECASE) and not flags_off & re.IGNORECASE
            return self._sequence(parts, behind, bool(ignores))
        if name == "BRANCH":
            branches = [self._sequence(parts, behind, ignores_case) for parts in argument[1]]
            return self._add(_Node(branches))
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, parts = argument
            return self._repeat(least, most, parts, behind, ignores_case)
        if name == "AT":
            return self._add(_Node([behind], condition=_CONDITIONS[str(argument)]))
        return self._add(_Node([behind], character=_test(name, argument, ignores_case)))

    def _repeat(self, least: int, most: Any, parts: Any, behind: int, ignores_case: bool) -> int:
        if str(most) == "MAXREPEAT":
            first = self._add(_Node([behind]))
            self._nodes[first].behind.append(self._sequence(parts, first, ignores_case))
        else:
            first = behind
            for _ in range(most - least):
                first = self._add(_Node([behind, self._sequence(parts, first, ignores_case)]))
        for _ in range(least):
            begin = self._sequence(parts, first, ignores_case)
            if begin == first:  # an empty part
                break
            first = begin
        return first


def _test(name: str, argument: Any, ignores_case: bool) -> Test:
    if name == "ANY":
        return lambda character: True
    entries = argument if name == "IN" else [("LITERAL", argument)]
    items = [(str(operation), value) for operation, value in entries]
    negated = name == "NOT_LITERAL" or items[0][0] == "NEGATE"
    tests = [_item(item, value) for item, value in items if item != "NEGATE"]

    def accepts(character: str) -> bool:
        if not ignores_case:
            return any(test(character) for test in tests) != negated
        cases = [case for case in (character.lower(), character.upper()) if len(case) == 1]
        return any(test(case) for test in tests for case in (character, *cases)) != negated

    return accepts


def _item(name: str, value: Any) -> Test:
    if name == "LITERAL":
        literal = chr(value)
        return lambda character: character == literal
    if name == "RANGE":
        low, high = map(chr, value)
        return lambda character: low <= character <= high
    category = str(value)
    characters = _CATEGORIES[category.replace("_NOT_", "_")]
    negated = "_NOT_" in category
    return lambda character: (character in characters) != negated
