"""LogQL that turns metadata records into JSON objects of numbers, for graphs:
{"epoch":3,"opt.beta":2}.

Loki's JSON stage does not tell 0.1 from "0.1", and Grafana takes a field's type from its first
value only. So a template decodes the line, walks it as deep as graphs do, and keeps JSON's numbers:
no strings, booleans, nulls. Numbers become floats, as in browsers anyway. NaN and infinities, which
JSON lacks, become strings. Template variables begin with `l`, unlike all variables of dashboards,
which Grafana would replace.
"""

from collections.abc import Callable

from logshipper.config import AUTO
from logshipper_grafana.parts import key_names
from logshipper_ingest.model.metadata_keys import AUTO_MARK

MAX_DEPTH = 4  # logshipper_ingest.model.metadata_keys.MAX_DEPTH
TIME_FIELD = "printed at"
RECORD_FIELD = "record number"  # X, where no key is
SERIES_FIELD, POINT_FIELD = "lsseries", "lspoint"
_IS_NUMBER = 'eq $lt "float64"'
_IS_OBJECT = 'eq $lt "map[string]interface {}"'


# Replaces a blank in a series' name, and looks like one: Grafana from 11.1 on splits names at white
# space, and drops common words of a graph (so `loss` and `loss total` would become nothing and
# `total`).
BLANK = "\u2800"
# series of graphs without data: hidden; invisible where newer Grafanas would show an error otherwise
NOTHING, NO_KEY = f"nothing{BLANK}to{BLANK}draw", f"no{BLANK}key"
# Marks a series with too many points for markers. As many as keys have colours (panels), so that it
# changes none.
DENSE = BLANK * 6
_BLANKS = f'{{{{$ll = regexReplaceAllLiteral "\\\\s" $ll "{BLANK}"}}}}'
# JavaScript sorts keys of whole numbers before all others, and so before X: an invisible blank
# follows them.
_NO_INDEX = f'{{{{if and (ge $ll "0") (lt $ll ":")}}}}{{{{$ll = print $ll "{BLANK}"}}}}{{{{end}}}}'

# Puts the record into $lr, NaN and infinities in quotes. Strings and these are put between \x01 and
# \x02 first, which no line holds, so that a text is never taken for one of them.
_RECORD = (
    '{{$lr := __line__}}{{if or (contains "NaN" $lr) (contains "Infinity" $lr)}}'
    r'{{$lr = regexReplaceAll "(\"(?:[^\"\\\\]|\\\\.)*\"|-?Infinity|NaN)" $lr "\x01$1\x02"}}'
    r'{{$lr = replace "\x01NaN\x02" "\"NaN\"" $lr}}'
    r'{{$lr = replace "\x01Infinity\x02" "\"Infinity\"" $lr}}'
    r'{{$lr = replace "\x01-Infinity\x02" "\"-Infinity\"" $lr}}'
    r'{{$lr = regexReplaceAllLiteral "[\x01\x02]" $lr ""}}{{end}}'
    # the end of names of series, as in metrics
    f'{{{{$lp := ""}}}}{{{{if eq .origin "{AUTO}"}}}}{{{{$lp = "{AUTO_MARK}"}}}}{{{{end}}}}'
)

# Adds a measurement's tags to $ls, so that each set of them is a series. Quotes and backslashes in
# a tag would cost the series (see _collect).
TAGS = (
    r'{{if contains "\"tags\"" $lr}}{{$lg := index (fromJson $lr) "tags"}}'
    '{{if eq (printf "%T" $lg) "map[string]interface {}"}}{{range $lk, $lv := $lg}}'
    r'{{$lt := regexReplaceAllLiteral "[\x00-\x1f\"\\\\]" (print $lk " " $lv) "_"}}'
    '{{$ls = print $ls " · " $lt}}{{end}}{{end}}{{end}}'
)

Body = Callable[[str, str], str]  # the action, given the variables of a name and its value


def _walk(
    number: Body, fallback: Body | None = None, source: str = "(fromJson $lr)", above: str = ""
) -> str:
    """A template that does `number` for each number of the record, `fallback` for all else
    but objects."""
    depth = int(above.removeprefix("$ln") or 0) + 1
    key, value, name = f"$lk{depth}", f"$lv{depth}", f"$ln{depth}"
    full_name = f'printf "%s.%s" {above} {key}' if above else f"print {key} $lp"
    deeper = (
        f"{{{{else if {_IS_OBJECT}}}}}{_walk(number, fallback, value, name)}"
        if depth < MAX_DEPTH
        else ""
    )
    rest = f"{{{{else}}}}{fallback(name, value)}" if fallback else ""
    return (
        f'{{{{range {key}, {value} := {source}}}}}{{{{{name} := {full_name}}}}}{{{{$lt := printf "%T" {value}}}}}'
        f"{{{{if {_IS_NUMBER}}}}}{number(name, value)}{deeper}{rest}{{{{end}}}}{{{{end}}}}"
    )


def _collect(x: str, *, only: str = "", suffix: str = "", series: str = "", own_x: str = "") -> str:
    """Put X's number into $lx, and `,"name":number` of all others (only: of this key) into $lo.

    own_x: a label that names a further key, whose number goes into $lw; `only` is a family then.
    Names that JSON and Go write differently are dropped: with quotes, backslashes, control
    characters. They have no other graph either (logshipper_ingest.model.ranks).
    """

    def body(name: str, value: str) -> str:
        member = key_names.is_member(name, only) if own_x else f'eq {name} "{only}"'
        test = f"else if {member}" if only else "else"
        own_x_branch = (
            f'{{{{else if eq {name} $lz}}}}{{{{$lw = printf "%v" {value}}}}}' if own_x else ""
        )
        label = "$ls" if series else f"(print {name} $ls)" if suffix else name
        return (
            f'{{{{if eq {name} "{x}"}}}}{{{{$lx = printf "%v" {value}}}}}{own_x_branch}'
            f'{{{{{test}}}}}{{{{$ll := {label}}}}}{_BLANKS}{_NO_INDEX}{{{{$lq := printf "%q" $ll}}}}'
            f'{{{{if not (contains "\\\\" $lq)}}}}'
            f'{{{{$lo = printf "%s,%s:%v" $lo $lq {value}}}}}{{{{end}}}}{{{{end}}}}'
        )

    begin = (
        _RECORD
        + '{{$lx := ""}}{{$lo := ""}}'
        + (f'{{{{$ls := ""}}}}{{{{$lm := ""}}}}{suffix}{series}' if suffix or series else "")
        + ("{{$lm = $ls}}" if series else "")
    )
    begin += f'{key_names.AFFIXES}{{{{$lw := ""}}}}{{{{$lz := .{own_x}}}}}' if own_x else ""
    return begin + _walk(body)


def as_text(value: str) -> str:
    """A template's expression for a value as it may stand between quotes in JSON."""
    clean = f'regexReplaceAllLiteral "[\\x00-\\x1f]" {value} " "'
    return f'{clean} | replace "\\\\" "\\\\\\\\" | replace "\\"" "\\\\\\""'


def text(value: str) -> str:
    """The same as a template's action."""
    return f"{{{{{as_text(value)}}}}}"


def label_fields(*labels: str) -> str:
    """A template for labels as the fields of a JSON object, with a comma behind."""
    return "".join(f'"{label}":"{{{{.{label}}}}}",' for label in labels)


# an entry's time as such a field
TIME = '"time":{{unixEpochMillis __timestamp__}},'


def _line_format(template: str) -> str:
    """A line for each record that has something to draw."""
    return f" | line_format `{template}` |= `{{` | keep attempt, task, step, host, job_id"


def _of_series(point: str, called: str) -> str:
    """Return the point inside its series' place. called: suffix or series, or neither."""
    begin = f'{{{{if $lm}}}}{{"{SERIES_FIELD}":"{{{{$lm}}}}","{POINT_FIELD}":{{{{end}}}}'
    return f"{begin}{point}{{{{if $lm}}}}}}{{{{end}}}}" if called else point


def over_x(x: str, *, only: str = "", suffix: str = "", series: str = "", own_x: str = "") -> str:
    """Return X first, then the other numbers; drops records without X.

    x, only: keys' names, as variables of the dashboard; suffix, series: a part of the template that
    sets $ls, which extends names, or replaces them. With series these objects are POINT_FIELD of
    others, whose SERIES_FIELD is the name; with a suffix that sets $lm, it is that
    (transforms.of_graph).
    """
    point = _of_series(f'{{"{x}":{{{{$lx}}}}{{{{$lo}}}}}}', suffix or series)
    # of a family's members those with the same X of their own share a graph
    same_x = f'(or $lw (eq $lz "") (eq $lz "{x}"))' if own_x else ""
    tail = f"{{{{if and $lx $lo {same_x}}}}}{point}{{{{end}}}}"
    return _line_format(_collect(x, only=only, suffix=suffix, series=series, own_x=own_x) + tail)


def without_x(x: str, *, only: str = "", suffix: str = "", series: str = "") -> str:
    """The records that over_x leaves out, over their number among records with the same keys."""
    point = _of_series(f'{{"{RECORD_FIELD}":{{{{.n}}}}{{{{$lo}}}}}}', suffix or series)
    tail = f"{{{{if and (not $lx) $lo .n}}}}{point}{{{{end}}}}"
    return _line_format(_collect(x, only=only, suffix=suffix, series=series) + tail)


def over_own_x(x: str, own_x: str, *, only: str, suffix: str = "") -> str:
    """Return the records that over_x drops, over the key in the label own_x; over their number
    without one."""
    number = _of_series(f'{{"{RECORD_FIELD}":{{{{.n}}}}{{{{$lo}}}}}}', suffix)
    number = f"{{{{if .n}}}}{number}{{{{end}}}}"
    over_own = _of_series('{"{{$lz}}":{{$lw}}{{$lo}}}', suffix)
    over_own = f"{{{{if $lw}}}}{over_own}{{{{end}}}}"
    tail = f"{{{{if and (not $lx) $lo}}}}{{{{if $lz}}}}{over_own}{{{{else}}}}{number}{{{{end}}}}{{{{end}}}}"
    return _line_format(_collect(x, only=only, suffix=suffix, own_x=own_x) + tail)


def over_time(*, suffix: str = "") -> str:
    """Return all numbers, after the time.

    Records of a burst share a millisecond, and a graph of equal times stays blank: the record's
    number adds microseconds.
    """
    at = '{{unixEpochMillis __timestamp__}}.{{printf "%03d" (mod (int .n) 1000)}}'
    point = _of_series(f'{{"{TIME_FIELD}":{at}{{{{$lo}}}}}}', suffix)
    tail = f"{{{{if $lo}}}}{point}{{{{end}}}}"
    return _line_format(_collect("", suffix=suffix) + tail)


def whole() -> str:
    """The record as it was printed, after its time, and its origin if it was not printed as JSON."""
    record = '{{trimPrefix "{" $lr}}'
    return (
        f' | line_format `{_RECORD}{{"{TIME_FIELD}":{{{{unixEpochMillis __timestamp__}}}},'
        f'{{{{if .origin}}}}"origin":"{{{{.origin}}}}",{{{{end}}}}{record}`'
    )


def flat(first: str, *, as_texts: bool = False) -> str:
    """Return all values of the record under their full names, texts too, after those of `first`.
    as_texts: numbers as texts, too."""

    def number(name: str, value: str) -> str:
        return f'{{{{$lo = printf "%s,\\"%s\\":%v" $lo ({as_text(name)}) {value}}}}}'

    def fallback(name: str, value: str) -> str:
        shown = f"{{{{$ll := {name}}}}}{_NO_INDEX}"
        words = f"({as_text('$ll')}) ({as_text(f'(print {value})')})"
        return f'{shown}{{{{$lo = printf "%s,\\"%s\\":\\"%s\\"" $lo {words}}}}}'

    values = _walk(fallback if as_texts else number, fallback)
    return f' | line_format `{_RECORD}{{{{$lo := ""}}}}{values}{{{first}{{{{$lo}}}}}}`'


def before(template: str, line_format: str) -> str:
    """A line format that begins with another template."""
    return line_format.replace("line_format `", f"line_format `{template}", 1)


def nothing(name: str = NOTHING) -> str:
    """Return a point of NOTHING, or of another name."""
    return f' | line_format `{{"{RECORD_FIELD}":0,"{name}":0}}` | keep host'
