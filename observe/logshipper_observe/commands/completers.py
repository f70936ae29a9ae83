"""Shell completion: jobs and keys of the local store, bounded, and silent after any fault.

With `--from loki` it offers nothing, so that no network delays the command line.
"""

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from logshipper_observe.query import opening

if TYPE_CHECKING:
    from logshipper_ingest.store.local_store import LocalStore

_JOBS = 200
_KEYS_OF = 20  # jobs whose keys are offered as columns
_INGEST_SECS = 0.3
_FACETS = ("auto", "job.host", "job.mode", "job.name", "job.nodes", "job.tasks", "job.user")


def jobs(prefix: str, parsed_args: argparse.Namespace, **_: object) -> dict[str, str]:
    """Ids, names and `last`, each with a few words about it, as shells show them."""
    words = _from_store(_jobs, parsed_args)
    return {word: about for word, about in words.items() if word.startswith(prefix)}


def jobs_in_loki(**_: object) -> list[str]:
    """Offer nothing if only Loki has the jobs."""
    return ["last"]


def states(**_: object) -> list[str]:
    from logshipper_observe.base.words import STATES

    return [state.lower() for state in STATES]


def facets(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Keys of the first job that is named, properties that `diff` compares, and `auto`."""
    return [*keys(prefix, parsed_args), *_after_comma(prefix, _FACETS)]


def columns(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Offer columns for sorting, except tags: properties, and keys of the newest jobs; after a
    comma, the next one."""
    from logshipper_observe.model.properties import PROPERTIES

    job_keys = _from_store(_keys_of_newest, parsed_args)
    return _after_comma(prefix, [*sorted(PROPERTIES), *job_keys])


def keys(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Keys of the job that is named on the command line; after a comma, the next one."""
    return _after_comma(prefix, _from_store(_keys, parsed_args))


def _after_comma(prefix: str, names: Iterable[str]) -> list[str]:
    before, comma, _ = prefix.rpartition(",")
    words = [f"{before}{comma}{name}" for name in names]
    return [word for word in words if word.startswith(prefix)]


def _from_store(
    read: "Callable[[LocalStore, argparse.Namespace], dict[str, str]]", args: argparse.Namespace
) -> dict[str, str]:
    """Return words with a few others about each; none from Loki, without a store, after a fault."""
    try:
        if opening.is_from_loki(args):
            return {}
        with opening.open_local(argparse.Namespace(store=getattr(args, "store", None))) as store:
            return {} if store is None else read(store, args)
    except Exception:
        return {}  # a traceback would land in the midst of the user's command line


def _jobs(store: "LocalStore", _: argparse.Namespace) -> dict[str, str]:
    from logshipper.safe_text import safe

    store.ingest(deadline_secs=_INGEST_SECS)
    newest = store.jobs()[:_JOBS]
    words = {job.job_id: f"{safe(job.name)} ({job.state})" for job in newest}
    if newest:
        words = {"last": words[newest[0].job_id]} | words
    for job in newest:
        if job.name.isprintable():
            words.setdefault(job.name, f"{job.job_id} ({job.state})")
    return words


def _keys_of_newest(store: "LocalStore", _: argparse.Namespace) -> dict[str, str]:
    from logshipper_observe.model.properties import PROPERTIES

    jobs = [job for job in store.jobs()[:_KEYS_OF] if job.records]
    names = sorted({key for job in jobs for key in store.key_values(job)})
    return {
        f"metadata.{key}" if key in PROPERTIES else key: "" for key in names if key.isprintable()
    }


def _keys(store: "LocalStore", args: argparse.Namespace) -> dict[str, str]:
    name = (args.job if hasattr(args, "job") else next(iter(args.jobs), "")) or "last"
    with store.open(store.resolve(name)) as reader:
        if getattr(args, "reread", False):
            from logshipper_observe.model.reread import RereadJob, SeriesSearch

            search = SeriesSearch()
            search.read_on(reader, _INGEST_SECS)
            key_stats = RereadJob(reader, search).keys()
        else:
            key_stats = reader.keys()
    return {key.key: "" for key in key_stats}
