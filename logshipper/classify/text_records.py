"""Finds records in lines that are not JSON (`metadata` of ~/.logoptin). Pure.

Such lines are Python dicts, key=value pairs, lines of some well-known programs, and lines that match
the user's patterns. A record is JSON and contains only the numbers of its line. A number keeps its
text if that is valid JSON; NaN and infinity have the form of Python's json.dumps.
"""

import re
from collections.abc import Iterable, Mapping

from logshipper.classify.metadata import json_record, keys_of
from logshipper.classify.series.numbers import as_json
from logshipper.config import DICT, PAIRS, MetadataPattern
from logshipper.named_tuple import NamedTuple

MAX_LINE_BYTES = 2048  # longer lines are no records
MAX_VALUES = 100  # of a record; lines with more values are none

_NUMBER = r"[-+]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,9})?"
_NOT_FINITE = r"[-+]?(?:nan|NaN|NAN|inf|Inf|INF|infinity|Infinity)"
_VALUE = rf"(?:{_NUMBER}|{_NOT_FINITE})"
_IS_NUMBER = re.compile(_VALUE)
# begins of possible records; all other lines, nearly the whole log, cost only this match
_MAY_HOLD = re.compile(
    rb"\{'| {1,9}[0-9]|[0-9]{1,9}[:/]|\[[ 0-9]{0,9}[0-9][\]/]|-- Epoch |[\[]?[A-Za-z_][A-Za-z0-9_./%@-]{0,63}"
    rb"(?: {0,8}= {0,8}[-+.0-9nNiI]|: {1,16}[-+.0-9nNiI]| [0-9]| score: )"
)

# ---- pairs

# words before numbers that are no metrics
_NO_METRIC = re.compile(
    r"(?i:[a-z0-9_.]{0,40}(?:error|exception|warning|exit|interrupt)|info|debug|notice|note|fatal|critical|trace|"
    r"line|errno|pid|port|code|status|signal|version|date|time|uid|gid)"
)
_PAIR = re.compile(
    r"(?P<key>[A-Za-z_][A-Za-z0-9_./%@-]{0,63})(?: {0,8}= {0,8}|: {1,16})"
    rf"(?P<value>{_VALUE})(?:/[0-9]{{1,12}})?(?P<unit>%|[A-Za-z][A-Za-z/]{{0,11}}|)"
    r"(?: {0,8}[,;|] {0,8}| {1,8}- {1,8}| {1,16}|$)"
)
_HEAD = re.compile(
    r"\[?(?P<word>(?i:epoch|step|iteration|iter|round|batch))(?: {1,8}|: {0,8}|=)"
    r"(?P<number>[0-9]{1,12})(?:/[0-9]{1,12})?\]?(?: {0,8}[:,;|-] {0,8}| {1,8})"
)
_UNITS = ("", "%", "s")  # other units may differ from line to line

# ---- Python dicts

_ITEM = re.compile(
    r" {0,8}'(?P<key>[^'\\{}]{1,100})': {0,8}(?:"
    rf"'?(?P<value>{_VALUE})'?"
    rf"|(?:tensor|array|(?:np|numpy|torch)\.[a-z]{{1,12}}[0-9]{{0,3}})\((?P<wrapped>{_VALUE})"
    r"(?:, [^()]{0,200})?\)"
    r"|'[^'\\]{0,2000}'|\"[^\"\\]{0,2000}\"|[A-Za-z]{1,20}|\[[^][]{0,2000}\]|\([^()]{0,2000}\)|\{[^{}]{0,2000}\}"
    r")(?P<end>, ?|\})"
)


class TextRecord(NamedTuple):
    """A record and its line."""

    at: int  # number of the line in the text, from 0
    line: bytes  # JSON
    keys: tuple[str, ...]
    origin: str  # `dict`, `pairs`, or the pattern's name


class _Row(NamedTuple):
    """The lines of one program."""

    origin: str
    begins: str  # possible first characters of a line
    expression: re.Pattern[str]  # its groups are keys; the group `items` is the rest of the line
    item: re.Pattern[str] | None = None  # matches each item of `items`
    key: str = "{key}"  # of an item, a template of its groups
    until: str = ""  # the items end before this text
    is_epoch: bool = False  # a line without values, whose number belongs to the next record


_DIGITS = "0123456789"
_BOOSTING_ROUND = r"\[(?P<iteration>[0-9]{1,9})\](?P<items> .+)"
_TABLE = (
    # xgboost.train, xgboost.cv: [5]  train-logloss:0.12918  valid-auc:0.9, [0]  test-logloss:0.5+0.01
    _Row(
        "xgboost",
        "[",
        re.compile(_BOOSTING_ROUND),
        re.compile(
            rf" {{1,16}}(?P<key>[^ :]{{1,100}}):(?P<value>{_VALUE})"
            rf"(?:\+(?P<std>{_VALUE}))?(?= |$)"
        ),
    ),
    # lightgbm.log_evaluation: [10]  valid_0's l2: 0.24, [2]  valid's auc: 0.966 + 0.02
    _Row(
        "lightgbm",
        "[",
        re.compile(_BOOSTING_ROUND),
        re.compile(
            rf" {{1,16}}(?P<set>[^ :']{{1,100}})'s (?P<key>[^ :]{{1,100}}): (?P<value>{_VALUE})"
            rf"(?: \+ (?P<std>{_VALUE}))?(?= |$)"
        ),
        "{set}-{key}",
    ),
    # CatBoost: 5:  learn: 0.45  test: 0.48  best: 0.48 (5)  total: 55.3ms  remaining: 129ms
    _Row(
        "catboost",
        _DIGITS,
        re.compile(r"(?P<iteration>[0-9]{1,9}):(?P<items> {1,16}(?:learn|test|total).*)"),
        re.compile(
            rf" {{0,16}}(?P<key>learn|test[0-9]{{0,4}}|best): (?P<value>{_VALUE})"
            r"(?: \([0-9]{1,9}\))?(?= |$)"
        ),
        until="total: ",
    ),
    # Keras: 1563/1563 - 3s - 2ms/step - accuracy: 0.9 - loss: 0.5, or behind a full bar
    _Row("keras", "E", re.compile(r"Epoch (?P<epoch>[0-9]{1,9})/[0-9]{1,9}"), is_epoch=True),
    _Row(
        "keras",
        _DIGITS,
        re.compile(
            r"([0-9]{1,9})/\1 {1,4}(?:\[={1,100}\] |━{1,100} )?(?:- )?[0-9:]{1,9}s?"
            r"(?: (?:- )?[0-9]{1,9}[mun]?s/(?:step|epoch|sample))?(?P<items> - .+)"
        ),
        re.compile(rf" - (?P<key>[^ :]{{1,100}}): (?P<value>{_VALUE})(?= |$)"),
    ),
    # scikit-learn's GradientBoosting: columns of 10, 16 and 16 characters, with or without the third
    _Row(
        "sklearn",
        " ",
        re.compile(
            r"(?=.{44}$|.{61}$) {1,9}(?P<iteration>[0-9]{1,9}) {1,16}"
            rf"(?P<train_loss>{_VALUE})(?: {{1,16}}(?P<oob_improve>{_VALUE}))?"
            r" {1,16}[0-9.]{1,15}[sm]"
        ),
    ),
    # ... HistGradientBoosting
    _Row(
        "sklearn",
        "[",
        re.compile(
            r"\[(?P<iteration>[0-9]{1,9})/[0-9]{1,9}\] (?P<trees>[0-9]{1,9}) trees?, (?P<leaves>[0-9]{1,9}) leaves"
            r"(?: \([^()]{1,60}\))?, max depth = (?P<max_depth>[0-9]{1,9}),"
            rf"(?: train (?:loss|score): (?P<train>{_VALUE}),)?"
            rf"(?: val (?:loss|score): (?P<val>{_VALUE}),)? in [0-9.]{{1,15}}s"
        ),
    ),
    # ... MLP, KMeans
    _Row(
        "sklearn",
        "I",
        re.compile(
            r"Iteration (?P<iteration>[0-9]{1,9}), "
            rf"(?:loss = (?P<loss>{_VALUE})|inertia (?P<inertia>{_VALUE})\.?)"
        ),
    ),
    _Row("sklearn", "V", re.compile(rf"Validation score: (?P<validation_score>{_VALUE})")),
    # ... SGD
    _Row("sklearn", "-", re.compile(r"-- Epoch (?P<epoch>[0-9]{1,9})"), is_epoch=True),
    _Row(
        "sklearn",
        "N",
        re.compile(
            rf"Norm: (?P<norm>{_VALUE}), NNZs: (?P<nnzs>[0-9]{{1,15}}), "
            rf"Bias: (?P<bias>{_VALUE}), T: (?P<t>[0-9]{{1,15}}), "
            rf"Avg\. loss: (?P<avg_loss>{_VALUE})"
            rf"(?:, Objective: (?P<objective>{_VALUE}))?"
        ),
    ),
)
_ROWS: dict[str, list[_Row]] = {}  # by a line's first character
for _row in _TABLE:
    for _character in _row.begins:
        _ROWS.setdefault(_character, []).append(_row)


class TextRecords:
    """Finds the records of one stream. kinds: `dict`, `pairs`, and the user's patterns, which come
    first."""

    def __init__(self, kinds: Iterable[str | MetadataPattern]) -> None:
        kinds = tuple(kinds)
        self.takes_dicts = DICT in kinds
        self._takes_pairs = PAIRS in kinds
        self._user_patterns = None
        patterns = [kind for kind in kinds if isinstance(kind, MetadataPattern)]
        if patterns:  # rare, hence a late import
            from logshipper.classify.user_patterns import UserPatterns

            self._user_patterns = UserPatterns(patterns)
        self._epochs: dict[str, str] = {}  # by origin

    def forget(self) -> None:
        """Let no earlier line affect later ones."""
        self._epochs.clear()

    def take_disabled(self) -> list[str]:
        """Return the names of the user's patterns that proved too slow since the last call."""
        return self._user_patterns.take_disabled() if self._user_patterns is not None else []

    def find(self, text: bytes) -> list[TextRecord]:
        """Return the records of final lines, each ended by LF, in order."""
        lines = text.split(b"\n")
        lines.pop()
        by_patterns = self._match_user_patterns(lines)
        may_hold = _MAY_HOLD.match
        numbers = [at for at, line in enumerate(lines) if at in by_patterns or may_hold(line)]
        records = []
        for at in numbers:
            match = by_patterns.get(at)
            if match is None and len(lines[at]) <= MAX_LINE_BYTES:
                match = self._match(lines[at].decode("utf-8", "replace").rstrip(" "))
            if match is not None:
                records.append(_record(at, *match))
        return records

    def _match_user_patterns(self, lines: list[bytes]) -> dict[int, tuple[str, dict[str, str]]]:
        if not self._user_patterns:
            return {}
        texts = [
            (at, line.decode("utf-8", "replace"))
            for at, line in enumerate(lines)
            if len(line) <= MAX_LINE_BYTES
            # a line is at most one record
            and not (line[:1] == b"{" and isinstance(keys_of(line), tuple))
        ]
        matches = self._user_patterns.find(texts)
        return {
            at: (name, values)
            for at, (name, groups) in matches.items()
            if (values := {key: text for key, text in groups.items() if _IS_NUMBER.fullmatch(text)})
        }

    def _match(self, line: str) -> tuple[str, dict[str, str]] | None:
        if line[:1] == "{":
            values = _dict_values(line) if self.takes_dicts else None
            return (DICT, values) if values else None
        if not self._takes_pairs:
            return None
        for row in _ROWS.get(line[:1], ()):
            match = row.expression.fullmatch(line)
            if match is None:
                continue
            if row.is_epoch:
                self._epochs[row.origin] = match["epoch"]
                return None
            values = _row_values(row, match)
            if values:
                epoch = self._epochs.pop(row.origin, None)
                return row.origin, ({"epoch": epoch} if epoch is not None else {}) | values
        values = _pair_values(line)
        return (PAIRS, values) if values else None


def _record(at: int, origin: str, values: Mapping[str, str]) -> TextRecord:
    keys, line = json_record({key: as_json(text) for key, text in values.items()})
    return TextRecord(at, line, keys, origin)


def _row_values(row: _Row, match: re.Match[str]) -> dict[str, str] | None:
    groups = match.groupdict()
    items = groups.pop("items", None)
    values = {key: text for key, text in groups.items() if text is not None}
    if row.item is None:
        return values
    if row.until:
        items = (items or "").partition(row.until)[0].rstrip(" ")
    item_values = _item_values(row.item, row.key, items or "")
    return values | item_values if item_values else None


def _item_values(item: re.Pattern[str], key: str, text: str) -> dict[str, str] | None:
    """Return the values of a text that consists of items, or None for any other text."""
    values: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = item.match(text, at)
        if match is None or len(values) >= MAX_VALUES:
            return None
        groups = match.groupdict()
        name = key.format(**groups)
        values[name] = match["value"]
        if groups.get("std") is not None:
            values[f"{name}-std"] = match["std"]
        at = match.end()
    return values


def _pair_values(line: str) -> dict[str, str] | None:
    """Return the values of a line that consists of pairs, perhaps behind `Epoch 3/10`."""
    values: dict[str, str] = {}
    at = 0
    head = _HEAD.match(line)
    if head is not None:
        values[head["word"].lower()] = head["number"]
        at = head.end()
    first = at
    pairs = 0
    while at < len(line):
        match = _PAIR.match(line, at)
        if match is None or len(values) >= MAX_VALUES:
            return None
        if at == first and _NO_METRIC.fullmatch(match["key"]):
            return None
        if match["unit"] in _UNITS:
            values[match["key"]] = match["value"]
            pairs += 1
        at = match.end()
    return values if pairs else None


def _dict_values(line: str) -> dict[str, str] | None:
    """Return the numbers at the top level of a Python dict, or None if there are none."""
    values: dict[str, str] = {}
    at = 1
    while True:
        match = _ITEM.match(line, at)
        if match is None or len(values) >= MAX_VALUES:
            return None
        number = match["value"] or match["wrapped"]
        if number is not None:
            values[match["key"]] = number
        at = match.end()
        if match["end"] == "}":
            return values if at == len(line) and values else None
