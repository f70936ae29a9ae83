"""The variables of a job's page. Those in addresses: cluster, job, attempt, task, host, xsel, y,
stream, lines, search."""

from logshipper_grafana.parts import (
    Json,
    key_queries,
    loki_metrics,
    queries,
    records,
    run_queries,
    variables,
)
from logshipper_grafana.parts.x_axis import CHOICE, X, x_choice

STREAMS = {"stdout|stderr": "stdout and stderr", "stdout": "stdout", "stderr": "stderr"}

RECORDS = {"log|command": "without records", "log|metadata|command": "with records"}

CHOSEN = ("host", "attempt", "task", "y", "stream", "lines")  # kept by links to the same job


def page_variables() -> list[Json]:
    return [
        # typed, since a list would hold all jobs of the time range, and lose a job that Prometheus
        # has forgotten
        variables.text("job", "Job", "The job's id. The page Jobs finds it."),
        loki_metrics.source(loki_metrics.known_jobs(queries.OF_JOB)),
        *loki_metrics.nodes(),
        variables.query(
            "host",
            "Node",
            "The nodes that the job's captures ran on; everything on this page is of the chosen ones.",
            queries.hosts(),
            variables.label_pattern("host"),
            sort=variables.ALPHABETICAL,
            multi=True,
            logql=loki_metrics.hosts(),
        ),
        variables.hidden(
            "shard",
            "Which of their streams hold the job's lines.",
            queries.shard(),
            variables.label_pattern("shard"),
        ),
        variables.hidden(
            "slurm",
            "The nodes whose agents tell how Slurm ended jobs.",
            queries.slurm_hosts(),
            variables.label_pattern("host"),
            multi=True,
            refresh=variables.ON_LOAD,
            logql=loki_metrics.slurm_hosts(),
        ),
        *_own_time(),
        *_captures(),
        *_x(),
        *_keys(),
        variables.choice(
            "stream", "Stream", "What of the output is shown: stdout, stderr, or both.", STREAMS
        ),
        variables.choice(
            "lines", "Console", "Whether lines that are records stand in the console, too.", RECORDS
        ),
        variables.text(
            "search", "Search", "Shows only lines with these words, in upper or lower case."
        ),
        variables.hidden(
            "backtick",
            "How words with a backtick are found.",
            queries.search_with_backtick(),
            queries.SEARCH_STAGE,
            refresh=variables.ON_LOAD,
        ),
        *variables.places(),
        variables.values(),
    ]


def _own_time() -> list[Json]:
    """Return the job's own time, for a link: Loki refuses logs of more than a month."""
    times = zip(("begin", "end"), queries.own_time(), loki_metrics.own_time(), strict=True)
    return [
        variables.hidden(
            name,
            "The job's own time, in ms since 1970.",
            promql,
            r"/\{\} (?<value>[0-9]+)/",
            refresh=variables.ON_LOAD,
            logql=logql,
        )
        for name, promql, logql in times
    ]


def _keys() -> list[Json]:
    """Return the choice of keys, and its graphs."""
    drawn = (f"key!=`{X}`", key_queries.NO_CONSTANT)
    several = f"({queries.job_max('logshipper_key', *drawn)}) > 1"
    chosen = f"({queries.job_max('logshipper_key', *drawn, 'key=~`${y:regex}`')}) > 1"
    ranks = f"max by (key)({queries.job_max('logshipper_x_rank', 'choice!=`auto`')})"
    of_series = queries.job_max("logshipper_key", *drawn, key_queries.OF_SERIES)
    x_of = queries.job_max("logshipper_key", *drawn, "x!=``")
    graphs, found = (
        key_queries.keys_to_draw(chosen, placed=keys)
        for keys in key_queries.graphs_and_found(chosen, ranks, x_of, of_series)
    )
    logql_graphs, logql_found = loki_metrics.keys_to_draw()
    return [
        variables.query(
            "y",
            "Keys",
            f"The keys that have a graph over X: those of more than one number; of more than "
            f"{key_queries.MAX_GRAPHS} the most telling ones.",
            f"group by(key)({several})",
            variables.label_pattern("key"),
            sort=variables.ALPHABETICAL,
            multi=True,
            all_value=".+",
            refresh=variables.ON_LOAD,
            logql=loki_metrics.drawable_keys(),
        ),
        variables.hidden(
            "graph",
            "Each key that is drawn, with what its query needs.",
            key_queries.or_no_graph(graphs),
            key_queries.PICKED_PATTERN,
            logql=logql_graphs,
            multi=True,
        ),
        variables.hidden(
            "found",
            "The same of series, next to other keys.",
            key_queries.or_no_graph(found, records.BLANK),
            key_queries.PICKED_PATTERN,
            logql=logql_found,
            refresh=variables.ON_LOAD,  # and after `y`, with each refresh
            multi=True,
        ),
        variables.hidden(
            "more_keys",
            "The heading of series; as text, how many keys have no graph, in words.",
            key_queries.more_keys_words(chosen, of_series),
            key_queries.HEADINGS,
            refresh=variables.ON_LOAD,
            logql=loki_metrics.more_keys_words(),
        ),
    ]


def _captures() -> list[Json]:
    """Return the choice among attempts and tasks, and its meaning: `last` stays valid for other
    jobs."""
    attempts, tasks = queries.attempt_choices(), queries.task_choices()
    logql_attempts, logql_tasks = loki_metrics.attempt_choices(), loki_metrics.task_choices()
    return [
        variables.query(
            "attempt",
            "Attempt",
            "Which start of a job that was started again; all: each is a series of its own.",
            attempts,
            variables.label_pattern("choice"),
            sort=variables.NUMERICAL,
            first="last",
            logql=logql_attempts,
        ),
        variables.hidden(
            "attempts",
            "The chosen attempt as a regular expression.",
            queries.choice_or_everything(attempts, "${attempt:raw}", "attempt"),
            variables.label_pattern("attempt"),
            logql=queries.choice_or_everything(logql_attempts, "${attempt:raw}", "attempt"),
        ),
        variables.hidden(
            "span",
            "When the chosen attempt began and ended.",
            run_queries.span(),
            variables.label_pattern("end", "begin"),
        ),
        variables.query(
            "task",
            "Task",
            "Whose numbers are shown: at first of the lowest task that has any; all: each is a series of its own.",
            tasks,
            variables.label_pattern("choice"),
            sort=variables.NUMERICAL,
            first="lowest",
            refresh=variables.ON_LOAD,
            logql=logql_tasks,
        ),
        variables.hidden(
            "tasks",
            "The chosen task as a regular expression.",
            queries.choice_or_everything(tasks, "${task:raw}", "task"),
            variables.label_pattern("task"),
            logql=queries.choice_or_everything(logql_tasks, "${task:raw}", "task"),
        ),
    ]


def _x() -> list[Json]:
    """Return the choice of X, and the thinning."""
    return [
        *x_choice(
            "The key that graphs have as X; auto: chosen by the rules.",
            (key_queries.x_choices(), loki_metrics.x_choices()),
            (key_queries.x_key(CHOICE), loki_metrics.x_key()),
        ),
        variables.hidden(
            "record_count",
            "How many records the job has on one node; -1: not known.",
            key_queries.record_count(),
            r"/\{\} (?<value>-?[0-9]+)/",
            logql=loki_metrics.record_count(),
        ),
        variables.hidden(
            "dec",
            "The digits that a record's number ends in to be drawn.",
            key_queries.thinning(),
            variables.label_pattern("dec"),
            refresh=variables.ON_LOAD,
        ),
        variables.hidden(
            "thinned",
            "How much is left out, in words.",
            key_queries.count_words(),
            variables.label_pattern("words"),
            refresh=variables.ON_LOAD,
        ),
    ]
