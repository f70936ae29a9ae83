"""The header of a job's page: what became of the job, at a first glance, and its running bars."""

from typing import Any

from logshipper.spool.segment import MAX_STATUS_BARS
from logshipper_grafana.pages import job_console
from logshipper_grafana.parts import Json, colors, links, mappings, queries, states, transforms
from logshipper_grafana.parts.panels import label_only, loki, lost_lines, override, stat, table
from logshipper_grafana.parts.queries import ACCOUNTS, job_lines, newest
from logshipper_grafana.parts.records import as_text

OF_ATTEMPT = "Of the attempt that is chosen above (at first the last one), from the events in Loki."
UNKNOWN = "–"
_FAILED = mappings.matching(f"^(?!exit code 0$|{queries.NOT_ENDED}$|{UNKNOWN}$).+", colors.RED)
_NO_CARETS = r" !~ `^[ ^~]*$`"  # below a line of a traceback


def header() -> list[Json]:
    """Return the panels for a first glance, and the running bars below."""
    lost = f"sum({newest(' | unwrap lost', ACCOUNTS, 'lost', attempts='')})"
    return [
        _stat(
            "State",
            "What Slurm says of its end, else RUNNING while one capture runs, then the worst end; UNRESPONSIVE: no "
            "sign of life for 20 seconds, as the node's agent says, or for a minute where it doesn't.",
            queries.newest_state(),
            width=3,
            defaults={"mappings": states.BY_NUMBER},
            no_value="no such job here",
        ),
        _stat(
            "Ended by",
            "Exit code or signal, and the reason where there is one; the worst of all captures.",
            queries.end_words(),
            width=7,
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
            width=3,
            unit="s",
            options={**label_only("(Value #A|limit)"), "textMode": "value"},
        ),
        lost_lines(
            "Lines that were printed and could not be logged, of all attempts: red when it isn't 0. The job's own "
            "output has them.",
            loki(lost, instant=True),
            width=3,
            height=2,
            no_value=UNKNOWN,
        ),
        _stderr_lines(),
        _records(),
        _bars(),
    ]


def _stat(title: str, description: str, *exprs: str, **more: Any) -> Json:
    """A number of the chosen attempt. more: as for `stat`. Any: those differ in type."""
    targets = [loki(expr, instant=True, ref=ref) for ref, expr in zip("ABC", exprs, strict=False)]
    options: dict[str, Any] = {"height": 2, "no_value": UNKNOWN} | more
    return stat(title, f"{OF_ATTEMPT} {description}", *targets, **options)


def _stderr_lines() -> Json:
    """Leads to the same page with these lines alone."""
    stored = newest(" | unwrap lsstderr", ACCOUNTS, "lsstderr=ledger.stderr.stored")
    kept = ("host", "attempt", "task")
    alone = links.page(links.JOB, kept=kept, job="${job:percentencode}", stream="stderr")
    return _stat(
        "Stderr",
        "Lines of standard error that were logged. A click shows them alone.",
        f"sum({stored})",
        width=2,
        unit="suffix: lines",
        defaults={"links": [links.link("These lines alone", alone)]},
    )


def _records() -> Json:
    """Return the number of records, and of those that graphs cannot show."""
    dropped = " + ".join(
        f"sum({newest(' | unwrap lsdropped', ACCOUNTS, f'lsdropped=ledger.{stream}.dropped')})"
        for stream in ("stdout", "stderr")
    )
    units = {
        "A": ("records", colors.GREY),
        "B": ("with NaN", colors.RED),
        "C": ("not logged", colors.RED),
    }
    return _stat(
        "Records",
        "While it runs, as of the last heartbeat. Records with NaN or an infinity have no point there in graphs, and "
        "the line goes on to the next number; lines that came while the mode was metadata or disabled are nowhere "
        "but in the job's own output.",
        f"sum({newest(' | unwrap records', ACCOUNTS, 'records')})",
        queries.records_with_gaps(),
        f"({dropped}) > 0",
        width=6,
        options={"textMode": "value"},  # the unit names the counted things
        overrides=[
            override(
                "byFrameRefID",
                ref,
                unit=f"suffix: {unit}",
                color=colors.fixed(colors.of_word(color)),
            )
            for ref, (unit, color) in units.items()
        ],
    )


def _bars() -> Json:
    """Return the live bars of both streams, then the reason of a failure.

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
            *transforms.decoded(),
            transforms.without_empty_frames(),
            *transforms.reduced({"lastNotNull": "shows"}, {}),
            transforms.rows_without_blank("shows"),
            transforms.organize(hidden=["Field"]),
        ],
        no_value="no bar is running, and nothing is on stderr",
    )
