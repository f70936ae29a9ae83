"""The level of a line, in loggers' formats. A level's word in a sentence, or as the name of a
number, does not count."""

import re

MAX_HEAD = 300  # characters of a line in which its level stands
DEBUG, INFO, WARNING, ERROR, CRITICAL = "debug", "info", "warning", "error", "critical"
_NAMES_BY_LEVEL = {
    DEBUG: "trace debug",
    INFO: "info notice success",
    WARNING: "warn warning",
    ERROR: "err error severe",
    CRITICAL: "critical crit fatal alert emerg panic",
}
_LEVELS = {name: level for level, names in _NAMES_BY_LEVEL.items() for name in names.split()}
_NAMES = "|".join(sorted(_LEVELS, key=len, reverse=True))
_CAPITALS = _NAMES.upper()
_GLOG = re.compile(r"([IWEF])(?:[0-9]{4}|[0-9]{8}) [0-9]{2}:[0-9]{2}:[0-9]{2}")
_GLOG_LEVELS = {"I": INFO, "W": WARNING, "E": ERROR, "F": CRITICAL}
# text before a level: a time, brackets, a number, a name and a separator
_BEFORE = re.compile(
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ,]{0,2}|\d\d[-/]\d\d(?:[-/]\d{2,4})?[T ]|[A-Z][a-z]{2} [ \d]\d )?"
    r"\d\d:\d\d(?::\d\d)?[.,]?\d{0,9}(?:Z| ?[+-]\d\d:?\d\d)?(?=[\s|\]:,-])[\s|:,-]{0,5}"
    r"|\[[^\[\]]{0,60}\]:?[\s|:,-]{0,5}"
    r"|[\w./-]{1,60}(?: - | {0,30}\| )"
    r"|[|-] "
)
_BRACKETED = re.compile(rf"[\[<(]\s{{0,4}}({_NAMES})\s{{0,8}}[\])>]", re.IGNORECASE)
_CAPITAL = re.compile(rf"({_CAPITALS})(?=[\s:\]|)>]|$)")
# bare, without a time or a separator: no heading, and no name of a number
_NO_LEVEL = re.compile(r"\s{0,8}(?:[=\d]|[-+.]\d|[A-Z]{2,}(?![A-Za-z])|$)")
_COLON = re.compile(
    r"(?:[^\s:]{1,200}:\d{1,9}(?::\d{1,9})?: (?:fatal )?)?"
    rf"({_NAMES}):\s(?!\s{{0,4}}[-+.]?\d)",
    re.IGNORECASE,
)
_LOGFMT = re.compile(
    rf"""(?<![\w.])(?:level|lvl|severity)=["']?({_NAMES})\b(?!\.)""", re.IGNORECASE
)
_JSON = re.compile(rf'"(?:level|lvl|severity)"\s?:\s?"({_NAMES})"', re.IGNORECASE)


def level_of(line: str) -> str:
    """`debug`, `info`, `warning`, `error` or `critical`; "" without one. line: uncoloured."""
    head = line[:MAX_HEAD].lstrip()
    glog = _GLOG.match(head)
    if glog is not None:
        return _GLOG_LEVELS[glog[1]]
    keyed = _JSON if head.startswith("{") else _LOGFMT
    match = _COLON.match(head) or _after_prefix(head) or keyed.search(head)
    return "" if match is None else _LEVELS[match[1].lower()]


def _after_prefix(head: str) -> re.Match[str] | None:
    at = 0
    for _ in range(6):
        match = _BRACKETED.match(head, at) or _CAPITAL.match(head, at)
        if match is not None:
            is_bare = (
                at == 0 and match.re is _CAPITAL and head[match.end() : match.end() + 1] != ":"
            )
            return None if is_bare and _NO_LEVEL.match(head, match.end()) else match
        before = _BEFORE.match(head, at)
        if before is None:
            return None
        at = before.end()
    return None
