"""Labels the lines of several nodes or tasks, for followers of a job, and selects the visible ones.
Pure."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.words import exit_words

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Capture, LogLine

MAX_HELD_LINES = 50_000  # of hidden nodes together
MAX_HELD_CHARS = 1 << 25
_RUNNING = "RUNNING"


class Changes(NamedTuple):
    """New captures, and changes of state: a sentence each."""

    began: list[str]
    ended: list[str]


class Nodes:
    """Labels of a job's captures.

    `node1` if an attempt runs on several hosts, `task 3` if several tasks of a step run on one; ""
    if one capture needs no label. Nodes are numbered by the lowest task on each, from 0.
    """

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}
        self._hosts: dict[str, str] = {}  # by label
        self._states: dict[int, str] = {}

    def learn(self, captures: "Sequence[Capture]") -> "Changes":
        """Update the captures; return the changes."""
        changes = Changes([], [])
        tasks: dict[int, dict[str, int]] = {}  # by attempt and host: the lowest
        places: dict[tuple[int, str], list[Capture]] = {}
        for capture in captures:
            of_attempt = tasks.setdefault(capture.attempt, {})
            of_attempt[capture.host] = min(of_attempt.get(capture.host, capture.task), capture.task)
            places.setdefault((capture.attempt, capture.step), []).append(capture)
        hosts = {
            attempt: sorted(of_attempt, key=of_attempt.__getitem__)
            for attempt, of_attempt in tasks.items()
        }
        first, self._hosts = not self._states, {}
        for capture in captures:
            attempt_hosts = hosts[capture.attempt]
            peer_hosts = [peer.host for peer in places[capture.attempt, capture.step]]
            parts = [f"node{attempt_hosts.index(capture.host)}"] if len(attempt_hosts) > 1 else []
            parts += [f"task {capture.task}"] if peer_hosts.count(capture.host) > 1 else []
            label_before = self._labels.get(capture.capture, "")
            label = self._labels[capture.capture] = " ".join(parts)
            if label:
                self._hosts[label] = capture.host
            before = self._states.get(capture.capture)
            self._states[capture.capture] = capture.state
            is_renamed = label_before not in ("", label)
            if is_renamed or (before is None and (label or not first)):
                changes.began.append(_begin_message(capture, label))
            elif before is not None and before != capture.state and label:
                changes.ended.append(_change_message(capture, label))
        return changes

    def label(self, capture: int) -> str:
        return self._labels.get(capture, "")

    def title(self, label: str) -> str:
        """A label with its host: `node1 (gpu2)`."""
        host = self._hosts.get(label, "")
        return f"{label} ({host})" if host else label

    @property
    def labels(self) -> list[str]:
        """All labels."""
        return sorted({label for label in self._labels.values() if label}, key=_in_order)


def _in_order(label: str) -> tuple[tuple[int, str], ...]:
    """Sorts node10 behind node9."""
    words = label.replace("node", "node ").split()
    return tuple((int(word), "") if word.isdecimal() else (-1, word) for word in words)


def _begin_message(capture: "Capture", label: str) -> str:
    where = f"{label}: " if label else ""
    attempt = f"attempt {capture.attempt} " if capture.attempt > 1 else ""
    state = "" if capture.state == _RUNNING else f", {capture.state}"
    return f"{where}{attempt}on {capture.host}{state}"


def _change_message(capture: "Capture", label: str) -> str:
    outcome = "" if capture.state == _RUNNING else exit_words(capture.exit_code, capture.signal)
    return f"{label}: {', '.join(filter(None, (capture.state, outcome)))}"


class NodeView:
    """Selects the visible lines.

    node: label of the visible node, "" for all. The view holds lines of the others, so that each
    continues at its place when it becomes visible.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.node = ""
        self._title = ""  # of that node
        self._nodes = nodes
        self._backlog: deque[LogLine] = deque()
        self._chars = 0
        self._dropped_count = 0

    def takes(self, line: "LogLine") -> bool:
        """Return whether a line is visible now; hold it otherwise."""
        label = self._nodes.label(line.capture)
        if not self.node or not label or label == self.node:
            return True
        self._backlog.append(line)
        self._chars += len(line.text)
        while len(self._backlog) > MAX_HELD_LINES or self._chars > MAX_HELD_CHARS:
            self._chars -= len(self._backlog.popleft().text)
            self._dropped_count += 1
        return False

    def turn(self, steps: int) -> "tuple[list[str], list[LogLine]]":
        """Turn to the next node (steps: 1) or the previous one (-1); all nodes come in between.

        Returns the messages to print, and the held lines that are visible now.
        """
        order = ["", *self._nodes.labels]
        if len(order) < 2:
            return ["there is one node only"], self.show_all()
        at = order.index(self.node) if self.node in order else 0
        self.node = order[(at + steps) % len(order)]
        self._title = self._nodes.title(self.node)
        messages = [f"switching to {self._title or 'all nodes'}"]
        if self._dropped_count:
            lines = plural(self._dropped_count, "line")
            messages.append(f"not kept, too many were held: {lines}; `logshipper logs` has them")
            self._dropped_count = 0
        return messages, self._let_go()

    def show_all(self) -> "list[LogLine]":
        """Show all nodes from now on; return the held lines."""
        self.node = ""
        return self._let_go()

    def show_all_if_renamed(self) -> "list[LogLine]":
        """Call `show_all` if the visible node has a new label, because tasks or nodes have joined."""
        is_renamed = self._nodes.title(self.node) != self._title
        return self.show_all() if self.node and is_renamed else []

    def _let_go(self) -> "list[LogLine]":
        backlog, self._backlog, self._chars = self._backlog, deque(), 0
        return [line for line in backlog if self.takes(line)]
