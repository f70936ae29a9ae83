"""Opens the store for a reading command: Loki, or the local one, which first ingests its spool for
complete answers."""

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from logshipper.errors import ConfigError, StoreError, UnknownJob, UsageError, os_words
from logshipper.safe_text import safe
from logshipper_ingest.console.progress_bar import Bar
from logshipper_observe.base.running import say
from logshipper_observe.base.waiting import Watch, WatchedEntries
from logshipper_observe.base.words import count, size
from logshipper_observe.query.selectors import no_single_job, parent_of, resolve_each

if TYPE_CHECKING:
    from logshipper_ingest.config.site import Site
    from logshipper_ingest.loki.finding import Metrics
    from logshipper_ingest.loki.store import LokiStore
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore
    from logshipper_ingest.servers.server_access import ServerAccess
    from logshipper_ingest.store.local_store import LocalStore
    from logshipper_observe.model.overlay import Overlay

LIST_SECS = 10.0  # how long ingesting may hold up a list, and one job's reading
JOB_SECS = 60.0
LOCAL, LOKI = "local", "loki"
LOKI_OPTIONS = ("site", "loki_url", "prometheus_url", "since", "cluster")


Ask: TypeAlias = Callable[[Callable[[], str]], str]
Part: TypeAlias = "Callable[[JobSummary, int], None] | None"


def is_from_loki(args: argparse.Namespace) -> bool:
    """Return whether --from names Loki, or the site file does for users without --from and store."""
    if getattr(args, "source", None) is not None:
        return bool(args.source == LOKI)
    if getattr(args, "default_source", None) is None:
        args.default_source = _default_source(args)
    return bool(args.default_source == LOKI)


def _default_source(args: argparse.Namespace) -> str:
    if getattr(args, "store", None) is not None or os.environ.get("LOGSHIPPER_STORE"):
        return LOCAL
    from logshipper_ingest.config.site import default_source

    try:
        return default_source(os.environ, path=getattr(args, "site", None))
    except ConfigError as error:
        say(f"{error}; the local store is read")  # a site's broken file hides no jobs of the user
        return LOCAL


def where_else(args: argparse.Namespace) -> str:
    """Name the place of jobs outside the local store, in a sentence; "" without one, and for users
    who choose a store."""
    if (
        args.source is not None
        or args.store is not None
        or os.environ.get("LOGSHIPPER_STORE")
        or is_from_loki(args)
    ):
        return ""
    from logshipper.start.node_agent_socket import socket_path
    from logshipper_ingest.config.site import is_known

    if _is_socket(socket_path()):
        return "runs on this node go to its agent: --from loki reads them"
    if not is_known(os.environ):
        return ""
    return "jobs on nodes with an agent are in Loki: --from loki reads them"


def say_where_else(args: argparse.Namespace) -> None:
    words = where_else(args)
    if words:
        say(words)


def _is_socket(path: str) -> bool:
    try:
        return bool(path) and stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def open_store(args: argparse.Namespace) -> Iterator["JobStore | None"]:
    """Open the selected store: Loki, or the local one; None without a local one."""
    if not is_from_loki(args):
        with open_local(args) as local:
            yield local
        return
    with closing(_open_loki(args)) as store:
        yield store


@contextmanager
def open_local(args: argparse.Namespace) -> Iterator["LocalStore | None"]:
    """Open the store of --store, or of the environment; None without one."""
    _check_options(args)
    store = open_folder(store_folder(args))
    with nullcontext() if store is None else closing(store):
        yield store


def store_folder(args: argparse.Namespace) -> str:
    from logshipper.spool.captures import store_root

    return store_root(args.store)


def store_place(args: argparse.Namespace) -> str:
    """Return the place of the jobs: the store's folder, or Loki's address."""
    return site_of(args).loki.url if is_from_loki(args) else store_folder(args)


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that do not fit the local store."""
    loki_options = [name for name in LOKI_OPTIONS if getattr(args, name, None) is not None]
    if loki_options:
        option = f"--{loki_options[0].replace('_', '-')}"
        raise UsageError(option, ["is for Loki only: give --from loki as well"])


def site_of(args: argparse.Namespace) -> "Site":
    from logshipper_ingest.config.site import find

    return find(
        os.environ, path=args.site, loki_url=args.loki_url, prometheus_url=args.prometheus_url
    )


def _open_loki(args: argparse.Namespace) -> "LokiStore":
    if args.store is not None:
        raise UsageError("--store", ["is a local store's folder: not together with --from loki"])
    return open_loki(
        site_of(args),
        since_secs=args.since,
        cluster=args.cluster,
        watch=Watch() if sys.stderr.isatty() else None,
        progress=Bar("Reading metadata", count, " records"),
        say=say,
    )


def open_loki(
    site: "Site",
    *,
    since_secs: float | None = None,
    cluster: str | None = None,
    watch: Watch | None = None,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None],
) -> "LokiStore":
    """Open a site's jobs. since_secs: None for the default; watch: names the server during a wait;
    progress, say: see LokiStore."""
    from logshipper_ingest.loki.client import LokiClient
    from logshipper_ingest.loki.store import DEFAULT_SINCE_SECS, LokiStore

    client = LokiClient(site.loki)

    def close() -> None:
        client.close()
        if watch is not None:
            watch.close()

    return LokiStore(
        client if watch is None else WatchedEntries(client, watch),
        metrics=metrics_of(site.prometheus, watch) if site.prometheus.url else None,
        since_secs=DEFAULT_SINCE_SECS if since_secs is None else since_secs,
        cluster=cluster,
        progress=progress,
        say=say,
        close=close,
    )


def metrics_of(access: "ServerAccess", watch: Watch | None) -> "Metrics":
    """Return a client of Prometheus. watch: names the server during a wait."""
    from logshipper_ingest.loki.finding import SeriesValue
    from logshipper_ingest.metrics.prometheus import PrometheusClient

    def ask(promql: str) -> list[SeriesValue]:
        with (
            PrometheusClient(access) as client,
            nullcontext() if watch is None else watch.waiting_for(client.name),
        ):
            answer = client.query(promql)
        return [
            SeriesValue(series.labels, sample.value)
            for series in answer
            for sample in series.samples
        ]

    return ask


def overlay_of(store: "JobStore", tell: Callable[[str], None] = say) -> "Overlay":
    """Return the reader's tags and notes of a store's jobs."""
    from logshipper_ingest.store.local_store import LocalStore
    from logshipper_observe.model.overlay import Overlay

    store = getattr(store, "stored", store)  # of a RereadStore
    if isinstance(store, LocalStore):
        return Overlay.of_local(store, tell=tell)
    return Overlay.of_loki(tell=tell)


def open_folder(root: str) -> "LocalStore | None":
    """Open a local store; None without one. Raises StoreError, also if its folder is unreadable."""
    from logshipper.spool.captures import spool_root
    from logshipper_ingest.store.local_store import LocalStore

    if os.path.isdir(spool_root(root)):
        return LocalStore(root, create=True)
    try:
        os.lstat(root)
        is_empty = os.path.isdir(root) and not os.listdir(root)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(root, f"can't be read: {os_words(error)}") from None
    return None if is_empty else LocalStore(root)


def ingest(store: "JobStore", *, job_id: str | None = None, secs: float = LIST_SECS) -> list[str]:
    """Let the store ingest the spool of one job or of all; return the faults, a sentence each."""
    bar = Bar("Reading the spool", size)
    try:
        report = store.ingest(deadline_secs=secs, job_id=job_id, progress=bar)
    finally:
        bar.clear()
    problems = list(report.problems)
    if not report.complete and not problems:
        problems.append("the spool was not read completely in time: repeat the command for more")
    return problems


def begin_with(args: argparse.Namespace) -> str:
    """Return the command for a first job in this store."""
    option = f"--store {args.store} " if args.store else ""
    return f"logshipper run {option}-- COMMAND"


def no_jobs_yet(args: argparse.Namespace, name: str) -> UnknownJob:
    """Return the error for a job of a local store that does not exist yet."""
    words = f"no job {name!r}: {store_folder(args)} has no jobs yet"
    parts = (words, f"begin with `{begin_with(args)}`", where_else(args))
    return UnknownJob(name, "; ".join(filter(None, parts)))


@contextmanager
def _open_for(args: argparse.Namespace, names: list[str]) -> Iterator["JobStore"]:
    """Open the store, with the spool of these jobs ingested.

    Prints on stderr ingestion faults and, for `last`, the place of newer jobs. Raises UnknownJob
    without a store.
    """
    with open_store(args) as store:
        if store is None:
            raise no_jobs_yet(args, names[0])
        if not is_from_loki(args):  # a known id needs no list from Loki
            for problem in ingest_for(store, names):
                say(problem)
            if "last" in names:
                say_where_else(args)
        yield store


@contextmanager
def open_job(
    args: argparse.Namespace, ask: Ask = lambda question: question(), *, part: Part = None
) -> Iterator[tuple["JobStore", str]]:
    """Open the store, and find the job of `args.job`, with its spool ingested.

    ask: wraps calls of a server; part: gets the job NAME and i for NAME:i, if only NAME is a job's
    name. Prints on stderr ingestion faults and, for `last`, the place of newer jobs. Raises
    UnknownJob.
    """
    with _open_for(args, [args.job]) as store:
        yield store, ask(lambda: resolve_one(store, args.job, args, part))


@contextmanager
def known_jobs(
    args: argparse.Namespace, names: list[str], *, part: Part = None
) -> Iterator[tuple["JobStore", list[str], list[UnknownJob]]]:
    """Open the store, and find the jobs of names, ranges and wildcards, each once, with an error
    for each unknown one.

    Ingests their spool. part: as in `open_job`, for a single name. Prints ingestion faults on
    stderr. Raises UnknownJob without a store.
    """
    with _open_for(args, names) as store:
        ids, unknown = resolve_several(store, names, args)
        parent = parent_of(names[0], store.jobs()) if unknown and len(names) == 1 else None
        if part is not None and parent is not None:
            part(*parent)
            ids, unknown = [parent[0].job_id], []
        if getattr(args, "reread", False):
            from logshipper_observe.model.reread import RereadStore  # late: rarely needed

            yield RereadStore(store), ids, unknown
        else:
            yield store, ids, unknown


@contextmanager
def chosen_jobs(
    args: argparse.Namespace,
) -> Iterator[tuple["JobStore | None", list[str], list[UnknownJob]]]:
    """Find the jobs of `args.jobs`, or all without names, like `known_jobs`; the store is None if
    there is none.

    Prints unknown names on stderr.
    """
    with open_store(args) as store:
        ids: list[str] = []
        if store is None:
            unknown = [no_jobs_yet(args, name) for name in args.jobs]
        else:
            for problem in ingest(store):
                say(problem)
            ids, unknown = resolve_several(store, args.jobs, args)
        for error in unknown:
            say(safe(str(error)))
        yield store, ids, unknown


def ingest_for(store: "JobStore", names: list[str]) -> list[str]:
    """Ingest the spool of these names: a known id's own, or everything for other names."""
    from logshipper_ingest.store.local_store import LocalStore

    if isinstance(store, LocalStore) and all(store.summary(name) is not None for name in names):
        return [
            problem
            for name in dict.fromkeys(names)
            for problem in ingest(store, job_id=name, secs=JOB_SECS)
        ]
    return ingest(store, secs=JOB_SECS)


def resolve(store: "JobStore", name: str, args: argparse.Namespace) -> str:
    """Return the id of the job with a name. Raises UnknownJob, with suggestions."""
    try:
        return store.resolve(name)
    except UnknownJob as error:
        elsewhere = "" if name == "last" else where_else(args)
        raise UnknownJob(name, unknown_words(error, elsewhere), error.suggestions) from None


def resolve_one(store: "JobStore", name: str, args: argparse.Namespace, part: Part = None) -> str:
    """Resolve like `resolve`, for commands on one job: the error mentions names of several jobs.

    part: see `open_job`.
    """
    try:
        return resolve(store, name, args)
    except UnknownJob as error:
        jobs = store.jobs()
        parent = parent_of(name, jobs)
        if part is not None and parent is not None:
            part(*parent)
            return parent[0].job_id
        changed = no_single_job(error, jobs)
        if changed is error:
            raise
        raise UnknownJob(name, unknown_words(changed), changed.suggestions) from None


def unknown_words(error: UnknownJob, elsewhere: str = "") -> str:
    """Return the error for a terminal, with suggestions, and other places of jobs."""
    words = str(error)
    if error.suggestions and "did you mean" not in words.lower():
        words += f"; did you mean {' or '.join(error.suggestions[:3])}?"
    if elsewhere:
        words += f"{'' if words.endswith('?') else ';'} {elsewhere}"
    return safe(words)  # names of jobs are untrusted


def resolve_several(
    store: "JobStore", names: Sequence[str], args: argparse.Namespace
) -> tuple[list[str], list[UnknownJob]]:
    """See `resolve_each`; the errors' words are for a terminal."""
    return resolve_each(names, lambda name: resolve(store, name, args), store.jobs)


def check_attempt(attempts: set[int], attempt: int | None) -> None:
    """Raise StoreError for an unknown attempt of a job."""
    if attempt is not None and attempt not in attempts:
        has = ", ".join(map(str, sorted(attempts))) or "none"
        raise StoreError("--attempt", f"the job has no attempt {attempt}; it has {has}")
