"""The job's numbers: the table of its metadata, graphs over time and over X."""

from logshipper_grafana.pages import job_console
from logshipper_grafana.parts import Json, links, queries, records, transforms, values
from logshipper_grafana.parts.key_queries import thinned
from logshipper_grafana.parts.panels import PAGE_WIDTH, field, loki, table, time_graph, xy_graph
from logshipper_grafana.parts.queries import MAX_ENTRIES
from logshipper_grafana.parts.x_axis import X, nothing_to_draw, over_x_or_number, over_x_or_own
from logshipper_ingest.model.key_reports import VALUE

# With `all`, each attempt, each task and each set of tags gets its own series, so that their lines
# do not join.
_SUFFIX = (
    '{{if eq "${attempt:raw}" "all"}}{{$ls = print " · attempt " .attempt}}{{end}}'
    '{{if eq "${task:raw}" "all"}}{{$ls = print $ls " · task " .task}}{{end}}' + records.TAGS +
    # series stand in the order of attempts and tasks, 2 before 10, regardless of the printing order
    '{{if or (eq "${attempt:raw}" "all") (eq "${task:raw}" "all")}}'
    "{{$lm = print (add 1000000 (int .attempt)) (add 1000000 (int .task)) $ls}}{{end}}"
)
# Rows do not join either; if Prometheus does not know the choice, all of them come.
_CAPTURE_SUFFIX = "".join(
    f'{{{{if or (eq "${{{name}:raw}}" "all") (and (eq "${{{name}s:raw}}" ".*") (ne .{name} "{first}"))}}}}'
    f'{{{{$ls = print $ls " · {name} " .{name}}}}}{{{{end}}}}'
    for name, first in (("attempt", 1), ("task", 0))
)
_NONE = "no numbers in this time"


def metadata() -> Json:
    return table(
        "Metadata: the newest 5,000 records, newest first",
        "Every value of every record, of the chosen attempt and task. A column per key of the records; nested "
        "objects as JSON. Numbers are the browser's: integers beyond 2^53 are exact in the log. A record "
        "is a line of stdout that is one JSON object.",
        [loki(queries.job_records() + records.whole(), lines=MAX_ENTRIES)],
        height=10,
        links=[
            links.link("These records in Explore", links.explore("loki", queries.job_records()))
        ],
        transformations=[
            *transforms.decoded(newest_first=True),
            transforms.as_time(records.TIME_FIELD),
            transforms.organize(order=[records.TIME_FIELD]),
        ],
        overrides=[field(records.TIME_FIELD, unit="dateTimeAsIso", custom__width=170)],
    )


def _thinned_records() -> str:
    """The records that graphs of all keys draw."""
    return queries.job_records() + thinned("${dec:raw}")


def all_over_time() -> Json:
    return time_graph(
        "All keys over time${thinned}",
        "Each key with numbers, when it was printed. A click on a legend entry shows only that key, Ctrl+click "
        "takes one in or out.",
        [loki(_thinned_records() + records.over_time(suffix=_SUFFIX), lines=MAX_ENTRIES)],
        width=12,
        height=9,
        unit="short",
        custom={"showPoints": "always", "pointSize": 4},
        # all rows have a time: in 10.0 to 10.2 sorting loses values of columns with gaps that no
        # filter has gone over
        transformations=transforms.of_graph(
            transforms.as_time(records.TIME_FIELD),
            transforms.rows_with(records.TIME_FIELD),
            transforms.sort_by(records.TIME_FIELD),
        ),
        no_value=_NONE,
    )


def all_over_x() -> Json:
    """Return the graph of all keys over X.

    If no record has X (an unknown key, say), it goes over the record's number: the second query's
    answer is the first frame then.
    """
    return xy_graph(
        "All keys over ${x:raw} – ${rule}${thinned}",
        "All keys over X, which was chosen by the first rule that fits: the key progress; the key epoch; integers that "
        "never fall; numbers that never fall; integers that only rise or only fall; numbers that do; the first key with"
        " numbers. Another one: X axis, above. A click on a legend entry shows only that key, "
        "Ctrl+click takes one in or out. Without X: over the record's number.",
        [*over_x_or_number(_thinned_records(), suffix=_SUFFIX), nothing_to_draw()],
        width=12,
        height=9,
        transformations=transforms.of_graph(),
        no_value=_NONE,
    )


def each_over_x(keys: str = "graph") -> Json:
    """Return a graph per family of keys. keys: the variable that has them."""
    return xy_graph(
        f"${{{keys}:text}}",
        "A key over X, which the axis names, with the same key of training, validation and test data in one graph; "
        "the last two have thick lines. Graphs are thinned by the number of their own records: at most about 4,500 "
        "are drawn. Keys that never stand in a record with X have an X of their own: by the same rules, of the keys "
        "that their records have; where that is the key itself, it goes over the record's number. NaN and infinities "
        "have no point: Lines and records, above, counts them.",
        over_x_or_own(
            queries.job_records() + thinned(f"${{{keys}:raw}}"),
            only=f"${{{keys}:text}}",
            suffix=_SUFFIX,
        ),
        width=PAGE_WIDTH,  # of all of them together
        height=7,
        transformations=transforms.of_graph(),
        repeat=keys,
        per_row=3,
        no_value=_NONE if keys == "graph" else " ",
    )


def reported_values() -> Json:
    selector = queries.job_lines(VALUE) + queries.ATTEMPTS + queries.TASKS
    return values.key_table(
        selector,
        "Of each key with numbers, of the chosen attempt and task.",
        suffix=_CAPTURE_SUFFIX,
        height=6,
        width=job_console.PAGE_REST,
    )


def without_x() -> Json:
    """Closed at first, since a graph without data says that something is missing."""
    return xy_graph(
        "Records without ${x:raw}, over their number${thinned}",
        "Keys of records that X doesn't stand in, such as a training step's next to a validation's epoch. Records "
        "are counted by their set of keys. Nothing to see: every record with numbers has X.",
        [
            loki(_thinned_records() + records.without_x(X, suffix=_SUFFIX), lines=MAX_ENTRIES),
            nothing_to_draw(),
        ],
        width=24,
        height=8,
        transformations=transforms.of_graph(),
        no_value="every record with numbers has X",
    )
