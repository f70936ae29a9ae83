"""Tables of agents' reports about keys (entries of kind `value`, docs/in-loki.md): last, least and
largest number, each with X there. They cover all records, even those that graphs drop."""

from logshipper_grafana.parts import Json, transforms
from logshipper_grafana.parts.panels import field, loki, table
from logshipper_grafana.parts.queries import MAX_ENTRIES
from logshipper_grafana.parts.records import as_text

# columns, by the reports' names
_NUMBERS = {
    f"{value}{at}": f"{value}{at}".replace("_", " ")
    for value in ("last", "least", "largest")
    for at in ("", "_at")
}
_REPORTS = (("A", 'final=""'), ("B", 'final="1"'))  # while they run, and at their end
_KEY, _X = "key", "X"
_RECORD = "record"  # X, where no key is
_CAPTURE, _NAME = "capture", "name"
REPORTED_AT = "reported at"
JOB_ID = "lsjob"  # unlike programs' keys
_NONE = "no values reported in this time: no numbers, or captured before logshipper reported them"

# Four digits of a number $lv, of larger ones one decimal.
_ROUNDED = (
    '{{$lq := printf "%.1f" $lv}}'
    '{{if and (lt $lv 1e3) (gt $lv -1e3)}}{{$lq = printf "%.4g" $lv}}{{end}}'
    '{{$lq = trimSuffix ".0" $lq}}'
)
# Words in a key's name that tell whether the least or the largest is the best
BEST_IS_LARGEST = "acc|auc|f1|precision|recall|score|reward|return|bleu|rouge|iou|psnr|ssim"
BEST_IS_LEAST = "loss|err|perplexity|ppl|mae|mse|nll|wer|cer|fid|latency"


def _rows(suffix: str) -> str:
    """A row for each report. suffix: a part of the template that sets $ls, which is added to the
    key's name."""
    names = (
        '{{$lr := fromJson __line__}}{{$ls := ""}}' + suffix + '{{$lk := ""}}{{$lx := ""}}'
        '{{$ll := print "… " (index $lr "left_out") " more keys" $ls}}'
        '{{if not (index $lr "left_out")}}{{$lk = index $lr "key"}}{{$ll = print $lk $ls}}'
        f'{{{{$lx = or (index $lr "x") "{_RECORD}"}}}}{{{{end}}}}'
    )
    numbers = (
        '{{$lo := ""}}{{range $ln, $lv := $lr}}{{if eq (printf "%T" $lv) "float64"}}'
        f'{_ROUNDED}{{{{$lo = printf "%s,%q:%s" $lo $ln $lq}}}}{{{{end}}}}{{{{end}}}}'
    )
    capture = '(print .job_id "/" .attempt "/" .step "/" .task)'
    texts = {_CAPTURE: capture, _NAME: "$lk", _KEY: "$ll", _X: "$lx"}
    fields = ",".join(f'"{name}":"{{{{{as_text(text)}}}}}"' for name, text in texts.items())
    row = f'{{"{REPORTED_AT}":{{{{unixEpochMillis __timestamp__}}}},{fields}{{{{$lo}}}}}}'
    return f" | line_format `{names}{numbers}{row}`"


def last_and_best(selector: str, before: str, row: str, *, x: str, is_shown: str) -> list[Json]:
    """Return queries for a column per changing key: the last and the best number, with X there.

    If the key's name does not tell the best one, both the least and the largest. Their lines are
    objects: JOB_ID, `key`, REPORTED_AT, `attempt`, `task`, and `row`, an object that begins with the
    parameter `row`. before, row: parts of a template, the first sets the second's variables; x: the
    key that needs no name; is_shown: a condition on $lk, the key.
    """
    shown = "".join(
        f'{{{{$lv := index $lr "{name}"}}}}{_ROUNDED}{{{{${short} := $lq}}}}'
        for name, short in (("last", "ln"), ("least", "le"), ("largest", "lg"))
    )

    def if_named(words: str) -> str:
        return f'if eq (regexReplaceAll "(?i).*({words}).*" $lk "") ""'

    def with_best(name: str, short: str) -> str:
        return (
            f'{{{{$lv := index $lr "{name}_at"}}}}{{{{if eq (printf "%T" $lv) "float64"}}}}{_ROUNDED}'
            '{{$lx = print " at " $lx $lq}}{{end}}'
            f'{{{{if ne ${short} $ln}}}}{{{{$lx = print " " ${short} $lx}}}}{{{{else}}}}{{{{$lx = ""}}}}{{{{end}}}}'
            '{{$lo = print $ln " (best" $lx ")"}}'
        )

    best = (
        f'{{{{$lx := print (or (index $lr "x") "{_RECORD}") " "}}}}{{{{if eq $lx "{x} "}}}}{{{{$lx = ""}}}}{{{{end}}}}'
        f'{shown}{{{{$lo := print $ln " (" $le " to " $lg ")"}}}}'
        f"{{{{{if_named(BEST_IS_LEAST)}}}}}{with_best('least', 'le')}"
        f"{{{{else {if_named(BEST_IS_LARGEST)}}}}}{with_best('largest', 'lg')}{{{{end}}}}"
    )
    column = as_text('(print "last " $lk)')
    line = (
        f'{{"{JOB_ID}":"{{{{.job_id}}}}","key":"{{{{{as_text("$lk")}}}}}","attempt":{{{{.attempt}}}},'
        f'"task":{{{{.task}}}},"{REPORTED_AT}":{{{{unixEpochMillis __timestamp__}}}},'
        f'"row":{{{row},"{{{{{column}}}}}":"{{{{{as_text("$lo")}}}}}"}}}}'
    )
    differs = 'lt (index $lr "least") (index $lr "largest")'
    stage = before + (
        '{{$lr := fromJson __line__}}{{$lk := index $lr "key"}}'
        f"{{{{if $lk}}}}{{{{if and ({differs}) ({is_shown})}}}}{best}{line}{{{{end}}}}{{{{end}}}}"
    )
    return [
        loki(f"{selector} | {which} | line_format `{stage}` |= `{{`", lines=MAX_ENTRIES, ref=ref)
        for ref, which in _REPORTS
    ]


def key_table(selector: str, description: str, *, suffix: str, height: int, width: int) -> Json:
    """Return a table of keys.

    selector: a query's stream selector for entries of kind VALUE, with its filters. Final reports
    of captures have their own query, so that running ones cannot push them out of the answer. Only
    the reader knows whether the least or the largest is the best.
    """
    rows = _rows(suffix)
    return table(
        "Last, least and largest",
        f"{description} Each with X in the first record that has the value. The last column names X: the job's, by the "
        "rules; of a key that never stands with it one of its own; else the record's number among those with the same "
        "keys. Of all records: of a running capture those up to a minute ago, at first 10 seconds. Sets of tags count "
        "together.",
        [
            loki(f"{selector} | {which}{rows}", lines=MAX_ENTRIES, ref=ref)
            for ref, which in _REPORTS
        ],
        height=height,
        width=width,
        transformations=[
            *transforms.decoded(),
            transforms.merge_rows(),
            transforms.sort_by(REPORTED_AT),
            *transforms.newest_of_each((_CAPTURE, _NAME), (_KEY, *_NUMBERS, _X)),
            transforms.organize(_NUMBERS, hidden=[_CAPTURE, _NAME]),
            transforms.sort_by(_KEY),
            transforms.as_text(*_NUMBERS.values()),
            transforms.without_empty_frames(),
        ],
        overrides=[
            field(_KEY, custom__minWidth=90),
            *(
                field(name, displayName="at", custom__width=60)
                if name.endswith(" at")
                else field(name, custom__width=68)
                for name in _NUMBERS.values()
            ),
            field(_X, custom__width=90),
        ],
        no_value=_NONE,
    )
