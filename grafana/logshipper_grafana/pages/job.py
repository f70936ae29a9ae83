"""The page of one job: its user, place and course, its output, and its numbers over time and over
X."""

from collections.abc import Collection, Mapping

from logshipper.spool.captures import NOT_CAPTURED
from logshipper.spool.segment import MAX_STATUS_BARS
from logshipper_grafana.pages import job_around, job_console, job_graphs, job_resources
from logshipper_grafana.pages.job_variables import CHOSEN, variables
from logshipper_grafana.parts import links, queries, records, states
from logshipper_grafana.parts.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Json,
    field,
    link,
    loki,
    lost_lines,
    null_as,
    of_word,
    place,
    row,
    stat,
    table,
    thresholds,
)
from logshipper_grafana.parts.queries import ACCOUNTS, job_events, job_lines, newest
from logshipper_grafana.parts.records import as_text as clean_text
from logshipper_grafana.parts.transforms import (
    as_text,
    as_time,
    decode,
    first_rows,
    in_groups,
    newest_of_each,
    order_by_time,
    organize,
    reduced,
    rows_without_blank,
    without_empty_frames,
)
from logshipper_ingest.model.ledger import COLUMNS

_CAPTURE = ("host", "attempt", "step", "task")
_HEADING = 'trimPrefix "{" __line__'
# of tables of captures: narrow columns
_NARROW = [
    field(name, custom__width=width) for name, width in zip(_CAPTURE, (90, 70, 50, 50), strict=True)
]
_OF_ATTEMPT = (
    "Of the attempt that is chosen above (at first the last one), from the events in Loki."
)
_NO_START = "no start in this time"  # as where a line's link leads
_UNKNOWN = "–"
# keeps texts that match a regular expression
_FAILED: Json = {
    "type": "regex",
    "options": {
        "pattern": f"^(?!exit code 0$|{queries.NOT_ENDED}$|{_UNKNOWN}$).+",
        "result": {"color": of_word(RED), "index": 0},
    },
}
_NO_CARETS = r" !~ `^[ ^~]*$`"  # below a line of a traceback
_BESIDE_LOG = job_console.PAGE_REST
_DETAILS = "Details: how it went, line ledger, mode changes and other events, lines over time"
_DROPS = (
    "lines_lost|lines_left_out|segment_damaged|record_left_out|events_left_out|user_events_left_out"
)
_DROPS += "|measurements_left_out|records_lost"
_HINTS = "command_refused|json_hint|config_refused|metadata_pattern_off"
_RESOURCES = "CPU, memory and GPUs that the job used, over time"


def dashboard() -> Json:
    return {
        "uid": links.JOB,
        "title": "logshipper: job",
        "description": "One captured job: its state, what it printed, and its numbers over time and over X.",
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables()},
        "annotations": {"list": _annotations()},
        "links": _links(),
        "panels": place(
            [
                *_header(),
                row("Each key over ${x:raw} – ${rule}${thinned}${more_keys}"),
                job_graphs.each_over_x(),
                job_console.console(),
                [job_graphs.reported_values(), _configuration()],
                row("What the job used"),
                job_resources.verdict(),
                row(_RESOURCES, collapsed=job_resources.graphs()),
                row(
                    "Each key with a legend: of several attempts, tasks or sets of tags",
                    collapsed=[job_graphs.each_over_x(legend=True)],
                ),
                row(
                    "All keys in one graph, and every record",
                    collapsed=[
                        job_graphs.all_over_x(),
                        job_graphs.all_over_time(),
                        job_graphs.metadata(),
                    ],
                ),
                row(
                    _DETAILS,
                    collapsed=[
                        _attempts(),
                        *_mode_and_restarts(),
                        _captures(),
                        _ledger(),
                        _events(),
                        job_console.lines_over_time(),
                    ],
                ),
                row("From a line to its time in the graphs", collapsed=[job_console.line_table()]),
                row("Records without ${x:raw}", collapsed=[job_graphs.without_x()]),
                row("Other captured jobs of the same user", collapsed=[job_around.same_user()]),
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
        links.page_link(
            "X axis: auto",
            "X is chosen by the rules again",
            links.JOB,
            icon="bolt",
            kept=("job", *CHOSEN, "search"),
            xsel="auto",
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
        _annotation("Lines lost", RED, job_events(_DROPS, "message"), "{{message}} on {{host}}"),
        _annotation(
            "Restarts and late heartbeats",
            ORANGE,
            f"{job_events(restarts_and_silence, 'message')} | event!=`started` or attempt!=`1` "
            f"| label_format lswords=`{began}`",
            "{{lswords}} on {{host}}",
        ),
        _annotation(
            "Modes, ends, hints, the job's own events",
            BLUE,
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


# ---- header


def _header() -> list[Json]:
    """Return the panels for a first glance, and the running bars below."""
    lost = f"sum({newest(' | unwrap lost', ACCOUNTS, 'lost', attempts='')})"
    return [
        stat(
            "State",
            f"{_OF_ATTEMPT} What Slurm says of its end, else RUNNING while one capture runs, then the worst end; "
            "UNRESPONSIVE: no sign of life for 20 seconds, as the node's agent says, or for a minute where it doesn't.",
            loki(queries.newest_state(), instant=True),
            width=3,
            height=2,
            defaults={"mappings": states.BY_NUMBER},
            no_value="no such job here",
        ),
        stat(
            "Ended by",
            f"{_OF_ATTEMPT} Exit code or signal, and the reason where there is one; the worst of all captures.",
            loki(queries.end_words(), instant=True),
            width=7,
            height=2,
            unit="string",
            options={"reduceOptions": {"calcs": [], "fields": "/^end$/", "values": True}},
            defaults={"mappings": [_FAILED]},
            no_value=_UNKNOWN,
        ),
        _ran_for(),
        lost_lines(
            "Lines that were printed and could not be logged, of all attempts: red when it isn't 0. The job's own "
            "output has them.",
            loki(lost, instant=True),
            width=3,
            height=2,
            no_value=_UNKNOWN,
        ),
        _stderr_lines(),
        _records(),
        _bars(),
    ]


def _ran_for() -> Json:
    """And how long it may, in words next to that, as no unit is a duration behind a word."""
    panel = stat(
        "Ran for",
        f"{_OF_ATTEMPT} From its first start to its end, or its last sign of life; and its time limit, where the "
        "scheduler says that to its tasks: Slurm from 23.02 on does.",
        loki(queries.duration(), instant=True),
        width=3,
        height=2,
        unit="s",
        options={
            "reduceOptions": {"calcs": [], "fields": "/^(Value #A|limit)$/", "values": True},
            "textMode": "value",
        },
        no_value=_UNKNOWN,
    )
    panel["targets"].append(loki(queries.limit_words(), instant=True, ref="B"))
    return panel


def _stderr_lines() -> Json:
    """Leads to the same page with these lines alone."""
    stored = newest(" | unwrap lsstderr", ACCOUNTS, "lsstderr=ledger.stderr.stored")
    only_stderr = links.page(
        links.JOB,
        kept=("host", "attempt", "task"),
        job="${job:percentencode}",
        stream="stderr",
    )
    return stat(
        "Stderr",
        f"{_OF_ATTEMPT} Lines of standard error that were logged. A click shows them alone.",
        loki(f"sum({stored})", instant=True),
        width=2,
        height=2,
        unit="suffix: lines",
        defaults={"links": [link("These lines alone", only_stderr)]},
        no_value=_UNKNOWN,
    )


def _records() -> Json:
    """Return the number of records, and of those that graphs cannot show."""
    dropped = " + ".join(
        f"sum({newest(' | unwrap lsdropped', ACCOUNTS, f'lsdropped=ledger.{stream}.dropped')})"
        for stream in ("stdout", "stderr")
    )
    units = {
        "A": "suffix: records",
        "B": "suffix: with NaN",
        "C": "suffix: not logged",
    }
    counts = f"sum({newest(' | unwrap records', ACCOUNTS, 'records')})"
    panel = stat(
        "Records",
        f"{_OF_ATTEMPT} While it runs, as of the last heartbeat. Records with NaN or an infinity have no point there "
        "in graphs, and the line goes on to the next number; lines that came while the mode was metadata or "
        "disabled are nowhere but in the job's own output.",
        loki(counts, instant=True),
        width=6,
        height=2,
        options={"textMode": "value"},  # the unit names the counted things
        overrides=[
            {
                "matcher": {"id": "byFrameRefID", "options": ref},
                "properties": [
                    {"id": "unit", "value": unit},
                    {
                        "id": "color",
                        "value": {
                            "mode": "fixed",
                            "fixedColor": of_word(GREY if ref == "A" else RED),
                        },
                    },
                ],
            }
            for ref, unit in units.items()
        ],
        no_value=_UNKNOWN,
    )
    more = {"B": queries.records_with_gaps(), "C": f"({dropped}) > 0"}
    panel["targets"] += [loki(expr, instant=True, ref=ref) for ref, expr in more.items()]
    return panel


def _bars() -> Json:
    """Return the live bars of both streams, then the reason of a failure.

    Every fourth cell of a bar stays, so that percentage, rate and remaining time are visible. Each
    bar is a field, named by its place, and becomes a row. Ended bars leave a blank, which replaces
    their last state. Each answer begins with a text that is no number.
    """
    place = "".join(f"{{{{$.{label}}}}} " for label in (*_CAPTURE, "stream"))
    shows = f'"{job_console.SOURCE}{{{{{clean_text("$ll")}{queries.SHORTER_BARS}}}}}"'
    texts = clean_text(r'(replace "\n" "\u2028" __line__)') + r' | replace "\u2028" "\",\""'
    padding = rf'(repeat {MAX_STATUS_BARS} "\",\" ")'
    bars = rf'fromJson (print "[\"" ({texts}) {padding} "\"]")'
    bar = f'"{place}{{{{$li}}}}":{{{{if trim $ll}}}}{shows}{{{{else}}}}" "{{{{end}}}}'
    bar = f"{{{{if lt $li {MAX_STATUS_BARS}}}}},{bar}{{{{end}}}}"
    bars = f'{{"bars":" "{{{{range $li, $ll := {bars}}}}}{bar}{{{{end}}}}}}'
    lines = f'{{{{$ll := __line__}}}}{{"{place}{{{{unixEpochNanos __timestamp__}}}}":{shows}}}'
    return table(
        "Running bars, and the last lines of stderr",
        "The newest state of each bar that is on the screen and not final yet, every 10 s, of standard output and "
        f"standard error, a row each: of a stream the lowest {MAX_STATUS_BARS}. Then the last two lines of standard "
        "error.",
        [
            loki(f"{job_lines('status')}{queries.ATTEMPTS} | line_format `{bars}`", lines=200),
            loki(
                f"{job_lines('log', streams='stderr')}{queries.ATTEMPTS}{_NO_CARETS} | line_format `{lines}`",
                lines=2,
                ref="B",
            ),
        ],
        height=4,
        options={"showHeader": False},
        transformations=[
            *order_by_time(),
            decode(),
            without_empty_frames(),
            *reduced({"lastNotNull": "shows"}, {}),
            rows_without_blank("shows"),
            organize(hidden=["Field"]),
        ],
        no_value="no bar is running, and nothing is on stderr",
    )


def _mode_and_restarts() -> list[Json]:
    return [
        stat(
            "Mode now",
            f"{_OF_ATTEMPT} What is logged: enabled, metadata or disabled; of several captures each that there is.",
            loki(_modes(), instant=True),
            width=4,
            options={"reduceOptions": {"calcs": [], "fields": "/^mode$/", "values": True}},
            defaults={"mappings": states.MODES},
            no_value=_UNKNOWN,
        ),
        stat(
            "Restarts",
            "How often the job was started again, in the page's time.",
            loki(f"count(count by (attempt)({_starts()})) - 1", instant=True),
            width=4,
            steps=thresholds((None, GREEN), (1, ORANGE)),
            no_value=_UNKNOWN,
        ),
    ]


def _starts() -> str:
    return f"count_over_time({job_events('started')} [$__range])"


def _modes() -> str:
    """One series per mode that a capture's newest event names."""
    ranks = {"enabled": 0, "metadata": 1, "disabled": 2}
    template = "".join(
        f'{{{{if eq .mode "{mode}"}}}}{rank}{{{{end}}}}' for mode, rank in ranks.items()
    )
    value = newest(f" | label_format lsmode=`{template}` | unwrap lsmode", ACCOUNTS, "mode")
    return " or ".join(
        f'label_replace(count(({value}) == {rank}), "mode", "{mode}", "", "")'
        for mode, rank in ranks.items()
    )


def _capture_events(names: str, *fields: str, more: str = "", stage: str = "") -> str:
    """Return events as JSON that begins with their capture. more: further JSON; stage: a filter."""
    labels = "".join(f'"{label}":"{{{{.{label}}}}}",' for label in _CAPTURE)
    time = '"time":{{unixEpochMillis __timestamp__}},'
    return f"{job_events(names, *fields)}{stage} | line_format `{{{labels}{time}{more}{{{{{_HEADING}}}}}`"


def _attempts() -> Json:
    """Newest first, so that the last row of an attempt is its first start. Ends that have a reason
    are rows before it."""
    who = dict.fromkeys(("name", "user", "account", "partition"), "last")
    events = _capture_events("started|ended", "reason", stage=' | event="started" or reason!=""')
    return table(
        "Captured job ${job} of ${cluster}",
        "Who and where, a row for each attempt, the last one first: from the events of the captures' starts. Nodes: "
        "those of the captured tasks. Reason: why it was killed, as far as that was seen.",
        [loki(events, lines=1000)],
        height=4,
        width=16,
        no_value=_NO_START,
        transformations=[
            *order_by_time(newest_first=True),
            decode(),
            *in_groups(
                ["attempt"],
                {**who, "host": "uniqueValues", "time": "last", "reason": "firstNotNull"},
            ),
            as_time("time"),
            as_text("host"),
            organize(
                renamed={"host": "nodes", "time": "started"},
                order=["name", "user", "account", "partition", "host", "time", "attempt", "reason"],
            ),
        ],
        overrides=[
            field("name", custom__minWidth=90, noValue=""),
            *(
                field(name, custom__width=85, noValue="") for name in ("account", "partition")
            ),  # empty without Slurm
            field("nodes", custom__minWidth=90),
            field("started", unit="dateTimeAsIso", custom__width=160),
            field("attempt", custom__width=75),
            field("reason", custom__minWidth=120, noValue=""),
            field(
                "user",
                custom__width=85,
                links=[
                    link(
                        "Jobs of ${__value.text}",
                        links.page(links.JOBS, user="${__value.text:percentencode}"),
                    )
                ],
            ),
        ],
    )


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
        f'{{{{if .{labels[field]}}}}},"{shown}":"{{{{{clean_text("." + labels[field])}}}}}"{{{{end}}}}'
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
    command = (
        "{{range $li, $lw := fromJson .lscommand}}{{if $li}} {{end}}{{"
        + clean_text("$lw")
        + "}}{{end}}"
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
        width=_BESIDE_LOG,
        transformations=[
            *order_by_time(),
            first_rows(1),
            decode(),
            without_empty_frames(),
            *reduced({"lastNotNull": "value"}, {"Field": "what"}),
        ],
        overrides=[field("what", custom__width=130)],
        no_value=_NO_START,
    )


def _captures() -> Json:
    sign_ms = "{{if .ended_ns}}{{div (int .ended_ns) 1000000}}{{else}}{{unixEpochMillis __timestamp__}}{{end}}"
    words = clean_text("$lx.words")
    x_words = f"{{{{if $lx.words}}}}{{{{{words}}}}}{{{{end}}}}"
    x_axis = f"{{{{if .x_axis}}}}{{{{$lx := fromJson .x_axis}}}}{x_words}{{{{end}}}}"
    ended = f'"state":null,"seen":{sign_ms},"x":"{x_axis}",'
    columns = [
        "state",
        "seen",
        "exit_code",
        "signal",
        "reason",
        "mode",
        "lines",
        "records",
        "lost",
        "x",
    ]
    return table(
        "How it went: captures of this job",
        "What the newest event of each capture says: a heartbeat while it runs, then its end. X axis: the X of its "
        "graphs and the rule that chose it, once it has ended.",
        [loki(_capture_events(ACCOUNTS, "ended_ns", "x_axis", more=ended), lines=1000)],
        height=5,
        transformations=[
            *order_by_time(),
            decode(),
            *newest_of_each(_CAPTURE, columns),
            as_time("seen"),
            organize(renamed={"seen": "end or last sign", "exit_code": "exit code", "x": "X axis"}),
        ],
        overrides=[
            *_NARROW,
            field(
                "state",
                mappings=[*states.BY_NAME, *states.STILL_RUNNING],
                custom__displayMode="color-text",
                custom__width=150,
            ),
            field(
                "mode", mappings=states.MODES, custom__displayMode="color-text", custom__width=80
            ),
            field("end or last sign", unit="dateTimeAsIso", custom__width=160),
            *(field(name, custom__width=72) for name in ("signal", "lines", "records")),
            field("exit code", custom__width=85, mappings=null_as("–")),
            field("reason", custom__minWidth=80),
            field("X axis", custom__minWidth=150),
            _lost(custom__width=60),
        ],
    )


def _lost(**properties: object) -> Json:
    """The column of lines that could not be logged."""
    return field(
        "lost",
        unit="none",
        thresholds=thresholds((None, GREEN), (1, RED)),
        color={"mode": "thresholds"},
        custom__displayMode="color-text",
        **properties,
    )


def _ledger() -> Json:
    streams = ("stdout", "stderr")
    targets = []
    for ref, stream in zip("AB", streams, strict=True):
        account = '{{trimPrefix "{" .account}}'
        labels = "".join(f'"{label}":"{{{{.{label}}}}}",' for label in _CAPTURE)
        events = job_events(ACCOUNTS, f"account=ledger.{stream}")
        line = f'{{{labels}"stream":"{stream}",{account}'
        targets.append(loki(f"{events} | line_format `{line}`", lines=1000, ref=ref))
    return table(
        "Line ledger",
        "What became of each line, by capture and stream: read = stored + collapsed (repeats) + blank + dropped "
        "(by the mode) + commands + pending (on the screen) + lost.",
        targets,
        height=5,
        transformations=[
            *order_by_time(),
            decode(),
            *newest_of_each([*_CAPTURE, "stream"], COLUMNS, merge=True),
        ],
        overrides=[
            *_NARROW,
            field("stream", custom__width=70),
            *(field(column, custom__width=100) for column in COLUMNS if column != "lost"),
            _lost(),
        ],
    )


def _events() -> Json:
    names = "mode_changed|mode_inherited|command_refused|commands_fenced|commands_resumed|json_hint|config_refused"
    names += "|metadata_pattern_off|values_masked"
    names += f"|config_differs|output_slowed|output_slowed_no_longer|{queries.JOB_ENDED}|user_event|{_DROPS}|"
    names += "|".join((*queries.HEARTBEATS, NOT_CAPTURED))
    labels = "".join(f'"{label}":"{{{{.{label}}}}}",' for label in ("event", *_CAPTURE))
    message = (
        f"{{{{if .message}}}}{{{{{clean_text('.message')}}}}}"
        f"{{{{else}}}}{{{{{clean_text('__line__')}}}}}{{{{end}}}}"
    )
    line = f'{{{labels}"time":{{{{unixEpochMillis __timestamp__}}}},"message":"{message}"}}'
    return table(
        "Mode changes and other events, newest first",
        "What the job told by /LOGCOMMAND or logshipper.event, and what capture has to say: late heartbeats, switches "
        "of the mode, refused commands, lost lines, limits of the spool, what the scheduler said at the end.",
        [loki(f"{job_events(names, 'message')} | line_format `{line}`", lines=500)],
        height=5,
        transformations=[
            *order_by_time(newest_first=True),
            decode(),
            as_time("time"),
            organize(order=["time", "event", "message", *_CAPTURE]),
        ],
        overrides=[
            *_NARROW,
            field("time", unit="dateTimeAsIso", custom__width=160),
            field("event", custom__width=150),
            field("message", custom__minWidth=300),
        ],
    )
