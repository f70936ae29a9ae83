"""The details of a job's page: its attempts, captures, line ledger, modes and other events."""

from logshipper.spool.captures import NOT_CAPTURED
from logshipper_grafana.pages.job_header import OF_ATTEMPT, UNKNOWN
from logshipper_grafana.parts import (
    Json,
    colors,
    links,
    mappings,
    queries,
    records,
    states,
    transforms,
)
from logshipper_grafana.parts.panels import (
    colored_text,
    field,
    label_only,
    loki,
    stat,
    table,
    time_column,
)
from logshipper_grafana.parts.queries import ACCOUNTS, CAPTURE, job_events, newest
from logshipper_ingest.model.ledger import COLUMNS

# of tables of captures: narrow columns
_NARROW = [
    field(name, custom__width=width) for name, width in zip(CAPTURE, (90, 70, 50, 50), strict=True)
]
NO_START = "no start in this time"  # as where a line's link leads


def details() -> list[Json]:
    return [_attempts(), *_mode_and_restarts(), _captures(), _ledger(), _events()]


def _mode_and_restarts() -> list[Json]:
    starts = f"count_over_time({job_events('started')} [$__range])"
    return [
        stat(
            "Mode now",
            f"{OF_ATTEMPT} What is logged: enabled, metadata or disabled; of several captures each that there is.",
            loki(_modes(), instant=True),
            width=4,
            options=label_only("mode"),
            defaults={"mappings": states.MODES},
            no_value=UNKNOWN,
        ),
        stat(
            "Restarts",
            "How often the job was started again, in the page's time.",
            loki(f"count(count by (attempt)({starts})) - 1", instant=True),
            width=4,
            steps=colors.thresholds((None, colors.GREEN), (1, colors.ORANGE)),
            no_value=UNKNOWN,
        ),
    ]


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
    fields_of_line = (
        f'{records.label_fields(*CAPTURE)}{records.TIME}{more}{{{{trimPrefix "{{" __line__}}}}'
    )
    return f"{job_events(names, *fields)}{stage} | line_format `{{{fields_of_line}`"


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
        no_value=NO_START,
        transformations=[
            *transforms.decoded(newest_first=True),
            *transforms.in_groups(
                ["attempt"],
                {**who, "host": "uniqueValues", "time": "last", "reason": "firstNotNull"},
            ),
            transforms.as_time("time"),
            transforms.as_text("host"),
            transforms.organize(
                {"host": "nodes", "time": "started"},
                order=["name", "user", "account", "partition", "host", "time", "attempt", "reason"],
            ),
        ],
        overrides=[
            field("name", custom__minWidth=90, noValue=""),
            # empty without Slurm
            *(field(name, custom__width=85, noValue="") for name in ("account", "partition")),
            field("nodes", custom__minWidth=90),
            time_column("started"),
            field("attempt", custom__width=75),
            field("reason", custom__minWidth=120, noValue=""),
            field("user", custom__width=85, links=links.of_user()),
        ],
    )


def _captures() -> Json:
    sign_ms = "{{if .ended_ns}}{{div (int .ended_ns) 1000000}}{{else}}{{unixEpochMillis __timestamp__}}{{end}}"
    x_words = f"{{{{if $lx.words}}}}{records.text('$lx.words')}{{{{end}}}}"
    x_axis = f"{{{{if .x_axis}}}}{{{{$lx := fromJson .x_axis}}}}{x_words}{{{{end}}}}"
    ended = f'"state":null,"seen":{sign_ms},"x":"{x_axis}",'
    columns = "state seen exit_code signal reason mode lines records lost x".split()
    return table(
        "How it went: captures of this job",
        "What the newest event of each capture says: a heartbeat while it runs, then its end. X axis: the X of its "
        "graphs and the rule that chose it, once it has ended.",
        [loki(_capture_events(ACCOUNTS, "ended_ns", "x_axis", more=ended), lines=1000)],
        height=5,
        transformations=[
            *transforms.decoded(),
            *transforms.newest_of_each(CAPTURE, columns),
            transforms.as_time("seen"),
            transforms.organize(
                {"seen": "end or last sign", "exit_code": "exit code", "x": "X axis"}
            ),
        ],
        overrides=[
            *_NARROW,
            colored_text("state", [*states.BY_NAME, *states.STILL_RUNNING], 150),
            colored_text("mode", states.MODES, 80),
            time_column("end or last sign"),
            *(field(name, custom__width=72) for name in ("signal", "lines", "records")),
            field("exit code", custom__width=85, mappings=mappings.null_as("–")),
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
        thresholds=colors.limit(1),
        color={"mode": "thresholds"},
        custom__displayMode="color-text",
        **properties,
    )


def _ledger() -> Json:
    targets = []
    for ref, stream in zip("AB", ("stdout", "stderr"), strict=True):
        account = job_events(ACCOUNTS, f"account=ledger.{stream}")
        line = f'{{{records.label_fields(*CAPTURE)}"stream":"{stream}",{{{{trimPrefix "{{" .account}}}}'
        targets.append(loki(f"{account} | line_format `{line}`", lines=1000, ref=ref))
    return table(
        "Line ledger",
        "What became of each line, by capture and stream: read = stored + collapsed (repeats) + blank + dropped "
        "(by the mode) + commands + pending (on the screen) + lost.",
        targets,
        height=5,
        transformations=[
            *transforms.decoded(),
            *transforms.newest_of_each([*CAPTURE, "stream"], COLUMNS, merge=True),
        ],
        overrides=[
            *_NARROW,
            field("stream", custom__width=70),
            *(field(column, custom__width=100) for column in COLUMNS if column != "lost"),
            _lost(),
        ],
    )


def _events() -> Json:
    names = "|".join((
        *("mode_changed", "mode_inherited", "command_refused", "commands_fenced", "commands_resumed"),
        *("json_hint", "config_refused", "metadata_pattern_off", "series_left_out", "series_off"),
        "series_rename_conflict",
        *("values_masked", "config_differs"),
        *("output_slowed", "output_slowed_no_longer", queries.JOB_ENDED, "user_event"),
        *(queries.DROPS, *queries.HEARTBEATS, NOT_CAPTURED),
    ))  # fmt: skip
    message, whole = records.text(".message"), records.text("__line__")
    message = f"{{{{if .message}}}}{message}{{{{else}}}}{whole}{{{{end}}}}"
    line = f'{{{records.label_fields("event", *CAPTURE)}{records.TIME}"message":"{message}"}}'
    return table(
        "Mode changes and other events, newest first",
        "What the job told by /LOGCOMMAND or logshipper.event, and what capture has to say: late heartbeats, switches "
        "of the mode, refused commands, lost lines, limits of the spool, what the scheduler said at the end.",
        [loki(f"{job_events(names, 'message')} | line_format `{line}`", lines=500)],
        height=5,
        transformations=[
            *transforms.decoded(newest_first=True),
            transforms.as_time("time"),
            transforms.organize(order=["time", "event", "message", *CAPTURE]),
        ],
        overrides=[
            *_NARROW,
            time_column("time"),
            field("event", custom__width=150),
            field("message", custom__minWidth=300),
        ],
    )
