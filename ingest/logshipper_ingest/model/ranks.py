"""The rank of a job's numeric keys as an X axis, as Prometheus sees it, and the labels of keys.
Pure.

A rank is one number, so that `bottomk(1, max by(key,path)(...))` over all agents is the job's X
(docs/metrics.md): R25's rule times RULE_UNIT, and the key's place in alphabetical order. Of that
place's 50 bits, 42 are the name's first six characters, which are the same on every agent; 8 count
the keys before it with the same beginning, as far as this agent knows them. Together with the
rule's 3 bits that is all a float holds exactly. An integer, as VictoriaMetrics keeps 12 digits
after a fraction's point, which doesn't tell `train/acc` from `train/loss`.

Invariant: while captures are added to a job and records to its captures, a rank that was given
never falls, and a key that was ranked by rule stays (`JobKeys`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from logshipper_ingest.model.courses import Trend
from logshipper_ingest.model.job import Json
from logshipper_ingest.model.key_reports import MAX_NAME_BYTES, MAX_REPORTED, documents
from logshipper_ingest.model.metadata_keys import Path, is_auto, order, plain_name, printed_path
from logshipper_ingest.model.x_axis import NAMED_RULES, XAxis

MAX_POINTS = 4500  # of a graph; Loki returns 5,000 entries at most, and the first hundred of each key set stay
CODE_CHARS, CODE_BITS, PLACE_BITS = 6, 7, 8
_MAX_CODE = (1 << CODE_BITS) - 1
_MAX_PLACE = (1 << PLACE_BITS) - 1
MAX_RULE = 7
RULE_UNIT = 1 << (CODE_CHARS * CODE_BITS + PLACE_BITS)

# Characters that break a dashboard's query about a key. Quotes, backslash and backtick end a
# string. `]` ends a key in LogQL's json expression (quoted or not). `$` and `[[` begin a variable
# of Grafana's, `{{` a template's action. Then control characters, characters that reorder text, and
# half surrogates.
_UNFIT = re.compile(
    r'["\\`\]$]|\[\[|\{\{|[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]'
)
_UNWRITABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
REASONS = ("empty", "characters", "too_long", "same_name", "too_many", "too_large")


def json_path(path: Path) -> str:
    """Return the text between `["` and `"]` in LogQL's json expression for a key."""
    return '"]["'.join(path)


def escape(value: str) -> str:
    """Return a label's value; control characters and half surrogates, which confuse parsers, become
    U+FFFD."""
    if not value.isprintable():
        value = _UNWRITABLE.sub("\ufffd", value)
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def unfit(path: Path, max_bytes: int) -> str:
    """Return the reason, one of REASONS, against a key as a label and part of a query; "" if it
    fits.

    max_bytes: of its json_path.
    """
    if not all(path):
        return "empty"
    if any(map(_UNFIT.search, path)):
        return "characters"
    return "too_long" if len(json_path(path).encode()) > max_bytes else ""


def thinning_digits(records: int) -> str:
    """The digits that a record's number must end in, so that at most about MAX_POINTS of so many
    records remain."""
    digits = ""
    while records > MAX_POINTS:
        records = -(-records // 10)
        digits += "0"
    return digits


def alphabetical_code(name: str) -> int:
    """Return 42 bits that order names by their first six characters.

    From the first character beyond ASCII on, all names are equal, so the rest must not decide.
    """
    code = 0
    for at in range(CODE_CHARS):
        character = min(ord(name[at]), _MAX_CODE) if at < len(name) else 0
        code = code << CODE_BITS | character
        if character == _MAX_CODE:
            return code << (CODE_CHARS - 1 - at) * CODE_BITS
    return code


def rank(rule: int, code: int, place: int) -> int:
    """rule: of `rule_of`; code: `alphabetical_code`; place: among the known keys with this code, from 0.
    Less than 2^53; that of a series is even and less than 2^54, so a float holds it, too."""
    exact = rule * RULE_UNIT + (code << PLACE_BITS | min(place, _MAX_PLACE))
    return exact & ~1 if rule > MAX_RULE else exact


def rule_of(path: Path, trend: Trend) -> int:
    """Return R25's rule of a key, 1 to 7; MAX_RULE more for a series, so that all others come before
    it; 0 while unknown."""
    rule = NAMED_RULES.get(path) or trend.rule()
    return rule + MAX_RULE if rule and is_auto(path) else rule


@dataclass(frozen=True, slots=True)
class KeyLabels:
    """A key as labels show it, escaped."""

    key: str  # its name, nested ones as `a.b`
    path: str  # its json_path
    code: int  # as in `rank`
    place: int  # likewise


class JobKeys:
    """The visible numeric keys of a job on this node, and their ranks.

    `progress` and `epoch` always have room. Of the others the best max_keys are visible. A key with
    a published rule stays visible, because Prometheus remembers its rank and would not learn of a
    worse one.
    """

    def __init__(
        self, max_keys: int, max_label_bytes: int, say: Callable[[str, Path], None]
    ) -> None:
        """say: called with a reason and a key when a key is omitted for the first time."""
        self._max_keys = max_keys
        self._max_label_bytes = max_label_bytes
        self._say = say
        self._labels: dict[Path, KeyLabels] = {}  # of all known keys, in alphabetical order
        self._unfit: dict[Path, str] = {}
        self._stay: dict[str, Path] = {}
        self._reports: set[tuple[str, Path]] = set()

    def visible_keys(
        self, trends: Mapping[Path, Trend]
    ) -> tuple[dict[Path, tuple[KeyLabels, int]], dict[str, int]]:
        """Return the visible keys with labels and rule (0: unknown), and the number of omitted ones
        by reason.

        trends: those of the whole job.
        """
        if trends.keys() != self._labels.keys():
            self._learn(trends)
        visible: dict[Path, tuple[KeyLabels, int]] = {}
        left_out: dict[str, int] = {}
        names: dict[str, Path] = dict(self._stay)
        rules = {path: rule_of(path, trends[path]) for path in self._labels}
        for path in self._by_claim(rules):
            labels = self._labels[path]
            is_full = len(visible) >= self._max_keys
            reason = self._unfit[path]
            if not reason and names.setdefault(labels.key, path) != path:
                reason = "same_name"
            elif not reason and is_full and not self._has_claim(path, labels.key):
                reason = "too_many"
            if reason:
                left_out[reason] = left_out.get(reason, 0) + 1
                self.leave_out(reason, path)
                continue
            if rules[path]:
                self._stay[labels.key] = path
            visible[path] = (labels, rules[path])
        return visible, left_out

    def _has_claim(self, path: Path, key: str) -> bool:
        return path in NAMED_RULES or self._stay.get(key) == path

    def _by_claim(self, rules: Mapping[Path, int]) -> list[Path]:
        """Return the known keys, the most important first; in alphabetical order if all fit."""
        names = {labels.key for labels in self._labels.values()}
        if len(rules) <= self._max_keys and len(names) == len(rules):
            return list(rules)
        return sorted(
            rules,
            key=lambda path: (
                not self._has_claim(path, self._labels[path].key),
                rules[path] or 2 * MAX_RULE + 1,
            ),
        )

    def leave_out(self, reason: str, path: Path) -> None:
        """Reports it, unless it was reported before."""
        if (reason, path) not in self._reports:
            self._reports.add((reason, path))
            self._say(reason, path)

    def _learn(self, trends: Mapping[Path, Trend]) -> None:
        """Places every key again: new ones may come before known ones."""
        self._labels = {}
        places: dict[int, int] = {}
        for path in sorted(trends, key=order):
            name = plain_name(path)
            code = alphabetical_code(name)
            place = places[code] = places.get(code, -1) + 1
            self._labels[path] = KeyLabels(
                escape(name), escape(json_path(printed_path(path))), code, place
            )
            if path not in self._unfit:
                self._unfit[path] = unfit(path, self._max_label_bytes)


def reported_documents(axis: XAxis, *, over: bool) -> list[Json]:
    """Return the report of a capture's keys with data for graphs: rank (below 1 without a rule),
    own X, constancy.

    over: no more records follow.
    """
    trends = axis.trends(over=over)
    keys = JobKeys(MAX_REPORTED, MAX_NAME_BYTES, lambda *_: None)
    visible, _ = keys.visible_keys(trends)
    facts: dict[str, Json] = {}
    for path, (labels, rule) in visible.items():
        own_x, constant = visible.get(trends[path].own_x[1]), trends[path].constant
        facts[labels.key] = {
            "rank": rank(rule, labels.code, labels.place),
            **({"own_x": own_x[0].key} if own_x else {}),
            **({"constant": True} if constant else {}),
        }
    return documents(axis.key_reports(), facts)
