"""Shell completion: jobs and keys of the local store, bounded, and silent after any fault.

With `--from loki` it offers nothing, so that no network delays the command line.
"""

import argparse

from logshipper_observe.query.opening import is_from_loki

_JOBS = 200
_KEYS_OF = 20  # jobs whose keys are offered as columns
_INGEST_SECS = 0.3
_FACETS = ("auto", "job.host", "job.mode", "job.name", "job.nodes", "job.tasks", "job.user")


def jobs(prefix: str, parsed_args: argparse.Namespace, **_: object) -> dict[str, str]:
    """Ids, names and `last`, each with a few words about it, as shells show them."""
    try:
        return {} if is_from_loki(parsed_args) else _jobs(prefix, parsed_args)
    except Exception:
        return {}  # a traceback would land in the midst of the user's command line


def jobs_in_loki(**_: object) -> list[str]:
    """Offer nothing if only Loki has the jobs."""
    return ["last"]


def states(**_: object) -> list[str]:
    from logshipper_observe.base.words import STATES

    return [state.lower() for state in STATES]


def facets(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Keys of the first job that is named, properties that `diff` compares, and `auto`."""
    before, comma, _rest = prefix.rpartition(",")
    words = [f"{before}{comma}{name}" for name in _FACETS]
    return [*keys(prefix, parsed_args), *(word for word in words if word.startswith(prefix))]


def columns(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Offer columns for sorting, except tags: properties, and keys of the newest jobs; after a
    comma, the next one."""
    from logshipper_observe.model.properties import PROPERTIES

    before, comma, _rest = prefix.rpartition(",")
    try:
        job_keys = {} if is_from_loki(parsed_args) else _keys_of_newest(parsed_args)
    except Exception:
        job_keys = {}  # as above
    words = [f"{before}{comma}{name}" for name in (*sorted(PROPERTIES), *job_keys)]
    return [word for word in words if word.startswith(prefix)]


def keys(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Keys of the job that is named on the command line; after a comma, the next one."""
    try:
        return [] if is_from_loki(parsed_args) else _keys(prefix, parsed_args)
    except Exception:
        return []  # likewise


def _jobs(prefix: str, args: argparse.Namespace) -> dict[str, str]:
    from logshipper.safe_text import safe
    from logshipper_observe.query.opening import open_local

    words: dict[str, str] = {}
    with open_local(_with_store(args)) as store:
        if store is None:
            return {}
        store.ingest(deadline_secs=_INGEST_SECS)
        newest = store.jobs()[:_JOBS]
        if newest:
            words["last"] = f"{safe(newest[0].name)} ({newest[0].state})"
        for job in newest:
            words[job.job_id] = f"{safe(job.name)} ({job.state})"
        for job in newest:
            if job.name.isprintable():
                words.setdefault(job.name, f"{job.job_id} ({job.state})")
    return {word: about for word, about in words.items() if word.startswith(prefix)}


def _keys_of_newest(args: argparse.Namespace) -> dict[str, None]:
    from logshipper_observe.model.properties import PROPERTIES
    from logshipper_observe.query.opening import open_local

    with open_local(_with_store(args)) as store:
        if store is None:
            return {}
        names = sorted(
            {key for job in store.jobs()[:_KEYS_OF] if job.records for key in store.key_values(job)}
        )
    return {
        f"metadata.{key}" if key in PROPERTIES else key: None for key in names if key.isprintable()
    }


def _keys(prefix: str, args: argparse.Namespace) -> list[str]:
    from logshipper_observe.query.opening import open_local

    before, comma, _ = prefix.rpartition(",")
    name = (args.job if hasattr(args, "job") else next(iter(args.jobs), "")) or "last"
    with open_local(_with_store(args)) as store:
        if store is None:
            return []
        with store.open(store.resolve(name)) as reader:
            key_stats = reader.keys()
    words = [f"{before}{comma}{key.key}" for key in key_stats]
    return [word for word in words if word.startswith(prefix)]


def _with_store(args: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(store=getattr(args, "store", None))
