"""The variables of a job's page. Those in addresses: cluster, job, attempt, task, host, xsel, y,
stream, search."""

from logshipper_grafana.parts import queries
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
)
from logshipper_grafana.parts.x_axis import CHOICE, X, x_choice

STREAMS = {"stdout|stderr": "stdout and stderr", "stdout": "stdout", "stderr": "stderr"}

CHOSEN = ("host", "attempt", "task", "y", "stream")  # what a link to the same job keeps


def variables() -> list[Json]:
    return [
        # typed, since a list would hold all jobs of the time range, and lose a job that Prometheus
        # has forgotten
        text_variable("job", "Job", "The job's id. The page Jobs finds it."),
        query_variable(
            "host",
            "Node",
            "The nodes that the job's captures ran on; everything on this page is of the chosen ones.",
            queries.hosts(),
            label_pattern("host"),
            sort=ALPHABETICAL,
            multi=True,
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
            queries.slurm_hosts(),
            label_pattern("host"),
            hide=HIDDEN,
            multi=True,
            refresh=ON_LOAD,
        ),
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
    ]


def _keys() -> list[Json]:
    """Somebody's choice of keys, and the graphs that it comes to."""
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
            f"group by(key)({several})",
            label_pattern("key"),
            sort=ALPHABETICAL,
            multi=True,
            all_value=".+",
            refresh=ON_LOAD,
        ),
        query_variable(
            "graph",
            "graph",
            "Each key that is drawn, with what its query needs.",
            queries.or_no_graph(queries.keys_to_draw(queries.first_by_name(chosen, places))),
            label_pattern("picked", "key"),
            sort=ALPHABETICAL,
            hide=HIDDEN,
            multi=True,
        ),
        query_variable(
            "more_keys",
            "more_keys",
            "How many keys have no graph, in words.",
            queries.more_keys_words(chosen),
            label_pattern("words"),
            hide=HIDDEN,
        ),
    ]


def _captures() -> list[Json]:
    """Somebody's choice among attempts and tasks, and what it stands for: `last` holds when the job
    changes."""
    attempts, tasks = queries.attempt_choices(), queries.task_choices()
    return [
        query_variable(
            "attempt",
            "Attempt",
            "Which start of a job that was started again; all: each is a series of its own.",
            attempts,
            label_pattern("choice"),
            sort=NUMERICAL,
            first="last",
        ),
        query_variable(
            "attempts",
            "attempts",
            "The chosen attempt as a regular expression.",
            queries.choice_or_everything(attempts, "${attempt:raw}", "attempt"),
            label_pattern("attempt"),
            hide=HIDDEN,
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
            tasks,
            label_pattern("choice"),
            sort=NUMERICAL,
            first="lowest",
            refresh=ON_LOAD,
        ),
        query_variable(
            "tasks",
            "tasks",
            "The chosen task as a regular expression.",
            queries.choice_or_everything(tasks, "${task:raw}", "task"),
            label_pattern("task"),
            hide=HIDDEN,
        ),
    ]


def _x() -> list[Json]:
    """Somebody's choice of X, and how much to thin."""
    return [
        *x_choice(
            "The key that graphs have as X; auto: chosen by the rules.",
            queries.job_max("logshipper_x_rank"),
            queries.x_ranks(CHOICE),
            queries.rule_of_job(CHOICE),
        ),
        query_variable(
            "dec",
            "dec",
            "The digits that a record's number ends in to be drawn.",
            queries.thinning(queries.job_max("logshipper_records")),
            label_pattern("dec"),
            hide=HIDDEN,
        ),
        query_variable(
            "thinned",
            "thinned",
            "How much is left out, in words.",
            queries.thinning_words(
                queries.job_max("logshipper_records"), known=queries.job_max("logshipper_job_info")
            ),
            label_pattern("words"),
            hide=HIDDEN,
        ),
    ]
