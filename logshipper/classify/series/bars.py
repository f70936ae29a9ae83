"""Reads the data of progress bars: description, count and the pairs behind them. Pure."""

import re

from logshipper.classify.series.numbers import SHORT_LITERAL, as_json

MAX_CHARACTERS = 1024  # a longer line is no bar
_BAR = re.compile(
    r"[█▉▊▋▌▍▎▏━╸╺░▒▓■□●○]{2,}|\|(?! +- )[#=>. █▉▊▋▌▍▎▏-]{3,}\||\[[#=>.\s-]{4,}\]"
    r"|(?<![0-9.])[0-9]{1,3}%\|"  # no cell of a table
)
_CLOCK = re.compile(r"\[?[0-9?]{1,9}:[0-9?]{2}(?::[0-9?]{2})?(?:\s?[<•]\s?[-0-9:?]{1,20})?")
_RATE = re.compile(r"(?<![\w.])[?0-9.]{1,20}\s?[A-Za-z]{0,20}/(?:s|it|step|epoch|batch)\b")
_COUNT = re.compile(r"(?<![\w./:])([0-9]{1,20})\s?/\s?([0-9]{1,20}|\?)(?![\w/])")
_COUNT_BEFORE = re.compile(
    r"(?:^|\s|\[)([0-9]{1,20})/([0-9]{1,20})\]?\s{0,9}(?:[0-9]{1,3}%\|?)?\s{0,9}$"
)
_PAIR = re.compile(
    r"(?P<key>[A-Za-z_][\w./@ -]{0,40}?(?:\([\w%/]{1,9}\))?)\s?[=:]\s{0,3}"
    rf"(?P<value>{SHORT_LITERAL}|nan|inf)(?![\w:/.])"
)
_EPOCH = re.compile(r"\b[Ee]poch\s?[:#]?\s?\[?(?P<number>[0-9]{1,20})")
_TIME = re.compile(r"(?<![\w.:=]) [0-9.]{1,12}(?:s|ms|us|m|h)\b")
_SKIPPED = frozenset("eta elapsed remaining it/s s/it".split())
_BAR_END = re.compile(rb":?\s{0,9}[0-9]{1,3}%\s?\|.*|\s{0,9}(?:\xe2[\x94-\x97].){2}.*")


def without_bar(line: bytes) -> bytes:
    """Return the text before a bar."""
    return _BAR_END.sub(b"", line).rstrip()


def read(text: str) -> dict[str, str] | None:
    """Return a bar's values as JSON numbers by name; None for a line that is no bar."""
    bar = _BAR.search(text) if len(text) <= MAX_CHARACTERS else None
    if bar is None:
        return None
    before, behind = text[: bar.start()], text[bar.end() :]
    plain = _TIME.sub(" ", _RATE.sub(" ", _CLOCK.sub(" ", behind)))
    count = _COUNT.search(plain) or _COUNT_BEFORE.search(before)
    pairs = _pairs(_COUNT.sub("  ", plain))
    for name, number in _pairs(before).items():
        if name.lower() != "epoch":
            pairs.setdefault(name, number)
    if not pairs:
        return {}
    values: dict[str, str] = {}
    epoch = _EPOCH.search(before)
    if epoch is not None:
        values["epoch"] = as_json(epoch["number"])
    if count is not None:
        values["count"] = as_json(count[1])
    return values | pairs


def _pairs(text: str) -> dict[str, str]:
    """Return the pairs of a text as JSON numbers by name."""
    pairs = {match["key"].strip(" -,|•[]"): match["value"] for match in _PAIR.finditer(text)}
    return {
        name: as_json(number)
        for name, number in pairs.items()
        if name and name.lower() not in _SKIPPED
    }
