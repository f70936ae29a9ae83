"""`logshipper url`: the address of a job's page in Grafana."""

import argparse
import os
import re
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import ConfigError, QueryError, UnknownJob
from logshipper.safe_text import safe, safe_lines
from logshipper_ingest.config.site import SYSTEM_PATH, Site, look, user_file
from logshipper_observe.base.running import say
from logshipper_observe.base.words import RUNNING_STATES
from logshipper_observe.commands import completers
from logshipper_observe.commands.options import JOB_HELP, add_completed, add_loki, describe
from logshipper_observe.query.opening import metrics_of, resolve_one

if TYPE_CHECKING:
    from logshipper_ingest.loki.store import LokiStore

LOOK_SECS = 5.0  # in all, for the range of a job with a known id
_TIMEOUT_SECS = 2.0
_PAD_MS = 60_000  # for late data, and the samples around a short job
_MS_NS = 1_000_000
# Slurm's, and those that a node's agent gives: ID.uUID
_ID = re.compile(r"[0-9]+|[A-Za-z0-9._-]+\.u[0-9]+")


class _Page(NamedTuple):
    """A job's page, and its range of time."""

    job_id: str
    cluster: str
    begin_ms: int | None = None  # of Unix time; None: the page's own range
    end_ms: int | None = None  # None: now


def _ask_loki(site: Site, args: argparse.Namespace, name: str, secs: float) -> _Page:
    """Return the page. Raises QueryError without an answer in time, UnknownJob for an unknown job.

    Asks in a separate thread, so that a hanging server or name service costs at most these seconds.
    """
    outcomes: list[_Page | Exception] = []
    warnings: list[str] = []

    def ask() -> None:
        try:
            by_id = _ID.fullmatch(name) is not None
            with _open_store(site, args, warnings, by_id=by_id) as store:
                outcomes.append(_page_in(store, name, args))
        except Exception as error:  # any error: the waiting thread raises it
            outcomes.append(error)

    thread = threading.Thread(target=ask, name="asking", daemon=True)
    thread.start()
    thread.join(secs)
    if not outcomes:
        raise QueryError(f"Loki at {site.loki.url}", 0, f"no answer within {secs:g} s")
    for words in warnings:
        say(safe(words))
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
    return outcomes[0]


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Prints the address of a job's page in Grafana, with the job's own range of time where\n"
        "Loki knows it. In a Slurm job, JOB may be left out: it is the job itself.\n"
        "The site file says where Grafana is: its table [grafana] has `url`.",
        "examples:\n"
        "  logshipper url 4711\n"
        "  logshipper url last --cluster alpha\n"
        "  logshipper url train.py --since 30d\n"
        '  xdg-open "$(logshipper url 4711)"\n'
        "  logshipper url            in a job's script: the job's own page",
    )
    options = {"metavar": "JOB", "nargs": "?", "help": JOB_HELP}
    add_completed(parser, completers.jobs_in_loki, "job", **options)
    add_loki(parser.add_argument_group("asking Loki"))
    parser.set_defaults(source="loki", store=None)


def call(args: argparse.Namespace) -> int:
    site, problems = look(
        os.environ, path=args.site, loki_url=args.loki_url, prometheus_url=args.prometheus_url
    )
    _check(site, problems)
    page = _own_page(site, args) if args.job is None else None
    if page is None:
        name = args.job or os.environ.get("SLURM_JOB_ID")
        if not name:
            raise ConfigError("JOB", ["which job? Only inside a Slurm job it may be left out"])
        page = _page(site, problems, args, name)
    sys.stdout.write(safe_lines(site.grafana.job_page(*page) + "\n"))
    return 0


def _check(site: Site, problems: list[str]) -> None:
    """Raise ConfigError if the site file gives no address, or a wrong one; its Loki does not
    matter."""
    if site.grafana.url and not any(problem.startswith("[grafana]") for problem in problems):
        return
    if not site.grafana.url:
        place = f"of {site.path}" if site.path else f"of {user_file(os.environ)} or {SYSTEM_PATH}"
        advice = 'no address of Grafana: write `url = "https://grafana.example.org"` into the table [grafana]'
        problems = [*problems, f"{advice} {place}"]
    raise ConfigError(site.path or "grafana", problems)


def _own_page(site: Site, args: argparse.Namespace) -> _Page | None:
    """Return the page of the surrounding job; None if its begin is unknown (Slurm 22.05 and older)."""
    job_id, began = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_START_TIME", "")
    if not job_id or not re.fullmatch(r"[0-9]{1,11}", began, re.ASCII):
        return None
    return _Page(job_id, args.cluster or site.grafana.cluster, int(began) * 1000 - _PAD_MS)


def _page(site: Site, problems: list[str], args: argparse.Namespace, name: str) -> _Page:
    """Return the page of a name. Raises UnknownJob, and all errors of Loki if only Loki knows it."""
    by_id = _ID.fullmatch(name) is not None
    without_range = _Page(name, args.cluster or site.grafana.cluster)
    if problems or not site.loki.url:
        reason = "; ".join(problems) or f"{site.path or 'the site file'} doesn't say where Loki is"
        if name == "last":
            words = f"{reason}: only there it is known which job is the last one"
            raise ConfigError(site.path or "JOB", [words])
        assumption = "" if by_id else f", and takes {safe(name)} for a job's id"
        say(f"{reason}: the address has no range of time{assumption}")
        return without_range
    try:
        secs = LOOK_SECS if by_id else site.loki.timeout_secs + LOOK_SECS
        return _ask_loki(site, args, name, secs)
    except QueryError as error:
        if not by_id:
            raise
        say(f"{error}: the address has no range of time")
    except UnknownJob as error:
        if not by_id or error.suggestions:
            raise
        say(str(error))
    return without_range


def _open_store(
    site: Site, args: argparse.Namespace, warnings: list[str], *, by_id: bool
) -> "LokiStore":
    """Open Loki.

    warnings: gets faults that stop nothing. by_id: a job's script may wait, and the address is
    nearly known.
    """
    from logshipper_ingest.loki.client import LokiClient
    from logshipper_ingest.loki.store import DEFAULT_SINCE_SECS, LokiStore

    def quick(secs: float) -> float:
        return min(secs, _TIMEOUT_SECS) if by_id else secs

    prometheus = replace(site.prometheus, timeout_secs=quick(site.prometheus.timeout_secs))
    client = LokiClient(replace(site.loki, timeout_secs=quick(site.loki.timeout_secs)))
    return LokiStore(
        client,
        metrics=metrics_of(prometheus, None) if prometheus.url else None,
        since_secs=DEFAULT_SINCE_SECS if args.since is None else args.since,
        cluster=args.cluster,
        say=warnings.append,
        close=client.close,
    )


def _page_in(store: "LokiStore", name: str, args: argparse.Namespace) -> _Page:
    """Return the page of a job in Loki. Raises UnknownJob, with suggestions for ambiguous names."""
    if _ID.fullmatch(name):
        # no beginning of another job's id: the job may not be there yet
        clusters = store.clusters_of(name)
        if not clusters:
            words = f"nothing of job {name} is in {store.name} yet"
            raise UnknownJob(name, f"{words}: the address has no range of time")
        if len(clusters) > 1:
            words = f"job {name} is there in several clusters: give --cluster NAME"
            raise UnknownJob(name, words, clusters)
        job_id = name
    else:
        job_id = resolve_one(store, name, args)
    with store.open(job_id) as reader:
        summary, captures = reader.summary, reader.captures
    begins = [capture.started_ns for capture in captures] or [summary.started_ns]
    ends = [capture.ended_ns for capture in captures if capture.ended_ns]
    ends.append(summary.ended_ns or summary.heartbeat_ns)
    running = summary.state in RUNNING_STATES
    end_ms = None if running else max(ends) // _MS_NS + _PAD_MS
    return _Page(job_id, store.cluster_of(job_id), min(begins) // _MS_NS - _PAD_MS, end_ms)
