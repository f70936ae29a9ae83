"""The variables of a job's page. Those in addresses: cluster, job, attempt, task, host, xsel, y,
stream, search."""

from logshipper_grafana.parts import loki_metrics, queries
from logshipper_grafana.parts.loki_metrics import SOURCE, either
from logshipper_grafana.parts.panels import Json
from logshipper_grafana.parts.variables import (
    ALPHABETICAL,
    HIDDEN,
    NUMERICAL,
    ON_LOAD,
    choice_variable,
    label_pattern,
    places,
    query_variable,
    text_variable,
    values,
)
from logshipper_grafana.parts.x_axis import CHOICE, X, x_choice

STREAMS = {"stdout|stderr": "stdout and stderr", "stdout": "stdout", "stderr": "stderr"}

CHOSEN = ("host", "attempt", "task", "y", "stream")  # kept by links to the same job


def variables() -> list[Json]:
    return [
        # typed, since a list would hold all jobs of the time range, and lose a job that Prometheus
        # has forgotten
        text_variable("job", "Job", "The job's id. The page Jobs finds it."),
        loki_metrics.source(loki_metrics.known_jobs(queries.OF_JOB)),
        *loki_metrics.nodes(),
        query_variable(
            "host",
            "Node",
            "The nodes that the job's captures ran on; everything on this page is of the chosen ones.",
            either(queries.hosts(), loki_metrics.hosts()),
            label_pattern("host"),
            sort=ALPHABETICAL,
            multi=True,
            source=SOURCE,
        ),
        query_variable(
            "shard",
            "shard",
            "Which of their streams hold the job's lines.",
            queries.shard(),
            label_pattern("shard"),
            hide=HIDDEN,
        ),
        query_variable(
            "slurm",
            "slurm",
            "The nodes whose agents tell how Slurm ended jobs.",
            either(queries.slurm_hosts(), loki_metrics.slurm_hosts()),
            label_pattern("host"),
            hide=HIDDEN,
            multi=True,
            refresh=ON_LOAD,
            source=SOURCE,
        ),
        *_own_time(),
        *_captures(),
        *_x(),
        *_keys(),
        choice_variable(
            "stream", "Stream", "What of the output is shown: stdout, stderr, or both.", STREAMS
        ),
        text_variable(
            "search", "Search", "Shows only lines with these words, in upper or lower case."
        ),
        query_variable(
            "backtick",
            "backtick",
            "How words with a backtick are found.",
            queries.search_with_backtick(),
            queries.SEARCH_STAGE,
            hide=HIDDEN,
            refresh=ON_LOAD,
        ),
        *places(),
        values(),
    ]


def _own_time() -> list[Json]:
    """Return the job's own time, for a link: Loki refuses logs of more than a month."""
    times = zip(("begin", "end"), queries.own_time(), loki_metrics.own_time(), strict=True)
    return [
        query_variable(
            name,
            name,
            "The job's own time, in ms since 1970.",
            either(promql, logql),
            r"/\{\} (?<value>[0-9]+)/",
            hide=HIDDEN,
            refresh=ON_LOAD,
            source=SOURCE,
        )
        for name, promql, logql in times
    ]


def _keys() -> list[Json]:
    """Return the choice of keys, and its graphs."""
    drawn = (f"key!=`{X}`", queries.NO_CONSTANT)
    several = f"({queries.job_max('logshipper_key', *drawn)}) > 1"
    chosen = f"({queries.job_max('logshipper_key', *drawn, 'key=~`${y:regex}`')}) > 1"
    places = queries.job_max("logshipper_x_rank", "choice!=`auto`")
    return [
        query_variable(
            "y",
            "Keys",
            f"The keys that have a graph of their own over X: those of more than one number; of more than "
            f"{queries.MAX_GRAPHS} the first by name.",
            either(f"group by(key)({several})", loki_metrics.drawable_keys()),
            label_pattern("key"),
            sort=ALPHABETICAL,
            multi=True,
            all_value=".+",
            refresh=ON_LOAD,
            source=SOURCE,
        ),
        query_variable(
            "graph",
            "graph",
            "Each key that is drawn, with what its query needs.",
            either(
                queries.or_no_graph(queries.keys_to_draw(queries.first_by_name(chosen, places))),
                loki_metrics.keys_to_draw(),
            ),
            queries.PICKED_PATTERN,
            sort=ALPHABETICAL,
            hide=HIDDEN,
            multi=True,
            source=SOURCE,
        ),
        query_variable(
            "more_keys",
            "more_keys",
            "How many keys have no graph, in words.",
            either(queries.more_keys_words(chosen), loki_metrics.more_keys_words()),
            label_pattern("words"),
            hide=HIDDEN,
            source=SOURCE,
        ),
    ]


def _captures() -> list[Json]:
    """Return the choice among attempts and tasks, and its meaning: `last` stays valid for other
    jobs."""
    attempts, tasks = queries.attempt_choices(), queries.task_choices()
    return [
        query_variable(
            "attempt",
            "Attempt",
            "Which start of a job that was started again; all: each is a series of its own.",
            either(attempts, loki_metrics.attempt_choices()),
            label_pattern("choice"),
            sort=NUMERICAL,
            first="last",
            source=SOURCE,
        ),
        query_variable(
            "attempts",
            "attempts",
            "The chosen attempt as a regular expression.",
            either(
                queries.choice_or_everything(attempts, "${attempt:raw}", "attempt"),
                queries.choice_or_everything(
                    loki_metrics.attempt_choices(), "${attempt:raw}", "attempt"
                ),
            ),
            label_pattern("attempt"),
            hide=HIDDEN,
            source=SOURCE,
        ),
        query_variable(
            "span",
            "span",
            "When the chosen attempt began and ended.",
            queries.span(),
            label_pattern("end", "begin"),
            hide=HIDDEN,
        ),
        query_variable(
            "task",
            "Task",
            "Whose numbers are shown: at first of the lowest task that has any; all: each is a series of its own.",
            either(tasks, loki_metrics.task_choices()),
            label_pattern("choice"),
            sort=NUMERICAL,
            first="lowest",
            refresh=ON_LOAD,
            source=SOURCE,
        ),
        query_variable(
            "tasks",
            "tasks",
            "The chosen task as a regular expression.",
            either(
                queries.choice_or_everything(tasks, "${task:raw}", "task"),
                queries.choice_or_everything(loki_metrics.task_choices(), "${task:raw}", "task"),
            ),
            label_pattern("task"),
            hide=HIDDEN,
            source=SOURCE,
        ),
    ]


def _x() -> list[Json]:
    """Return the choice of X, and the thinning."""
    return [
        *x_choice(
            "The key that graphs have as X; auto: chosen by the rules.",
            either(queries.x_choices(), loki_metrics.x_choices()),
            either(queries.x_key(CHOICE), loki_metrics.x_key()),
        ),
        query_variable(
            "record_count",
            "record_count",
            "How many records the job has on one node; -1: not known.",
            either(queries.record_count(), loki_metrics.record_count()),
            r"/\{\} (?<value>-?[0-9]+)/",
            hide=HIDDEN,
            source=SOURCE,
        ),
        query_variable(
            "dec",
            "dec",
            "The digits that a record's number ends in to be drawn.",
            queries.thinning(),
            label_pattern("dec"),
            hide=HIDDEN,
            refresh=ON_LOAD,
        ),
        query_variable(
            "thinned",
            "thinned",
            "How much is left out, in words.",
            queries.count_words(),
            label_pattern("words"),
            hide=HIDDEN,
            refresh=ON_LOAD,
        ),
    ]
