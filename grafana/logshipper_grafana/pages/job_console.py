"""The job's output: over time, as on the terminal, and as a table whose lines link to their time."""

from logshipper.spool.segment import COPY
from logshipper_grafana.pages.job_variables import CHOSEN
from logshipper_grafana.parts import Json, colors, links, transforms
from logshipper_grafana.parts.panels import (
    PAGE_WIDTH,
    STACKED_BARS,
    colored,
    field,
    loki,
    panel,
    table,
    time_graph,
)
from logshipper_grafana.parts.queries import MAX_ENTRIES, SEARCH, job_lines
from logshipper_grafana.parts.records import as_text

WIDTH = 14
PAGE_REST = PAGE_WIDTH - WIDTH  # beside the log
# before a line: which task but the first, and which stream but standard output
SOURCE = (
    '{{if and $.task (ne $.task "0")}}task {{$.task}}│{{end}}{{if eq $.stream "stderr"}}err│{{end}}'
)
_WITH_SOURCE = f" | line_format `{SOURCE}{{{{__line__}}}}`"
_LEVELS_NOT_GUESSED = " | drop detected_level | label_format level=`unknown`"


def _lines() -> str:
    """Return the lines. Records that were made of lines repeat these, so they never show."""
    lines = job_lines("${lines:raw}|log", streams="${stream:raw}", slurm=True)
    return f'{lines} | {COPY}=""'


def console() -> Json:
    return panel(
        "logs",
        "Console log: the newest 5,000 lines of this time",
        "As the terminal shows it. Before a line of standard error stands err, before one of another task than the "
        "first its number. Which streams: Stream above; Console adds lines that are records, which tables have; Search "
        "looks for these words, in any case. Levels are not guessed.",
        [loki(f"{_lines()}{SEARCH}{_WITH_SOURCE}{_LEVELS_NOT_GUESSED}", lines=MAX_ENTRIES)],
        width=WIDTH,
        height=14,
        no_value="no line besides records, which Console, above, adds",
        links=[links.link("This log in Explore", links.explore("loki", _lines()))],
        options={
            "showTime": True,
            "showLabels": False,
            "showCommonLabels": False,
            "wrapLogMessage": True,
            "prettifyLogMessage": False,
            "enableLogDetails": True,
            "sortOrder": "Ascending",
            "dedupStrategy": "none",
        },
    )


def lines_over_time() -> Json:
    rate = f"sum by (stream)(count_over_time({_lines()}{SEARCH} [$__interval]))"
    return time_graph(
        "Lines over time",
        "Lines that were logged, by stream; with a search, those that are found. Restarts, switches of the mode, "
        "lost lines and ends are marked.",
        [loki(rate, legend="{{stream}}")],
        width=24,
        height=6,
        custom=STACKED_BARS,
        overrides=[colored("stdout", colors.BLUE), colored("stderr", colors.ORANGE)],
    )


def line_table() -> Json:
    """Links work in tables only: from here a line leads to its time in the graphs."""
    at = "(int (unixEpochMillis __timestamp__))"
    fields = '"time":{{unixEpochMillis __timestamp__}},"stream":"{{.stream}}","task":"{{.task}}",'
    around = f'"from":{{{{sub {at} 30000}}}},"to":{{{{add {at} 30000}}}},'
    text = f"{{{{{as_text('__line__')}}}}}"
    to_time = links.page(
        links.JOB,
        # otherwise the line might be beyond the shown ones; without the search, which would hide
        # its surroundings
        kept=(*CHOSEN, "xsel"),
        job="${job:percentencode}",
        when='from=${__data.fields["from"].numeric}&to=${__data.fields["to"].numeric}',
    )
    return table(
        "Lines as a table: a click on the time shows its minute in all graphs",
        "The newest 1,000 lines that Search finds.",
        [
            loki(
                f'{_lines()}{SEARCH} | line_format `{{{fields}{around}"line":"{text}"}}`',
                lines=1000,
            )
        ],
        height=12,
        transformations=[*transforms.decoded(newest_first=True), transforms.as_time("time")],
        overrides=[
            field(
                "time",
                unit="dateTimeAsIso",
                custom__width=200,
                links=[links.link("This minute in all graphs", to_time)],
            ),
            field("stream", custom__width=80),
            field("task", custom__width=60),
            field("line", custom__minWidth=500),
            field(
                "from", unit="none", custom__hidden=True
            ),  # as a text it would be no number in the link
            field("to", unit="none", custom__hidden=True),
        ],
    )
