"""Reads the cells of a table's row, and the names of a header above it. Pure."""

import re

from logshipper.classify.series.names import MAX_COLUMNS, MAX_NAME_CHARACTERS, is_counter
from logshipper.classify.series.numbers import LITERAL, NUMBER
from logshipper.named_tuple import NamedTuple

_GAP = 3  # characters between a number and the name above it, at most
_NUMBER = rf"{LITERAL}|nan|NaN|inf|Inf|-inf|-Inf"
# a number with a unit or a mark, `5/10`, `0.8/0.2/1.6`; a gap; a time; a flag
_CELL = re.compile(
    rf"(?P<number>{_NUMBER})(?:%|[A-Za-zµ]{{1,4}}|/[0-9]{{1,20}}|\*|(?:/[0-9]{{1,20}}\.[0-9]{{1,20}}){{1,4}})?[,;]?"
    r"|(?P<gap>-{1,20}|\*{2,20}|\.{1,20}|[nN]/?[aA]|[TF])[,;]?"
    r"|(?P<time>[0-9]{1,9}(?::[0-9]{2}){1,2}(?:\.[0-9]{1,9})?|[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}(?:T\S{1,20})?)"
)
_CSV_CELL = re.compile(rf"(?:[A-Za-z*] )?(?P<number>{_NUMBER})(?: ?(?:%|[A-Za-zµ]{{1,5}}))?")
_CSV_TIME = re.compile(
    r"[0-9]{2,4}[-/:][0-9]{2}[-/:][0-9]{2}[-T0-9 :.Z+]{0,30}|[0-9]{1,4}:[0-9]{2}(?:\.[0-9]{1,9})?"
)
_WORD = re.compile(r"\S+")
_BAR = re.compile(r"(?<!\S)\|(?!\S)")
_WIDE = re.compile(r"\s{2,}|\t")
_QUOTED = re.compile(r'"([^"]{1,80})"')
_SENTENCE = frozenset("of the in for is are to and at on with by from".split())
_IS_NAME = re.compile(r".*[^\W\d_].*|[|#]{1,2}[^|]+[|]{1,2}|#")
_ROW_KEY = re.compile(rb"\x01(?:/\x01|[:.]\x01)*[A-Za-z%]{0,4}[,;|*]?|[-*.|]{1,20}|[TF]").fullmatch
_NUMBER_KEY = re.compile(rb"\x01(?:[/:]\x01)*[A-Za-z%]{0,4}[,;|*]?").fullmatch
# nearly LEAST_ALIGNED row keys in succession: one search instead of a look at each word
_MAY_ALIGN = re.compile(rb"(?:^|(?<= ))(?:(?:\x01[^ ]*|[-*.|]{1,20}|[TF])(?: |$)){3}").search
_LABEL_WORD = re.compile(rb"[A-Za-z][\w+-]{0,15}:?").fullmatch
LEAST_ALIGNED = 3  # numbers below words
_MAX_LABEL_WORDS = 6
_LEAST_INNER = 4  # characters of a word behind a row's number, unlike the name of an element
_MARKS = "#@*"  # of a row or a header
SEPARATORS = (",", ";", "\t", "|")


class Cell(NamedTuple):
    """A cell of a row."""

    text: str
    number: str  # "" for a gap, a time or a flag
    begin: int  # characters from the line's begin
    end: int
    is_time: bool = False
    is_word: bool = False


class Row(NamedTuple):
    """The cells of a line. separator: a sign between all cells, "" for blanks."""

    label: str  # words before the cells
    cells: tuple[Cell, ...]
    separator: str
    rest: str = ""  # the first word behind them


class Header(NamedTuple):
    """Names of columns. spans: their places in the line, if cells stand below them."""

    names: tuple[str, ...]
    separator: str
    spans: tuple[tuple[int, int], ...] = ()

    def cells(self, row: Row) -> tuple[Cell | None, ...] | None:
        """Return the cell of each column; None if the row is not of this table."""
        if row.separator != self.separator:
            return None
        if len(row.cells) == len(self.names) and not row.rest:
            return row.cells
        if not self.spans:
            return None
        places = _places(row.cells, self.spans)
        if places is None:
            return None
        found: list[Cell | None] = [None] * len(self.names)
        for cell, place in zip(row.cells, places, strict=True):
            if place is not None:
                found[place] = cell
        return tuple(found)


def may_be_row(key: bytes) -> bool:
    """Return whether a line with MARK for each number may be a row, perhaps behind a label."""
    words = key.split(b" ")
    label, *cells = words
    # the last cell is no word in most lines that are no rows
    if (
        cells
        and _ROW_KEY(cells[-1])
        and all(map(_ROW_KEY, cells))
        and (_ROW_KEY(label) or _LABEL_WORD(label))
    ):
        return True
    if any(key.count(sign) > (b" " in key) for sign in (b",", b";", b"|")):
        return True
    if not _MAY_ALIGN(key):
        return False
    numbers = 0
    for word in words:
        if numbers >= LEAST_ALIGNED:
            return True
        numbers = numbers + (_NUMBER_KEY(word) is not None) if _ROW_KEY(word) else 0
    return numbers >= LEAST_ALIGNED


def read_row(text: str) -> Row | None:
    """Return the cells of a row; None for a line that is none."""
    for separator in SEPARATORS:
        if text.count(separator) > (" " in text):
            row = _separated(text, separator)
            if row is not None:
                return row
    body = text.replace("|", " ")
    cells: list[Cell] = []
    begin = 0
    rest = ""
    for word in _WORD.finditer(body):
        match = _CELL.fullmatch(word[0])
        if match is None:
            is_full = sum(bool(cell.number or cell.is_time) for cell in cells) >= LEAST_ALIGNED
            if len(word[0]) == 1 and (is_full or (cells and word[0] in _MARKS)):
                rest = "-"  # a flag of a number
                continue
            if is_full:
                rest = word[0]
                break
            if len(cells) == 1 and not body[:begin].strip() and len(word[0]) >= _LEAST_INNER:
                cells.append(Cell(word[0], "", *word.span(), is_word=True))
                continue
            cells.clear()
            begin = word.end()
            if len(body[:begin].split()) > _MAX_LABEL_WORDS:
                return None
            continue
        cells.append(
            Cell(word[0], match["number"] or "", *word.span(), is_time=bool(match["time"]))
        )
    numbers = sum(bool(cell.number) for cell in cells)
    if numbers < 2 or len(cells) > MAX_COLUMNS:
        return None
    label = " ".join(word for word in body[:begin].split() if word not in _MARKS)
    return Row(label, tuple(cells), "", rest)


def _separated(text: str, separator: str) -> Row | None:
    """Return the cells of a row with a separator between all of them."""
    cells = []
    begin = 0
    numbers = 0
    for part in _parts(text, separator):
        cell = part.strip().strip('"')
        match = _CSV_CELL.fullmatch(cell)
        is_time = match is None and _CSV_TIME.fullmatch(cell) is not None
        if match is None and not is_time and any(mark in cell[:-1] for mark in "=:({["):
            return None
        if separator == "|" and match is None and cell[:1].isdigit():
            return None  # several numbers
        if len(cell) > MAX_NAME_CHARACTERS:
            return None
        numbers += match is not None
        cells.append(Cell(cell, match["number"] if match else "", begin, begin, is_time=is_time))
        begin += len(part) + 1
    if numbers < 2 or len(cells) > MAX_COLUMNS or numbers * 2 < len(cells):
        return None
    has_label = separator == "|" and cells[0].text[:1].isalpha() and not cells[0].number
    return Row(cells[0].text if has_label else "", tuple(cells), separator)


def _parts(text: str, separator: str) -> list[str]:
    return (text.strip("| ") if separator == "|" else text).split(separator)


def stacked(upper: str, lower: str) -> str:
    """Return two lines of a header in one: the lower one, with words of the upper one beside its
    words."""
    line = lower.ljust(len(upper))
    for word in _WORD.finditer(upper):
        begin, end = max(word.start() - 1, 0), word.end() + 1
        if not line[begin:end].strip():
            line = line[: word.start()] + word[0] + line[word.end() :]
    return line


def read_header(text: str, row: Row, *, may_align: bool) -> Header | None:
    """Return the header of a row, if this text is one. may_align: its words may stand above the
    numbers."""
    if row.separator:
        parts = _parts(text.strip().lstrip("#"), row.separator)
        cells = [cell.strip().strip('"') for cell in parts]
        names = _checked(cells, len(row.cells))
        return None if names is None else Header(names, row.separator)
    names = None if row.rest else _names(text, row)
    header = _aligned(text, row) if may_align else None
    if names is not None and (header is None or header.names != names):
        header = Header(names, "")
    if header is None or (row.cells[1].is_word and not is_counter(header.names[0])):
        return None
    return header


def _names(header: str, row: Row) -> tuple[str, ...] | None:
    """Return as many names as the row has cells."""
    count = len(row.cells)
    label = row.label
    text = header.strip()
    text = _BAR.sub(" ", text).strip().lstrip(_MARKS).strip()
    words = text.split()
    if not words:
        return None
    if " " in label:
        return None
    if label and len(words) == count + 1 and (words[0].endswith(":") or not label.endswith(":")):
        return _checked(words[1:], count)
    if label and not label.endswith(":"):
        return None
    if not _WIDE.search(text) and (words[-1].startswith("(") or not _SENTENCE.isdisjoint(words)):
        return None  # a sentence or a title
    for parts in (
        _QUOTED.findall(text),
        words,
        [cell for cell in _WIDE.split(text) if cell],
        [cell.strip() for cell in text.split(",")],
    ):
        names = _checked(parts, count)
        if names is not None:
            return names
    pitch = row.cells[0].end
    if count > 1 and all(cell.end == pitch * at for at, cell in enumerate(row.cells, 1)):
        parts = [header[at * pitch : (at + 1) * pitch].strip() for at in range(count)]
        if len(header.rstrip()) <= pitch * count:
            return _checked(parts, count)
    return None


def _aligned(header: str, row: Row) -> Header | None:
    """Return the names that stand above the row's cells."""
    text = _BAR.sub(" ", header)
    words = list(_WORD.finditer(text))
    label_words = len(row.label.split())
    if words and words[0][0] in _MARKS:
        words = words[1:]
    if row.label and [word[0] for word in words[:label_words]] == row.label.split():
        words = words[label_words:]  # a prefix of all lines
    if len(row.cells) < LEAST_ALIGNED or not LEAST_ALIGNED <= len(words) <= MAX_COLUMNS:
        return None
    if sum(word[0] in _SENTENCE for word in words) * 5 > len(words):
        return None
    if (
        words[-1][0].endswith(".")
        or any(word[0].endswith(":") for word in words)
        or any(word[0][0].isdigit() for word in words)
    ):
        return None
    spans = tuple(word.span() for word in words)
    places = _places(row.cells, spans)
    if places is None:
        return None
    taken = {place for cell, place in zip(row.cells, places, strict=True) if cell.number}
    # words beside a name, without a cell of their own, belong to it: `prim res`
    names: list[str] = []
    columns: list[tuple[int, int]] = []
    for at, word in enumerate(words):
        begin, end = word.span()
        is_close = bool(columns) and begin - columns[-1][1] == 1
        if is_close and not {at - 1, at} <= taken:
            names[-1] += f" {word[0]}"
            columns[-1] = columns[-1][0], end
        else:
            names.append(word[0])
            columns.append((begin, end))
    checked = _checked(names, len(names))
    if checked is None or names.count(names[0]) > 1 or any(map(_is_torn, names)):
        return None
    found = Header(checked, "", tuple(columns))
    cells = found.cells(row)
    if cells is None or sum(cell is not None and bool(cell.number) for cell in cells) < 2:
        return None
    return found


def _is_torn(name: str) -> bool:
    """Return whether a name is a piece of a sentence, such as `(in`."""
    return name.count("(") != name.count(")") or "=" in name or name.endswith(",")


def _places(cells: tuple[Cell, ...], spans: tuple[tuple[int, int], ...]) -> list[int | None] | None:
    """Return the column of each cell, by the spans of the names above; None if too few numbers have
    one. Columns rise."""
    places: list[int | None] = []
    last = -1
    for cell in cells:
        best: tuple[int, int, int] | None = None
        for at in range(last + 1, len(spans)):
            begin, end = spans[at]
            gap = max(begin - cell.end, cell.begin - end, 0)
            if begin - cell.end > _GAP:
                break
            if gap <= _GAP:
                key = (gap, min(abs(end - cell.end), abs(begin - cell.begin)), at)
                best = key if best is None or key < best else best
        places.append(None if best is None else best[2])
        last = last if best is None else best[2]
    if places[0] is None:  # an index without a name: a listing
        return None
    numbers = [place for cell, place in zip(cells, places, strict=True) if cell.number]
    missing = sum(place is None for place in numbers)
    return None if missing * 4 > len(numbers) else places


def _checked(cells: list[str], count: int) -> tuple[str, ...] | None:
    if len(cells) != count:
        return None
    names: list[str] = []
    for cell in cells:
        name = " ".join(cell.split()).strip(":,;")
        if (
            not _IS_NAME.fullmatch(name)
            or len(name) > MAX_NAME_CHARACTERS
            or name.startswith("(")
            or NUMBER.fullmatch(name.encode())
        ):
            return None
        while name in names:
            name += "'"
        names.append(name)
    return tuple(names)
