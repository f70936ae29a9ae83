"""The header of a job's page: what became of the job, at a first glance, and its running bars."""

from typing import Any

from logshipper.spool.captures import NOT_CAPTURED
from logshipper.spool.segment import MAX_STATUS_BARS
from logshipper_grafana.pages import job_console
from logshipper_grafana.parts import Json, colors, links, mappings, queries, states, transforms
from logshipper_grafana.parts.panels import PAGE_WIDTH, label_only, loki, override, stat, table
from logshipper_grafana.parts.queries import ACCOUNTS, job_events, job_lines, newest
from logshipper_grafana.parts.records import as_text

OF_ATTEMPT = "Of the attempt that is chosen above (at first the last one), from the events in Loki."
UNKNOWN = "–"
_FAILED = mappings.matching(f"^(?!exit code 0$|{queries.NOT_ENDED}$|{UNKNOWN}$).+", colors.RED)
_GREY, _RED = (colors.thresholds((None, color)) for color in (colors.GREY, colors.RED))
_NO_CARETS = r" !~ `^[ ^~]*$`"  # below a line of a traceback


def header() -> list[Json]:
    """Return the panels for a first glance: the job and its end, counts, and its newest lines."""
    return [
        _stat(
            "Job",
            "Its name and its user.",
            queries.name_words(),
            width=6,
            options=label_only("who"),
            no_value="no start in this time",
        ),
        _stat(
            "State",
            "What Slurm says of its end, else RUNNING while one capture runs, then the worst end; UNRESPONSIVE: no "
            "sign of life for 20 seconds, as the node's agent says, or for a minute where it doesn't.",
            queries.newest_state(),
            width=4,
            defaults={"mappings": states.BY_NUMBER},
            no_value="no such job here",
        ),
        _stat(
            "Ended by",
            "Exit code or signal, and the reason where there is one; the worst of all captures.",
            queries.end_words(),
            width=9,
            unit="string",
            options=label_only("end"),
            defaults={"mappings": [_FAILED]},
        ),
        # the limit in words next to the duration, as no unit is a duration behind a word
        _stat(
            "Ran for",
            "From its first start to its end, or its last sign of life; and its time limit, where the scheduler says "
            "that to its tasks: Slurm from 23.02 on does.",
            queries.duration(),
            queries.limit_words(),
            width=5,
            unit="s",
            options={**label_only("(Value #A|limit)"), "textMode": "value"},
        ),
        _counts(),
        _newest_lines(),
    ]


def _stat(title: str, description: str, *exprs: str, **more: Any) -> Json:
    """A number of the chosen attempt. more: as for `stat`. Any: those differ in type."""
    targets = [
        loki(expr, instant=True, ref=ref) for ref, expr in zip("ABCDEFG", exprs, strict=False)
    ]
    options: dict[str, Any] = {"height": 2, "no_value": UNKNOWN} | more
    return stat(title, f"{OF_ATTEMPT} {description}", *targets, **options)


def _counts() -> Json:
    """Return the numbers of lines and records, and everything that is missing, if it is not zero."""

    def count(value: str, attempts: str = queries.ATTEMPTS) -> str:
        name = value.replace(".", "_")
        return f"sum({newest(f' | unwrap ls{name}', ACCOUNTS, f'ls{name}={value}', attempts=attempts)})"

    dropped = " + ".join(count(f"ledger.{stream}.dropped") for stream in ("stdout", "stderr"))
    masked = job_events("values_masked", "values", attempts=queries.ATTEMPTS) + " | unwrap values"
    missed = job_events(NOT_CAPTURED, attempts=queries.ATTEMPTS)
    captures = "host, attempt, step, task"
    counts = {
        "lines lost": (count("lost", attempts=""), colors.limit(1)),
        "on stderr": (count("ledger.stderr.stored"), _GREY),
        "records": (count("records"), _GREY),
        "with NaN": (queries.records_with_gaps(), _RED),
        "not logged": (f"({dropped}) > 0", _RED),
        "masked": (f"sum(sum_over_time({masked} [$__range]))", _GREY),
        "tasks not captured": (
            f"count(sum by ({captures})(count_over_time({missed} [$__range])))",
            _RED,
        ),
    }
    kept = ("host", "attempt", "task")
    alone = links.page(links.JOB, kept=kept, job="${job:percentencode}", stream="stderr")
    errors = override("byFrameRefID", "B", links=[links.link("These lines alone", alone)])
    return _stat(
        "Lines and records",
        "Lost lines, of all attempts: printed, but not logged; the job's own output has them. Lines of standard "
        "error: a click shows them alone. Records: while it runs, as of the last heartbeat. If there are any: "
        "records with NaN or an infinity, which graphs can't draw; lines that the mode left out; values that a mask "
        "hides; tasks that went on without capture, as their node was too busy.",
        *(expr for expr, _ in counts.values()),
        width=9,
        height=4,
        options={"textMode": "value"},  # the unit names the counted things
        overrides=[
            *(
                override("byFrameRefID", ref, unit=f"suffix: {name}", thresholds=steps)
                for ref, (name, (_, steps)) in zip("ABCDEFG", counts.items(), strict=True)
            ),
            errors,
        ],
        steps=_GREY,
    )


def _newest_lines() -> Json:
    """Return the live bars of both streams, then the last lines: the reason of a failure, the result.

    Every fourth cell of a bar stays, so that percentage, rate and remaining time are visible. Each
    bar is a field, named by its place, and becomes a row. Ended bars leave a blank, which replaces
    their last state. Each answer begins with a text that is no number.
    """
    place = "".join(f"{{{{$.{label}}}}} " for label in (*queries.CAPTURE, "stream"))
    shows = f'"{job_console.SOURCE}{{{{{as_text("$ll")}{queries.SHORTER_BARS}}}}}"'
    texts = as_text(r'(replace "\n" "\u2028" __line__)') + r' | replace "\u2028" "\",\""'
    padding = rf'(repeat {MAX_STATUS_BARS} "\",\" ")'
    bars = rf'fromJson (print "[\"" ({texts}) {padding} "\"]")'
    bar = f'"{place}{{{{$li}}}}":{{{{if trim $ll}}}}{shows}{{{{else}}}}" "{{{{end}}}}'
    bar = f"{{{{if lt $li {MAX_STATUS_BARS}}}}},{bar}{{{{end}}}}"
    bars = f'{{"bars":" "{{{{range $li, $ll := {bars}}}}}{bar}{{{{end}}}}}}'
    lines = f'{{{{$ll := __line__}}}}{{"{place}{{{{unixEpochNanos __timestamp__}}}}":{shows}}}'
    return table(
        "Running bars, and the last lines",
        "The newest state of each bar that is on the screen and not final yet, every 10 s, of standard output and "
        f"standard error, a row each: of a stream the lowest {MAX_STATUS_BARS}. Then the last two lines of standard "
        "error, and of standard output.",
        [
            loki(f"{job_lines('status')}{queries.ATTEMPTS} | line_format `{bars}`", lines=200),
            *(
                loki(
                    f"{job_lines('log', streams=stream)}{queries.ATTEMPTS}{_NO_CARETS} | line_format `{lines}`",
                    lines=2,
                    ref=ref,
                )
                for ref, stream in (("B", "stderr"), ("C", "stdout"))
            ),
        ],
        height=4,
        width=PAGE_WIDTH - 9,
        options={"showHeader": False},
        transformations=[
            *transforms.decoded(),
            transforms.without_empty_frames(),
            *transforms.reduced({"lastNotNull": "shows"}, {}),
            transforms.rows_without_blank("shows"),
            transforms.organize(hidden=["Field"]),
        ],
        no_value="no line besides records",
    )
