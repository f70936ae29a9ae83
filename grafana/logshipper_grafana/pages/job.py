"""The page of one job: its user, place and course, its output, and its numbers over time and over
X."""

from collections.abc import Collection, Mapping

from logshipper_grafana.pages import (
    job_around,
    job_console,
    job_details,
    job_graphs,
    job_header,
    job_resources,
)
from logshipper_grafana.pages.job_variables import CHOSEN, page_variables
from logshipper_grafana.parts import Json, colors, links, queries, records, transforms
from logshipper_grafana.parts.panels import field, loki, place, row, table
from logshipper_grafana.parts.queries import job_events

_DETAILS = "Details: how it went, line ledger, mode changes and other events, lines over time"
_HINTS = "command_refused|json_hint|config_refused|metadata_pattern_off"
_RESOURCES = "CPU, memory and GPUs that the job used, over time"


def dashboard() -> Json:
    return {
        "uid": links.JOB,
        "title": "logshipper: job",
        "description": "One captured job: its state, what it printed, and its numbers over time and over X.",
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": page_variables()},
        "annotations": {"list": _annotations()},
        "links": _links(),
        "panels": place(
            [
                *job_header.header(),
                row("Over ${x:raw} – ${rule}${thinned}${more_keys:text}"),
                job_graphs.each_over_x(),
                job_console.console(),
                [job_graphs.reported_values(), _configuration()],
                row("What the job used"),
                job_resources.verdict(),
                row(_RESOURCES, collapsed=job_resources.graphs()),
                row(
                    "All keys in one graph, and every record",
                    collapsed=[
                        job_graphs.all_over_x(),
                        job_graphs.all_over_time(),
                        job_graphs.metadata(),
                    ],
                ),
                row(_DETAILS, collapsed=[*job_details.details(), job_console.lines_over_time()]),
                row("From a line to its time in the graphs", collapsed=[job_console.line_table()]),
                row("Records without ${x:raw}", collapsed=[job_graphs.without_x()]),
                row("Other captured jobs of the same user", collapsed=[job_around.same_user()]),
                # the last one: without series, Grafana shows an empty row and an invisible graph
                row("${more_keys:raw}"),
                job_graphs.each_over_x("found") | {"transparent": True},
            ]
        ),
    }


def _links() -> list[Json]:
    return [
        links.page_link("Jobs", "all captured jobs", links.JOBS),
        links.page_link(
            "Compare", "this job with others", links.COMPARE, jobs="${job:percentencode}"
        ),
        links.page_link("Cluster", "how capture does", links.CLUSTER),
        links.page_link(
            "The job's own time",
            "from its start to its end, or its last sign of life",
            links.JOB,
            icon="time",
            when="from=${begin:raw}&to=${end:raw}",
            kept=("job", *CHOSEN, "xsel", "search"),
        ),
    ]


def _annotations() -> list[Json]:
    """A question each, with each refresh: so one for all events that have a colour."""
    restarts_and_silence = "|".join(("started", *queries.HEARTBEATS))
    others = f"mode_changed|user_event|{_HINTS}|ended|{queries.JOB_ENDED}"
    began = '{{if eq .event "started"}}attempt {{.attempt}} begins{{else}}{{.message}}{{end}}'
    happened = (
        '{{if eq .event "mode_changed"}}mode: {{.from}} to {{.to}} on {{.host}}'
        '{{else if eq .event "user_event"}}{{.message}}'
        "{{else if .state}}{{.state}}: attempt {{.attempt}}"
        "{{else}}{{.event}}: {{.message}}{{end}}"
    )
    return [
        _annotation(
            "Lines lost",
            colors.RED,
            job_events(queries.DROPS, "message"),
            "{{message}} on {{host}}",
        ),
        _annotation(
            "Restarts and late heartbeats",
            colors.ORANGE,
            f"{job_events(restarts_and_silence, 'message')} | event!=`started` or attempt!=`1` "
            f"| label_format lswords=`{began}`",
            "{{lswords}} on {{host}}",
        ),
        _annotation(
            "Modes, ends, hints, the job's own events",
            colors.BLUE,
            f"{job_events(others, 'message', 'from', 'to', 'state')} | label_format lswords=`{happened}`",
            "{{lswords}}",
        ),
    ]


def _annotation(name: str, color: str, expr: str, text: str) -> Json:
    return {
        "name": name,
        "datasource": loki("")["datasource"],
        "enable": True,
        "hide": True,  # the switch, not the marks
        "iconColor": color,
        "expr": expr,
        "titleFormat": name,
        "textFormat": text,
        "tagKeys": "host",
        "maxLines": 200,
    }


def _of_event(
    name: str,
    begin: str,
    names: Mapping[str, str],
    *,
    inside: Collection[str] | None = None,
    more: tuple[str, ...] = (),
) -> str:
    """Return fields of the chosen captures' events as a JSON object of texts, without empty ones.

    begin: the first fields; names: their titles; inside: those that are no labels, None for all;
    more: further fields for `begin`.
    """
    labels = {
        field: f"ls{field.replace('.', '_')}" if inside is None or field in inside else field
        for field in names
    }
    fields = [f"{label}={field}" for field, label in labels.items() if label != field]
    words = "".join(
        f'{{{{if .{labels[field]}}}}},"{shown}":"{records.text("." + labels[field])}"{{{{end}}}}'
        for field, shown in names.items()
    )
    events = job_events(name, *fields, *more, attempts=queries.ATTEMPTS + queries.TASKS)
    return f"{events} | line_format `{{{begin}{words}}}`"


def _configuration() -> Json:
    """Return a table with a row per value: user and place, the start, the first record.

    All are texts, and the first of each query is no number, or Grafana would format the column as
    one.
    """
    started = _of_event(
        "started",
        '"job":"{{.job_id}} of {{.cluster}}"',
        {"name": "name", "user": "user", "account": "account", "partition": "partition",
         "host": "host", "attempt": "attempt"},
        inside=("name", "account", "partition"),
    )  # fmt: skip
    word = records.text("$lw")
    command = (
        f"{{{{range $li, $lw := fromJson .lscommand}}}}{{{{if $li}}}} {{{{end}}}}{word}{{{{end}}}}"
    )
    context = _of_event(
        "context",
        f'"command":"{command}"',
        {"cwd": "folder", "git.commit": "git commit", "git.branch": "git branch",
         "python.version": "Python", "python.prefix": "environment"},
        more=("lscommand=command",),
    )  # fmt: skip
    record = records.flat('"first record":"of the job"', as_texts=True)
    first = f"{queries.job_records()} | n=`1`{record}"
    return table(
        "Configuration",
        "Who and where; how the job was started; the first record it printed, which is where programs print their "
        "configuration. Of the chosen attempt and task.",
        [
            loki(expr, lines=100, ref=ref)
            for ref, expr in zip("ABC", (started, context, first), strict=True)
        ],
        height=8,
        width=job_console.PAGE_REST,
        transformations=[
            *transforms.order_by_time(),
            transforms.first_rows(1),
            transforms.decode(),
            transforms.without_empty_frames(),
            *transforms.reduced({"lastNotNull": "value"}, {"Field": "what"}),
        ],
        overrides=[field("what", custom__width=130)],
        no_value=job_details.NO_START,
    )
