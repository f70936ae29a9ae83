"""Parses blocks of JSON lines to exact Arrow columns, one per key. Needs pyarrow.

Records of one job are alike, so most lines of a block share a shape: the texts before their values.
Arrow's reader of CSV cuts such lines at their commas. Each piece must begin with the shape's text,
and its rest must be one plain value. Lines without this proof are parsed singly
(logshipper_observe/model/records.py).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from logshipper.classify.metadata import GAPS
from logshipper_observe.model.records import MEMBER, Path, cell, flat, is_number

Array: TypeAlias = Any  # pyarrow has no types
Columns: TypeAlias = dict[Path, Array]

# the type of columns of numbers that no double holds exactly, each as its text
NUMBER_TEXT = pa.large_string()
EXACT_INTEGER = 1 << 53  # up to here a double is an integer's own value
_NUMERALS = b"0123456789.eE+-"
_SAFE_CHARS = 15  # a number has no more digits than that, then: any double gives them back
_NO_END = (1 << 31) - 1
_MIN_ALIKE = 32  # lines of one shape that repay a separate pass
_MAX_SHAPES = 8
_KINDS = (pa.int64(), pa.float64(), pa.bool_(), pa.string())


@dataclass(slots=True)
class _Shape:
    """Lines that differ in their values only."""

    paths: list[Path]
    pieces: list[bytes]  # the text before each value
    tail: bytes  # the text behind the last value
    kinds: list[Any]  # types that the values had last. Any: Arrow's types


@dataclass(slots=True)
class ColumnMaker:
    """Makes columns of blocks of lines; remembers the shapes of the last ones."""

    _last: _Shape | None = field(default=None)

    def columns(self, text: str, rows: int) -> Columns:
        """Return columns as long as the block, in the order of their keys' first appearance.

        text: `rows` lines, with an LF between them. Types are int64, double (with NaN and
        infinities) and bool if these hold every value exactly, NUMBER_TEXT for other numbers, else
        the values' text; null for missing keys, and null.
        """
        block = f"{text}\n".encode("utf-8", "surrogatepass")
        if self._last is not None:
            columns = _of_shape(block, rows, self._last)
            if columns is not None:
                return columns
        lines = text.split("\n")
        columns = self._of_shapes(block, lines)
        return _one_by_one(lines) if columns is None else columns

    def _of_shapes(self, block: bytes, lines: Sequence[str]) -> Columns | None:
        """Parse each shape separately, and the rest line by line; None if their types conflict."""
        groups: dict[bytes, list[int]] = {}
        for at, skeleton in enumerate(block.translate(None, _NUMERALS).split(b"\n")[:-1]):
            groups.setdefault(skeleton, []).append(at)
        rest: list[int] = []
        parts: list[tuple[list[int], Columns]] = []
        for members in sorted(groups.values(), key=len, reverse=True):
            group_lines = [lines[at] for at in members]
            shape, columns = None, None
            if len(members) >= _MIN_ALIKE and len(parts) < _MAX_SHAPES:
                shape = _shape_of(group_lines[0])
            if shape is not None:
                text = "".join(f"{line}\n" for line in group_lines)
                columns = _of_shape(text.encode("utf-8", "surrogatepass"), len(members), shape)
            if columns is None:
                rest += members
                continue
            parts.append((members, columns))
            if len(parts) == 1:
                self._last = shape
        if rest:
            rest.sort()
            parts.append((rest, _one_by_one([lines[at] for at in rest])))
        return _merge(parts)


def _shape_of(line: str) -> _Shape | None:
    """The shape of a line of plain values; None of any other."""
    paths: list[Path] = []
    pieces: list[bytes] = []
    at = 0
    while member := MEMBER.match(line, at):
        key, value = member.groups()
        if not value or "\\" in key or "," in key:
            return None
        begin = member.start(2)
        # without the comma
        pieces.append(line[at + bool(pieces) : begin].encode("utf-8", "surrogatepass"))
        paths.append((key[1:-1],))
        at = begin + len(value)
    if not paths or len(set(paths)) < len(paths):
        return None
    return _Shape(paths, pieces, line[at:].encode(), [pa.int64()] * len(paths))


def _of_shape(block: bytes, rows: int, shape: _Shape) -> Columns | None:
    """The columns of a block; None where not every line is surely of this shape, with plain
    values."""
    if b"\\" in block or b"\r" in block:
        return None  # an escaped quote wouldn't end its string
    columns = _split_at_commas(block, len(shape.pieces))
    if columns is None or len(columns[0]) != rows:
        return None
    arrays = {}
    last = len(columns) - 1
    parts = zip(shape.paths, shape.pieces, columns, strict=True)
    for at, (path, piece, column) in enumerate(parts):
        if not pc.all(pc.starts_with(column, piece)).as_py():
            return None
        end = _NO_END
        if at == last:
            if not pc.all(pc.ends_with(column, shape.tail)).as_py():
                return None
            end = -len(shape.tail)
        try:
            texts = pc.cast(pc.binary_slice(column, len(piece), end), pa.string())
        except pa.ArrowInvalid:  # no UTF-8
            return None
        values = _plain(texts, shape.kinds[at])
        if values is None:
            return None
        shape.kinds[at] = values.type
        arrays[path] = values
    return arrays


def _split_at_commas(block: bytes, columns: int) -> Sequence[Array] | None:
    """The text between commas, a column each; None where some line has more or fewer."""
    names = [str(number) for number in range(columns)]
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(block),
            pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
            pa.csv.ParseOptions(delimiter=",", quote_char=False, ignore_empty_lines=False),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    return [column.combine_chunks() for column in table.columns]


def _plain(texts: Array, first: Any) -> Array | None:  # Any: Arrow's types
    """Convert JSON texts of one kind, or null; None for other texts. first: the kind to try first."""
    nulls = pc.equal(texts, "null")
    if pc.any(nulls).as_py():
        texts = pc.if_else(nulls, None, texts)
        if texts.null_count == len(texts):
            return texts
    for kind in (first, *(kind for kind in _KINDS if kind != first)):
        values = _as_kind(texts, kind)
        if values is not None:
            return values
    return None


def _as_kind(texts: Array, kind: Any) -> Array | None:
    if kind == pa.string():
        quoted = pc.and_(pc.starts_with(texts, '"'), pc.ends_with(texts, '"'))
        return pc.utf8_slice_codeunits(texts, 1, -1) if pc.all(quoted).as_py() else None
    if kind == pa.bool_():
        if not pc.all(pc.is_in(texts, pa.array(["true", "false", None]))).as_py():
            return None
        return pc.equal(texts, "true")
    try:
        values = pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None
    return values if kind == pa.int64() or _all_exact(texts, values) else None


def _all_exact(texts: Array, doubles: Array) -> bool:
    """Return whether each double reproduces the digits of its text."""
    long = pc.greater(pc.binary_length(texts), _SAFE_CHARS)
    unsure, shortest = pc.filter(texts, long), pc.cast(pc.filter(doubles, long), pa.string())
    differ = pc.not_equal(unsure, shortest)  # in notation, at least
    unsure, shortest = pc.filter(unsure, differ), pc.filter(shortest, differ)
    unsure = pc.filter(unsure, pc.not_equal(_digits(unsure), _digits(shortest)))
    # doubles have NaN and infinities, but a too large number is none of them
    not_finite = pc.filter(texts, pc.invert(pc.is_finite(doubles)))
    gaps = pc.all(pc.is_in(not_finite, pa.array(GAPS)), skip_nulls=True, min_count=0).as_py()
    return bool(gaps) and all(is_exact(text) for text in pc.unique(unsure).to_pylist())


def _digits(numbers: Array) -> Array:
    """Significant digits. A text with those of its nearest double's shortest text is the same
    number."""
    return pc.utf8_trim(pc.replace_substring_regex(numbers, "[eE].*|[-.]", ""), "0")


def is_exact(number: str) -> bool:
    """Return whether a double reproduces the digits of a JSON number, written with as many, or as
    few as identify it."""
    value = float(number)
    digits = Decimal(number)
    if not digits:
        return True
    if value in (float("inf"), float("-inf"), 0.0):
        return False
    return (
        Decimal(repr(value)) == digits
        or Decimal(f"{value:.{len(digits.as_tuple().digits) - 1}e}") == digits
    )


def _one_by_one(lines: Sequence[str]) -> Columns:
    """The columns of any lines."""
    texts: dict[Path, list[str | None]] = {}
    for at, line in enumerate(lines):
        for path, value in flat(line).items():
            column = texts.get(path)
            if column is None:
                column = texts[path] = [None] * len(lines)
            column[at] = value
    return {path: _column(values) for path, values in texts.items()}


def _column(texts: Sequence[str | None]) -> Array:
    """An array of JSON texts; values of several kinds are text."""
    values = [None if text == "null" else text for text in texts]
    non_null = [text for text in values if text is not None]

    def array(convert: Callable[[str], object], kind: Any) -> Array:
        return pa.array([None if text is None else convert(text) for text in values], kind)

    if all(text in ("true", "false") for text in non_null) and non_null:
        return array(lambda text: text == "true", pa.bool_())
    if non_null and all(text in GAPS or is_number(text) for text in non_null):
        plain = array(str, pa.string())
        numbers = (_as_kind(plain, kind) for kind in (pa.int64(), pa.float64()))
        exact = next((column for column in numbers if column is not None), None)
        return plain.cast(NUMBER_TEXT) if exact is None else exact
    return array(cell, pa.string())


def _merge(parts: Sequence[tuple[list[int], Columns]]) -> Columns | None:
    """Join groups of a block's lines; None if their types conflict."""
    if len(parts) == 1:
        return parts[0][1]
    order = pc.sort_indices(pa.array([at for members, _ in parts for at in members], pa.int32()))
    paths = dict.fromkeys(
        path for _, columns in sorted(parts, key=lambda part: part[0][0]) for path in columns
    )
    arrays = {}
    for path in paths:
        # of each part None without values
        values = [
            array
            if (array := columns.get(path)) is not None and array.null_count < len(array)
            else None
            for _, columns in parts
        ]
        present = [array for array in values if array is not None]
        kinds = {array.type for array in present}
        kind = common_type(kinds)
        if kind is None or (len(kinds) > 1 and max(map(largest_integer, present)) > EXACT_INTEGER):
            return None
        pieces = [
            pa.nulls(len(members), kind) if array is None else array.cast(kind)
            for (members, _), array in zip(parts, values, strict=True)
        ]
        arrays[path] = pa.concat_arrays(pieces).take(order)
    return arrays


def common_type(kinds: Iterable[Any]) -> Any | None:
    """The type that holds values of all these as they are: of several ones only integers and
    doubles have one."""
    types = set(kinds)
    if len(types) < 2:
        return types.pop() if types else pa.string()
    return pa.float64() if types == {pa.int64(), pa.float64()} else None


def largest_integer(array: Array) -> int:
    """The largest absolute value of an array of integers; 0 of any other."""
    if array.type != pa.int64():
        return 0
    extremes = pc.min_max(array)
    return int(max(abs(extremes["min"].as_py() or 0), abs(extremes["max"].as_py() or 0)))
