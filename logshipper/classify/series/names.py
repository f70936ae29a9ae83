"""Names the numbers of a line by the words around them. Pure."""

import re
from collections.abc import Iterable, Sequence

from logshipper.named_tuple import NamedTuple

MAX_NAME_CHARACTERS = 64
MAX_NAME_WORDS = 6
MAX_COLUMNS = 100  # of a line; further numbers get no name

_COUNTERS = frozenset(
    "epoch epochs step steps iteration iterations iter iters it itr round batch episode episodes "
    "generation gen time timestep timesteps cycle cycles update updates sweep pass trial frame "
    "sample samples progress nstep scf ionic increment depth".split()
)
# with one of these words, a name of a counter is one of a measurement
_MEASURES = frozenset(
    "no number num avg average mean max min per elapsed last best cpu wall".split()
)
# numbers behind these words measure nothing
_NO_SERIES = frozenset(
    "port pid ppid uid gid line lines code status errno signal version release revision rev date id "
    "address addr row column col page chapter section seed rank returned job task gpu cuda device "
    "node dof thread worker year http https serial irq bus slot offset build".split()
)
# a number behind one of these at a line's begin numbers a row of a listing
ATOMS = frozenset("atom center vector orbital band".split())
LISTED = ATOMS | frozenset("mode state no no. pid".split())
# names of a vector's and a tensor's parts
_PARTS = (frozenset("xyz"), frozenset(("xx", "yy", "zz")))
_FILE = re.compile(r"(?:^|\s)/|\.(?:py|c|cc|cpp|h|go|rs|java|f90|jl)$")
_UNITS = frozenset(
    "% s ms us µs ns sec secs second seconds min mins minute minutes m h hour hours hrs days day d "
    "B KB kB MB GB TB KiB MiB GiB TiB K M G T k Hz kHz MHz GHz eV meV Ry Ha Hartree hartree a.u. au "
    "Kelvin bar kbar Pa kPa MPa GPa atm A Å fs ps N J kJ W kW V mV deg degrees dB px rad cm mm nm um x".split()
)
_RATE = re.compile(r"(?:[A-Za-zµ%]{1,16}/[A-Za-zµ]{1,16}|fps|FPS)(?![\w/])")
_NAME_BEHIND = re.compile(r" (?P<name>[A-Za-z]{2,16}(?: [A-Za-z]{2,16}){0,2})(?:,|$)")  # 12.3 tps,
_UNIT = re.compile(r" ?(?P<unit>%|[A-Za-zµÅ°.]{1,12}(?:/[A-Za-zµÅ]{1,12})?)(?![\w/]|\s?=)")
_LEVEL = (
    r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|[Ii]nfo|[Dd]ebug|[Nn]otice|[Ww]arning"
    r"|[Ee]rror)"
)
# the default form of Python's logging, LEVEL:LOGGER:TEXT, and a level of any other form
_LOGGER = re.compile(rf"{_LEVEL}:[\w.]{{1,80}}:")
# an error directly before a number is a name
_LEVEL_WORD = re.compile(rf"(?<![^\s|\[(])(?![Ee]rror\W*$)[|\[(<]?{_LEVEL}[\]:|)>]?(?!\S)")
# ends a part of a text; the last part before a number names it
_BREAK = re.compile(
    r"[;|\"`>{}\[\]]+|(?<!\w)'|'(?!\w)|(?<!\w)[()]|\)(?=\s|$)|\s[-–—·•]{1,9}\s|\s{2,}|[:=](?=\s)|\.\s(?=[A-Z])|->|\t"
    r"|,(?![\w%]{1,20}\x03)"  # as in norm(t1,t2)
)
_EDGE = " \t:=#@~*-–_/\\.<!?&+^$|"
_INNER = re.compile(r"\]?[\s,]{0,3}[\[(]\s{0,9}")  # between an epoch and its iteration
_OF_TOTAL = re.compile(r"\s{0,9}/\s{0,9}|\sof\s")  # between a counter and its limit
_AVERAGE = frozenset(("(", "(avg:", "(avg", "(mean"))
# parentheses in a name, as in `time per iteration (ms):`, stand between these two characters
_OPEN, _CLOSE = "\x02", "\x03"
_PAREN = re.compile(r"(\s?)\(([A-Za-z][\w/%., -]{0,20})\)")
_NORM = re.compile(r"\|\w{1,20}\|$")  # |grad|
_WORD = re.compile(r"[^\W\d_]{2,}")
_ABBREVIATION = re.compile(r"[^\W\d_]\.$")  # its dot belongs to the name, unlike a row of dots
_GLUE = frozenset(
    ("", ":", "h:", "m:", ".", "-", ",", "T", "x", "_", "+")
)  # inside dates, versions, addresses


class Column(NamedTuple):
    """A number of a line that is a value."""

    at: int  # its place among the line's numbers
    name: str
    is_strong: bool = False  # a sign such as `=` or `:` stands between name and number
    is_counter: bool = False  # the name is one of a counter


class Reading(NamedTuple):
    """The values of a line, and the rest of it."""

    columns: tuple[Column, ...]
    free_words: int  # words that name no number
    nameless: int  # numbers without a name


class _Name(NamedTuple):
    """The name before a number."""

    text: str = ""
    is_strong: bool = False
    words: int = 0


_NO_NAME = _Name()


def read(texts: Sequence[str], numbers: Sequence[str]) -> Reading:
    """Name the numbers of a line. texts: those around the numbers."""
    columns: dict[str, Column] = {}
    free_words = nameless = unit_end = 0
    last = ""  # name of the last number
    section, begin = "", 0  # the last word that is in no name, and the first column behind it
    for at, number in enumerate(numbers[:MAX_COLUMNS]):
        before, right = texts[at][unit_end:], texts[at + 1]
        if _is_part(at, texts):
            unit_end = 0
            free_words += _count_words(before)
            last = ""
            continue
        unit_end = _unit_end(right)
        if _OF_TOTAL.fullmatch(before) or (at and _is_same(before, right)):
            last = ""
            continue
        if before.rstrip() == "):":
            # `field decay(t = 0.5): 0.1`; `lat (ms,95%): 3.2`
            head, _, inner = texts[at - 1].rpartition("(")
            if inner.rstrip().endswith("="):
                before = f"{head}:"
            elif before != texts[at]:
                before = texts[at - 1] + numbers[at - 1] + texts[at]
        name = _name_of(before, right, last if "." in number else "", is_first=at == 0)
        if at == 0 and name.text.lower() in LISTED:
            return Reading((), 0, len(numbers))
        if not name.text and last and is_counter(last) and _INNER.fullmatch(before):
            name = _Name("iteration", is_strong=True)
        is_first_of_list = before.strip() == ":" and "." in number
        may_be_behind = is_first_of_list or (before.strip() == "," and ("." in number or columns))
        if may_be_behind and not name.text and not unit_end:
            behind = _NAME_BEHIND.match(right)
            if behind is not None:
                name = _Name(behind["name"])
                unit_end = behind.end("name")
        free_words += max(_count_words(before) - name.words, 0)
        last = name.text
        if words := _WORD.findall(before.rpartition(last)[0] if last else before):
            section, begin = words[-1], len(columns)
        if last in [*columns][:begin]:  # train: loss 0.5 valid: loss 0.7
            last = f"{section} {last}"
        nameless += not last
        is_weak = len(last) == 1 and not name.is_strong and len(columns) < 3
        is_item = before.endswith("#") and not is_counter(last)  # in modes #3, #1
        if (
            last
            and not is_weak
            and not is_item
            and last not in columns
            and _NO_SERIES.isdisjoint(last.lower().split())
        ):
            columns[last] = Column(at, last, name.is_strong, is_counter(last))
    free_words += _count_words(texts[-1][unit_end:])
    return Reading(tuple(columns.values()), free_words, nameless)


def is_counter(name: str) -> bool:
    """Return whether a name is one of a counter: `Epoch`, `iteration #`, `global step`."""
    words = [word for word in re.split(r"[\s#._()]+", name.lower()) if word]
    if not words or not _MEASURES.isdisjoint(words):
        return False
    if "time" in words:
        return len(words) == 1
    return words[-1] in _COUNTERS or words[0] in _COUNTERS


def are_coordinates(names: Iterable[str]) -> bool:
    """Return whether names are those of coordinates: without a counter, a listing."""
    lower = {name.lower() for name in names}
    return any(parts <= lower for parts in _PARTS)


def words_of(text: bytes) -> list[str]:
    """Return the words of a text, in order."""
    return re.findall(r"[^\W\d_]\w*", text.decode("utf-8", "replace"))


def _is_part(at: int, texts: Sequence[str]) -> bool:
    """Return whether a number is part of a word, a date, a version or an address."""
    left, right = texts[at], texts[at + 1]
    is_last = at + 2 == len(texts)
    if left and (left[-1].isalnum() or left[-1] == "_"):
        return True
    if (at and left in _GLUE) or (not is_last and right in _GLUE):
        return True
    if right[:1].isalpha() or right[:1] == "_":
        return not _unit_end(right) and not _RATE.match(right)
    # the last part of 2/3/2026
    return left == "/" and (right == "/" or (at > 1 and texts[at - 1] == "/"))


def _is_same(before: str, right: str) -> bool:
    """Return whether a number repeats the one before in another unit: `0.6 seconds = 0.01 minutes`."""
    word, sign, _ = before.partition(" =")
    return bool(sign and _unit_end(right)) and word.strip() in _UNITS - _MEASURES


def _unit_end(text: str) -> int:
    """Return the end of the unit at a text's begin; 0 without a unit."""
    match = _UNIT.match(text)
    if match is None or not (match["unit"] in _UNITS or _RATE.fullmatch(match["unit"])):
        return 0
    rest = text[match.end() :]
    if rest == ":" or (rest[:1] == ":" and text[0] == " "):
        return 0  # 0h:0m:1s, step 3 x: 0.5
    return match.end()


def _name_of(before: str, right: str, last: str, *, is_first: bool) -> _Name:
    """Name a number. before, right: the texts around it; last: the name whose average it may be."""
    if last and right[:1] == ")" and before.strip() in _AVERAGE:
        return _Name(f"{last} avg", is_strong=True)
    name = _name_before(before, is_first=is_first)
    if not name.text:
        rate = _RATE.match(right.lstrip())
        if rate is not None:
            return _Name(rate[0])
    return name


def _name_before(text: str, *, is_first: bool) -> _Name:
    """Return the name at a text's end. is_first: the text begins the line."""
    if is_first and (logger := _LOGGER.match(text)) is not None:
        text = text[logger.end() :]
    text = _PAREN.sub(rf"\1{_OPEN}\2{_CLOSE}", _LEVEL_WORD.sub("  ", text)).rstrip(" \t")
    signed = text.rstrip(" \t([{#")
    if not _NORM.search(signed):
        signed = signed.rstrip(" \t([{|#")
    if signed.endswith(("->", "=>", ">=", "<=", "==", "!=", "::")):
        return _NO_NAME
    body = signed.rstrip(" \t:=~<")
    if body.count("(") > body.count(")"):
        body = body.rpartition("(")[2]
    norm = _NORM.search(signed.rstrip(" \t:=~<"))
    if norm is not None:
        return _Name(norm[0], is_strong=True, words=1)
    if not body or not (body[-1].isalnum() or body[-1] in f"{_CLOSE})%_]²#.°'\""):
        return _NO_NAME
    parts = [part for part in _BREAK.split(body) if part.strip(_EDGE)]
    words = parts[-1].strip(_EDGE).split() if parts else []
    if words and _ABBREVIATION.search(body):
        words[-1] += "."
    is_strong = signed.endswith(("=", ":", "<")) or text.endswith("|")
    if len(words) > MAX_NAME_WORDS:
        # the begin of a sentence says less
        words = words[-MAX_NAME_WORDS if is_strong else 2 - MAX_NAME_WORDS :]
    name = " ".join(words).replace(_OPEN, "(").replace(_CLOSE, ")").strip()
    if len(name) > MAX_NAME_CHARACTERS or not any(map(str.isalpha, name)) or _FILE.search(name):
        return _NO_NAME
    return _Name(name, is_strong, len(words))


def _count_words(text: str) -> int:
    return len(_WORD.findall(text))
